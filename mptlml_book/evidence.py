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
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, Protocol

import numpy as np
import torch
from numpy.polynomial.legendre import legvander
from scipy.special import comb, expit
from scipy.stats import hypergeom, norm, qmc
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, pad

from mptlml import objectives
from mptlml.curve import RowEstimates
from mptlml.draws import seeded
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
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the prior, for the network that is told which


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


class Perceptron(nn.Module):
    """Two hidden layers that read all visible answers by their places; the transformer knows distances alone."""

    def __init__(self, num_tokens: int, *, generator: Generator) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.layers = nn.Sequential(
            _linear(2 * num_tokens, 256, generator),
            nn.GELU(),
            _linear(256, 256, generator),
            nn.GELU(),
            _linear(256, num_tokens, generator),
        )

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per observation [..., N]; exactly 0 at observed ones."""
        x, observed = torch.broadcast_tensors(x, observed)
        sign = 2.0 * x - 1
        seen = torch.cat([torch.where(observed, sign, 0.0), observed.float()], -1)
        return at_masked(logsigmoid(sign * self.layers(seen)), x, observed)


transformer = partial(MaskedTransformer, vocab_size=2)


class Told:
    """A network whose first token says which prior is meant, and which predicts the others: N tokens."""

    def __init__(self, net: MaskedTransformer, which: int) -> None:
        self.net, self.which, self.num_tokens = net, which, net.num_tokens - 1

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R, prior), nats per observation [..., N]; exactly 0 at observed ones."""
        x, observed = torch.broadcast_tensors(x, observed)
        rows, seen = pad(x, (1, 0), value=2 + self.which), pad(observed, (1, 0), value=True)
        return self.net.conditional_log_prob(rows, seen)[..., 1:]


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


def train_told(degree: int, *, seed: int) -> MaskedTransformer:
    """One network for all WIDTHS of the prior: its rows begin with a token that says which (see `Told`)."""
    generator = Generator().manual_seed(seed)
    net = MaskedTransformer(1 + N, 2 + len(WIDTHS), generator=generator)

    def objective() -> Tensor:
        which = int(torch.randint(len(WIDTHS), [1], generator=generator))
        rows = regression(degree, WIDTHS[which]).sample(BATCH, generator=generator).long()
        return objectives.stratified_size(Told(net, which), rows, generator=generator)

    return _fitted(net, objective, 3 * NUM_STEPS, 1e-2)


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


@torch.no_grad()
def widths(seed: int) -> Iterator[dict]:
    """For groups of 20 data sets with one true width, the width that the exact evidence picks, and the area."""
    net = results.kept(f"evidence widths {seed}", lambda: train_told(2, seed=seed))
    exact, generator = [regression(2, width) for width in WIDTHS], seeded(seed, 8)
    for group in range(NUM_GROUPS):
        which = group % len(WIDTHS)
        x = exact[which].sample(GROUP, generator=generator).long()
        evidence = [model.log_prob(x).sum().item() for model in exact]
        area = [
            estimate_area(Told(net, k), x, 2 * N, by_orders=True, generator=seeded(seed, 9))
            .mean.sum()
            .item()
            for k in range(len(WIDTHS))
        ]
        yield dict(
            seed=seed,
            group=group,
            width=WIDTHS[which],
            by_evidence=WIDTHS[np.argmax(evidence)],
            by_area=WIDTHS[np.argmax(area)],
            evidence=evidence,
            area=area,
        )


def nested(row: int) -> Iterator[dict]:
    """One data set of the model whose prior has an unknown width: its evidence by three ways, and seconds."""
    import dynesty

    truth, net = of_degree(UNKNOWN, SEEDS[0])
    x = truth.sample(NUM_NESTED, generator=seeded(10))[row : row + 1].long()
    sign, basis = 2 * x[0].numpy() - 1, design(4)

    def log_likelihood(normal: np.ndarray) -> float:
        coefficients = WIDTH * 2 ** normal[5] * normal[:5]
        return -np.logaddexp(0, -sign * (basis @ coefficients)).sum()

    rng = np.random.default_rng(row)
    sampler = dynesty.NestedSampler(log_likelihood, norm.ppf, 6, rstate=rng)
    began = [time.perf_counter()]
    sampler.run_nested(print_progress=False)
    began.append(time.perf_counter())
    area = along_orders(net, x, row)
    began.append(time.perf_counter())
    train(truth, seed=row, num_steps=20)
    began.append(time.perf_counter())
    nested_seconds, area_seconds, training_seconds = np.diff(began)
    yield dict(
        row=row,
        exact=regression(4, None, 17).log_prob(x).item(),
        nested=sampler.results.logz[-1],
        nested_seconds=nested_seconds,
        area=area.mean.item(),
        area_seconds=area_seconds,
        training_seconds=training_seconds
        * NUM_STEPS
        / 20,  # the whole training, by twenty of its steps
    )


COINS = [("uniform sizes", 400), ("uniform sizes", 1600), ("fixed 15%", 400)]
MODELS = [(str(model), "uniform sizes") for model in (*DEGREES, UNKNOWN)]
MODELS += [("2", "fixed 15%"), ("2", "four times the steps"), ("2", "twice the width")]
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
    "evidence_widths": results.Table(widths, lambda: product(SEEDS)),
    "evidence_nested": results.Table(nested, lambda: product(range(NUM_NESTED))),
}


if __name__ == "__main__":
    results.main(TABLES)
