"""Observations in place of words: a row is a data set, and the area under a network's curve is log evidence.

A data set is N yes-or-no observations drawn from a Bayesian model, whose parameters are drawn anew
for each data set. A network that learns to predict hidden observations from visible ones learns the
model's posterior predictive probabilities, and by the chain rule its area is the log evidence of
the model.

Three families have exact answers. Coins: after r flips, k of them heads, the next is a head with
probability (a + k) / (a + b + r). Logistic regression of degree d on N fixed points: the prior is
replaced by 2^13 points that fill it evenly, and their mixture is a model of the library; the
chapter measures what that leaves. Simulators without a likelihood in one line: their tokens are so
few that all rows can be listed.

The long runs, in nats per data set unless a name says otherwise:

    coins       two priors, uniform sizes and a fixed 15%, two lengths, five seeds
    choosing    which of five degrees each score picks, over 500 data sets, and how sure it is
    simulators  models without a likelihood: areas beside networks that see both models, and beside ABC
"""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial.legendre import legvander
from scipy.special import comb, expit
from scipy.stats import binom, hypergeom, norm, qmc
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, pad

from mptlml import objectives
from mptlml.draws import multinomial, seeded
from mptlml.masks import all_masks, nested_masks, random_orders
from mptlml.models import BernoulliMixture
from mptlml.protocol import ConditionalModel, at_masked, token_log_probs
from mptlml.score import estimate_area
from mptlml.training import fit

from . import runs as results
from .transformer import MaskedTransformer, _linear

NUM_OBSERVATIONS = N = 24
DEGREES = range(5)
WIDTH = 2.0  # standard deviation of each coefficient of a Legendre polynomial, a priori
NUM_STEPS, BATCH = 1000, 64


# Models -----------------------------------------------------------------------------------------------------


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
def regression(degree: int, log2_nodes: int = 13) -> BernoulliMixture:
    """Logistic regression with a polynomial of this degree, coefficients N(0, WIDTH^2), as a mixture.

    Its components are the points of a Sobol sequence, which fill the prior evenly.
    """
    normal = norm.ppf(qmc.Sobol(degree + 1, seed=0).random_base2(log2_nodes))  # [nodes, d + 1]
    probs = expit(WIDTH * normal @ design(degree).T)  # [nodes, N]
    weights = torch.full((len(probs),), 1 / len(probs), dtype=torch.float64)
    return BernoulliMixture(weights, torch.from_numpy(probs))


# Simulators -------------------------------------------------------------------------------------------------

TOKENS, PEOPLE = 16, 20


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
    states = [(s, i) for s in range(PEOPLE + 1) for i in range(PEOPLE + 1 - s)]
    healthy, ill = np.array(states).T[..., None, None]  # [states, fall, heal]
    heal = np.arange(PEOPLE + 1)
    fall = heal[:, None]
    number = np.zeros((PEOPLE + 1, PEOPLE + 1), int)
    number[tuple(np.array(states).T)] = np.arange(len(states))
    after = healthy - fall + (0 if immune else heal), ill + fall - heal
    to = number[tuple(np.clip(part, 0, PEOPLE) for part in after)]
    edge = (number[healthy, ill] * len(states) + to).ravel()

    def step(weight: np.ndarray) -> np.ndarray:
        """From states to states [states, states], of weights [states, fall, heal]."""
        return np.bincount(edge, weight.ravel(), len(states) ** 2).reshape(len(states), -1)

    chances, sixths = np.zeros(2**TOKENS), (np.arange(6) + 0.5) / 6
    for rate, recovery in product(0.2 + sixths, 0.1 + 0.4 * sixths):
        falls = binom.pmf(fall, healthy, -np.expm1(-rate * ill / PEOPLE))
        weight = falls * binom.pmf(heal, ill, recovery)  # 0 where more fall or heal than there are
        day = step(weight)
        for report in 0.2 + 0.6 * sixths:
            none = step(weight * (1 - report) ** fall)
            kinds = none, day - none
            first, rest = (
                np.eye(len(states))[None, number[PEOPLE - 2, 2]],
                np.ones((len(states), 1)),
            )
            for _ in range(TOKENS // 2):
                first = np.concatenate([first @ kind for kind in kinds])  # [days so far, states]
                rest = np.stack([kind @ rest for kind in kinds], -1).reshape(len(states), -1)
            chances = chances + (first @ rest).T.ravel() / 6**3
    return torch.from_numpy(np.log(chances))


FAMILIES = {"spins": spins, "epidemics": epidemics}
PAIRS = {"spins": (("ising", "curie-weiss"), ("ising", "rows")), "epidemics": (("sir", "sis"),)}


# Scores -----------------------------------------------------------------------------------------------------


def leave_one_out(model: ConditionalModel, x: Tensor) -> Tensor:
    """sum_j log p(x_j | all others) of rows [n, N], nats per row: N times the left end of the curve."""
    masks = all_masks(x.shape[1], 1)
    return torch.cat(
        [token_log_probs(model, rows[:, None], masks).sum((-2, -1)) for rows in x.split(50)]
    )


def along_own_order(net: ConditionalModel, x: Tensor, seed: int, num_orders: int = 4) -> Tensor:
    """Areas of rows [n, D], nats [n], along random orders of each row's own; D num_orders passes."""
    generator = seeded(seed, 5)
    areas = []
    for _ in range(num_orders):
        orders = random_orders(net.num_tokens, len(x), generator=generator)  # [n, t]
        answers = token_log_probs(net, x[:, None], nested_masks(orders))
        areas.append(answers.gather(-1, orders[..., None]).sum((1, 2)).double())
    return torch.stack(areas).mean(0)


def information_criterion(degree: int, x: Tensor) -> Tensor:
    """-BIC/2 of each row [n, N], nats: the highest log-likelihood, by Newton's method, minus (d + 1)/2 log N.

    Where a polynomial separates the answers the highest is a limit, which a penalty of 10^-4 per
    squared coefficient keeps finite.
    """
    basis, signs = design(degree), np.where(x > 0, 1, -1)
    mode, penalty = np.zeros((len(x), degree + 1)), 2e-4 * np.eye(degree + 1)
    for _ in range(50):
        logit = mode @ basis.T  # [n, N]
        chance = expit(logit)
        curvature = (chance * (1 - chance))[:, None] * basis.T @ basis + penalty
        slope = (signs * expit(-signs * logit)) @ basis - mode @ penalty
        mode += np.linalg.solve(curvature, slope[..., None])[..., 0]
    highest = -np.logaddexp(0, -signs * (mode @ basis.T)).sum(-1)
    return torch.from_numpy(highest - (degree + 1) / 2 * np.log(N))


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
    model: Coins | BernoulliMixture,
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


def _fitted(
    net: Any, objective: Callable[[], Tensor], num_steps: int, rate: float, **more: Any
) -> Any:
    about = dict(num_steps=num_steps, learning_rate=rate, decay_steps=num_steps, warm_up=50)
    fit(objective, net.parameters(), **about | more)
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
EACH = 100  # data sets of each degree
PRIORS = {"Beta(1, 1)": (1.0, 1.0), "Beta(20, 20)": (20.0, 20.0)}
SCHEMES: dict[str, dict[str, Any]] = {"uniform sizes": {}, "fixed 15%": dict(size=4)}  # of 24
KINDS: dict[str, dict[str, Any]] = {
    "transformers": {},
    "places known": dict(make=Perceptron, rate=2e-3),
    "places known, four times the data": dict(make=Perceptron, rate=2e-3, batch=4 * BATCH),
}


def of_degree(degree: int, seed: int, kind: str) -> Any:
    """The network of a regression."""
    name = f"evidence {kind} {degree} {seed}"
    return results.kept(name, lambda: train(regression(degree), seed=seed, **KINDS[kind]))


def coins(prior: str, scheme: str, num_steps: int, seed: int) -> Iterator[dict]:
    """The errors of a network over all data sets there are, one for each number of heads."""
    truth, heads = Coins(*PRIORS[prior]), range(N + 1)
    options = dict(seed=seed, num_steps=num_steps, distance="none", **SCHEMES[scheme])
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


def by_degree(score: Callable[[int], Tensor]) -> Tensor:
    """Scores of data sets by each degree [n, degrees], from a score by one [n]."""
    return torch.stack([score(degree).double() for degree in DEGREES], -1)


def data_sets(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """500 data sets [n, N], a hundred from each degree; their degrees [n]; their evidence for each [n, degrees]."""
    generator = seeded(seed, 7)
    rows = [regression(degree).sample(EACH, generator=generator) for degree in DEGREES]
    x = torch.cat(rows).long()
    exact = by_degree(lambda degree: regression(degree).log_prob(x))
    return x, torch.tensor(DEGREES).repeat_interleave(EACH), exact


def picks(score: Tensor, truth: Tensor, exact: Tensor) -> dict:
    """What comes of choosing by scores [n, degrees], where `truth` [n] is true."""
    picked, posterior = score.argmax(-1), score.softmax(-1)
    of_each = dict(
        right=picked == truth,
        as_exact=picked == exact.argmax(-1),
        log_score=posterior.gather(-1, truth[:, None]).log(),
        sure=posterior.amax(-1),
    )
    return {name: values.double().mean().item() for name, values in of_each.items()}


@torch.no_grad()
def choosing(seed: int) -> Iterator[dict]:
    """A line for each score; areas of the first seed with their log Bayes factors of degree 2 against 1."""
    x, truth, exact = data_sets(seed)
    found = {
        "exact evidence": exact,
        "exact leave one out": by_degree(lambda degree: leave_one_out(regression(degree), x)),
        "BIC": by_degree(lambda degree: information_criterion(degree, x)),
    }
    for kind in KINDS:
        nets = [of_degree(degree, seed, kind) for degree in DEGREES]
        # along eight orders of each row's own, the same for all networks
        area = [
            estimate_area(net, x, 8 * N, by_orders=True, generator=seeded(seed, 5)).mean
            for net in nets
        ]
        left = [leave_one_out(net, x) for net in nets]
        found[f"area, {kind}"] = by_degree(area.__getitem__)
        found[f"left end, {kind}"] = by_degree(left.__getitem__)
    for name, score in found.items():
        factors = (
            (score[:, 2] - score[:, 1]).tolist() if seed == SEEDS[0] and "left" not in name else ""
        )
        yield dict(seed=seed, score=name) | picks(score, truth, exact) | dict(factors=factors)


# Simulators: the area beside networks that see both models --------------------------------------------------

NUM_TEST = 1000  # rows of each simulator
STEPS = {
    500: (300, 1000),
    2000: (300, 1000),
    20_000: (300, 4000),
}  # of each network, twice as many of one for both
DECAYS, LOSSES = (0.0, 1.0), ("cross-entropy", "l-POP")
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
    """The network where its objective(net, rows, generator=) on a tenth of the rows [n, ...] was best."""
    began, generator = time.process_time(), seeded(seed, 12)
    held, train = rows[: len(rows) // 10], rows[len(rows) // 10 :]
    held = held.repeat(-(-2000 // len(held)), 1)
    best: list[Any] = [-np.inf, None]

    def batch() -> Tensor:
        chosen = torch.randint(len(train), [2 * BATCH], generator=generator)
        return objective(net, train[chosen], generator=generator)

    def look() -> None:
        value = objective(net, held, generator=seeded(seed, 13)).item()  # the same masks each time
        if value > best[0]:
            best[:] = value, deepcopy(net.state_dict())

    optimiser = partial(torch.optim.AdamW, weight_decay=decay)
    about = dict(track={"held out": look}, track_every=num_steps // 20, optimiser=optimiser)
    _fitted(net, batch, num_steps, 4e-3, **about)
    net.load_state_dict(best[1])
    return Learned(net, best[0], time.process_time() - began)


def masked(rows: Tensor, num_steps: int, decay: float, seed: int) -> Learned:
    """A Perceptron that learns from simulations [n, 16] alone."""
    net = Perceptron(rows.shape[1], width=HIDDEN, generator=seeded(seed, 14))
    return stopped(net, objectives.stratified_size, rows, num_steps, decay, seed)


def odds(net: nn.Module, x: Tensor, loss: str) -> Tensor:
    """The log Bayes factor of rows [n, 16] by an evidence network, nats [n] (Jeffrey and Wandelt 2024)."""
    out = net(2.0 * x - 1)[:, 0]
    return out + out * out.abs() if loss == "l-POP" else out


def evidence_network(rows: Tensor, loss: str, num_steps: int, decay: float, seed: int) -> Learned:
    """A network that learns which of two models simulated a row; rows [n, 17] begin with 1 for the first, or 0."""

    def objective(net: nn.Module, rows: Tensor, *, generator: Generator) -> Tensor:
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


def areas(drawn: dict[str, Tensor], x: Tensor, num_steps: int, seed: int) -> tuple[dict, ...]:
    """Of networks that each learn from one model's simulations: areas of rows [n, 16], left ends, and seconds."""
    area, left, cost = {}, {}, {}
    for name, rows in drawn.items():
        tried = [masked(rows, num_steps, decay, seed) for decay in DECAYS]
        net, _, seconds = max(tried, key=lambda learned: learned.held_out)
        began = time.process_time()
        area[name] = along_own_order(net, x, seed)
        cost[name] = seconds + time.process_time() - began
        left[name] = leave_one_out(net, x).double()
    return area, left, cost


def of_both(
    models: list[Enumerated], rows: Tensor, x: Tensor, budget: int, seed: int
) -> Iterator[tuple]:
    """Log Bayes factors of x [n, 16] by what sees both models: rival, setting, nats [n], what more there is to say.

    rows: their simulations, which begin with 1 for the first model, or 0 [r, 17].
    """
    every = torch.cat([rows[:, 1:], x])
    told = torch.stack([model.summary for model in models], -1)
    told = (told / told.std(0))[numbered(every)]
    for (name, kept), number in product({"told": told, "plain": every}.items(), NEAREST):
        seen, new = kept.double().split([len(rows), len(x)])
        yield "abc", f"{name} {number}", abc(rows[:, 0], seen, new, number), {}
    for loss, steps, decay in product(LOSSES, STEPS[budget], DECAYS):
        net, held_out, seconds = evidence_network(rows, loss, 2 * steps, decay, seed)
        value, setting = odds(net, x, loss).double(), f"{loss} {2 * steps} {decay}"
        yield "evidence network", setting, value, dict(seconds=seconds, held_out=held_out)


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
    drawn.popitem()  # the last model is nobody's: its data are foreign to all
    exact = {name: models[name].log_prob(x) for name in drawn}
    unit = dict(family=family, budget=budget, seed=seed)

    def factor(pair: tuple, rival: str, setting: Any, value: Tensor, **more: Any) -> dict:
        first, second = pair
        about = dict(about=f"{first} against {second}", rival=rival, setting=setting, data="")
        right = torch.cat([value[place[first]], -value[place[second]]])
        log_score = logsigmoid(right).mean().item()
        error = (value - exact[first] + exact[second])[torch.cat([place[first], place[second]])]
        rms = error.square().mean().sqrt().item()
        return unit | about | dict(rms=rms, log_score=log_score) | more

    def power(name: str, rival: str, setting: Any, value: Tensor) -> Iterator[dict]:
        edge = value[place[name]].quantile(0.01)
        about = unit | dict(about=name, rival=rival, setting=setting)
        for other, rows in place.items():
            if other != name:
                yield about | dict(data=other, power=(value[rows] < edge).double().mean().item())

    def each(rival: str, setting: Any, score: dict, cost: dict) -> Iterator[dict]:
        for pair in PAIRS[family]:
            first, second = pair
            seconds = cost[first] + cost[second]
            yield factor(pair, rival, setting, score[first] - score[second], seconds=seconds)
        for name in score:
            yield from power(name, rival, setting, score[name])

    free = dict.fromkeys(drawn, 0.0)
    yield from each("exact", "", exact, free)
    left = {name: models[name].leave_one_out(x) for name in drawn}
    yield from each("exact left end", "", left, free)
    for steps in STEPS[budget]:
        area, left, cost = areas(drawn, x, steps, seed)
        yield from each("area", steps, area, cost)
        yield from each("left end", steps, left, cost)
    for pair in PAIRS[family]:
        parts = [pad(drawn[name], (1, 0), value=float(name == pair[0])) for name in pair]
        rows = torch.cat(parts)[torch.randperm(2 * budget, generator=generator)]
        sure, both = {}, [models[name] for name in pair]
        for rival, setting, value, more in of_both(both, rows, x, budget, seed):
            yield factor(pair, rival, setting, value, **more)
            if LOSSES[0] in setting:
                sure[more["held_out"]] = value
        value, about = sure[max(sure)], " against ".join(pair)
        for name, own in zip(pair, (value, -value), strict=True):
            yield from power(name, "confidence", about, own.abs())
            yield from power(name, "odds", about, own)


COINS = [("uniform sizes", 400), ("uniform sizes", 1600), ("fixed 15%", 400)]
UNITS = [*product(FAMILIES, (2000, 500)), *product(FAMILIES, (20_000,))]
TABLES = {
    "evidence_coins": results.Table(
        coins, lambda: [(prior, *net, seed) for seed, prior, net in product(SEEDS, PRIORS, COINS)]
    ),
    "evidence_choosing": results.Table(choosing, lambda: product(SEEDS)),
    "evidence_simulators": results.Table(
        simulators, lambda: [(*unit, seed) for unit, seed in product(UNITS, SEEDS)]
    ),
}


if __name__ == "__main__":
    results.main(TABLES)
