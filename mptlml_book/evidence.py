"""Observations in place of words: a row is a data set, and the area under a network's curve is log evidence.

A data set is N yes-or-no observations drawn from a Bayesian model, whose parameters are drawn anew
for each data set. A network that learns to predict hidden observations from visible ones learns the
model's posterior predictive probabilities, and by the chain rule its area is the log evidence of
the model.

Two families have exact answers. Coins: after r flips, k of them heads, the next is a head with
probability (a + k) / (a + b + r). Logistic regression of degree d on N fixed points: the prior is
replaced by 2^13 points that fill it evenly, and their mixture is a model of the library, with which
the integral by other means agrees to 0.02 nats (tests/test_evidence.py).

The long runs, in nats per data set unless a name says otherwise:

    coins       two priors, uniform sizes and a fixed 15%, two lengths, five seeds
    regression  polynomials of degree 0 to 4, and one of unknown width; for degree 2 also a fixed 15%, four
                times the steps, and twice the width
    choosing    which of five degrees each score picks, over 500 data sets
    places      the same choices by networks that know places, two hidden layers each
    sets        the first seed's areas of each of these data sets, and how far its orders differ
    widths      which width of the prior the area picks for groups of data sets
    nested      nested sampling of the same evidence (python -m pip install dynesty)
"""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.polynomial.legendre import legvander
from scipy.special import comb, expit
from scipy.stats import binom, hypergeom, norm, qmc
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from mptlml import objectives
from mptlml.curve import RowEstimates
from mptlml.draws import multinomial, seeded
from mptlml.masks import all_masks, nested_masks, random_orders
from mptlml.models import BernoulliMixture
from mptlml.protocol import ConditionalModel, at_masked, token_log_probs
from mptlml.score import chain_rule, estimate_area
from mptlml.training import fit

from . import runs as results
from .transformer import MaskedTransformer, _linear

NUM_OBSERVATIONS = N = 24
DEGREES = range(5)
WIDTH = 2.0  # standard deviation of each coefficient of a Legendre polynomial, a priori
NUM_STEPS, BATCH = 1000, 64


# Models -----------------------------------------------------------------------------------------------------


class Simulator(Protocol):
    """What a network learns from: rows of yes-or-no observations, each row with parameters of its own."""

    num_tokens: int

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Data sets [n, N]."""


@dataclass
class Coins:
    """Flips of one coin whose probability of heads is drawn from Beta(heads, tails) (numbers above 0)."""

    heads: float
    tails: float
    num_tokens = N

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [n, N] of 0.0 and 1.0, by Polya's urn: each flip makes its like more probable."""
        x = torch.zeros(num_rows, N, dtype=torch.float64)
        for drawn in range(N):
            chance = (self.heads + x.sum(-1)) / (self.heads + self.tails + drawn)
            x[:, drawn] = torch.bernoulli(chance, generator=generator)
        return x


def design(degree: int) -> np.ndarray:
    """Legendre polynomials of degree 0..d at points spread evenly over [-1, 1]: [N, d + 1]."""
    return legvander(np.linspace(-1, 1, N), degree)


@cache
def regression(degree: int, width: float | None = WIDTH, log2_nodes: int = 13) -> BernoulliMixture:
    """Logistic regression with a polynomial of this degree, coefficients N(0, width^2), as a mixture.

    Its components are the points of a Sobol sequence, which fill the prior evenly. width=None: the
    width has a prior of its own, log-normal around WIDTH with a standard deviation of log 2.
    """
    own_width = width is None
    uniform = qmc.Sobol(degree + 1 + own_width, seed=0).random_base2(log2_nodes)
    normal = norm.ppf(uniform)  # [nodes, d + 1 (+ 1)]
    widths = WIDTH * 2 ** normal[:, -1:] if own_width else width
    probs = expit(widths * normal[:, : degree + 1] @ design(degree).T)  # [nodes, N]
    weights = torch.full((len(probs),), 1 / len(probs), dtype=torch.float64)
    return BernoulliMixture(weights, torch.from_numpy(probs))


def unlike(num_rows: int, *, generator: Generator) -> dict[str, Tensor]:
    """Data sets [n, N] that a parabola with this prior would hardly give, by name."""
    place = torch.arange(N)
    noise = torch.rand(num_rows, N, generator=generator) < 0.05
    blocks = (place * 5 // N).remainder(2).bool()
    first = torch.randint(4, 20, (num_rows, 1), generator=generator)
    steep, steeper = (
        regression(degree, 4 * WIDTH).sample(num_rows, generator=generator) for degree in (2, 4)
    )
    return {
        "a parabola four times as steep": steep,
        "degree 4, four times as steep": steeper,
        "five blocks, 5% noise": blocks ^ noise,
        "a clean step": place >= first,
    }


# Simulators -------------------------------------------------------------------------------------------------

TOKENS, PEOPLE, HALF = 16, 20, 8


@cache
def every_row() -> Tensor:
    """All rows of zeros and ones [2^16, 16], int64: row k holds the binary digits of k, the last one first."""
    return (torch.arange(2**TOKENS)[:, None] >> torch.arange(TOKENS)) & 1


@dataclass
class Enumerated:
    """A simulator of 16 yes-or-no tokens, so small that the probabilities of all its rows can be listed.

    log_probs: nats [2^16], in the order of `every_row`; summary: of each row, the number that an
    expert would keep [2^16].
    """

    log_probs: Tensor
    summary: Tensor
    num_tokens = TOKENS

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [n, 16], each with parameters of its own."""
        return every_row()[multinomial(self.log_probs.exp(), num_rows, generator)]

    def log_prob(self, x: Tensor) -> Tensor:
        """Log evidence of rows [n, 16], nats [n]."""
        return self.log_probs[numbered(x)]

    def leave_one_out(self, x: Tensor) -> Tensor:
        """sum_j log p(x_j | all others) of rows [n, 16], nats [n]."""
        row = numbered(x)[:, None]
        both = torch.stack([row.expand(-1, TOKENS), row ^ 2 ** torch.arange(TOKENS)])
        return (self.log_probs[row] - self.log_probs[both].logsumexp(0)).sum(-1)


def numbered(x: Tensor) -> Tensor:
    """Where rows [n, 16] stand in `every_row`, int64 [n]."""
    return (x.long() << torch.arange(TOKENS)).sum(-1)


@cache
def spins() -> dict[str, Enumerated]:
    """Sixteen spins s on 4 x 4 sites: p(s | J) = exp(J E(s)) / Z(J), with one of 64 couplings J in (0, 1), all alike.

    E adds up the products of spins: of neighbours (Ising), of neighbours in a row, or of all pairs,
    divided by 8 (Curie-Weiss). Antiferromagnets are Ising's model with J below 0. An expert keeps E.
    """
    site, pair = torch.arange(TOKENS), 2.0 * every_row() - 1
    down, along = (abs(part - part[:, None]) for part in (site // 4, site % 4))
    near, row, every = down + along == 1, (down == 0) & (along == 1), 1 - torch.eye(TOKENS)
    coupling = (torch.arange(64)[:, None].double() + 0.5) / 64
    bonds = {"ising": near, "curie-weiss": every / 8, "rows": row, "antiferromagnet": -1.0 * near}
    models = {}
    for name, bond in bonds.items():
        energy = ((pair @ bond.float()) * pair).sum(-1).double() / 2
        log_probs = (coupling * energy).log_softmax(-1).logsumexp(0) - np.log(len(coupling))
        models[name] = Enumerated(log_probs, energy)
    return models


@cache
def epidemics() -> dict[str, Enumerated]:
    """Whether any case is reported, on each of 16 days, among 20 people of whom two have the disease at first.

    SIR: who recovers is immune; SIS: is not. On a day each healthy person falls ill with
    probability 1 - exp(-rate I / 20), where I are ill, and each ill one recovers with another; each
    new case is reported with a third. The three take six values each, all alike. In "imports" cases
    come at random, equally often on each day. An expert keeps the number of days with cases and
    the last of them.
    """
    days = every_row()
    yes, last = days.sum(-1).double(), (days * torch.arange(1, 17)).amax(-1).double()
    imports = torch.from_numpy(-np.log(17 * comb(TOKENS, yes)))
    return {
        "sir": Enumerated(epidemic(immune=True), yes),
        "sis": Enumerated(epidemic(immune=False), last),
        "imports": Enumerated(imports, yes),
    }


def epidemic(*, immune: bool) -> Tensor:
    """log p of all rows [2^16] by the forward algorithm over healthy and ill, whose first eight days meet the last."""
    healthy, ill = np.array(
        [(s, i) for s in range(PEOPLE + 1) for i in range(PEOPLE + 1 - s)]
    ).T  # [states]
    number = np.zeros((PEOPLE + 1, PEOPLE + 1), int)
    number[healthy, ill] = np.arange(len(ill))
    count = np.arange(PEOPLE + 1)
    fall, heal = count[:, None], count
    possible = (fall <= healthy[:, None, None]) & (heal <= ill[:, None, None])
    after = (
        healthy[:, None, None] - fall + (0 if immune else heal),
        ill[:, None, None] + fall - heal,
    )
    to = number[tuple(np.where(possible, part, 0) for part in after)]
    edge = (np.arange(len(ill))[:, None, None] * len(ill) + to).ravel()

    def step(weight: np.ndarray) -> np.ndarray:
        """From states to states [states, states], of weights [states, fall, heal]."""
        return np.bincount(edge, weight.ravel(), len(ill) ** 2).reshape(len(ill), -1)

    chances, sixths = 0.0, (np.arange(6) + 0.5) / 6
    for rate, recovery in product(0.2 + sixths, 0.1 + 0.4 * sixths):
        falls = binom.pmf(count, healthy[:, None], -np.expm1(-rate * ill[:, None] / PEOPLE))
        heals = binom.pmf(count, ill[:, None], recovery)
        weight = falls[:, :, None] * heals[:, None] * possible
        day = step(weight)
        for report in 0.2 + 0.6 * sixths:
            none = step(weight * (1 - report) ** fall)
            kinds = none, day - none
            first, rest = np.eye(len(ill))[None, number[PEOPLE - 2, 2]], np.ones((len(ill), 1))
            for _ in range(HALF):
                first = np.concatenate([first @ kind for kind in kinds])  # [days so far, states]
                rest = np.stack([kind @ rest for kind in kinds], -1).reshape(len(ill), -1)
            chances = chances + (first @ rest).T.ravel() / 6**3
    return torch.from_numpy(np.log(chances))


FAMILIES = {"spins": spins, "epidemics": epidemics}
NEITHER = {"spins": "antiferromagnet", "epidemics": "imports"}
PAIRS = {"spins": (("ising", "curie-weiss"), ("ising", "rows")), "epidemics": (("sir", "sis"),)}


# Scores -----------------------------------------------------------------------------------------------------


def leave_one_out(model: ConditionalModel, x: Tensor) -> Tensor:
    """sum_j log p(x_j | all others) of rows [n, N], nats per row: N times the left end of the curve."""
    masks = all_masks(x.shape[1], 1)
    return torch.cat(
        [token_log_probs(model, rows[:, None], masks).sum((-2, -1)) for rows in x.split(50)]
    )


def along_orders(net: ConditionalModel, x: Tensor, seed: int) -> RowEstimates:
    """Areas of rows [n, N] along eight orders of each row's own, the same for all networks."""
    return estimate_area(net, x, 8 * N, by_orders=True, generator=seeded(seed, 5))


def along_own_order(net: ConditionalModel, x: Tensor, seed: int, num_orders: int = 4) -> Tensor:
    """Areas of rows [n, D], nats [n], along random orders of each row's own; D num_orders passes."""
    generator = seeded(seed, 5)
    areas = []
    for _ in range(num_orders):
        orders = random_orders(net.num_tokens, len(x), generator=generator)  # [n, t]
        answers = token_log_probs(net, x[:, None], nested_masks(orders))
        areas.append(answers.gather(-1, orders[..., None]).sum((1, 2)).double())
    return torch.stack(areas).mean(0)


def likeliest(degree: int, x: Tensor, precision: float) -> tuple[np.ndarray, ...]:
    """The coefficients [n, d + 1] that rows [n, N] prefer, by Newton's method; log-likelihood [n]; curvature there.

    precision: of a normal prior around 0.
    """
    basis, signs = design(degree), np.where(x > 0, 1, -1)
    mode = np.zeros((len(x), degree + 1))
    for _ in range(50):
        chance = expit(mode @ basis.T)  # [n, N]
        prior = precision * np.eye(degree + 1)
        curvature = (chance * (1 - chance))[:, None] * basis.T @ basis + prior
        slope = (signs * expit(-signs * (mode @ basis.T))) @ basis - precision * mode
        mode += np.linalg.solve(curvature, slope[..., None])[..., 0]
    return mode, -np.logaddexp(0, -signs * (mode @ basis.T)).sum(-1), curvature


def laplace(degree: int, x: Tensor) -> Tensor:
    """Log evidence of rows [n, N] by a normal distribution around the posterior's mode, nats [n]."""
    mode, fit, curvature = likeliest(degree, x, WIDTH**-2)
    volume = (degree + 1) * np.log(WIDTH) + np.linalg.slogdet(curvature)[1] / 2
    return torch.from_numpy(fit - (mode**2).sum(-1) / (2 * WIDTH**2) - volume)


def information_criterion(degree: int, x: Tensor) -> Tensor:
    """-BIC/2 of each row [n, N], nats: the highest log-likelihood minus (d + 1)/2 log N.

    Where a polynomial separates the answers the highest is a limit, which a penalty of 10^-4 per
    squared coefficient keeps finite.
    """
    return torch.from_numpy(likeliest(degree, x, 2e-4)[1] - (degree + 1) / 2 * np.log(N))


# Networks ---------------------------------------------------------------------------------------------------


def perceptron(num_in: int, num_out: int, width: int, generator: Generator) -> nn.Sequential:
    """Two hidden layers of this width."""
    sizes = [(num_in, width), (width, width), (width, num_out)]
    layers = [part for size in sizes for part in (nn.GELU(), _linear(*size, generator))]
    return nn.Sequential(*layers[1:])


class Perceptron(nn.Module):
    """Two hidden layers that read all visible answers by their places; the transformer knows distances alone."""

    def __init__(self, num_tokens: int, *, width: int = 256, generator: Generator) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.layers = perceptron(2 * num_tokens, num_tokens, width, generator)

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per observation [..., N]; exactly 0 at observed ones."""
        x, observed = torch.broadcast_tensors(x, observed)
        sign = 2.0 * x - 1
        seen = torch.cat([torch.where(observed, sign, 0.0), observed.float()], -1)
        return at_masked(logsigmoid(sign * self.layers(seen)), x, observed)


transformer = partial(MaskedTransformer, vocab_size=2)


def train(
    model: Simulator,
    make: Callable[..., Any] = transformer,
    *,
    seed: int,
    num_steps: int = NUM_STEPS,
    size: int | None = None,
    batch: int = BATCH,
    rate: float = 1e-2,
    **shape: Any,
) -> Any:
    """A network that learns to predict hidden observations of data sets drawn from the model, each seen once.

    make: a Perceptron, by default a MaskedTransformer of this `shape`; with distance="none" it reads
    observations without an order. size: hide always so many observations; by default any number,
    uniformly.
    """
    generator = Generator().manual_seed(seed)
    net = make(model.num_tokens, generator=generator, **shape)

    def objective() -> Tensor:
        rows = model.sample(batch, generator=generator).long()
        if size is None:
            return objectives.stratified_size(net, rows, generator=generator)
        return objectives.fixed_size(net, rows, size, share_masks=False, generator=generator)

    return _fitted(net, objective, num_steps, rate)


def _fitted(net: Any, objective: Callable[[], Tensor], num_steps: int, rate: float) -> Any:
    fit(
        objective,
        net.parameters(),
        num_steps=num_steps,
        learning_rate=rate,
        decay_steps=num_steps,
        warm_up=50,
    )
    return net


# Coins: a network that reads a set depends on two counts alone ----------------------------------------------


@torch.no_grad()
def by_count(net: MaskedTransformer) -> np.ndarray:
    """p(heads | r visible flips, k of them heads) of a network that reads a set: [r, k], NaN for k > r.

    The answer depends on nothing else, so these 300 numbers say all curves and areas of the network
    exactly.
    """
    place = torch.arange(net.num_tokens)
    rows = (place < place[:, None]).long()  # [k, N]: the first k flips are heads
    rows[:, -1] = 1
    answer = net.conditional_log_prob(rows, place < place[:, None, None])[..., -1]  # [r, k]
    return answer.double().exp().where(place <= place[:, None], torch.nan).numpy()


def coins_by_count(model: Coins) -> np.ndarray:
    """The same table for the exact model: (a + k) / (a + b + r)."""
    r, k = np.ogrid[:N, :N]
    return np.where(k <= r, (model.heads + k) / (model.heads + model.tails + r), np.nan)


def curve_of_count(chance: np.ndarray, heads: int) -> np.ndarray:
    """The curve [N] of a data set with so many heads, exactly, from a table of `by_count`.

    Of r visible flips, k are heads with the hypergeometric probability; a hidden flip is then a
    head with probability (heads - k) / (N - r).
    """
    size = len(chance)
    r, k = np.ogrid[:size, :size]
    weight = hypergeom(size, heads, r).pmf(k)
    share = (heads - k) / (size - r)
    chance = np.where(weight > 0, chance, 0.5)  # elsewhere a table may hold anything
    score = share * np.log(chance) + (1 - share) * np.log1p(-chance)
    return (weight * score).sum(1)[::-1]


# The long runs ----------------------------------------------------------------------------------------------

SEEDS = range(11, 16)
NUM_SETS, GROUP, NUM_GROUPS, NUM_NESTED = 500, 20, 30, 20
PRIORS = {"Beta(1, 1)": (1.0, 1.0), "Beta(20, 20)": (20.0, 20.0)}
VARIANTS: dict[str, dict[str, Any]] = {
    "uniform sizes": {},
    "fixed 15%": dict(size=4),  # of 24 observations
    "four times the steps": dict(num_steps=4 * NUM_STEPS),
    "twice the width": dict(width=96, rate=5e-3),
    "places known": dict(make=Perceptron, batch=4 * BATCH, rate=2e-3),
}
UNKNOWN = "4, width unknown"


def of_degree(model: Any, seed: int, variant: str = "uniform sizes") -> tuple[Any, Any]:
    """A regression and its network."""
    truth = regression(4, None) if model == UNKNOWN else regression(int(model))
    name = f"evidence regression {model} {variant} {seed}"
    return truth, results.kept(name, lambda: train(truth, seed=seed, **VARIANTS[variant]))


def coins(prior: str, scheme: str, num_steps: int, seed: int) -> Iterator[dict]:
    """The errors of a network over all data sets there are, one for each number of heads."""
    truth, heads = Coins(*PRIORS[prior]), range(N + 1)
    options = dict(seed=seed, num_steps=num_steps, distance="none", **VARIANTS[scheme])
    name = f"evidence coins {prior} {scheme} {num_steps} {seed}"
    net = results.kept(name, lambda: train(truth, **options))
    areas, exact = (
        np.array([curve_of_count(table, count).sum() for count in heads])
        for table in (by_count(net), coins_by_count(truth))
    )
    weight, error = comb(N, heads) * np.exp(exact), areas - exact
    mean = weight @ error
    yield dict(
        prior=prior,
        scheme=scheme,
        num_steps=num_steps,
        seed=seed,
        error=mean,
        spread=np.sqrt(weight @ (error - mean) ** 2),
        areas=areas.tolist(),
    )


@torch.no_grad()
def errors(model: str, variant: str, seed: int) -> Iterator[dict]:
    """A line for each reading of a network: its error and what that varies by over data sets."""
    truth, net = of_degree(model, seed, variant)
    x = truth.sample(NUM_SETS, generator=seeded(seed, 4)).long()

    def line(reading: str, error: Tensor, data: str = "its own", orders: Any = "") -> dict:
        return dict(
            model=model,
            variant=variant,
            seed=seed,
            reading=reading,
            data=data,
            error=error.mean().item(),
            rms=rms(error),
            orders=orders,
        )

    def by_area(rows: Tensor, data: str) -> dict:
        area = along_orders(net, rows, seed)
        spread = area.stderr.double().mean().item() * 8**0.5
        return line("area", area.mean - truth.log_prob(rows), data, spread)

    yield by_area(x, "its own")
    yield line("leave one out", leave_one_out(net, x) - leave_one_out(truth, x))
    if model != "2":
        return
    exact, generator = truth.log_prob(x), seeded(seed, 6)
    masks = estimate_area(net, x, N, generator=generator).mean
    orders = random_orders(N, len(x), generator=generator)  # [n, t]
    one = token_log_probs(net, x[:, None], nested_masks(orders)).gather(-1, orders[..., None])
    ahead = torch.arange(N)[None].flip(-1)
    yield line("left to right", chain_rule(net, x, ahead).sum(-1)[0] - exact)
    yield line("one order", one.sum((1, 2)) - exact)
    yield line("a mask per size", masks - exact)
    for data, rows in unlike(200, generator=generator).items():
        yield by_area(rows.long(), data)


def rms(error: Tensor) -> float:
    """The root of the mean square."""
    return error.square().mean().sqrt().item()


def by_degree(score: Callable[[int], Tensor]) -> Tensor:
    """Scores of data sets by each degree [n, degrees], from a score by one [n]."""
    return torch.stack([score(degree).double() for degree in DEGREES], -1)


def data_sets(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """500 data sets [n, N], a hundred from each degree; their degrees [n]; their evidence for each [n, degrees]."""
    each, generator = NUM_SETS // len(DEGREES), seeded(seed, 7)
    rows = [regression(degree).sample(each, generator=generator) for degree in DEGREES]
    x = torch.cat(rows).long()
    exact = by_degree(lambda degree: regression(degree).log_prob(x))
    return x, torch.tensor(DEGREES).repeat_interleave(each), exact


def by_networks(x: Tensor, seed: int, variant: str = "uniform sizes") -> list[Tensor]:
    """Areas of data sets [n, N], left ends of their curves and spread over orders, by degree [n, degrees]."""
    nets = [of_degree(degree, seed, variant)[1] for degree in DEGREES]
    areas = [along_orders(net, x, seed) for net in nets]
    return [
        by_degree(lambda degree: areas[degree].mean),
        by_degree(lambda degree: leave_one_out(nets[degree], x)),
        by_degree(lambda degree: areas[degree].stderr * 8**0.5),
    ]


def picks(score: Tensor, truth: Tensor, exact: Tensor) -> dict:
    """What comes of choosing by scores [n, degrees], where `truth` [n] is true."""
    picked, posterior = score.argmax(-1), score.softmax(-1)
    return dict(
        right=(picked == truth).double().mean().item(),
        as_exact=(picked == exact.argmax(-1)).double().mean().item(),
        log_score=posterior.gather(-1, truth[:, None]).log().mean().item(),
        sure=posterior.amax(-1).mean().item(),
        degree=picked.double().mean().item(),
    )


@torch.no_grad()
def choosing(seed: int) -> Iterator[dict]:
    """A line for each score."""
    x, truth, exact = data_sets(seed)
    area, left, _ = by_networks(x, seed)
    found = {
        "exact evidence": exact,
        "area": area,
        "exact leave one out": by_degree(lambda degree: leave_one_out(regression(degree), x)),
        "left end": left,
        "BIC": by_degree(lambda degree: information_criterion(degree, x)),
    }
    for name, score in found.items():
        yield dict(seed=seed, score=name) | picks(score, truth, exact)


@torch.no_grad()
def places(seed: int) -> Iterator[dict]:
    """The same choices by networks that know places, and their errors on the data sets of each degree itself."""
    x, truth, exact = data_sets(seed)
    area, left, _ = by_networks(x, seed, "places known")
    own = [(area - exact)[truth == degree, degree] for degree in DEGREES]
    about = dict(rms=[rms(error) for error in own])
    for name, score in ("area", area), ("left end", left):
        factors = dict(factors=(score[:, 2] - score[:, 1]).tolist())
        yield dict(seed=seed, score=name) | picks(score, truth, exact) | about | factors


@torch.no_grad()
def sets(seed: int) -> Iterator[dict]:
    """Evidence of each data set, its area, and the standard deviation of its orders, by degree."""
    x, truth, exact = data_sets(seed)
    area, _, spread = by_networks(x, seed)
    for k, row in enumerate(x.tolist()):
        yield dict(
            answers="x" + "".join(map(str, row)),
            degree=truth[k].item(),
            exact=exact[k].tolist(),
            area=area[k].tolist(),
            spread=spread[k].tolist(),
        )


# Simulators: the area beside networks that see both models --------------------------------------------------

NUM_TEST = 1000  # rows of each simulator
STEPS = {
    500: (300, 1000),
    2000: (300, 2000),
    20_000: (300, 6000),
}  # of each network, twice as many of one for both
DECAYS = (0.0, 1.0)
HIDDEN = 128
NEAREST = (30, 100, 300)


class Learned(NamedTuple):
    """A network, its objective on the tenth of the simulations that was held out, and its seconds of training."""

    net: Any
    held_out: float
    seconds: float


@torch.enable_grad()
def stopped(
    net: Any, objective: Any, rows: Tensor, num_steps: int, decay: float, seed: int
) -> Learned:
    """The network where its objective(net, rows, generator) on a tenth of the rows [n, ...] was best."""
    began, generator = time.process_time(), seeded(seed, 12)
    held, train = rows[: len(rows) // 10], rows[len(rows) // 10 :]
    held = held.repeat(-(-2000 // len(held)), 1)
    best: list[Any] = [-np.inf, None]

    def batch() -> Tensor:
        chosen = torch.randint(len(train), [2 * BATCH], generator=generator)
        return objective(net, train[chosen], generator)

    def look() -> None:
        value = objective(net, held, seeded(seed, 13)).item()  # the same masks each time
        if value > best[0]:
            best[:] = value, deepcopy(net.state_dict())

    fit(
        batch,
        net.parameters(),
        num_steps=num_steps,
        learning_rate=4e-3,
        decay_steps=num_steps,
        warm_up=50,
        track={"held out": look},
        track_every=num_steps // 20,
        optimiser=partial(torch.optim.AdamW, weight_decay=decay),
    )
    net.load_state_dict(best[1])
    return Learned(net, best[0], time.process_time() - began)


def masked(rows: Tensor, num_steps: int, decay: float, seed: int) -> Learned:
    """A Perceptron that learns from simulations [n, 16] alone."""
    net = Perceptron(rows.shape[1], width=HIDDEN, generator=seeded(seed, 14))

    def objective(net: Perceptron, rows: Tensor, generator: Generator) -> Tensor:
        return objectives.stratified_size(net, rows, generator=generator)

    return stopped(net, objective, rows, num_steps, decay, seed)


def odds(net: nn.Module, x: Tensor, loss: str) -> Tensor:
    """The log Bayes factor of rows [n, 16] by an evidence network, nats [n] (Jeffrey and Wandelt 2024)."""
    out = net(2.0 * x - 1)[:, 0]
    return out + out * out.abs() if loss == "l-POP" else out


def evidence_network(rows: Tensor, loss: str, num_steps: int, decay: float, seed: int) -> Learned:
    """A network that learns which of two models simulated a row; rows [n, 17] begin with 1 for the first, or 0."""

    def objective(net: nn.Module, rows: Tensor, generator: Generator) -> Tensor:
        margin = (2 * rows[:, 0] - 1) * odds(net, rows[:, 1:], loss)
        return (-(-margin / 2).exp() if loss == "l-POP" else logsigmoid(margin)).mean()

    net = perceptron(rows.shape[1] - 1, 1, HIDDEN, seeded(seed, 14))
    return stopped(net, objective, rows, num_steps, decay, seed)


def abc(first: Tensor, seen: Tensor, x: Tensor, number: int) -> Tensor:
    """The log Bayes factor of data [n, k] by the models of the nearest simulations [r, k], nats [n].

    first: 1 for those of the first model, 0 for the others [r].
    """
    near = torch.cdist(x, seen).topk(number, largest=False).indices
    votes = first[near].double().sum(-1)
    return (votes + 0.5).log() - (number - votes + 0.5).log()


@torch.no_grad()
def simulators(family: str, budget: int, seed: int) -> Iterator[dict]:
    """What each rival makes of `budget` simulations of each model, a line for each pair, rival and setting.

    rms: of the error of the log Bayes factor over 2,000 data sets, half from each model; log_score:
    of the true model's posterior probability. seconds: of training and reading; held_out: the
    objective on simulations that were held out, by which the area's settings were chosen. Then, for
    each model and data of other simulators: power, the share of data below 99% of the model's own.
    """
    models, generator = FAMILIES[family](), seeded(seed, 11)
    drawn = {name: model.sample(budget, generator=generator) for name, model in models.items()}
    x = torch.cat([model.sample(NUM_TEST, generator=generator) for model in models.values()])
    place = {name: k * NUM_TEST + torch.arange(NUM_TEST) for k, name in enumerate(models)}
    known = {name: model for name, model in models.items() if name != NEITHER[family]}
    exact = {name: model.log_prob(x) for name, model in known.items()}
    unit = dict(family=family, budget=budget, seed=seed)
    scores: dict[tuple[str, Any], dict[str, Tensor]] = {("exact", ""): exact}
    scores["exact left end", ""] = {name: model.leave_one_out(x) for name, model in known.items()}
    seconds: dict[tuple[Any, str], float] = {}
    for steps in STEPS[budget]:
        area, left = scores["area", steps], scores["left end", steps] = {}, {}
        for name in known:
            tried = [masked(drawn[name], steps, decay, seed) for decay in DECAYS]
            best = max(tried, key=lambda learned: learned.held_out)
            began = time.process_time()
            area[name] = along_own_order(best.net, x, seed)
            seconds[steps, name] = best.seconds + time.process_time() - began
            left[name] = leave_one_out(best.net, x).double()

    def factor(pair: tuple[str, str], rival: str, setting: Any, value: Tensor, **more: Any) -> dict:
        both = torch.cat([place[name] for name in pair])
        right = torch.where(torch.arange(2 * NUM_TEST) < NUM_TEST, 1, -1) * value[both]
        error = value[both] - (exact[pair[0]] - exact[pair[1]])[both]
        about = dict(about=" against ".join(pair), rival=rival, setting=setting, data="")
        score = logsigmoid(right).mean().item()
        return unit | about | dict(rms=rms(error), log_score=score) | more

    def power(name: str, rival: str, setting: Any, value: Tensor) -> Iterator[dict]:
        edge = value[place[name]].quantile(0.01)
        about = dict(about=name, rival=rival, setting=setting)
        for other in (other for other in models if other != name):
            share = (value[place[other]] < edge).double().mean().item()
            yield unit | about | dict(data=other, power=share)

    for (rival, setting), score in scores.items():
        for pair in PAIRS[family]:
            cost = sum(seconds.get((setting, name), 0.0) for name in pair)
            value = score[pair[0]] - score[pair[1]]
            yield factor(pair, rival, setting, value, seconds=cost)
        for name in known:
            yield from power(name, rival, setting, score[name])
    for pair in PAIRS[family]:
        label = (torch.arange(2 * budget) < budget).long()[:, None]
        rows = torch.cat([label, torch.cat([drawn[name] for name in pair])], 1)
        rows = rows[torch.randperm(len(rows), generator=generator)]
        told = torch.stack([models[name].summary for name in pair], -1)
        told = (told / told.std(0))[numbered(torch.cat([rows[:, 1:], x]))]
        plain = torch.cat([rows[:, 1:], x]).double()
        for (name, kept), number in product({"told": told, "plain": plain}.items(), NEAREST):
            value = abc(rows[:, 0], *kept.split([len(rows), len(x)]), number)
            yield factor(pair, "abc", f"{name} {number}", value)
        best = None
        for loss, steps, decay in product(("cross-entropy", "l-POP"), STEPS[budget], DECAYS):
            learned = evidence_network(rows, loss, 2 * steps, decay, seed)
            value = odds(learned.net, x, loss).double()
            name = f"{loss} {2 * steps} {decay}"
            told_by = dict(seconds=learned.seconds, held_out=learned.held_out)
            yield factor(pair, "evidence network", name, value, **told_by)
            if loss == "cross-entropy" and (best is None or learned.held_out > best[0]):
                best = learned.held_out, value
        for name, value in zip(pair, (best[1], -best[1]), strict=True):
            yield from power(name, "confidence", " against ".join(pair), value.abs())
            yield from power(name, "odds", " against ".join(pair), value)


COINS = [("uniform sizes", 400), ("uniform sizes", 1600), ("fixed 15%", 400)]
MODELS = [(str(model), "uniform sizes") for model in (*DEGREES, UNKNOWN)]
MODELS += [("2", "fixed 15%"), ("2", "four times the steps"), ("2", "twice the width")]
UNITS = [(family, budget) for budget in (500, 2000, 20000) for family in FAMILIES]
TABLES = {
    "evidence_coins": results.Table(
        coins, lambda: [(prior, *net, seed) for seed, prior, net in product(SEEDS, PRIORS, COINS)]
    ),
    "evidence_regression": results.Table(
        errors, lambda: [(*net, seed) for seed, net in product(SEEDS, MODELS)]
    ),
    "evidence_choosing": results.Table(choosing, lambda: product(SEEDS)),
    "evidence_places": results.Table(places, lambda: product(SEEDS)),
    "evidence_sets": results.Table(sets, lambda: product(SEEDS[:1])),
    "evidence_simulators": results.Table(
        simulators, lambda: [(*unit, seed) for unit, seed in product(UNITS, SEEDS)]
    ),
}


if __name__ == "__main__":
    results.main(TABLES)
