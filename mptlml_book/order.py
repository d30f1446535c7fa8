"""The order that is chosen: five languages with exact answers, orders, and what is left of a lead along them.

A network is read along an order as KL(p || q) at the place that is filled next, given all that is
visible, summed over the places: what its text is below the truth's, without the noise of the words.
Along random orders the mean is the truth's area minus the network's. An order may be chosen place
by place, by what is visible alone. A lead is the difference of two networks; R is the lead along an
order over that along random orders.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot

from mptlml import draws
from mptlml.models.hmm import HiddenMarkovModel
from mptlml.protocol import VocabularyModel
from mptlml.score import chain_rule

from . import known_language as known
from .schedules import equal_steps
from .shortfall import Shortfall
from .transformer import MaskedTransformer

UNIFORM, WEIGHTED, FORTY, FIFTEEN, SURE, THEN = SCHEMES = (
    "uniform sizes",
    "weighted sizes",
    "fixed 40%",
    "fixed 15%",
    "sure places",
    "40%, then uniform",
)
LAST_RATE = 3e-4  # of the last tenth of the steps of THEN: that of Chapter 11
TIE = 1e-9  # what differs by rounding counts as equal
Path = list[tuple[Tensor, Tensor]]  # for each pass: places [N, g], answers about them [N, g, V]


class Moved:
    """A language whose token j stands at places[j]."""

    def __init__(self, model: Any, places: Tensor) -> None:
        self.model, self.places, self.back = model, places, places.argsort()
        self.num_tokens, self.vocab_size = model.num_tokens, model.vocab_size

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        return self.model.sample(num_rows, generator=generator)[:, self.back]

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        answer = self.model.vocabulary_log_prob(x[..., self.places], observed[..., self.places])
        return answer[..., self.back, :]


class Copies:
    """Rows of a hidden Markov model, and after them their copies, each word right with probability `keep`.

    Other words are drawn from all V.
    """

    def __init__(self, model: HiddenMarkovModel, keep: float) -> None:
        self.model, self.keep = model, keep
        self.num_tokens, self.vocab_size = 2 * model.num_tokens, model.vocab_size
        size = self.vocab_size
        self.copy = keep * torch.eye(size, dtype=torch.float64) + (1 - keep) / size  # [word, copy]

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        word = self.model.sample(num_rows, generator=generator)
        return torch.cat([word, _one_of(self.copy[word], generator)], -1)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        seen = _evidence(x, observed, self.vocab_size)
        word, copy = seen.tensor_split(2, -2)
        about = copy @ self.copy.T  # what the copies say about the words
        elsewhere = _around(self.model, (word * about) @ self.model.emission.T)
        first = elsewhere @ self.model.emission
        return _normalised(torch.cat([first * about, (first * word) @ self.copy], -2) * seen)


class Tree:
    """2^depth words under a binary tree of hidden states: initial [H], from parent to child [H, H], emission [H, V]."""

    def __init__(self, initial: Tensor, transition: Tensor, emission: Tensor, depth: int) -> None:
        self.initial, self.transition, self.emission = initial, transition, emission
        self.depth, self.num_tokens, self.vocab_size = depth, 2**depth, emission.shape[1]

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        state = _one_of(self.initial.expand(num_rows, 1, -1), generator)
        for _ in range(self.depth):
            state = _one_of(self.transition[state.repeat_interleave(2, -1)], generator)
        return _one_of(self.emission[state], generator)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        seen = _evidence(x, observed, self.vocab_size)
        below = seen @ self.emission.T  # [..., nodes of a level, H]
        messages = []  # from the nodes of a level to their parents, the leaves first
        for _ in range(self.depth):
            messages.append((below @ self.transition.T).unflatten(-2, (-1, 2)))
            below = _share(messages[-1].prod(-2))
        above = self.initial.expand_as(below)
        for message in reversed(messages):
            above = _share(
                ((above[..., None, :] * message.flip(-2)) @ self.transition).flatten(-3, -2)
            )
        return _normalised((above @ self.emission) * seen)


class Sums:
    """Blocks of three words drawn from `chance` [V], and after them their sum modulo V, right with probability `keep`.

    Other sums are drawn from all V.
    """

    def __init__(self, chance: Tensor, keep: float, num_blocks: int) -> None:
        self.chance, self.vocab_size, self.num_tokens = chance, len(chance), 4 * num_blocks
        word = torch.arange(len(chance))
        total = (word[:, None, None] + word[:, None] + word) % len(chance)
        self.sums = keep * one_hot(total, len(chance)).double() + (1 - keep) / len(chance)
        self.table = chance[:, None, None, None] * chance[:, None, None] * chance[:, None]
        self.table = self.table * self.sums  # [V, V, V, V] of a block

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        free = _one_of(self.chance.expand(num_rows, self.num_tokens // 4, 3, -1), generator)
        return torch.cat(
            [free, _one_of(self.sums[free.unbind(-1)], generator)[..., None]], -1
        ).flatten(1)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        seen = _evidence(x, observed, self.vocab_size).unflatten(-2, (-1, 4))
        joint = torch.einsum("abcd,...a,...b,...c,...d->...abcd", self.table, *seen.unbind(-2))
        own = [
            joint.sum([axis for axis in (-4, -3, -2, -1) if axis != one]) for one in range(-4, 0)
        ]
        return _normalised(torch.stack(own, -2).flatten(-3, -2))


def _evidence(x: Tensor, observed: Tensor, vocab_size: int) -> Tensor:
    """Which words a token may be, [..., D, V]: the one that is observed, else all."""
    x, observed = torch.broadcast_tensors(x, observed)
    return torch.where(observed[..., None], one_hot(x.long(), vocab_size), 1).double()


def _around(model: HiddenMarkovModel, likelihood: Tensor) -> Tensor:
    """p(z_t | evidence at all other tokens) up to a factor [..., T, H], for p(evidence at t | z_t) [..., T, H]."""
    here = likelihood.unbind(-2)
    before, after = [model.initial.expand_as(here[0])], [torch.ones_like(here[0])]
    for state in here[:-1]:
        before.append(_share((before[-1] * state) @ model.transition))
    for state in here[:0:-1]:
        after.append(_share((after[-1] * state) @ model.transition.T))
    return torch.stack(before, -2) * torch.stack(after[::-1], -2)


def _share(weight: Tensor) -> Tensor:
    return weight / weight.sum(-1, keepdim=True)


def _normalised(weight: Tensor) -> Tensor:
    return _share(weight).log()


def _one_of(probs: Tensor, generator: Generator) -> Tensor:
    """An index drawn from each row of probabilities [..., C]: [...]."""
    return draws.multinomial(probs.flatten(0, -2), 1, generator).view(probs.shape[:-1])


def chain() -> HiddenMarkovModel:
    """The language of Chapter 11."""
    return known.language()


def moved() -> Moved:
    """The same, its token j at place 5 j mod 32."""
    return Moved(known.language(), 5 * torch.arange(32) % 32)


def copies() -> Copies:
    """Sixteen words of the language of Chapter 11, and their copies, a tenth of them replaced."""
    return Copies(known.language(16), 0.9)


def tree() -> Tree:
    """Depth 5, eight states of three words; a child has its parent's state with probability 0.9, else any."""
    zipf = _share(1 / torch.arange(1, 4, dtype=torch.float64))
    states = torch.eye(8, dtype=torch.float64)
    emission = (1 - known.NOISE) * torch.kron(states, zipf) + known.NOISE / 24
    return Tree(torch.full((8,), 1 / 8).double(), 0.9 * states + 0.1 / 8, emission, 5)


def sums() -> Sums:
    """Eight blocks of V = 4 words of probability 0.7, 0.15, 0.1, 0.05; a tenth of the sums replaced."""
    return Sums(torch.tensor([0.7, 0.15, 0.1, 0.05], dtype=torch.float64), 0.9, 8)


LANGUAGES: dict[str, Callable[[], Any]] = {
    language.__name__: language for language in (chain, moved, copies, sums, tree)
}


class Placed(nn.Embedding):
    """The embedding of a network that knows the places of tokens too: a learned vector for each, zero at first."""

    def __init__(self, word: nn.Embedding, num_tokens: int) -> None:
        count, width = word.weight.shape
        super().__init__(count, width, _weight=word.weight.detach())
        self.place = nn.Parameter(torch.zeros(num_tokens, word.embedding_dim))

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + self.place


def train(
    language: str,
    scheme: str,
    *,
    seed: int,
    num_steps: int,
    learning_rate: float,
    distance: str = "flat",
) -> MaskedTransformer:
    """A network trained on one of LANGUAGES by one of SCHEMES; with one seed all share first weights and rows."""
    truth, generator = LANGUAGES[language](), draws.seeded(seed)
    shape: dict[str, Any] = {**known.SMALL, "distance": distance}
    net = MaskedTransformer(truth.num_tokens, truth.vocab_size, **shape, generator=generator)
    net.embedding = Placed(net.embedding, truth.num_tokens)
    rows = truth.sample(num_steps * known.BATCH, generator=generator)
    last = num_steps // 10 if scheme == THEN else 0
    parts = rows.split([(num_steps - last) * known.BATCH, last * known.BATCH])
    first = FORTY if scheme == THEN else scheme
    known.train_on(parts[0], net, first, generator, learning_rate, known.WARM_UP)
    if last:
        known.train_on(parts[1], net, UNIFORM, generator, LAST_RATE, last // 6)
    return net


@torch.no_grad()
def own_loss(net: VocabularyModel, truth: Any, scheme: str, *, seed: int) -> float:
    """The scheme's own objective minus its exact value, nats per row, on 512 rows that the seed draws."""
    generator = draws.seeded(seed, 1)
    x, judge = truth.sample(512, generator=generator), Shortfall(net, truth)
    if scheme == SURE:
        return float(known.sure_places(net, x, judge=judge, generator=generator))
    return float(known.OBJECTIVES[scheme](judge, x, generator=generator))


# An order: what is visible (rows [N, D], seen [N, D]) -> keys [N, D]; the highest hidden one comes next.
Order = Callable[[Tensor, Tensor], Tensor]


def fixed(rank: Tensor) -> Order:
    """Places in the order of their rank [D], the lowest first."""
    return lambda x, seen: -rank.double().expand(x.shape)


def beside(x: Tensor, seen: Tensor) -> Tensor:
    """Any place beside a visible one, at random; the first place too."""
    near = torch.zeros_like(seen)
    near[:, 1:] |= seen[:, :-1]
    near[:, :-1] |= seen[:, 1:]
    return near.double()


def beside_in(moved: Moved) -> Order:
    """Any place beside a visible one where the language that was moved has it."""
    return lambda x, seen: beside(x, seen[:, moved.places])[:, moved.back]


def surest(model: VocabularyModel) -> Order:
    """The place whose likeliest word is most probable."""
    return lambda x, seen: model.vocabulary_log_prob(x, seen).double().amax(-1).exp()


def least_entropy(model: VocabularyModel) -> Order:
    """The place whose answer has the least entropy."""

    def key(x: Tensor, seen: Tensor) -> Tensor:
        answer = model.vocabulary_log_prob(x, seen).double()
        return torch.where(seen[..., None], 0.0, answer.exp() * answer).sum(-1)

    return key


def random(x: Tensor, seen: Tensor) -> Tensor:
    """Any place, at random."""
    return torch.zeros(x.shape, dtype=torch.float64)


def scattered(num_tokens: int) -> Order:
    """Places far from each other first: their numbers read with the last bit first."""
    bits = num_tokens.bit_length() - 1
    return fixed(torch.tensor([int(f"{j:0{bits}b}"[::-1], 2) for j in range(num_tokens)]))


@torch.no_grad()
def follow(
    order: Order,
    model: VocabularyModel,
    x: Tensor,
    tie: Tensor,
    *,
    passes: int | None = None,
    generator: Generator | None = None,
) -> tuple[Tensor, Path]:
    """Rows x [N, D] along an order, and what the model answers about each place when its turn comes: a Path.

    tie [N, D]: numbers in [0, 1), drawn before, that decide between equal keys. generator: write
    rows in place of reading x, each word drawn from the model's answer.
    """
    seen, path, x = torch.zeros_like(x, dtype=torch.bool), [], x.clone()
    for count in equal_steps(x.shape[1], passes or x.shape[1]):
        key = (order(torch.where(seen, x, 0), seen) / TIE).round() + tie / 2
        places = key.masked_fill(seen, -math.inf).topk(count).indices
        answer = _at(model.vocabulary_log_prob(x, seen), places)
        if generator is not None:
            x = x.scatter(-1, places, _one_of(answer.exp(), generator))
        path.append((places, answer))
        seen = seen.scatter(-1, places, True)
    return x, path


@torch.no_grad()
def below(model: VocabularyModel, x: Tensor, path: Path) -> Tensor:
    """KL(answers of the path || answers of the model) along it, nats per row, mean over rows x: [passes]."""
    seen, found = torch.zeros_like(x, dtype=torch.bool), []
    for places, p in path:
        q = _at(model.vocabulary_log_prob(x, seen), places)
        kl = torch.where(p == -math.inf, 0.0, p.exp() * (p - q)).sum(-1)
        found.append(kl.sum(-1).mean())
        seen = seen.scatter(-1, places, True)
    return torch.stack(found)


def _at(answer: Tensor, places: Tensor) -> Tensor:
    """Answers [N, D, V] at places [N, g]: float64 [N, g, V]."""
    return answer.gather(1, places[..., None].expand(-1, -1, answer.shape[-1])).double()


def rows_and_ties(truth: Any, seed: int, num_rows: int = 128) -> tuple[Tensor, Tensor]:
    """Rows [N, D] that all networks of a seed are read on, and numbers [N, D] that decide between equal keys."""
    generator = draws.seeded(seed, 2)
    x = truth.sample(num_rows, generator=generator)
    return x, draws.rand(x.shape, None, generator)


def read_networks(
    nets: dict[str, VocabularyModel], truth: Any, *, seed: int, num_rows: int = 128
) -> dict[str, dict[str, float]]:
    """How far networks are from a language along each order, nats per row: {scheme: {reading: value}}.

    The seed draws rows and ties, the same for all networks. A name with "first" is the part of the
    first four places, with "8 passes" that of four places at a time, with "written" KL(q || p) of
    what the network writes. "rival surest": along the surest places of a fixed 15%, or for that
    network of uniform sizes.
    """
    (x, tie), length = rows_and_ties(truth, seed, num_rows), truth.num_tokens
    orders = {
        "random": random,
        "left to right": fixed(torch.arange(length)),
        "beside": beside,
        "scattered": scattered(length),
        "exact surest": surest(truth),
    }
    common = {name: follow(order, truth, x, tie)[1] for name, order in orders.items()}
    common["random, 8 passes"] = follow(random, truth, x, tie, passes=8)[1]
    sure = {scheme: follow(surest(net), truth, x, tie)[1] for scheme, net in nets.items()}
    found = {}
    for scheme, net in nets.items():
        paths = common | {
            "own surest": sure[scheme],
            "own least entropy": follow(least_entropy(net), truth, x, tie)[1],
            "own surest, 8 passes": follow(surest(net), truth, x, tie, passes=8)[1],
        }
        rival = UNIFORM if scheme == FIFTEEN else FIFTEEN
        if rival in nets:
            paths["rival surest"] = sure[rival]
        steps = {name: below(net, x, path) for name, path in paths.items()}
        for name, order in {"random": random, "own surest": surest(net)}.items():
            own, path = follow(order, net, x, tie, generator=draws.seeded(seed, 3))
            steps[f"{name}, written"] = below(truth, own, path)
        found[scheme] = {name: float(kl.sum()) for name, kl in steps.items()} | {
            f"{name}, first": float(kl[:4].sum()) for name, kl in steps.items() if len(kl) > 8
        }
    return found


@torch.no_grad()
def best_of(
    model: VocabularyModel, truth: Any, x: Tensor, orders: Tensor, counts: Sequence[int]
) -> dict[int, tuple[float, float]]:
    """The best of k orders, chosen once the words are seen, and the mixture of k, for k of `counts`.

    Nats per row above log p, mean over rows x [N, D] and over the disjoint k of orders [Q, D].
    """
    log_q = chain_rule(model, x, orders).double().sum(-1)  # [Q, N]
    above, found = log_q - truth.log_prob(x), {}
    for count in counts:
        some = above.unflatten(0, (-1, count))  # [Q / k, k, N]
        mixture = some.logsumexp(1) - math.log(count)
        found[count] = float(some.amax(1).mean()), float(mixture.mean())
    return found


def lead(
    runs: pd.DataFrame,
    language: str,
    order: str,
    num_steps: int = 2400,
    pair: tuple[str, str] = (UNIFORM, FIFTEEN),
) -> pd.Series:
    """How much closer the first of two schemes is to the language than the second, nats per row, by seed."""
    some = runs[(runs["language"] == language) & (runs["num_steps"] == num_steps)]
    by_seed = some.pivot(index="seed", columns="scheme", values=order)
    return (by_seed[pair[1]] - by_seed[pair[0]]).dropna()


def lost(runs: pd.DataFrame, language: str, num_steps: int, order: str = "own surest") -> pd.Series:
    """How much further from the language along an order the scheme with a seed's best area is than the best one there.

    The best one is that of the other seeds, so that chance favours neither. Nats per row, by seed.
    """
    some = runs[(runs["language"] == language) & (runs["num_steps"] == num_steps)]
    at_random, read = (
        some.pivot(index="seed", columns="scheme", values=name) for name in ("random", order)
    )
    return pd.Series(
        {
            seed: read.loc[seed, at_random.loc[seed].idxmin()]
            - read.loc[seed, read.drop(seed).mean().idxmin()]
            for seed in read.index
        }
    )


def ratio(some: Any, whole: Any, level: float = 0.95) -> tuple[float, float, float]:
    """Mean of `some` over mean of `whole`, pairs by seed, and Fieller's interval: (R, low, high).

    The interval holds each R at which the mean of some - R whole is not told from 0 by Student's
    test; where `whole` is not told from 0 it has no ends.
    """
    (a, b), cov = np.mean([some, whole], 1), np.cov(some, whole) / len(some)
    square = stats.t.ppf(0.5 + level / 2, len(some) - 1) ** 2
    lead, middle, last = (
        b**2 - square * cov[1, 1],
        a * b - square * cov[0, 1],
        a**2 - square * cov[0, 0],
    )
    if lead <= 0:
        return a / b, -math.inf, math.inf
    half = math.sqrt(max(middle**2 - lead * last, 0.0))
    return a / b, (middle - half) / lead, (middle + half) / lead


def gone(some: Any, whole: Any, margin: float = 0.25) -> float:
    """p of the test that `some` is within a share `margin` of `whole` (positive), on average: two one-sided tests."""
    some, whole = np.asarray(some), np.asarray(whole)
    above = stats.ttest_1samp(some - margin * whole, 0, alternative="less").pvalue
    under = stats.ttest_1samp(some + margin * whole, 0, alternative="greater").pvalue
    return float(max(above, under))


def outcomes(runs: pd.DataFrame) -> dict[int, float]:
    """What the runs say to each of the predictions in book/data/order_predictions.csv: {number: quantity}.

    NaN where its runs are not there yet.
    """

    def r(language: str, order: str = "own surest", num_steps: int = 2400) -> float:
        return ratio(*(lead(runs, language, name, num_steps) for name in (order, "random")))[0]

    def no_worse(language: str) -> bool:
        pair = (THEN, UNIFORM)
        return all(
            lead(runs, language, name, pair=pair).mean() >= 0 for name in ("random", "own surest")
        )

    def added() -> float:
        some = runs[(runs["language"] == "sums") & (runs["num_steps"] == 2400)]
        mean = some.groupby("scheme")[["own surest", "random"]].mean()
        return (mean["own surest"] - mean["random"]).max()

    def moves(language: str) -> float:
        own, other = (lead(runs, language, name).mean() for name in ("own surest", "rival surest"))
        return abs(own - other)

    asked: dict[int, Callable[[], float]] = {
        1: lambda: r("chain"),
        2: lambda: r("chain", "beside") - r("chain"),
        3: lambda: r("moved") - r("chain"),
        4: lambda: min(r("copies"), r("tree")),
        5: added,
        6: lambda: r("chain", num_steps=9600) - r("chain", num_steps=600),
        7: lambda: sum(map(no_worse, LANGUAGES)),
        8: lambda: max(map(moves, LANGUAGES)),
    }
    found = {}
    for number, ask in asked.items():
        try:
            found[number] = float(ask())
        except KeyError:
            found[number] = math.nan
    return found
