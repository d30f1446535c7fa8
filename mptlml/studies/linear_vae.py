"""How the linear VAE of Chapter 8 is trained: on the page, and in the long runs behind it (benchmarks/linear_runs.py).

A pixel that is never white in the training rows has no best bias: it would run to minus infinity. Such pixels keep a
fixed, small chance of being white, half a row in all, and count like the others wherever one is masked or scored; the
weights that are trained, W [U, 2] and b [U], are those of the U pixels in use.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch.nn.functional import softplus

from ..checks import check_count
from ..data.images import train_and_held_out
from ..masks import random_masks
from ..models.linear_vae import LinearVAE, Rule, disc_rule
from ..training import History, fit

THRESHOLD = 0.1307 + 0.5 * 0.3081  # 0.5 after standardising, as in the scripts
SHARE = 0.15  # of the pixels hidden at the fixed rate
OBJECTIVES = ("exact", "uniform", "15%", "elbo")
MASKS, RATE, RADIUS = 20, 1.2, 4.5  # masks a batch; learning rate of the natural gradient; of the disc of nodes
ELBO_RATE = 0.2  # of Adam
LONG = dict(passes=1000, spacing=0.2)  # of the stored runs
SCORING = disc_rule(0.12, 5.0)
SCRIPTS_STEPS, SCRIPTS_RATE = 800, 1e-2


class BinaryImages:
    """The binary rows of a data set, float32: `train` [N, D] and `held_out` [M, D]; of the digits every fourth row.

    N and M are those of `train_and_held_out`. `rows` [N, U] are the training rows without the pixels that are
    never white, `used` [D] says which ones stay, `constant` is what the others add to the log-likelihood of a training
    row, nats. `source`, `note` and `side` are those of `load_images`.
    """

    def __init__(self, name):
        *parts, images = train_and_held_out(name)
        self.source, self.note, self.side = images.source, images.note, images.side
        self.train, self.held_out = (part.binary(THRESHOLD).float() for part in parts)
        self.num_tokens, self.used = self.train.shape[1], self.train.any(0)
        self.rows, self.num_never = self.train[:, self.used], int((~self.used).sum())
        self.white = math.log(0.5 / (len(self.train) + 1))  # log-probability that a never white pixel is white
        self.black = math.log1p(-math.exp(self.white))
        self.constant = self.num_never * self.black

    def whole(self, weight, bias):
        """W [D, 2] and b [D] of all pixels, float64, from those of the pixels in use."""
        every = torch.zeros(self.num_tokens, 3, dtype=torch.float64)
        every[:, 2] = self.white - self.black
        every[self.used] = torch.cat([weight, bias[:, None]], 1).detach().double()
        return every[:, :2], every[:, 2]

    def model(self, weight, bias, rule=SCORING):
        """The LinearVAE of all pixels, float64."""
        return LinearVAE(*self.whole(weight, bias), rule)


def scripts_rule():
    """The 4 x 4 grid on [-5, 5]^2 of the authors' public research scripts, with their weights, (10/4)^2 a node.

    Four nodes an axis leave three cells, so (10/3)^2 would belong there; and the prior's mass on this grid, which is
    the sum of the weights, is 0.247 in place of one. Not a distribution, hence not a model to train.
    """
    axis = torch.linspace(-5, 5, 4, dtype=torch.float64)
    nodes = torch.cartesian_prod(axis, axis)
    return Rule(nodes, 2 * math.log(10 / 4) - math.log(2 * math.pi) - 0.5 * nodes.square().sum(-1))


@dataclass
class Encoder:
    """q(z | x) = N(V y + c, diag(exp(U y + d))): linear in x through y = (x - centre) / sqrt(D).

    weight [2 K, D]: V over U; bias [2 K]: c over d. Without the root and the centre one step of Adam would move z by as
    much as D steps, and training would crawl for fear of it.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    centre: torch.Tensor

    @classmethod
    def initial(cls, x, num_latents, *, generator):
        """Small random weights for rows x [N, D]: close to the prior, whatever the row."""
        weight = 0.3 * torch.randn(2 * num_latents, x.shape[1], generator=generator, dtype=x.dtype)
        return cls(weight.to(x.device).requires_grad_(), x.new_zeros(2 * num_latents).requires_grad_(), x.mean(0))

    def cpu(self):
        """The same encoder without gradients, on the CPU."""
        return Encoder(*(p.detach().cpu() for p in (self.weight, self.bias, self.centre)))

    def moments(self, x):
        """Mean and log variance of q(z | x): two tensors [N, K]."""
        return ((x - self.centre) @ self.weight.T / math.sqrt(x.shape[-1]) + self.bias).chunk(2, -1)

    def elbo(self, weight, bias, x, *, generator):
        """E_q[log p(x | z)] - KL(q || p) with one draw of z a row, nats a row [N]; on average at most log p(x)."""
        mean, log_variance = self.moments(x)
        draw = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=generator.device).to(mean.device)
        logits = (mean + draw * (0.5 * log_variance).exp()) @ weight.T + bias
        fit = (x * logits - softplus(logits)).sum(-1)
        return fit - 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


class NaturalGradient(torch.optim.Optimizer):
    """Climbs along F^-1 times the gradient, F the `information` of each pixel: for parameters [weight, bias] alone.

    A step of learning rate 1 is about a step of EM, and it is the same step for a pixel that is seldom white as for
    one that often is, down to an information of `damping`; no pixel's numbers move further than `longest` in a step.
    Made for `fit(..., optimiser=NaturalGradient)`. Raises ValueError: other parameters.
    """

    def __init__(self, parameters, lr, maximize=False, damping=0.01, longest=1.0):
        parameters = list(parameters)
        shapes = [tuple(p.shape) for p in parameters]
        if [len(shape) for shape in shapes] != [2, 1]:
            raise ValueError(f"parameters must be weight [D, K] and bias [D], got {shapes}")
        super().__init__(parameters, dict(lr=lr, maximize=maximize, damping=damping, longest=longest))
        self.rule = disc_rule(0.5, 4.0, shapes[0][1])

    @torch.no_grad()
    def step(self):
        """One such step for every pixel."""
        for group in self.param_groups:
            weight, bias = group["params"]
            information = LinearVAE(weight, bias, self.rule).information()
            eye = torch.eye(information.shape[-1], dtype=weight.dtype, device=weight.device)
            slope = torch.cat([weight.grad, bias.grad[:, None]], -1)
            move = torch.linalg.solve(information + group["damping"] * eye, slope)
            move *= group["lr"] if group["maximize"] else -group["lr"]
            move *= (group["longest"] / move.norm(dim=-1, keepdim=True)).clamp(max=1)
            weight += move[:, :-1]
            bias += move[:, -1]


def initial_parameters(x, num_latents, *, generator, scale=0.1, dtype=torch.float32):
    """Where training starts: small random weights and the bias that gives each pixel its mean: W [D, K], b [D].

    Half a pixel of each value is added to the counts, so that a pixel never seen white keeps a finite bias. Raises
    ValueError: tokens other than 0 and 1.
    """
    if not ((x == 0) | (x == 1)).all():
        raise ValueError(f"tokens must be 0 or 1, got values from {x.min():.3g} to {x.max():.3g}")
    weight = scale * torch.randn(x.shape[1], num_latents, generator=generator, dtype=dtype).to(x.device)
    bias = ((x.sum(0) + 0.5) / (len(x) + 1)).logit().to(dtype)
    return weight.requires_grad_(), bias.requires_grad_()


@dataclass
class Run:
    """The end of one training: weight [U, 2], bias [U], the encoder (of the ELBO, else None) and the History."""

    weight: torch.Tensor
    bias: torch.Tensor
    encoder: Encoder | None
    history: History


def sizes_and_weights(num_tokens, num_masks, generator):
    """Mask sizes [P], small ones more often (odds of 1/sqrt(m)), and the weights [P] that make up for it.

    The mean of weight times any function of the size is the mean of that function over sizes 1 to D, all alike. The
    sizes are spread evenly over their distribution, not drawn apart from each other.
    """
    place = (torch.arange(num_masks) + torch.rand(num_masks, generator=generator)) / num_masks
    sizes = (num_tokens * place**2).ceil().clamp(1, num_tokens)
    odds = (sizes / num_tokens).sqrt() - ((sizes - 1) / num_tokens).sqrt()
    return sizes.long(), 1 / (num_tokens * odds)


def masked_objective(model, rows, pictures, sizes, weights, generator):
    """D times the weighted mean of S(x; m) over masks of the given sizes [P], nats a row, a scalar.

    model: of the pixels in use. rows [N, U]: equal parts share a mask. Raises ValueError: N is no multiple of P.
    """
    if len(rows) % len(sizes):
        raise ValueError(f"{len(rows)} rows do not divide into equal parts for {len(sizes)} masks")
    observed = random_masks(pictures.num_tokens, sizes, generator=generator)
    sums = model.masked_sums(rows.unflatten(0, (len(sizes), -1)), observed[:, pictures.used].to(rows.device))
    sums = sums + ((~observed[:, ~pictures.used]).sum(-1) * pictures.black).to(rows.device)
    return pictures.num_tokens * (sums * (weights / sizes.to(sums.dtype)).to(rows.device)).mean()


def train(objective, pictures, *, seed, passes=25, spacing=0.4, rate=RATE, begin=None, stop=None, track=None,
          track_every=5, device="cpu"):
    """Train by one of OBJECTIVES, from small random weights or from `begin` (weight, bias): a Run.

    "exact" is the LML; "uniform" and "15%" are D times the masked score, with mask sizes from 1 to D, or with that one;
    "elbo" has a linear encoder. Each pass reads the training rows once. The first three climb along the natural
    gradient with this learning rate, half the rows a step, their integrals by a grid of this spacing that is shifted at
    random at each step; the ELBO climbs by Adam, a twentieth of the rows a step. Learning rates fall to zero along a
    half cosine. stop: leave after so many passes of them. track: {name: function of weight and bias}, called every
    `track_every` passes. device: where to compute; draws come from a generator on the CPU, and what is tracked or
    returned lies there. Raises ValueError: an unknown objective, counts below 1.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}")
    check_count(passes, "passes")
    generator, every = torch.Generator().manual_seed(seed), pictures.rows.to(device)
    weight, bias = initial_parameters(every, 2, generator=generator)
    if begin is not None:
        weight, bias = (p.to(weight, copy=True).requires_grad_() for p in begin)
    parameters, encoder, a_pass = [weight, bias], None, 2
    options = dict(learning_rate=rate, optimiser=NaturalGradient, warm_up=10)
    if objective == "elbo":
        encoder, a_pass = Encoder.initial(every, 2, generator=generator), 20
        parameters, options = [*parameters, encoder.weight, encoder.bias], dict(learning_rate=ELBO_RATE)
    batch = len(every) // a_pass // MASKS * MASKS or MASKS

    def value():
        rows = every[torch.randperm(len(every), generator=generator)[:batch]]
        if objective == "elbo":
            return encoder.elbo(weight, bias, rows, generator=generator).mean() + pictures.constant
        model = LinearVAE(weight, bias, disc_rule(spacing, RADIUS, generator=generator))
        if objective == "exact":
            return model.log_prob(rows).mean() + pictures.constant
        sizes, weights = torch.full((MASKS,), round(SHARE * pictures.num_tokens)), 1.0
        if objective == "uniform":
            sizes, weights = sizes_and_weights(pictures.num_tokens, MASKS, generator)
        return masked_objective(model, rows, pictures, sizes, weights, generator)

    history = fit(value, parameters, num_steps=a_pass * (stop or passes), decay=a_pass * passes,
                  track_every=a_pass * track_every, name=f"{objective}, seed {seed}",
                  track={key: lambda measure=measure: measure(weight.cpu(), bias.cpu())
                         for key, measure in (track or {}).items()}, **options)
    return Run(weight.detach().cpu(), bias.detach().cpu(), encoder and encoder.cpu(), history)


def maximise(pictures, weight, bias, *, spacing=0.15, num_steps=500):
    """The exact LML's maximum near these weights, by L-BFGS in float64 on one fine grid: (weight, bias, steps taken).

    Nothing is drawn and nothing is noise: what is left is the grid and the rule by which L-BFGS stops.
    """
    rows, rule = pictures.rows.double(), disc_rule(spacing, RADIUS)

    def loss(flat):
        theta = torch.from_numpy(flat).view(-1, 3).requires_grad_()
        value = -LinearVAE(theta[:, :2], theta[:, 2], rule).log_prob(rows).mean()
        value.backward()
        return value.item(), theta.grad.flatten().numpy()

    begin = torch.cat([weight, bias[:, None]], 1).detach().double().flatten().numpy()
    found = minimize(loss, begin, jac=True, method="L-BFGS-B",
                     options=dict(maxiter=num_steps, maxfun=2 * num_steps, maxcor=20, ftol=1e-12, gtol=1e-6))
    theta = torch.from_numpy(found.x).view(-1, 3)
    return theta[:, :2], theta[:, 2], found.nit


def train_as_scripts(objective, pictures, *, seed, stop=None):
    """Weights [D, 2] and bias [D] of all pixels, trained as the authors' public scripts do, and the History.

    Standard normal weights, Adam with a learning rate of 0.01, 800 steps over all rows. objective "masked":
    (D / M) log p(x_M), z integrated against the prior on the scripts' 4 x 4 grid, the visible pixels left out; "elbo":
    with our linear encoder. stop: leave after so many steps. Raises ValueError: another objective.
    """
    if objective not in ("masked", "elbo"):
        raise ValueError(f"objective must be 'masked' or 'elbo', got {objective!r}")
    x, generator = pictures.train, torch.Generator().manual_seed(seed)
    D, rule, pixels = pictures.num_tokens, scripts_rule(), x.T.contiguous()  # to take some pixels is to take rows
    weight = torch.randn(D, 2, generator=generator).requires_grad_()
    bias = torch.randn(D, generator=generator).requires_grad_()
    encoder, size = Encoder.initial(x, 2, generator=generator), round(SHARE * D)

    def value():
        if objective == "elbo":
            return encoder.elbo(weight, bias, x, generator=generator).mean()
        hidden = torch.randperm(D, generator=generator)[:size]
        return D / size * LinearVAE(weight[hidden], bias[hidden], rule).log_prob(pixels[hidden].T).mean()

    parameters = [weight, bias] + ([encoder.weight, encoder.bias] if objective == "elbo" else [])
    history = fit(value, parameters, num_steps=stop or SCRIPTS_STEPS, learning_rate=SCRIPTS_RATE,
                  name=f"scripts, {objective}, seed {seed}")
    return weight.detach(), bias.detach(), history


def mean_lml(pictures, model):
    """Mean LML of the training and of the held-out rows, nats a row [2], of a model of all pixels."""
    def mean(x):
        return torch.cat([model.log_prob(rows.double()) for rows in x.split(250)]).mean().item()  # stays in the cache

    return np.array([mean(pictures.train), mean(pictures.held_out)])


def score_at_15(pictures, weight, bias, *, seed, repeats=10):
    """The 15% objective of these weights on the training rows, nats a row: the same masks for the same seed.

    Every row meets `repeats` masks; a mask is shared by a fortieth of the rows.
    """
    generator = torch.Generator().manual_seed(seed)
    model = LinearVAE(weight.double(), bias.double(), disc_rule(0.15, RADIUS))
    number, values = len(pictures.rows) // 40 * 40, []
    for _ in range(repeats):
        rows = pictures.rows[torch.randperm(len(pictures.rows), generator=generator)[:number]].double()
        sizes = torch.full((40,), round(SHARE * pictures.num_tokens))
        values.append(masked_objective(model, rows, pictures, sizes, 1.0, generator))
    return torch.stack(values).mean().item()
