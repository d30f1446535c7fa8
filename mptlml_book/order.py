"""The order that is chosen: five languages with exact answers, orders, what is left of a lead along them; long runs.

A network is read along an order as KL(p || q) at the place that is filled next, given all that is
visible, summed over the places: what its text is below the truth's, without the noise of the words.
Along random orders the mean is the truth's area minus the network's. An order may be chosen place
by place, by what is visible alone. A lead is the difference of two networks; R is the lead along an
order over that along random orders.

The long runs: a line for each network, KL in nats per row along each order. What was foretold
stands in book/data/order_predictions.csv and order_passes_predictions.csv. Each table needs
the first one:

    order_tuning  rates for four schemes, by their own loss, on seeds of their own; never at an edge    0.6 h
    order_600     all schemes, five languages, ten seeds                                                2.3 h
    order_2400    the same with four times the steps, eight seeds: the predictions are about these      3.8 h
    order_words   fixed 15% with 33/10 times the steps: as many words predicted as by uniform sizes     0.8 h
    order_9600    four schemes in the chain, four seeds                                                 0.9 h
    order_passes  two languages, eight seeds, both lengths: five orders, 1 to 16 words per pass       2.5 h

A network of "40%, then uniform" has the rate of a fixed 40%, one of "own path" that of uniform sizes. No seed is that
of a trial (11).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import qmc, t
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot, pad

from mptlml import draws
from mptlml.draws import seeded
from mptlml.masks import spread_places
from mptlml.models import HiddenMarkovModel
from mptlml.protocol import ConditionalModel, VocabularyModel, token_log_probs

from . import known_language as known
from . import runs as results
from .known_language import Shortfall
from .masked_diffusion import equal_steps
from .transformer import MaskedTransformer

UNIFORM, WEIGHTED, FORTY, FIFTEEN, THEN = SCHEMES = (
    "uniform sizes",
    "weighted sizes",
    "fixed 40%",
    "fixed 15%",
    "40%, then uniform",
)
LONGER = UNIFORM, FORTY, FIFTEEN, THEN  # read in longer runs
OWN = "own path"  # uniform sizes, and in the last tenth of the steps masks from the network's own surest path
TIE = 1e-9  # what differs by rounding counts as equal
PASSES = 32, 16, 8, 4, 2  # one word per pass, and 2, 4, 8, 16
RATES = 1.25e-3, 2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2
TUNING_SEEDS = 121, 122
NUM_ROWS = 128  # on which a network is read


# Languages --------------------------------------------------------------------------------------------------


class Moved:
    """A language whose token j stands at places[j]."""

    def __init__(self, model: HiddenMarkovModel, places: Tensor) -> None:
        self.model, self.places, self.back = model, places, places.argsort()
        self.num_tokens, self.vocab_size = model.num_tokens, model.vocab_size

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        return self.model.sample(num_rows, generator=generator)[:, self.back]

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        answer = self.model.vocabulary_log_prob(x[..., self.places], observed[..., self.places])
        return answer[..., self.back, :]


class Language(VocabularyModel):
    """D = `num_tokens` words out of V = `vocab_size`: whoever can sum over hidden words can predict them.

    p(x_R) = sum prod_j seen_jv p(x), where seen_j holds 1 for each word that token j may be, else 0.
    It is linear in each seen_jv, so its slope there is the part of the rows whose word j is v.
    """

    def visible_prob(self, seen: Tensor) -> Tensor:
        """p(x_R) [...], from which words each token may be, float64 [..., D, V]."""
        raise NotImplementedError

    @torch.enable_grad()
    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V]; an observed token's word is certain."""
        x, observed = torch.broadcast_tensors(x, observed)
        word = one_hot(x, self.vocab_size).double()
        seen = word.masked_fill(~observed[..., None], 1).requires_grad_()
        (slope,) = torch.autograd.grad(self.visible_prob(seen).sum(), seen)
        share = seen.detach() * slope
        return (share / share.sum(-1, keepdim=True)).log()


class Copies(Language):
    """Rows of a hidden Markov model, and after them their copies, each word right with probability `keep`.

    Other words are drawn from all V.
    """

    def __init__(self, model: HiddenMarkovModel, keep: float) -> None:
        self.model, self.vocab_size = model, model.vocab_size
        self.num_tokens = 2 * model.num_tokens
        self.copy = _kept(torch.eye(self.vocab_size), keep)  # [word, copy]

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        word = self.model.sample(num_rows, generator=generator)
        return torch.cat([word, _one_of(self.copy[word], generator)], -1)

    def visible_prob(self, seen: Tensor) -> Tensor:
        word, copy = seen.tensor_split(2, -2)
        likelihood = (word * (copy @ self.copy.T)) @ self.model.emission.T  # [..., T, H]
        state = self.model.initial
        for here in likelihood.unbind(-2):
            state = (state * here) @ self.model.transition
        return state.sum(-1)


class Tree(Language):
    """2^depth words under a binary tree of hidden states: from parent to child [H, H], emission [H, V].

    The state of the root is drawn evenly.
    """

    def __init__(self, transition: Tensor, emission: Tensor, depth: int) -> None:
        self.transition, self.emission, self.depth = transition, emission, depth
        self.num_tokens, self.vocab_size = 2**depth, emission.shape[1]

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        root = torch.ones_like(self.transition[:1])
        state = _one_of(root.expand(num_rows, 1, -1), generator)
        for _ in range(self.depth):
            state = _one_of(self.transition[state.repeat_interleave(2, -1)], generator)
        return _one_of(self.emission[state], generator)

    def visible_prob(self, seen: Tensor) -> Tensor:
        below = seen @ self.emission.T  # [..., nodes of a level, H]
        for _ in range(self.depth):
            below = (below @ self.transition.T).unflatten(-2, (-1, 2)).prod(-2)
        return below.mean((-1, -2))


class Sums(Language):
    """Blocks of three words drawn from `chance` [V], and after them their sum modulo V, right with probability `keep`.

    Other sums are drawn from all V.
    """

    def __init__(self, chance: Tensor, keep: float, num_blocks: int) -> None:
        self.chance, self.vocab_size, self.num_tokens = chance, len(chance), 4 * num_blocks
        word = torch.arange(len(chance))
        total = (word[:, None, None] + word[:, None] + word) % len(chance)
        self.sums = _kept(one_hot(total), keep)  # [V, V, V, V]

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        free = _one_of(self.chance.expand(num_rows, self.num_tokens // 4, 3, -1), generator)
        total = _one_of(self.sums[free.unbind(-1)], generator)
        return torch.cat([free, total[..., None]], -1).flatten(1)

    def visible_prob(self, seen: Tensor) -> Tensor:
        *free, total = seen.unflatten(-2, (-1, 4)).unbind(-2)  # [..., blocks, V] each
        chance = [self.chance * word for word in free]
        block = torch.einsum("abcd,...a,...b,...c,...d->...", self.sums, *chance, total)
        return block.prod(-1)


def _kept(right: Tensor, keep: float) -> Tensor:
    """The right word [..., V] with probability `keep`, else any."""
    return keep * right.double() + (1 - keep) / right.shape[-1]


def _one_of(probs: Tensor, generator: Generator) -> Tensor:
    """An index drawn from each row of probabilities [..., C]: [...]."""
    drawn = torch.multinomial(probs.flatten(0, -2), 1, generator=generator)
    return drawn.view(probs.shape[:-1])


def _tree() -> Tree:
    """Depth 5, eight states of three words; a child has its parent's state with probability 0.9, else any."""
    zipf = 1 / torch.arange(1, 4, dtype=torch.float64)
    states = torch.eye(8, dtype=torch.float64)
    emission = _kept(torch.kron(states, zipf / zipf.sum()), 1 - known.NOISE)
    return Tree(_kept(states, 0.9), emission, 5)


LANGUAGES: dict[str, Any] = {
    "chain": known.language(),  # that of Chapter 11
    # the same, its token j at place 5 j mod 32
    "moved": Moved(known.language(), 5 * torch.arange(32) % 32),
    # sixteen words of that language, and their copies, a tenth of them replaced
    "copies": Copies(known.language(16), 0.9),
    # eight blocks of four words, a tenth of the sums replaced
    "sums": Sums(torch.tensor([0.7, 0.15, 0.1, 0.05], dtype=torch.float64), 0.9, 8),
    "tree": _tree(),
}


# Networks ---------------------------------------------------------------------------------------------------


class Placed(nn.Embedding):
    """The embedding of a network that knows the places of tokens too: a learned vector for each, zero at first."""

    def __init__(self, word: nn.Embedding, num_tokens: int) -> None:
        super().__init__(word.num_embeddings, word.embedding_dim, _weight=word.weight.detach())
        self.place = nn.Parameter(torch.zeros(num_tokens, word.embedding_dim))

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + self.place


def own_path(model: VocabularyModel, x: Tensor, *, generator: Generator) -> Tensor:
    """D times the mean score of what is hidden on the model's own surest path through rows x [N, D]: nats per row.

    The path uncovers four places of 32 at a time; the rows are spread evenly over its eight masks.
    Masks that inference visits: Shih, Sadigh & Ermon (2022) and, by confidence, Kim et al. (2026).
    """
    tie = draws.rand(x.shape, None, generator)
    path = torch.stack(follow(surest(model), x, tie, 8)[:-1])  # [8, N, D]
    stage = (spread_places(len(x), generator=generator) * len(path)).long()
    seen = path[stage, torch.arange(len(x))]
    return token_log_probs(model, x, seen).sum(-1).div((~seen).sum(-1)).mean() * x.shape[-1]


# what begins, what the last tenth of the steps has in its place, and its rate: that of Chapter 11, or the best of three
# for the network's own path on a seed of tuning
IN_THE_END: dict[str, tuple[str, str | known.Objective, float]] = {
    THEN: (FORTY, UNIFORM, 3e-4),
    OWN: (UNIFORM, own_path, 1e-3),
}


def train(language: str, scheme: str, seed: int, num_steps: int, rate: float) -> MaskedTransformer:
    """A network trained on one of LANGUAGES by one of SCHEMES; with one seed all share first weights and rows."""
    truth, generator = LANGUAGES[language], seeded(seed)
    net = MaskedTransformer(
        truth.num_tokens, truth.vocab_size, **known.SMALL, distance="flat", generator=generator
    )
    net.embedding = Placed(net.embedding, truth.num_tokens)
    rows = truth.sample(num_steps * known.BATCH, generator=generator)
    begin, then, last_rate = IN_THE_END.get(scheme, (scheme, "", 0))
    last = num_steps // 10 if then else 0
    first, rest = rows.tensor_split([(num_steps - last) * known.BATCH])
    known.train_on(first, net, begin, generator, rate, known.WARM_UP)
    if then:
        known.train_on(rest, net, then, generator, last_rate, last // 6)
    return net


def network(*options: Any) -> MaskedTransformer:
    """The network of `train` with these arguments, kept in a file of that name."""
    name = ", ".join(map(str, options))
    return results.kept(f"order/{name}", lambda: train(*options))


def tuned(language: str, scheme: str) -> float:
    """The learning rate of a scheme: that of its own loss."""
    tried = pd.read_csv(results.FOLDER / "order_tuning.csv", comment="#")
    loss = tried.pivot_table("loss", "rate", ["language", "scheme"])
    return loss[language, IN_THE_END.get(scheme, [scheme])[0]].idxmin()


@torch.no_grad()
def own_loss(language: str, scheme: str, rate: float, seed: int) -> float:
    """How far a network is above the least value of its own loss, nats per row, on 512 rows that the seed draws."""
    net = network(language, scheme, seed, 600, rate)
    truth, generator = LANGUAGES[language], seeded(seed, 1)
    x, judge = truth.sample(512, generator=generator), Shortfall(net, truth)
    return -float(known.OBJECTIVES[scheme](judge, x, generator=generator))


# Orders: what is visible (rows [N, D], seen [N, D]) -> keys [N, D]; the highest hidden one comes next -------

Order = Callable[[Tensor, Tensor], Tensor]


def fixed(rank: Tensor) -> Order:
    """Places in the order of their rank [D], the lowest first."""
    return lambda x, seen: -rank.double().expand(x.shape)


def beside(places: Tensor) -> Order:
    """Any place beside a visible one, at random, in a row whose token j stands at places[j]; the first place too."""

    def key(x: Tensor, seen: Tensor) -> Tensor:
        wide = pad(seen[:, places], (1, 1))
        return (wide[:, :-2] | wide[:, 2:])[:, places.argsort()].double()

    return key


def surest(model: VocabularyModel) -> Order:
    """The place whose likeliest word is most probable."""
    return lambda x, seen: model.vocabulary_log_prob(x, seen).double().amax(-1).exp()


def random(x: Tensor, seen: Tensor) -> Tensor:
    """Any place, at random."""
    return torch.zeros(x.shape, dtype=torch.float64)


def scattered(num_tokens: int) -> Order:
    """Places far from each other first: Halton's sequence, their numbers read with the last bit first."""
    return fixed(torch.from_numpy(qmc.Halton(1, scramble=False).random(num_tokens)[:, 0]))


def surest_by_margin(model: VocabularyModel) -> Order:
    """The place whose likeliest word is furthest ahead of the next: one of the rules of DUEL (Turok et al. 2026)."""

    def key(x: Tensor, seen: Tensor) -> Tensor:
        best, second = model.vocabulary_log_prob(x, seen).double().exp().topk(2).values.unbind(-1)
        return best - second

    return key


# Reading ----------------------------------------------------------------------------------------------------


def rows_and_ties(truth: Any, seed: int) -> tuple[Tensor, Tensor]:
    """Rows [N, D] that all networks of a seed are read on, and numbers [N, D] that decide between equal keys."""
    generator = seeded(seed, 2)
    x = truth.sample(NUM_ROWS, generator=generator)
    return x, torch.rand(x.shape, generator=generator, dtype=torch.float64)


@torch.no_grad()
def follow(order: Order, x: Tensor, tie: Tensor, num_passes: int | None = None) -> list[Tensor]:
    """What is visible of rows x [N, D] along an order, before each pass and in the end: masks [N, D].

    tie [N, D]: numbers in [0, 1), drawn before, that decide between equal keys. num_passes: by
    default one for each place.
    """
    seen = [torch.zeros_like(x, dtype=torch.bool)]
    for count in equal_steps(x.shape[1], num_passes or x.shape[1]):
        key = (order(torch.where(seen[-1], x, 0), seen[-1]) / TIE).round() + tie / 2
        places = key.masked_fill(seen[-1], -math.inf).topk(count).indices
        seen.append(seen[-1].scatter(-1, places, True))
    return seen


@torch.no_grad()
def along(model: ConditionalModel, x: Tensor, path: list[Tensor]) -> Tensor:
    """What a model answers about the places of rows x [N, D] that come next along a path, nats per row [N]."""
    found = [
        torch.where(after, token_log_probs(model, x, before), 0.0).double().sum(-1)
        for before, after in pairwise(path)
    ]
    return torch.stack(found).sum(0)


def behind(net: VocabularyModel, truth: Any, x: Tensor, path: list[Tensor]) -> float:
    """KL(truth || network) along a path, nats per row, mean over rows x [N, D]."""
    return -float(along(Shortfall(net, truth), x, path).mean())


def read_networks(
    nets: Mapping[str, VocabularyModel], truth: Any, seed: int
) -> dict[str, dict[str, float]]:
    """How far networks are from a language along each order, nats per row: {scheme: {reading: value}}.

    The seed draws rows and ties, the same for all networks. A name with "8 passes" is that of four
    places at a time. "rival surest": along the surest places of a fixed 15%, or for that network of
    uniform sizes.
    """
    rows, every = rows_and_ties(truth, seed), torch.arange(truth.num_tokens)
    common = {
        "random": follow(random, *rows),
        "left to right": follow(fixed(every), *rows),
        "beside": follow(beside(every), *rows),
        "scattered": follow(scattered(truth.num_tokens), *rows),
        "exact surest": follow(surest(truth), *rows),
        "random, 8 passes": follow(random, *rows, 8),
    }
    sure = {scheme: follow(surest(net), *rows) for scheme, net in nets.items()}
    found = {}
    for scheme, net in nets.items():
        at_once = follow(surest(net), *rows, 8)
        paths = common | {"own surest": sure[scheme], "own surest, 8 passes": at_once}
        rival = UNIFORM if scheme == FIFTEEN else FIFTEEN
        if rival in nets:
            paths["rival surest"] = sure[rival]
        found[scheme] = {name: behind(net, truth, rows[0], path) for name, path in paths.items()}
    return found


# Statistics -------------------------------------------------------------------------------------------------


def by_seed(runs: pd.DataFrame, language: str, order: str, num_steps: int) -> pd.DataFrame:
    """How far networks are from a language along an order, nats per row: a line a seed, a column a scheme."""
    some = runs.query("language == @language and num_steps == @num_steps")
    return some.pivot(index="seed", columns="scheme", values=order)


def lead(
    runs: pd.DataFrame,
    language: str,
    order: str,
    num_steps: int = 2400,
    pair: tuple[str, str] = (UNIFORM, FIFTEEN),
) -> pd.Series:
    """How much closer the first of two schemes is to the language than the second, nats per row, by seed."""
    first, second = pair
    gap = by_seed(runs, language, order, num_steps)
    return (gap[second] - gap[first]).dropna()


def ratio(some: Any, whole: Any, level: float = 0.95) -> tuple[float, float, float]:
    """Mean of `some` over mean of `whole`, pairs by seed, and Fieller's interval: (R, low, high).

    The interval holds each R at which the mean of some - R whole is not told from 0 by Student's
    test; where `whole` is not told from 0 it has no ends.
    """
    mean, cov = np.mean([some, whole], 1), np.cov(some, whole) / len(some)
    square = t.ppf(0.5 + level / 2, len(some) - 1) ** 2
    (last, middle), (_, first) = np.outer(mean, mean) - square * cov
    low, high = -math.inf, math.inf
    if first > 0:
        low, high = np.sort(np.roots([first, -2 * middle, last]).real)
    return mean[0] / mean[1], low, high


# The long run -----------------------------------------------------------------------------------------------


def tune(language: str, scheme: str) -> list[dict]:
    """A line for each rate tried and seed: from 0.01 and 0.02 on, until the best rate lies between two others."""
    lines: list[dict] = []
    rates = {*RATES[3:5]}
    while rates:
        for rate, seed in product(rates, TUNING_SEEDS):
            loss = own_loss(language, scheme, rate, seed)
            lines.append(dict(language=language, scheme=scheme, rate=rate, seed=seed, loss=loss))
        tried = pd.DataFrame(lines).groupby("rate")["loss"].mean()
        best = RATES.index(tried.idxmin())
        rates = {*RATES[max(best - 1, 0) : best + 2]} - {*tried.index}
    return sorted(lines, key=lambda line: line["rate"])


def table(
    num_steps: int,
    num_seeds: int,
    languages: Iterable[str] = LANGUAGES,
    schemes: Iterable[str] = SCHEMES,
) -> results.Table:
    """Languages and schemes, seed by seed, so that what is done first is complete."""

    def read(seed: int, language: str) -> Iterator[dict]:
        rates = {scheme: tuned(language, scheme) for scheme in schemes}
        nets = {
            scheme: network(language, scheme, seed, num_steps, rate)
            for scheme, rate in rates.items()
        }
        about = dict(language=language, num_steps=num_steps, seed=seed)
        for scheme, found in read_networks(nets, LANGUAGES[language], seed).items():
            about |= dict(scheme=scheme, rate=rates[scheme], distance="flat")
            yield about | found

    return results.Table(read, lambda: product(range(21, 21 + num_seeds), languages))


def read_passes(num_steps: int, seed: int, language: str) -> Iterator[dict]:
    """A line for each network, order and number of words per pass, read on the same rows.

    gap: KL(truth || network) at each place, as everywhere here. at once: what the exact answers
    themselves lose along the path, because the words of one pass do not see each other. The text
    that the network writes is below the truth's by their sum.
    """
    truth = LANGUAGES[language]
    x, tie = rows_and_ties(truth, seed)
    every = torch.arange(truth.num_tokens)
    log_p = along(truth, x, follow(fixed(every), x, tie))
    for scheme in UNIFORM, FORTY, FIFTEEN, OWN:
        net = network(language, scheme, seed, num_steps, tuned(language, scheme))
        orders = {
            "random": random,
            "left to right": fixed(every),
            "own surest": surest(net),
            "margin": surest_by_margin(net),
            "scattered": scattered(truth.num_tokens),
        }
        for (order, rule), passes in product(orders.items(), PASSES):
            path = follow(rule, x, tie, passes)
            at_once = float((log_p - along(truth, x, path)).mean())
            about = dict(num_steps=num_steps, seed=seed, language=language, scheme=scheme)
            about |= dict(order=order, passes=passes)
            yield about | {"gap": behind(net, truth, x, path), "at once": at_once}


TABLES = {
    "order_tuning": results.Table(tune, lambda: product(LANGUAGES, SCHEMES[:-1])),
    "order_600": table(600, 10),
    "order_2400": table(2400, 8),
    "order_words": table(1980, 10, schemes=[FIFTEEN]),
    "order_9600": table(9600, 4, ["chain"], LONGER),
    "order_passes": results.Table(
        read_passes, lambda: product([600, 2400], range(21, 29), ["chain", "tree"])
    ),
}


if __name__ == "__main__":
    results.main(TABLES)
