"""Chapter 8: a linear Bernoulli variational autoencoder, how it is trained, and the long runs.

p(x | z) = prod_j Bernoulli(x_j; sigmoid(eta_j)), eta = W z + b, z ~ N(0, I_K). So log p(x | z) = x
. eta - sum_j softplus(eta_j), and x . eta = (W^T x) . z + b . x reads each row once, whatever the
number of nodes z_q. With nodes z_q and weights w_q that sum to one the model is a finite mixture of
products: given the observed tokens R, node q has the share r_q proportional to w_q p(x_R | z_q),
and p(x_j = 1 | x_R) = sum_q r_q sigmoid(eta_qj). These conditionals belong to one joint
distribution, whatever the rule.

A pixel that is never white in the training rows has no best bias: it would run to minus infinity.
Such pixels get a fixed, small probability of being white, as if half a row were, and count like the
others wherever pixels are masked or scored. W [U, 2] and b [U] are trained, the weights of the
other U pixels, those in use.

Three tables, nats per image. linear_vae, some two hours of one core: by each of OBJECTIVES
for 1,000 passes over the training rows, on a finer grid than the page has time for. A line per run:
the objective's mean over the first 20 steps, the log marginal likelihood (LML) of training and
held-out images at the end, the 15% objective there (of the same masks for all runs of one seed),
and the ELBO of the training images, by the run's encoder. "optimum" continues the exact run by
L-BFGS. linear_vae_scripts, half an hour, and linear_vae_start, four minutes: `scripts_runs`. A line
per run: the LML of both parts, and that of the training images as the run's own grid reads it, 4 x 4 for the ELBO.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Generator, Tensor, randperm
from torch.nn.functional import softplus

from mptlml import History, fit, random_masks
from mptlml.checks import check_binary, check_shapes
from mptlml.draws import rand, randn
from mptlml.protocol import all_observed, at_masked

from . import runs
from .data import digest_of
from .data.images import train_and_held_out

THRESHOLD = 0.1307 + 0.5 * 0.3081  # 0.5 after standardising, as in the scripts
CANCELS = 1e-4  # a smaller 1 - p has lost four digits: it is computed as a sum over the other outcome instead
SHARE = 0.15  # of the pixels hidden at the fixed rate
OBJECTIVES = ("exact", "uniform", "15%", "elbo", "elbo, two layers")
ENCODERS = {
    "elbo": ((), 0.2),
    "elbo, two layers": ((100, 100), 0.02),
}  # hidden layers, rate of Adam
MASKS, RADIUS = 20, 4.5  # per batch; of the disc of nodes
RATE, ELBO_RATE = 1.2, 0.2  # of the natural gradient; of Adam
DAMPING = 0.01  # of the natural gradient: the information that a pixel has at least
PASSES = 25  # over the training rows, of the page's runs
LONG: dict[str, Any] = dict(passes=1000, spacing=0.2)  # of the stored runs


class Rule(NamedTuple):
    """A rule for z ~ N(0, I_K): nodes [Q, K] and log_weights [Q], logs of prior density times cell size."""

    nodes: Tensor
    log_weights: Tensor


def disc_rule(
    spacing: float, radius: float = RADIUS, num_latents: int = 2, generator: Generator | None = None
) -> Rule:
    """A uniform grid inside the ball that holds the prior's mass; the weights sum to one.

    It converges faster than any power of `spacing` below the posterior's width. With a `generator`
    the grid is shifted by a random part of a cell, so that a model in training cannot fit the
    nodes.
    """
    half = math.ceil(radius / spacing)
    axis = spacing * torch.arange(-half, half + 1, dtype=torch.float64)
    nodes = torch.cartesian_prod(*[axis] * num_latents).view(-1, num_latents)
    if generator is not None:
        nodes = nodes + spacing * (rand((num_latents,), nodes, generator) - 0.5)
    nodes = nodes[nodes.square().sum(-1) <= radius**2]
    return Rule(nodes, (-0.5 * nodes.square().sum(-1)).log_softmax(0))


def scripts_rule(per_axis: int = 4) -> Rule:
    """The grid on [-5, 5]^2 of the authors' public scripts, with their weights, (10/4)^2 per node for four per axis.

    Four nodes per axis leave three cells, so (10/3)^2 would be right. The sum of the weights, which
    is the prior's mass on this grid, is 0.247 in place of one. So this is not a distribution, and
    not a model to train.
    """
    axis = torch.linspace(-5, 5, per_axis, dtype=torch.float64)
    nodes = torch.cartesian_prod(axis, axis)
    cell = 2 * math.log(10 / per_axis) - math.log(2 * math.pi)
    return Rule(nodes, cell - 0.5 * nodes.square().sum(-1))


SCORING = disc_rule(0.12, 5.0)
# no grid holds back an ELBO: with layers it ends at posteriors as narrow as 0.01
FINE = disc_rule(0.03, 5.0)


class LinearVAE:
    """weight W [D, K], bias b [D], rule for z; tokens are 0.0 or 1.0, else ValueError.

    Parameters may require gradients; results follow their dtype.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rule: Rule) -> None:
        self.weight, self.bias = weight, bias
        self.num_tokens, self.num_latents = weight.shape
        self.rule = Rule(*(part.to(weight) for part in rule))
        self.logits = self.rule.nodes @ weight.T + bias  # eta [Q, D]
        self.log_partition = softplus(self.logits)  # of each token at each node

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...], of x [..., D]; by default of all tokens: the LML."""
        joint = self._log_joint(x, observed)
        # thrice as fast as logsumexp, for want of denormal numbers
        top = joint.detach().amax(-1, keepdim=True)
        return top[..., 0] + (joint - top).clamp(min=-80).exp().sum(-1).log()

    def posterior(self, x: Tensor, observed: Tensor) -> Tensor:
        """p(z_q | x_R): each node's share r_q, [..., Q]."""
        return self._log_joint(x, observed).softmax(-1)

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; see `at_masked`."""
        chance = mixed(self.posterior(x, observed), self.logits, torch.where(observed, 1.0, x))
        # log of 0 has no gradient
        return at_masked(chance.where(~observed, 1.0).log(), x, observed)

    def _log_joint(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """log w_q + log p(x_R | z_q), [..., Q]; what depends on the mask alone is computed once."""
        observed = all_observed(self.num_tokens) if observed is None else observed
        check_shapes(x, observed, self.num_tokens, self.weight)
        check_binary(x, observed)
        seen = torch.where(observed, x, 0.0)
        fit = (seen @ self.weight) @ self.rule.nodes.T + (seen @ self.bias)[..., None]  # x_R . eta
        return self.rule.log_weights + fit - observed.to(seen) @ self.log_partition.T


def mixed(shares: Tensor, logits: Tensor, x: Tensor) -> Tensor:
    """sum_q shares_q p(x_j | eta_qj), [..., J], for x [..., J], shares [..., Q], logits [Q, J]."""
    one = shares @ logits.sigmoid()
    zero = 1 - one
    lost = (zero < CANCELS) & (x == 0)
    if lost.any():
        zero = torch.where(lost, shares @ (-logits).sigmoid(), zero)
    return torch.where(x == 1, one, zero)


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
        self.rows = self.train[:, self.used]
        chance = 0.5 / (len(self.train) + 1)  # of white where none is
        self.black = math.log1p(-chance)
        self.never = math.log(chance) - self.black
        self.constant = int((~self.used).sum()) * self.black
        self.fifteen = round(SHARE * self.num_tokens)

    def whole(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """W [D, 2] and b [D] of all pixels, float64, from those of the pixels in use."""
        weights = torch.zeros(self.num_tokens, 2).double()
        biases = torch.full((self.num_tokens,), self.never).double()
        weights[self.used], biases[self.used] = weight.detach().double(), bias.detach().double()
        return weights, biases

    def model(self, weight: Tensor, bias: Tensor, rule: Rule = SCORING) -> LinearVAE:
        """The LinearVAE of all pixels, float64."""
        return LinearVAE(*self.whole(weight, bias), rule)


# rows x [N, D] -> mean, log-variance [N, 2] of q(z | x)
Encoder = Callable[[Tensor], tuple[Tensor, Tensor]]


def layered(
    weights: list[Tensor], biases: list[Tensor], centre: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """q(z | x) = N(m, diag(exp v)): (m, v) is the last of the layers of x - centre, with ReLU in between.

    Each layer, weight [outputs, inputs] and bias [outputs], divides by the square root of the
    number of its inputs. Without the root and the centre one step of Adam would move z as far as
    that many steps, and training would need a tiny learning rate.
    """
    y = x - centre
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        y = y.relu() if k else y
        y = y @ weight.T / len(weight[0]) ** 0.5 + bias
    return y[:, :2], y[:, 2:]


def initial_layers(
    x: Tensor, hidden: Sequence[int], generator: Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and biases of an encoder of x [N, D] with these hidden layers, close to the prior; with none, linear."""
    weights = [
        (scale * randn((after, before), x, generator)).requires_grad_()
        for scale, (before, after) in zip(
            [2**0.5] * len(hidden) + [0.3],
            pairwise([x.shape[1], *hidden, 4]),
            strict=True,
        )
    ]
    return weights, [torch.zeros(len(weight), requires_grad=True) for weight in weights]


def elbo(encoder: Encoder, weight: Tensor, bias: Tensor, x: Tensor, generator: Generator) -> Tensor:
    """E_q[log p(x | z)] - KL(q || p), one draw of z per row, nats [N]; on average at most log p(x)."""
    mean, log_variance = encoder(x)
    z = mean + randn(mean.shape, mean, generator) * (0.5 * log_variance).exp()
    logits = z @ weight.T + bias
    fit = (x * logits - softplus(logits)).sum(-1)
    return fit - 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


def maximise(
    images: BinaryImages, weight: Tensor, bias: Tensor, spacing: float = 0.15, num_steps: int = 500
) -> tuple[Tensor, Tensor, int]:
    """The exact LML's maximum near these weights, by L-BFGS in float64 on a fine grid: (weight, bias, steps).

    Nothing is drawn at random: the only errors are those of the grid and of the rule by which
    L-BFGS stops.
    """
    rows, rule = images.rows.double(), disc_rule(spacing)
    begin = torch.cat([weight, bias[:, None]], 1).detach().double()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(flat).view_as(begin).requires_grad_()
        value = -LinearVAE(theta[:, :2], theta[:, 2], rule).log_prob(rows).mean()
        [slope] = torch.autograd.grad(value, theta)
        return value.item(), slope.flatten().numpy()

    options = dict(maxiter=num_steps, maxfun=2 * num_steps, maxcor=20, ftol=1e-12, gtol=1e-6)
    found = minimize(loss, begin.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    theta = torch.from_numpy(found.x).view_as(begin)
    return theta[:, :2], theta[:, 2], found.nit


class NaturalGradient(torch.optim.Optimizer):
    """Climbs along F^-1 times the gradient of [weight, bias], with F the `information` of each pixel.

    A step of learning rate 1 is about a step of EM. Pixels that are seldom white take the same step
    as others, down to an information of DAMPING; no pixel's parameters move further than 1 in a
    step. Made for `fit(..., optimiser=NaturalGradient)`, which always maximises.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, maximize: bool) -> None:
        super().__init__(parameters, dict(lr=lr, maximize=maximize))

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One step of the natural gradient for every pixel."""
        [group] = self.param_groups
        weight, bias = group["params"]
        known = information(weight, bias)
        slope = torch.cat([weight.grad, bias.grad[:, None]], -1)
        move = group["lr"] * torch.linalg.solve(known + DAMPING * torch.eye(3).to(known), slope)
        move *= (1 / move.norm(dim=-1, keepdim=True)).clamp(max=1)
        weight += move[:, :-1]
        bias += move[:, -1]


def information(weight: Tensor, bias: Tensor) -> Tensor:
    """Fisher information on (w_j, b_j) of each pixel in one row whose z is known too: [D, 3, 3].

    It is the prior's mean of p_j (1 - p_j) y y^T, y = (z, 1), which EM uses as the curvature of log
    p(x).
    """
    nodes, log_weights = (part.to(weight) for part in disc_rule(0.5, 4.0))
    y = torch.cat([nodes, torch.ones_like(nodes[:, :1])], -1)
    outer = log_weights.exp()[:, None] * (y[:, :, None] * y[:, None, :]).flatten(1)  # [Q, 9]
    chance = (nodes @ weight.T + bias).sigmoid()
    return ((chance * (1 - chance)).T @ outer).view(-1, 3, 3)


def initial_parameters(x: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """The start of training: small random weights [D, 2], and the bias [D] that gives each pixel its mean.

    Half a pixel of each value is added to the counts, so that a pixel never seen white keeps a
    finite bias.
    """
    bias = ((x.sum(0) + 0.5) / (len(x) + 1)).logit()
    weight = 0.1 * randn((x.shape[1], 2), bias, generator)
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

    model: of the pixels in use. rows [P N, U]: the first N have the first mask. weights [P], or 1.
    The numbers are those of the model's `conditional_log_prob`, computed only at the masked pixels:
    at 15% a sixth of the work.
    """
    rows, seen, sums = rows.unflatten(0, (len(observed), -1)), observed[:, images.used], []
    shares = model.posterior(rows, seen[:, None])
    for part, share, hidden in zip(rows, shares, ~seen, strict=True):
        logits = model.rule.nodes @ model.weight[hidden].T + model.bias[hidden]  # [Q, masked]
        sums.append(mixed(share, logits, part[:, hidden]).log().sum(-1).mean())
    scores = torch.stack(sums) + (~observed[:, ~images.used]).sum(-1) * images.black
    return images.num_tokens * (scores * (weights / (~observed).sum(-1))).mean()


def train(
    objective: str,
    images: BinaryImages,
    *,
    seed: int,
    passes: int = PASSES,
    spacing: float = 0.4,
    stop: int | None = None,
) -> Run:
    """Train by one of OBJECTIVES, from small random weights: a Run.

    "exact" is the LML; "uniform" and "15%" are D times the masked score, with mask sizes from 1 to
    D, or with that one; the ELBO has one of ENCODERS. Each pass reads the training rows once. The
    first three climb along the natural gradient with half the rows per step;
    their integrals use a grid of this spacing, shifted at random at each step. The ELBO climbs by
    Adam, with a twentieth of the rows per step. Learning rates fall to zero along a half cosine
    over `passes`; stop: end after this number of passes.
    """
    generator, every, D = Generator().manual_seed(seed), images.rows, images.num_tokens
    weight, bias = initial_parameters(every, generator)
    parameters, a_pass, encoder = [weight, bias], 2, None
    options: dict[str, Any] = dict(learning_rate=RATE, optimiser=NaturalGradient, warm_up=10)
    if objective in ENCODERS:
        hidden, of_encoder = ENCODERS[objective]
        layers = initial_layers(every, hidden, generator)
        encoder = partial(layered, *layers, every.mean(0))  # close to the prior
        a_pass, options = 20, dict(learning_rate=ELBO_RATE)
        options["optimiser"] = lambda each, **given: torch.optim.Adam(
            [dict(params=each[:2]), dict(params=each[2:], lr=of_encoder)], **given
        )
        parameters += sum(layers, [])
    batch = len(every) // a_pass // MASKS * MASKS

    def value() -> Tensor:
        rows = every[randperm(len(every), generator=generator)[:batch]]
        if encoder is not None:
            return elbo(encoder, weight, bias, rows, generator).mean() + images.constant
        model = LinearVAE(weight, bias, disc_rule(spacing, generator=generator))
        if objective == "exact":
            return model.log_prob(rows).mean() + images.constant
        sizes, weights = torch.full((MASKS,), images.fifteen), torch.ones(MASKS)
        if objective == "uniform":
            sizes, weights = sizes_and_weights(D, MASKS, generator)
        observed = random_masks(D, sizes, generator=generator)
        return masked_objective(model, rows, images, observed, weights)

    history = fit(
        value,
        parameters,
        num_steps=a_pass * (stop or passes),
        decay_steps=a_pass * passes,
        name=f"{objective}, seed {seed}",
        **options,
    )
    return Run(weight.detach(), bias.detach(), encoder, history)


def parts(images: BinaryImages, measure: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """The mean over the rows of each part, in float64, of what is measured of them, such as the LML: nats per row."""
    return {
        name: torch.cat([measure(rows.double()) for rows in x.split(250)]).mean().item()
        for name, x in (("train", images.train), ("held_out", images.held_out))
    }


@torch.no_grad()
def bound(images: BinaryImages, run: Run) -> float | str:
    """The ELBO of a run's training rows, nats per row, by 20 draws of z each; "" where it has no encoder."""
    if run.encoder is None:
        return ""
    given = run.encoder, run.weight, run.bias, images.rows, Generator().manual_seed(0)
    return float(np.mean([elbo(*given).mean().item() for _ in range(20)])) + images.constant


def score_at_15(images: BinaryImages, weight: Tensor, bias: Tensor, *, seed: int) -> float:
    """The 15% objective of these weights on the training rows, nats per row, by the masks of a seed.

    Every row gets ten masks; a fortieth of the rows share a mask.
    """
    generator, every = Generator().manual_seed(seed), images.rows
    model = LinearVAE(weight.double(), bias.double(), disc_rule(0.15))
    number, values = len(every) // 40 * 40, []
    sizes = torch.full((40,), images.fifteen)
    for _ in range(10):
        rows = every[randperm(len(every), generator=generator)[:number]].double()
        observed = random_masks(images.num_tokens, sizes, generator=generator)
        values.append(masked_objective(model, rows, images, observed))
    return torch.stack(values).mean().item()


Lines = Iterator[dict[str, Any]]


def long_runs(data: str, seed: int) -> Lines:
    """The lines of all runs of one seed on one data set."""
    pictures = BinaryImages(data)
    ends: dict[str, tuple] = {}
    for scheme in OBJECTIVES:
        run = train(scheme, pictures, seed=seed, **LONG)
        begun = np.mean(run.history.objective[:20])
        ends[scheme] = (LONG["passes"], begun, bound(pictures, run), *run[:2])
    *optimum, steps = maximise(pictures, *ends["exact"][3:])
    ends["optimum"] = (steps, "", "", *optimum)
    for scheme, (passes, begun, seen, weight, bias) in ends.items():
        known = dict(data=data, scheme=scheme, seed=seed, passes=passes, begun=begun)
        model = pictures.model(weight, bias, FINE if "layers" in scheme else SCORING)
        lml = parts(pictures, model.log_prob)
        yield known | lml | dict(at_15=score_at_15(pictures, weight, bias, seed=seed), elbo=seen)


def scripts_runs(data: str, grid: str, objective: str, seed: int) -> Lines:
    """The line of one run in the way of the authors' public scripts, or on a better grid.

    objective: "exact", the LML; "joint", theirs, (D / M) log p(x_M) for one random 15% of the
    pixels at each step; "conditional", D / M times the sum of log p(x_j | x_R) over these; "elbo",
    as coded there: a linear encoder of x - b, with standard normal weights at first and the same
    variances for all images, and one draw of z. On the grids "4 × 4" and "20 × 20", nodes on [-5,
    5]^2 with the scripts' weights, the start is standard normal and Adam makes 800 steps at 0.01,
    each over all rows; the ELBO uses no grid. With ", small start" behind its name such a grid has
    this module's start. On "shifted" the start is this module's, too, the grid has
    a spacing of 0.4, shifted at each step, and Adam makes 1,200 steps at a falling rate.
    """
    pictures, generator, fine = BinaryImages(data), Generator().manual_seed(seed), grid == "shifted"
    x, D = pictures.train, pictures.num_tokens
    rule = None if fine else scripts_rule(int(grid.split()[0]))
    draw = lambda *shape: randn(shape, x, generator).requires_grad_()  # noqa: E731
    small = fine or "start" in grid
    weight, bias = initial_parameters(x, generator) if small else (draw(D, 2), draw(D))
    encoders = [draw(2, D), draw(2)] if objective == "elbo" else []
    falling: dict[str, Any] = dict(num_steps=1200, learning_rate=0.05, decay_steps=1200)
    steps = falling if fine else dict(num_steps=800)

    def value() -> Tensor:
        if objective == "elbo":
            q = (x - bias) @ encoders[0].T, encoders[1]
            return elbo(lambda _: q, weight, bias, x, generator).mean()
        model = LinearVAE(weight, bias, rule or disc_rule(0.4, generator=generator))
        hidden = torch.ones(D, dtype=torch.bool)
        if objective != "exact":
            hidden[randperm(D, generator=generator)[int(SHARE * D) :]] = False
        sums = (
            model.conditional_log_prob(x, ~hidden).sum(-1)
            if objective == "conditional"
            else model.log_prob(x, hidden)
        )
        return D / hidden.sum() * sums.mean()

    fit(
        value, [weight, bias, *encoders], name=f"scripts, {objective}, {grid}, seed {seed}", **steps
    )
    known: dict[str, Any] = dict(data=data, grid=grid, objective=objective, seed=seed)
    if rule is None:  # there pixels that are never white stay as they were
        model = pictures.model(weight[pictures.used], bias[pictures.used])
        yield known | parts(pictures, model.log_prob) | dict(read="")
    else:
        whole = weight.detach().double(), bias.detach().double()
        read = LinearVAE(*whole, rule).log_prob(x.double()).mean()
        known |= parts(pictures, LinearVAE(*whole, SCORING).log_prob)
        yield known | dict(read=read.item())


def scripts_units() -> Iterator[tuple]:
    """Five of the scripts' seeds for what they do, two for the rest; Fashion-MNIST on the scripts' grid alone."""
    for data, grid, objectives, count in (
        ("mnist", "4 × 4", ("joint", "elbo"), 5),
        ("mnist", "4 × 4", ("exact", "conditional"), 2),
        ("mnist", "20 × 20", ("exact", "joint", "conditional"), 2),
        ("mnist", "shifted", ("exact", "joint", "conditional"), 2),
        ("fashion-mnist", "4 × 4", ("joint",), 5),
        ("fashion-mnist", "4 × 4", ("conditional",), 2),
    ):
        yield from product([data], [grid], objectives, (4, 44, 444, 4444, 44444)[:count])


DATA, SEEDS = ("mnist", "fashion-mnist", "digits"), range(5)
START = ["mnist"], ("4 × 4, small start", "20 × 20, small start"), ("exact", "joint"), (4, 44)
TABLES = {
    name: runs.Table(run, units, partial(map, BinaryImages, data))
    for name, run, units, data in (
        ("linear_vae", long_runs, partial(product, DATA, SEEDS), DATA),
        ("linear_vae_scripts", scripts_runs, scripts_units, DATA[:2]),
        ("linear_vae_start", scripts_runs, partial(product, *START), ["mnist"]),
    )
}

if __name__ == "__main__":
    runs.main(TABLES)
