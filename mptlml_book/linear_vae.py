"""Training of the linear VAE of Chapter 8, on the page and in the stored long runs (benchmarks/linear_vae.py).

A pixel that is never white in the training rows has no best bias: it would run to minus infinity.
Such pixels get a fixed, small probability of being white, as if half a row were, and count like the
others wherever pixels are masked or scored. W [U, 2] and b [U] are trained, the weights of the
other U pixels, those in use.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Generator, Tensor
from torch.nn.functional import softplus

from mptlml.checks import check_choice
from mptlml.draws import rand, randn, randperm
from mptlml.masks import random_masks
from mptlml.training import History, fit

from .data import digest_of
from .data.images import train_and_held_out
from .linear_vae_model import LinearVAE, mixed
from .quadrature import Rule, disc_rule, hermite_rule

THRESHOLD = 0.1307 + 0.5 * 0.3081  # 0.5 after standardising, as in the scripts
SHARE = 0.15  # of the pixels hidden at the fixed rate
OBJECTIVES = ("exact", "uniform", "15%", "elbo")
# masks per batch; rate of the natural gradient; of the disc of nodes
MASKS, RATE, RADIUS = (20, 1.2, 4.5)
ELBO_RATE = 0.2  # of Adam
PASSES = 25  # over the training rows, of the page's runs
LONG: dict[str, Any] = dict(passes=1000, spacing=0.2)  # of the stored runs
SCORING = disc_rule(0.12, 5.0)
SCRIPTS, GRIDS = ("exact", "joint", "conditional", "elbo"), ("4 × 4", "20 × 20", "shifted")
SCRIPTS_STEPS, SCRIPTS_RATE = 800, 1e-2


class BinaryImages:
    """The binary rows of a data set, float32: `train` [N, D] and `held_out` [M, D].

    N and M are those of `train_and_held_out`. `rows` [N, U] are the training rows without the
    pixels that are never white, `used` [D] marks the pixels that stay, and `constant` is the
    log-likelihood of the others, nats per training row. `source`, `note`, `side`: those of
    `load_images`; `size`, `digest`: of both parts.
    """

    def __init__(self, name: str) -> None:
        images, held_out = train_and_held_out(name)
        self.source, self.note, self.side = images.source, images.note, images.side
        self.size = f"{images.size}, {len(held_out.pixels):,} more held out"
        self.digest = digest_of(images.digest.encode(), held_out.digest.encode())
        self.train, self.held_out = (part.binary(THRESHOLD).float() for part in (images, held_out))
        self.num_tokens, self.used = self.train.shape[1], self.train.any(0)
        self.rows, self.num_never = self.train[:, self.used], int((~self.used).sum())
        self.white = math.log(0.5 / (len(self.train) + 1))  # log-probability of white where none is
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


def scripts_rule(per_axis: int = 4) -> Rule:
    """The grid on [-5, 5]^2 of the authors' public scripts, with their weights, (10/4)^2 per node for four per axis.

    Four nodes per axis leave three cells, so (10/3)^2 would be right. The sum of the weights, which
    is the prior's mass on this grid, is 0.247 in place of one. So this is not a distribution, and
    not a model to train.
    """
    axis = torch.linspace(-5, 5, per_axis, dtype=torch.float64)
    nodes = torch.cartesian_prod(axis, axis)
    return Rule(
        nodes, 2 * math.log(10 / per_axis) - math.log(2 * math.pi) - 0.5 * nodes.square().sum(-1)
    )


@dataclass(eq=False)
class Encoder:
    """q(z | x) = N(V y + c, diag(exp(U y + d))): linear in x through y = (x - centre) / sqrt(D).

    weight [2 K, D]: V over U; bias [2 K]: c over d. Without the root and the centre one step of
    Adam would move z as far as D steps, and training would need a tiny learning rate.
    """

    weight: Tensor
    bias: Tensor
    centre: Tensor

    @classmethod
    def initial(cls, x: Tensor, num_latents: int, *, generator: Generator) -> "Encoder":
        """Small random weights for rows x [N, D]: q is close to the prior for every row."""
        weight = 0.3 * randn((2 * num_latents, x.shape[1]), x, generator)
        return cls(
            weight.requires_grad_(), x.new_zeros(2 * num_latents).requires_grad_(), x.mean(0)
        )

    def elbo(self, weight: Tensor, bias: Tensor, x: Tensor, *, generator: Generator) -> Tensor:
        """E_q[log p(x | z)] - KL(q || p), one draw of z per row, nats [N]; on average at most log p(x)."""
        mean, log_variance = (
            (x - self.centre) @ self.weight.T / math.sqrt(x.shape[-1]) + self.bias
        ).chunk(2, -1)
        logits = (
            mean + randn(mean.shape, mean, generator) * (0.5 * log_variance).exp()
        ) @ weight.T + bias
        fit = (x * logits - softplus(logits)).sum(-1)
        return fit - 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def best_diagonal_elbo(model: LinearVAE, x: Tensor) -> Tensor:
    """The ELBO of the best q(z | x) = N(m, diag(s^2)) of each row by itself: nats [N], for float64 x [N, D].

    Given such a q, each token's logit is normal, so E_q[softplus] is a Gauss-Hermite sum over one
    dimension. The height is concave in m and s; L-BFGS starts at the posterior's mode.
    """
    mode, root = model.mode(x, torch.ones_like(x, dtype=torch.bool))
    precision = torch.cholesky_inverse(root).diagonal(dim1=-2, dim2=-1)
    starts = torch.stack([mode, -0.5 * precision.log()], 1)
    found = []
    for rows, start in zip(x.split(100), starts.split(100), strict=True):
        bound = partial(_diagonal_elbo, model, rows)
        found.append(bound(_highest(bound, start, 20)[0]))
    return torch.cat(found)


def _diagonal_elbo(model: LinearVAE, x: Tensor, q: Tensor) -> Tensor:
    """The ELBO, nats [N], of q [N, 2, K]: means and logarithms of deviations."""
    points, log_weights = hermite_rule(15, 1)
    mean, log_deviation = q.unbind(1)
    logits = mean @ model.weight.T + model.bias
    deviation = ((2 * log_deviation).exp() @ model.weight.T.square() + 1e-30).sqrt()
    normaliser = (
        softplus(logits[..., None] + deviation[..., None] * points[:, 0]) @ log_weights.exp()
    )
    divergence = 0.5 * (mean.square() + (2 * log_deviation).exp() - 1 - 2 * log_deviation).sum(-1)
    return (x * logits - normaliser).sum(-1) - divergence


def turn_for_diagonal(images: BinaryImages, weight: Tensor, bias: Tensor) -> Tensor:
    """W R [U, 2]: of 36 rotations R that with the highest `best_diagonal_elbo` of every tenth row.

    The prior is round, so every R gives the same model; but independence depends on the axes.
    """
    turned = [
        weight.double()
        @ torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]).double()
        for a in np.radians(np.arange(0, 90, 2.5))
    ]
    x = images.train[::10].double()
    return max(turned, key=lambda w: best_diagonal_elbo(images.model(w, bias), x).mean().item())


def information(model: LinearVAE) -> Tensor:
    """Fisher information on (w_j, b_j) of each pixel in one row whose z is known too: [D, K + 1, K + 1].

    It is the prior's mean of p_j (1 - p_j) y y^T, y = (z, 1), which EM uses as the curvature of log
    p(x).
    """
    nodes, weights = model.rule.nodes, model.rule.log_weights.exp()
    y = torch.cat([nodes, torch.ones_like(nodes[:, :1])], -1)
    outer = weights[:, None] * (y[:, :, None] * y[:, None, :]).flatten(1)  # [Q, (K + 1)^2]
    chance = model.logits.sigmoid()
    return ((chance * (1 - chance)).T @ outer).unflatten(-1, (y.shape[1], y.shape[1]))


class NaturalGradient(torch.optim.Optimizer):
    """Climbs along F^-1 times the gradient of [weight, bias], with F the `information` of each pixel.

    A step of learning rate 1 is about a step of EM. Pixels that are seldom white take the same step
    as others, down to an information of `damping`; no pixel's parameters move further than 1 in a
    step. Made for `fit(..., optimiser=NaturalGradient)`, which always maximises.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, maximize: bool, damping: float = 0.01
    ) -> None:
        super().__init__(parameters, dict(lr=lr, maximize=maximize, damping=damping))

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One step of the natural gradient for every pixel."""
        [group] = self.param_groups
        weight, bias = group["params"]
        known = information(LinearVAE(weight, bias, disc_rule(0.5, 4.0)))
        slope = torch.cat([weight.grad, bias.grad[:, None]], -1)
        move = group["lr"] * torch.linalg.solve(
            known + group["damping"] * torch.eye(3).to(known), slope
        )
        move *= (1 / move.norm(dim=-1, keepdim=True)).clamp(max=1)
        weight += move[:, :-1]
        bias += move[:, -1]


def initial_parameters(
    x: Tensor, num_latents: int, *, generator: Generator
) -> tuple[Tensor, Tensor]:
    """The start of training: small random weights [D, K], and the bias [D] that gives each pixel its mean.

    Half a pixel of each value is added to the counts, so that a pixel never seen white keeps a
    finite bias.
    """
    bias = ((x.sum(0) + 0.5) / (len(x) + 1)).logit()
    weight = 0.1 * randn((x.shape[1], num_latents), bias, generator)
    return weight.requires_grad_(), bias.requires_grad_()


class Run(NamedTuple):
    """The end of one training: weight [U, 2], bias [U], the ELBO's encoder, else None, and the History."""

    weight: Tensor
    bias: Tensor
    encoder: Encoder | None
    history: History


def sizes_and_weights(
    num_tokens: int, num_masks: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Mask sizes [P], small ones more often (about as 1/sqrt(m)), and the weights [P] that correct for it.

    The mean of weight times any function of the size is the plain mean of that function over the
    sizes 1 to D. The sizes are stratified over their distribution, not drawn independently.
    """
    order = torch.arange(num_masks, dtype=torch.float32)
    place = (order + rand(order.shape, order, generator)) / num_masks
    sizes = (num_tokens * place**2).ceil().clamp(1, num_tokens)
    odds = (sizes / num_tokens).sqrt() - ((sizes - 1) / num_tokens).sqrt()
    return sizes.long(), 1 / (num_tokens * odds)


def masked_objective(
    model: LinearVAE,
    rows: Tensor,
    images: BinaryImages,
    observed: Tensor,
    weights: Tensor | float = 1.0,
) -> Tensor:
    """D times the weighted mean of S(x; m) over the masks [P, D], nats per row, a scalar.

    model: of the pixels in use. rows [P, N, U]: mask p is that of rows[p]. weights [P], or 1. The
    numbers are those of the model's `conditional_log_prob`, computed only at the masked pixels: at
    15% a sixth of the work.
    """
    used, sizes = images.used.to(rows.device), (~observed).sum(-1).cpu()
    in_use, found = observed[:, used], []
    for part, share, hidden in zip(
        rows, model.posterior(rows, in_use[:, None]), ~in_use, strict=True
    ):
        logits = model.rule.nodes @ model.weight[hidden].T + model.bias[hidden]  # [Q, masked]
        found.append(mixed(share, logits, part[:, hidden]).log().sum(-1).mean())
    sums = torch.stack(found) + (~observed[:, ~used]).sum(-1) * images.black
    return (
        images.num_tokens
        * (sums * torch.as_tensor(weights / sizes.to(sums.dtype)).to(rows.device)).mean()
    )


def train(
    objective: str,
    images: BinaryImages,
    *,
    seed: int,
    passes: int = 25,
    spacing: float = 0.4,
    rate: float = RATE,
    begin: tuple[Tensor, Tensor] | None = None,
    stop: int | None = None,
    track: Mapping[str, Callable[[Tensor, Tensor], Any]] | None = None,
    track_every: int = 5,
    device: torch.device | str = "cpu",
) -> Run:
    """Train by one of OBJECTIVES, from small random weights or from `begin` (weight, bias): a Run.

    "exact" is the LML; "uniform" and "15%" are D times the masked score, with mask sizes from 1 to
    D, or with that one; "elbo" has a linear encoder. Each pass reads the training rows once. The
    first three climb along the natural gradient with this learning rate and half the rows per step;
    their integrals use a grid of this spacing, shifted at random at each step. The ELBO climbs by
    Adam, with a twentieth of the rows per step. Learning rates fall to zero along a half cosine
    over `passes`; stop: end after this number of passes. track: {name: function of weight and
    bias}, called every `track_every` passes. device: where to compute; draws come from a generator
    on the CPU, and all results lie there too.
    """
    check_choice(objective, OBJECTIVES, "objective")
    generator, every = Generator().manual_seed(seed), images.rows.to(device)
    weight, bias = initial_parameters(every, 2, generator=generator)
    if begin is not None:
        weight, bias = (p.to(weight, copy=True).requires_grad_() for p in begin)
    parameters, encoder, a_pass = [weight, bias], None, 2
    options: dict[str, Any] = dict(learning_rate=rate, optimiser=NaturalGradient, warm_up=10)
    if objective == "elbo":
        encoder, a_pass = Encoder.initial(every, 2, generator=generator), 20
        parameters, options = (
            [*parameters, encoder.weight, encoder.bias],
            dict(learning_rate=ELBO_RATE),
        )
    batch = len(every) // a_pass // MASKS * MASKS or MASKS

    def value() -> Tensor:
        rows = every[randperm(len(every), every, generator)[:batch]]
        if encoder is not None:
            return encoder.elbo(weight, bias, rows, generator=generator).mean() + images.constant
        model = LinearVAE(weight, bias, disc_rule(spacing, RADIUS, generator=generator))
        return _objective(objective, model, rows, images, generator)

    num_steps = a_pass * (passes if stop is None else stop)
    history = fit(
        value,
        parameters,
        num_steps=num_steps,
        decay_steps=a_pass * passes,
        track_every=a_pass * track_every,
        name=f"{objective}, seed {seed}",
        track={
            key: partial(_measured, measure, weight, bias) for key, measure in (track or {}).items()
        },
        **options,
    )
    encoder = encoder and Encoder(
        *(p.detach().cpu() for p in (encoder.weight, encoder.bias, encoder.centre))
    )
    return Run(weight.detach().cpu(), bias.detach().cpu(), encoder, history)


def _objective(
    objective: str, model: LinearVAE, rows: Tensor, images: BinaryImages, generator: Generator
) -> Tensor:
    """One of the first three OBJECTIVES, nats per row, for rows [n, U] and a model of the pixels in use."""
    if objective == "exact":
        return model.log_prob(rows).mean() + images.constant
    sizes, weights = torch.full((MASKS,), round(SHARE * images.num_tokens)), torch.ones(MASKS)
    if objective == "uniform":
        sizes, weights = sizes_and_weights(images.num_tokens, MASKS, generator)
    observed = random_masks(images.num_tokens, sizes, generator=generator).to(rows.device)
    return masked_objective(model, rows.unflatten(0, (MASKS, -1)), images, observed, weights)


def _measured(measure: Callable[[Tensor, Tensor], Any], weight: Tensor, bias: Tensor) -> Any:
    return measure(weight.cpu(), bias.cpu())


def short_run(
    objective: str, images: BinaryImages, *, seed: int, device: torch.device | str = "cpu"
) -> Run:
    """`train` for PASSES; every five its history tracks "lml", nats per row, on a quick grid."""

    def lml(weight: Tensor, bias: Tensor) -> Tensor:
        return (
            LinearVAE(weight, bias, disc_rule(0.25, RADIUS)).log_prob(images.rows).mean()
            + images.constant
        )

    return train(objective, images, seed=seed, passes=PASSES, track={"lml": lml}, device=device)


def maximise(
    images: BinaryImages,
    weight: Tensor,
    bias: Tensor,
    *,
    spacing: float = 0.15,
    num_steps: int = 500,
) -> tuple[Tensor, Tensor, int]:
    """The exact LML's maximum near these weights, by L-BFGS in float64 on a fine grid: (weight, bias, steps).

    Nothing is drawn at random: the only errors are those of the grid and of the rule by which
    L-BFGS stops.
    """
    rows, rule = images.rows.double(), disc_rule(spacing, RADIUS)

    def lml(theta: Tensor) -> Tensor:
        return LinearVAE(theta[:, :2], theta[:, 2], rule).log_prob(rows).mean()

    theta, steps = _highest(lml, torch.cat([weight, bias[:, None]], 1).detach().double(), num_steps)
    return theta[:, :2], theta[:, 2], steps


def _highest(
    height: Callable[[Tensor], Tensor], start: Tensor, num_steps: int
) -> tuple[Tensor, int]:
    """The maximum of a sum of heights, by L-BFGS from the start: where it is, and the steps taken."""

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.from_numpy(flat).view_as(start).requires_grad_()
        value = height(x).sum()
        [slope] = torch.autograd.grad(value, x)
        return -value.item(), -slope.flatten().numpy()

    found = minimize(
        loss,
        start.flatten().numpy(),
        jac=True,
        method="L-BFGS-B",
        options=dict(maxiter=num_steps, maxfun=2 * num_steps, maxcor=20, ftol=1e-12, gtol=1e-6),
    )
    return torch.from_numpy(found.x).view_as(start), found.nit


def train_as_scripts(
    objective: str, images: BinaryImages, *, seed: int, grid: str = "4 × 4"
) -> tuple[Tensor, Tensor]:
    """Weights [D, 2] and bias [D] of all pixels, trained as the authors' public scripts do, or on a better grid.

    objective, one of SCRIPTS: "exact", the LML; "joint", theirs, (D / M) log p(x_M) for one random
    15% of the pixels at each step; "conditional", D / M times the sum of log p(x_j | x_R) over
    these; "elbo", as coded there: a linear encoder of x - b, with standard normal weights at first
    and the same variances for all images, and one draw of z. grid, one of GRIDS. On "4 × 4" and "20
    × 20", nodes on [-5, 5]^2 with the scripts' weights, the start is standard normal and Adam makes
    800 steps at 0.01, each over all rows; the ELBO uses no grid. On "shifted" the start is this
    module's, the grid has a spacing of 0.4, shifted at each step, and Adam makes 1,200 steps at a
    falling rate.
    """
    check_choice(objective, SCRIPTS, "objective")
    check_choice(grid, GRIDS, "grid")
    x, generator, fine = images.train, Generator().manual_seed(seed), grid == "shifted"
    D, pixels = images.num_tokens, x.T.contiguous()  # a choice of pixels is one of rows
    size, rule = int(SHARE * D), None if fine else scripts_rule(int(grid.split()[0]))
    if fine:
        weight, bias = initial_parameters(x, 2, generator=generator)
    else:
        weight, bias = (randn(shape, x, generator).requires_grad_() for shape in ((D, 2), (D,)))
    parameters = [weight, bias]
    if objective == "elbo":
        parameters += [randn(shape, x, generator).requires_grad_() for shape in ((2, D), (2,))]

    def value() -> Tensor:
        if objective == "elbo":
            _, _, encode, log_variance = parameters
            mean = (x - bias) @ encode.T
            logits = (
                mean + randn(mean.shape, x, generator) * (0.5 * log_variance).exp()
            ) @ weight.T + bias
            divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)
            return ((x * logits - softplus(logits)).sum(-1) - divergence).mean()
        model = LinearVAE(weight, bias, rule or disc_rule(0.4, RADIUS, generator=generator))
        if objective == "exact":
            return model.log_prob(x).mean()
        order = randperm(D, x, generator)
        hidden, visible = order[:size], order[size:]
        part = LinearVAE(weight[hidden], bias[hidden], model.rule)
        if objective == "joint":
            return D / size * part.log_prob(pixels[hidden].T).mean()
        seen = LinearVAE(weight[visible], bias[visible], model.rule)
        share = seen.posterior(pixels[visible].T, torch.ones(D - size, dtype=torch.bool))
        return D / size * mixed(share, part.logits, pixels[hidden].T).log().sum(-1).mean()

    steps, rate = (1200, 0.05) if fine else (SCRIPTS_STEPS, SCRIPTS_RATE)
    fit(
        value,
        parameters,
        num_steps=steps,
        learning_rate=rate,
        decay_steps=steps if fine else None,
        name=f"scripts, {objective}, {grid}, seed {seed}",
    )
    return weight.detach(), bias.detach()


def mean_lml(images: BinaryImages, model: LinearVAE) -> np.ndarray:
    """Mean LML of the training and of the held-out rows, nats per row [2], of a model of all pixels."""
    return np.array(
        [
            torch.cat([model.log_prob(rows.double()) for rows in x.split(250)])
            .mean()
            .item()  # in the cache
            for x in (images.train, images.held_out)
        ]
    )


def score_at_15(images: BinaryImages, weight: Tensor, bias: Tensor, *, seed: int) -> float:
    """The 15% objective of these weights on the training rows, nats per row, by the masks of a seed.

    Every row gets ten masks; a fortieth of the rows share a mask.
    """
    generator = Generator().manual_seed(seed)
    model = LinearVAE(weight.double(), bias.double(), disc_rule(0.15, RADIUS))
    number, values = len(images.rows) // 40 * 40, []
    sizes = torch.full((40,), round(SHARE * images.num_tokens))
    for _ in range(10):
        rows = images.rows[randperm(len(images.rows), images.rows, generator)[:number]].double()
        observed = random_masks(images.num_tokens, sizes, generator=generator)
        values.append(masked_objective(model, rows.unflatten(0, (40, -1)), images, observed))
    return torch.stack(values).mean().item()
