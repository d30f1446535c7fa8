"""How the linear VAE of Chapter 8 is trained: on the page, and in the long runs behind it (benchmarks/linear_runs.py).

A pixel that is never white in the training rows has no best bias: it would run to minus infinity. Such pixels keep a
fixed, small chance of being white, half a row in all, and count like the others wherever one is masked or scored; the
weights that are trained, W [U, 2] and b [U], are those of the U pixels in use.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Generator, Tensor
from torch.nn.functional import softplus

from ..checks import check_count
from ..data.images import train_and_held_out
from ..draws import rand, randn, randperm
from ..masks import random_masks
from ..models.linear_vae import LinearVAE, Rule, disc_rule
from ..training import History, fit

THRESHOLD = 0.1307 + 0.5 * 0.3081  # 0.5 after standardising, as in the scripts
SHARE = 0.15  # of the pixels hidden at the fixed rate
OBJECTIVES = ("exact", "uniform", "15%", "elbo")
MASKS, RATE, RADIUS = 20, 1.2, 4.5  # masks per batch; learning rate of the natural gradient; of the disc of nodes
ELBO_RATE = 0.2  # of Adam
LONG: dict[str, Any] = dict(passes=1000, spacing=0.2)  # of the stored runs
SCORING = disc_rule(0.12, 5.0)
SCRIPTS_STEPS, SCRIPTS_RATE = 800, 1e-2


class BinaryImages:
    """The binary rows of a data set, float32: `train` [N, D] and `held_out` [M, D]; of the digits every fourth row.

    N and M are those of `train_and_held_out`. `rows` [N, U] are the training rows without the pixels that are
    never white, `used` [D] says which ones stay, `constant` is what the others add to the log-likelihood of a training
    row, nats per row. `source`, `note` and `side` are those of `load_images`.
    """

    def __init__(self, name: str) -> None:
        *parts, images = train_and_held_out(name)
        self.source, self.note, self.side = images.source, images.note, images.side
        self.train, self.held_out = (part.binary(THRESHOLD).float() for part in parts)
        self.num_tokens, self.used = self.train.shape[1], self.train.any(0)
        self.rows, self.num_never = self.train[:, self.used], int((~self.used).sum())
        self.white = math.log(0.5 / (len(self.train) + 1))  # log-probability that a never white pixel is white
        self.black = math.log1p(-math.exp(self.white))
        self.constant = self.num_never * self.black

    def whole(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """W [D, 2] and b [D] of all pixels, float64, from those of the pixels in use."""
        every = torch.zeros(self.num_tokens, 3, dtype=torch.float64)
        every[:, 2] = self.white - self.black
        every[self.used] = torch.cat([weight, bias[:, None]], 1).detach().double()
        return every[:, :2], every[:, 2]

    def model(self, weight: Tensor, bias: Tensor, rule: Rule = SCORING) -> LinearVAE:
        """The LinearVAE of all pixels, float64."""
        return LinearVAE(*self.whole(weight, bias), rule)


def scripts_rule() -> Rule:
    """The 4 x 4 grid on [-5, 5]^2 of the authors' public research scripts, with their weights, (10/4)^2 per node.

    Four nodes an axis leave three cells, so (10/3)^2 would belong there; and the prior's mass on this grid, which is
    the sum of the weights, is 0.247 in place of one. Not a distribution, hence not a model to train.
    """
    axis = torch.linspace(-5, 5, 4, dtype=torch.float64)
    nodes = torch.cartesian_prod(axis, axis)
    return Rule(nodes, 2 * math.log(10 / 4) - math.log(2 * math.pi) - 0.5 * nodes.square().sum(-1))


@dataclass(eq=False)
class Encoder:
    """q(z | x) = N(V y + c, diag(exp(U y + d))): linear in x through y = (x - centre) / sqrt(D).

    weight [2 K, D]: V over U; bias [2 K]: c over d. Without the root and the centre one step of Adam would move z by as
    much as D steps, and training would crawl for fear of it.
    """

    weight: Tensor
    bias: Tensor
    centre: Tensor

    @classmethod
    def initial(cls, x: Tensor, num_latents: int, *, generator: Generator) -> "Encoder":
        """Small random weights for rows x [N, D]: close to the prior, whatever the row."""
        weight = 0.3 * randn((2 * num_latents, x.shape[1]), x, generator)
        return cls(weight.requires_grad_(), x.new_zeros(2 * num_latents).requires_grad_(), x.mean(0))

    def cpu(self) -> "Encoder":
        """The same encoder without gradients, on the CPU."""
        return Encoder(*(p.detach().cpu() for p in (self.weight, self.bias, self.centre)))

    def elbo(self, weight: Tensor, bias: Tensor, x: Tensor, *, generator: Generator) -> Tensor:
        """E_q[log p(x | z)] - KL(q || p) with one draw of z per row, nats per row [N]; on average at most log p(x)."""
        mean, log_variance = ((x - self.centre) @ self.weight.T / math.sqrt(x.shape[-1]) + self.bias).chunk(2, -1)
        logits = (mean + randn(mean.shape, mean, generator) * (0.5 * log_variance).exp()) @ weight.T + bias
        fit = (x * logits - softplus(logits)).sum(-1)
        return fit - 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


class NaturalGradient(torch.optim.Optimizer):
    """Climbs along F^-1 times the gradient, F the `information` of each pixel: for parameters [weight, bias] alone.

    A step of learning rate 1 is about a step of EM, and it is the same step for a pixel that is seldom white as for
    one that often is, down to an information of `damping`; no pixel's numbers move further than `longest` in a step.
    Made for `fit(..., optimiser=NaturalGradient)`.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, maximize: bool = False, damping: float = 0.01,
                 longest: float = 1.0) -> None:
        weight, bias = parameters
        super().__init__([weight, bias], dict(lr=lr, maximize=maximize, damping=damping, longest=longest))
        self.rule = disc_rule(0.5, 4.0, weight.shape[1])

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
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


def initial_parameters(x: Tensor, num_latents: int, *, generator: Generator) -> tuple[Tensor, Tensor]:
    """Where training starts: small random weights and the bias that gives each pixel its mean: W [D, K], b [D].

    Half a pixel of each value is added to the counts, so that a pixel never seen white keeps a finite bias.
    """
    bias = ((x.sum(0) + 0.5) / (len(x) + 1)).logit()
    weight = 0.1 * randn((x.shape[1], num_latents), bias, generator)
    return weight.requires_grad_(), bias.requires_grad_()


@dataclass(eq=False)
class Run:
    """The end of one training: weight [U, 2], bias [U], the encoder (of the ELBO, else None) and the History."""

    weight: Tensor
    bias: Tensor
    encoder: Encoder | None
    history: History


def sizes_and_weights(num_tokens: int, num_masks: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Mask sizes [P], small ones more often (odds of 1/sqrt(m)), and the weights [P] that make up for it.

    The mean of weight times any function of the size is the mean of that function over sizes 1 to D, all alike. The
    sizes are spread evenly over their distribution, not drawn apart from each other.
    """
    order = torch.arange(num_masks, dtype=torch.float32)
    place = (order + rand(order.shape, order, generator)) / num_masks
    sizes = (num_tokens * place**2).ceil().clamp(1, num_tokens)
    odds = (sizes / num_tokens).sqrt() - ((sizes - 1) / num_tokens).sqrt()
    return sizes.long(), 1 / (num_tokens * odds)


def masked_objective(model: LinearVAE, rows: Tensor, images: BinaryImages, sizes: Tensor, weights: Tensor | float,
                     generator: Generator) -> Tensor:
    """D times the weighted mean of S(x; m) over masks of the given sizes [P], nats per row, a scalar.

    model: of the pixels in use. rows [N, U], N a multiple of P: equal parts share a mask.
    """
    observed = random_masks(images.num_tokens, sizes, generator=generator).to(rows.device)
    used = images.used.to(rows.device)
    sums = model.masked_sums(rows.unflatten(0, (len(sizes), -1)), observed[:, used])
    sums = sums + (~observed[:, ~used]).sum(-1) * images.black
    return images.num_tokens * (sums * torch.as_tensor(weights / sizes.to(sums.dtype)).to(rows.device)).mean()


def train(objective: str, images: BinaryImages, *, seed: int, passes: int = 25, spacing: float = 0.4,
          rate: float = RATE, begin: tuple[Tensor, Tensor] | None = None, stop: int | None = None,
          track: Mapping[str, Callable[[Tensor, Tensor], Any]] | None = None, track_every: int = 5,
          device: torch.device | str = "cpu") -> Run:
    """Train by one of OBJECTIVES, from small random weights or from `begin` (weight, bias): a Run.

    "exact" is the LML; "uniform" and "15%" are D times the masked score, with mask sizes from 1 to D, or with that one;
    "elbo" has a linear encoder. Each pass reads the training rows once. The first three climb along the natural
    gradient with this learning rate, half the rows per step, their integrals by a grid of this spacing that is shifted
    at random at each step; the ELBO climbs by Adam, a twentieth of the rows per step. Learning rates fall to zero along
    a half cosine over `passes`; stop: leave after that many of them. track: {name: function of weight and bias}, called
    every `track_every` passes. device: where to compute; draws come from a generator on the CPU, and what is tracked or
    returned lies there. Raises ValueError: an unknown objective, counts below 1, stop above `passes`.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}")
    check_count(passes, "passes")
    generator, every = Generator().manual_seed(seed), images.rows.to(device)
    weight, bias = initial_parameters(every, 2, generator=generator)
    if begin is not None:
        weight, bias = (p.to(weight, copy=True).requires_grad_() for p in begin)
    parameters, encoder, a_pass = [weight, bias], None, 2
    options: dict[str, Any] = dict(learning_rate=rate, optimiser=NaturalGradient, warm_up=10)
    if objective == "elbo":
        encoder, a_pass = Encoder.initial(every, 2, generator=generator), 20
        parameters, options = [*parameters, encoder.weight, encoder.bias], dict(learning_rate=ELBO_RATE)
    batch = len(every) // a_pass // MASKS * MASKS or MASKS

    def value() -> Tensor:
        rows = every[randperm(len(every), every, generator)[:batch]]
        if encoder is not None:
            return encoder.elbo(weight, bias, rows, generator=generator).mean() + images.constant
        model = LinearVAE(weight, bias, disc_rule(spacing, RADIUS, generator=generator))
        if objective == "exact":
            return model.log_prob(rows).mean() + images.constant
        sizes, weights = torch.full((MASKS,), round(SHARE * images.num_tokens)), torch.ones(MASKS)
        if objective == "uniform":
            sizes, weights = sizes_and_weights(images.num_tokens, MASKS, generator)
        return masked_objective(model, rows, images, sizes, weights, generator)

    def tracked(measure: Callable[[Tensor, Tensor], Any]) -> Callable[[], Any]:
        return lambda: measure(weight.cpu(), bias.cpu())

    history = fit(value, parameters, num_steps=a_pass * (passes if stop is None else stop), decay=a_pass * passes,
                  track_every=a_pass * track_every, name=f"{objective}, seed {seed}",
                  track={key: tracked(measure) for key, measure in (track or {}).items()}, **options)
    return Run(weight.detach().cpu(), bias.detach().cpu(), encoder and encoder.cpu(), history)


def maximise(images: BinaryImages, weight: Tensor, bias: Tensor, *, spacing: float = 0.15,
             num_steps: int = 500) -> tuple[Tensor, Tensor, int]:
    """The exact LML's maximum near these weights, by L-BFGS in float64 on one fine grid: (weight, bias, steps taken).

    Nothing is drawn and nothing is noise: what is left is the grid and the rule by which L-BFGS stops.
    """
    rows, rule = images.rows.double(), disc_rule(spacing, RADIUS)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(flat).view(-1, 3).requires_grad_()
        value = -LinearVAE(theta[:, :2], theta[:, 2], rule).log_prob(rows).mean()
        (slope,) = torch.autograd.grad(value, theta)
        return value.item(), slope.flatten().numpy()

    begin = torch.cat([weight, bias[:, None]], 1).detach().double().flatten().numpy()
    found = minimize(loss, begin, jac=True, method="L-BFGS-B",
                     options=dict(maxiter=num_steps, maxfun=2 * num_steps, maxcor=20, ftol=1e-12, gtol=1e-6))
    theta = torch.from_numpy(found.x).view(-1, 3)
    return theta[:, :2], theta[:, 2], found.nit


def train_as_scripts(objective: str, images: BinaryImages, *, seed: int) -> tuple[Tensor, Tensor, History]:
    """Weights [D, 2] and bias [D] of all pixels, trained as the authors' public scripts do, and the History.

    Standard normal weights, Adam with a learning rate of 0.01, 800 steps over all rows. objective "masked":
    (D / M) log p(x_M), z integrated against the prior on the scripts' 4 x 4 grid, the visible pixels left out; "elbo":
    with our linear encoder. Raises ValueError: another objective.
    """
    if objective not in ("masked", "elbo"):
        raise ValueError(f"objective must be 'masked' or 'elbo', got {objective!r}")
    x, generator = images.train, Generator().manual_seed(seed)
    D, rule, pixels = images.num_tokens, scripts_rule(), x.T.contiguous()  # to take some pixels is to take rows
    weight = randn((D, 2), x, generator).requires_grad_()
    bias = randn((D,), x, generator).requires_grad_()
    encoder, size = Encoder.initial(x, 2, generator=generator), round(SHARE * D)

    def value() -> Tensor:
        if objective == "elbo":
            return encoder.elbo(weight, bias, x, generator=generator).mean()
        hidden = randperm(D, x, generator)[:size]
        return D / size * LinearVAE(weight[hidden], bias[hidden], rule).log_prob(pixels[hidden].T).mean()

    parameters = [weight, bias] + ([encoder.weight, encoder.bias] if objective == "elbo" else [])
    history = fit(value, parameters, num_steps=SCRIPTS_STEPS, learning_rate=SCRIPTS_RATE,
                  name=f"scripts, {objective}, seed {seed}")
    return weight.detach(), bias.detach(), history


def mean_lml(images: BinaryImages, model: LinearVAE) -> np.ndarray:
    """Mean LML of the training and of the held-out rows, nats per row [2], of a model of all pixels."""
    def mean(x: Tensor) -> float:
        return torch.cat([model.log_prob(rows.double()) for rows in x.split(250)]).mean().item()  # stays in the cache

    return np.array([mean(images.train), mean(images.held_out)])


def score_at_15(images: BinaryImages, weight: Tensor, bias: Tensor, *, seed: int) -> float:
    """The 15% objective of these weights on the training rows, nats per row: the same masks for the same seed.

    Every row meets ten masks; a mask is shared by a fortieth of the rows.
    """
    generator = Generator().manual_seed(seed)
    model = LinearVAE(weight.double(), bias.double(), disc_rule(0.15, RADIUS))
    number, values = len(images.rows) // 40 * 40, []
    for _ in range(10):
        rows = images.rows[randperm(len(images.rows), images.rows, generator)[:number]].double()
        sizes = torch.full((40,), round(SHARE * images.num_tokens))
        values.append(masked_objective(model, rows, images, sizes, 1.0, generator))
    return torch.stack(values).mean().item()
