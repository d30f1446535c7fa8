"""Chapter 11: a language whose log marginal likelihood is known, and transformers trained on it.

It is a hidden Markov model. The hidden state is one of three topics and a phase of the sentence.
The phases follow in a circle: article, noun, verb, connective. Only nouns and verbs differ from
topic to topic.

The long runs: each table trains networks and reads them against exact values. A line for each
network: what it is, and its readings in nats per row (`read_network` says what each is). Networks
are kept in _build/networks. In this order, since each needs the rates that the first chooses:

    tuning   five schemes, four learning rates, three seeds of their own                         20 min
    schemes  five schemes, each with the rate that its own loss chose, ten seeds                 20 min
    carry    three of these, carried on with uniform sizes for a tenth of their steps             4 min
    stay     fixed 15% again, carried on at 15% for a tenth of its steps: the control of carry    2 min
    longer   the same three, with four times the steps, three seeds                              15 min
    words    fixed 15% with 33/10 times the steps: as many words predicted as by uniform sizes   10 min
    apart    13 words hidden, 5 of them predicted                                                 4 min
    area     the schemes for which the area chose another rate, with that rate, five seeds        5 min
    sixteen  uniform sizes and fixed 15% with sixteen times the steps, three seeds               25 min
    calibrated  uniform sizes and fixed 15% of schemes again, read after calibration             15 min
"""

import base64
import copy
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from mptlml import (
    ConditionalModel,
    History,
    chain_rule,
    draws,
    fit,
    mean_score,
    objectives,
    random_masks,
    random_orders,
    score_curve,
)
from mptlml.masks import spread_places
from mptlml.models import HiddenMarkovModel
from mptlml.protocol import VocabularyModel, own_words, token_log_probs

from . import runs
from .transformer import MaskedTransformer, in_blocks

ARTICLES, CONNECTIVES = ("the", "a", "one"), ("and", "then", "while")
NOUNS = (("boat", "gull", "sailor"), ("cook", "soup", "pan"), ("rose", "bee", "spade"))  # by topic
VERBS = (("drifts", "dives", "rows"), ("stirs", "simmers", "hisses"), ("blooms", "hums", "digs"))
WORDS = (*ARTICLES, *sum(NOUNS, ()), *sum(VERBS, ()), *CONNECTIVES)  # token v is WORDS[v], V = 24

STAY = 0.97  # probability that the next word has the same topic, so a topic lasts about 30 words
# probabilities of the next phase and of the same one; otherwise any of the four
ADVANCE, HOLD = 0.85, 0.10
NOISE = 0.02  # share of words drawn from the whole vocabulary

BATCH, NUM_STEPS, LEARNING_RATE, WARM_UP = 32, 600, 5e-3, 50
SMALL = dict(width=48)  # MaskedTransformers of 88 thousand weights
ROWS = 2048  # that a Shortfall asks about at once


def weighted_size(model: ConditionalModel, x: Tensor, *, generator: Generator) -> Tensor:
    """The area from rows x [N, D], size m drawn with P(m) in proportion to m^-1/2: small sizes more often.

    A score of size m is divided by P(m), so that the mean is the area, as for
    `objectives.stratified_size`; the sizes of the N rows are spread evenly over the distribution P
    as they are there over 1..D. Nats per row.
    """
    every = torch.arange(1, model.num_tokens + 1, dtype=torch.float64)
    probs = every.rsqrt()
    probs /= probs.sum()
    place = spread_places(len(x), generator=generator)
    sizes = 1 + torch.searchsorted(probs.cumsum(0)[:-1], place, right=True)
    observed = random_masks(model.num_tokens, sizes[None], generator=generator)
    return mean_score(model, x, observed, (sizes * probs[sizes - 1])[None]).mean()


def _mean_of(answer: Tensor, chosen: Tensor, size: int) -> Tensor:
    """D times the mean of answers [N, D] about the chosen tokens, `size` of each row. Nats per row."""
    return torch.where(chosen, answer, 0.0).sum(-1).mean() * answer.shape[-1] / size


def hide_more(
    model: ConditionalModel, x: Tensor, hidden: int, scored: int, *, generator: Generator
) -> Tensor:
    """D times the mean score of `scored` tokens of each row x [N, D], among `hidden` ones. Nats per row."""
    rank = random_orders(model.num_tokens, len(x), generator=generator)
    return _mean_of(token_log_probs(model, x, rank >= hidden), rank < scored, scored)


def eighty_ten_ten(model: VocabularyModel, x: Tensor, size: int, *, generator: Generator) -> Tensor:
    """D times the mean score of `size` tokens of each row x [N, D] as BERT is trained. Nats per row.

    80% are masked, 10% show another word, 10% are left as they are (Devlin et al. 2019, Sec. 3.1).
    """
    sizes = torch.full([len(x)], size)
    chosen = ~random_masks(model.num_tokens, sizes, generator=generator)
    fate = torch.rand(x.shape, generator=generator, dtype=torch.float32)
    word = draws.randint(model.vocab_size, x.shape, x, generator).to(x.dtype)
    masked, another = chosen & (fate < 0.8), chosen & (0.8 <= fate) & (fate < 0.9)
    answer = model.vocabulary_log_prob(torch.where(another, word, x), ~masked)
    return _mean_of(own_words(answer, x), chosen, size)


def half_random(
    model: VocabularyModel, x: Tensor, size: int, *, smoothing: float = 0, generator: Generator
) -> Tensor:
    """D times the mean score of `size` tokens of each row x [N, D], of which half show another word. Nats per row.

    The others are left as they are: none is hidden, and any word may stand in the place of a token,
    its own too. smoothing: the share of each label that is spread evenly over all words.
    """
    chosen = random_orders(model.num_tokens, len(x), generator=generator) < size
    other = draws.randint(model.vocab_size, x.shape, x, generator).to(x.dtype)
    replaced = chosen & (draws.rand(x.shape, None, generator) < 0.5)
    answer = model.vocabulary_log_prob(torch.where(replaced, other, x), torch.ones_like(chosen))
    scores = (1 - smoothing) * own_words(answer, x) + smoothing * answer.mean(-1)
    return _mean_of(scores, chosen, size)


def smoothed(model: VocabularyModel, x: Tensor, size: int, *, generator: Generator) -> Tensor:
    """D times the mean of `size` hidden tokens of each row x [N, D], with smoothed labels. Nats per row.

    A tenth of each label is spread evenly over all words.
    """
    hidden = random_orders(model.num_tokens, len(x), generator=generator) < size
    answer = model.vocabulary_log_prob(x, ~hidden)
    return _mean_of(0.9 * own_words(answer, x) + 0.1 * answer.mean(-1), hidden, size)


Objective = Callable[..., Tensor]  # of network, rows [N, D] and generator: nats per row


def _by_share(objective: Objective, *shares: float, **options: Any) -> Objective:
    """The objective with its counts of tokens as shares of all: of 32 tokens, 15% are 5 and 40% are 13."""
    return lambda net, x, *, generator: objective(
        net, x, *(round(share * net.num_tokens) for share in shares), generator=generator, **options
    )


# The tokens to predict in training
SCHEMES: dict[str, Objective] = {
    "uniform sizes": objectives.stratified_size,
    "weighted sizes": weighted_size,
    "fixed 40%": _by_share(objectives.fixed_size, 0.4, share_masks=False),
    "fixed 15%": _by_share(objectives.fixed_size, 0.15, share_masks=False),
    "15%, 80/10/10": _by_share(eighty_ten_ten, 0.15),
}
HIDE_MORE = "40% hidden, 15% scored"  # harder contexts than 15% has, and no more tokens to predict
RECIPES = "half left, half random", "smoothed labels"  # beside a fixed 15% and 80/10/10
OBJECTIVES = SCHEMES | {
    HIDE_MORE: _by_share(hide_more, 0.4, 0.15),
    RECIPES[0]: _by_share(half_random, 0.15),
    RECIPES[1]: _by_share(smoothed, 0.15),
    f"{RECIPES[0]}, smoothed": _by_share(half_random, 0.15, smoothing=0.1),
}


def language(
    num_tokens: int = 32,
    *,
    stay: float = STAY,
    noise: float = NOISE,
    nouns: Sequence[Sequence[str]] = NOUNS,
    verbs: Sequence[Sequence[str]] = VERBS,
) -> HiddenMarkovModel:
    """A model of rows of `num_tokens` words: 3 topics x 4 phases = 12 states, V = 24 words, float64.

    A state draws one of its three words with weights 1, 1/2, 1/3 (Zipf). nouns, verbs: those of
    each topic, of which there may be more.
    """
    count, words = len(nouns), len(WORDS)
    topic = torch.full((count, count), (1 - stay) / (count - 1), dtype=torch.float64)
    here = torch.eye(4, dtype=torch.float64)
    phase = ADVANCE * here.roll(1, 1) + HOLD * here + (1 - ADVANCE - HOLD) / 4
    zipf = 1 / torch.arange(1, 4, dtype=torch.float64)
    emission = torch.full((4 * count, words), noise / words, dtype=torch.float64)
    of_topics = zip(nouns, verbs, strict=True)
    states = [own for pair in of_topics for own in (ARTICLES, *pair, CONNECTIVES)]
    for probs, own in zip(emission, states, strict=True):
        probs[[WORDS.index(word) for word in own]] += (1 - noise) * (zipf / zipf.sum())
    return HiddenMarkovModel(
        torch.full((4 * count,), 1 / (4 * count), dtype=torch.float64),
        torch.kron(topic.fill_diagonal_(stay), phase),
        emission,
        num_tokens,
    )


class Shortfall:
    """Minus KL(truth || model) at each masked token, as a model: `score_curve` averages it for each size.

    For rows drawn from the truth, the area of its curve has the same mean as the model's area minus
    the truth's, without the noise of the token itself. Both must answer `vocabulary_log_prob`, for
    as many tokens and words.
    """

    def __init__(self, model: VocabularyModel, truth: VocabularyModel) -> None:
        self.model, self.truth, self.num_tokens = model, truth, model.num_tokens

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """-sum_v p(v | x_R) log(p(v | x_R) / q(v | x_R)), nats per token [..., D]; 0 at observed tokens."""
        return in_blocks(self._minus_kl, x, observed, ROWS)

    def _minus_kl(self, x: Tensor, observed: Tensor) -> Tensor:
        p, q = (one.vocabulary_log_prob(x, observed) for one in (self.truth, self.model))
        kl = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q)).sum(-1)
        return torch.where(observed, 0.0, -kl)


class Calibrated(VocabularyModel):
    """A network whose answers at each mask size are tempered, and mixed with the words' frequencies.

    answer = (1 - share) softmax(warmth log q) + share frequencies: two `numbers` for each size,
    warmth and the logit of the share, fitted by the log loss of 128 rows of the truth, each under
    one mask of each size.
    """

    def __init__(
        self, net: VocabularyModel, truth: HiddenMarkovModel, *, generator: Generator
    ) -> None:
        self.net, self.num_tokens, self.vocab_size = net, net.num_tokens, net.vocab_size
        x = truth.sample(128, generator=generator)
        size = torch.arange(1, self.num_tokens + 1)[:, None].expand(-1, len(x))
        seen = random_masks(self.num_tokens, size, generator=generator)  # [sizes, rows, D]
        self.frequent = truth.vocabulary_log_prob(x[0], torch.zeros_like(seen[0, 0]))[0].float()
        self.numbers = torch.tensor([[1.0, -4.0]]).repeat(len(size), 1)
        with torch.no_grad():
            before = net.vocabulary_log_prob(x, seen)

        def objective() -> Tensor:
            own = own_words(self._answer(before, seen), x)
            return torch.where(seen, 0.0, own).sum(-1).div(size).sum(0).mean()

        numbers = self.numbers.requires_grad_()
        fit(objective, [numbers], num_steps=100, learning_rate=0.1, decay_steps=100)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V]; what is said of observed tokens is of no use."""
        return self._answer(self.net.vocabulary_log_prob(x, observed), observed)

    def _answer(self, before: Tensor, observed: Tensor) -> Tensor:
        warmth, share = self.numbers[(~observed).sum(-1) - 1, :, None, None].unbind(-3)
        kept = (warmth * before).log_softmax(-1) + logsigmoid(-share)
        return torch.logaddexp(kept, logsigmoid(share) + self.frequent)


def sentence(row: Iterable[Any]) -> str:
    """The words of a row [D], in lines of at most 80 characters."""
    return textwrap.fill(" ".join(WORDS[int(token)] for token in row), 80)


def pretrain(
    scheme: str,
    *,
    seed: int,
    num_steps: int = NUM_STEPS,
    learning_rate: float = LEARNING_RATE,
    **shape: Any,
) -> tuple[MaskedTransformer, History]:
    """A new MaskedTransformer trained on the language by one of OBJECTIVES: (network, History), nats per row.

    Every batch is new, so over-fitting is impossible. The seed decides the first weights, the rows
    and the masks; two schemes with the same seed share the weights and the rows. shape: of
    MaskedTransformer.
    """
    truth, generator = language(), torch.Generator().manual_seed(seed)
    net = MaskedTransformer(truth.num_tokens, truth.vocab_size, **shape, generator=generator)
    rows = truth.sample(num_steps * BATCH, generator=generator)
    return net, train_on(rows, net, scheme, generator, learning_rate, WARM_UP)


def carry_on(
    net: MaskedTransformer, scheme: str, *, seed: int, num_steps: int, learning_rate: float
) -> MaskedTransformer:
    """A copy of the network, trained for `num_steps` more by one of OBJECTIVES, on rows of its own.

    The rate warms up over a sixth of these steps and falls to zero again.
    """
    net, generator = copy.deepcopy(net), draws.seeded(seed, 1)
    rows = language(net.num_tokens).sample(num_steps * BATCH, generator=generator)
    train_on(rows, net, scheme, generator, learning_rate, num_steps // 6)
    return net


def train_on(
    rows: Tensor,
    net: MaskedTransformer,
    scheme: str | Objective,
    generator: Generator,
    learning_rate: float,
    warm_up: int,
) -> History:
    """The network trained on rows [N, D], one batch after the other and each row once: the History."""
    objective = OBJECTIVES[scheme] if isinstance(scheme, str) else scheme
    rest, steps = iter(rows.split(BATCH)), len(rows) // BATCH
    return fit(
        lambda: objective(net, next(rest), generator=generator),
        net.parameters(),
        num_steps=steps,
        learning_rate=learning_rate,
        decay_steps=steps,
        warm_up=warm_up,
        name=str(scheme),
    )


@torch.no_grad()
def read_network(
    net: VocabularyModel, scheme: str, *, seed: int, num_rows: int = 128
) -> dict[str, Any]:
    """How far a network stops below the exact values of the language, in nats per row, by every reading.

    Each seed draws its own rows and masks, the same for all networks: errors over seeds include
    theirs.

        gap             area minus expected LML
        curve           the distance below the exact curve at each size, nats per token (a list)
        size 1, 15%, 40%  D S(m) minus its exact value, at one size
        own             the same for the objective of its scheme; for 80/10/10 the objective itself
        left to right   log q along this order minus log p
    """
    truth, generator = language(net.num_tokens), draws.seeded(seed, 2)
    shortfall, length = Shortfall(net, truth), net.num_tokens
    x = truth.sample(4 * num_rows, generator=generator)
    curve = score_curve(shortfall, x[:num_rows], share_masks=False, generator=generator)
    single = 1, round(0.15 * length), round(0.4 * length)
    sizes = score_curve(shortfall, x, single, share_masks=False, generator=generator).mean * length
    judged = net if scheme == "15%, 80/10/10" else shortfall
    ahead = torch.arange(length).flip(0)[None]
    return {
        "gap": curve.area().mean,
        **dict(zip(("size 1", "15%", "40%"), sizes.tolist(), strict=True)),
        "own": float(OBJECTIVES[scheme](judged, x, generator=generator)),
        "left to right": float(chain_rule(shortfall, x[:num_rows], ahead).sum(-1).mean()),
        "curve": curve.mean.tolist(),
    }


def holm(p: Any) -> np.ndarray:
    """Adjusted p-values: below 5% at a risk of 5% of even one false rejection."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(steps, 1)[order.argsort()]


@torch.no_grad()
def read_right_end(net: VocabularyModel, *, seed: int, num_rows: int = 512) -> dict[str, float]:
    """What a network expects where all is hidden, what it gets and what the language's own model gets, nats per token.

    expects: minus the mean entropy of its answers. Each seed draws its own rows, the same for all
    networks.
    """
    truth = language(net.num_tokens)
    x = truth.sample(num_rows, generator=draws.seeded(seed, 3))
    hidden = torch.zeros(net.num_tokens, dtype=torch.bool)
    answer = net.vocabulary_log_prob(x[:1], hidden).double()  # the same for all rows
    gets, exact = (one.conditional_log_prob(x, hidden).double().mean() for one in (net, truth))
    expects = (answer.exp() * answer).sum(-1).mean()
    return {"expects": float(expects), "gets": float(gets), "exact": float(exact)}


def eight_bits(net: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """The network with rounded weights, and those as {"shapes": {name: (rows, columns, most)}, "weights": base64}.

    Each row of a matrix is a whole multiple, from -127 to 127, of a unit of its own; a vector
    counts as one row. The unit is a multiple, from 1 to 127, of `most`, the largest size of a
    weight, over 127². In the order of the names and rows, 8 bits each: the multiple that makes the
    unit, then those of the row.
    """
    net, multiples = copy.deepcopy(net), b""
    shapes: dict[str, Any] = {}
    with torch.no_grad():
        for name, weight in net.named_parameters():
            rows = weight.view(-1, weight.shape[-1])
            largest = rows.abs().amax(1, keepdim=True).clamp(min=1e-9)
            most = largest.max()
            steps = (127 * largest / most).ceil().clamp(max=127)
            unit = most * steps / 127**2
            whole = (rows / unit).round()
            rows.copy_(whole * unit)
            shapes[name] = *rows.shape, most
            multiples += torch.cat([steps, whole], 1).numpy().astype(np.int8).tobytes()
    return net, {"shapes": shapes, "weights": base64.b64encode(multiples).decode()}


# The long runs

FIRST_SEED = 11  # of ten; those of tuning begin at 101
# the highest of 3e-4, 1e-3, 3e-3 at which uniform validation networks lose nothing
CARRY_RATE = 3e-4
TWO, THREE = ("uniform sizes", "fixed 15%"), ("uniform sizes", "fixed 15%", "fixed 40%")


class Group(NamedTuple):
    """How many seeds, which schemes, how many times NUM_STEPS."""

    num_seeds: int
    schemes: Iterable[str]
    times: float = 1


PLAN = {
    "tuning": Group(3, SCHEMES),
    "schemes": Group(10, SCHEMES),
    "carry": Group(10, THREE),
    "stay": Group(10, ("fixed 15%",)),
    "longer": Group(3, THREE, 4),
    "words": Group(10, ("fixed 15%",), 33 / 10),
    "apart": Group(10, (HIDE_MORE,)),
    "area": Group(5, SCHEMES),
    "sixteen": Group(3, TWO, 16),
    "calibrated": Group(10, TWO),
}


def seeds(number: int, first: int = FIRST_SEED) -> range:
    """So many seeds, one after the other."""
    return range(first, first + number)


def tuned(criterion: str = "own") -> dict[str, float]:
    """The best rate of each scheme over the seeds of tuning, by "gap" (the area) or by its "own" loss."""
    stored = pd.read_csv(runs.FOLDER / "known_language_tuning.csv", comment="#")
    return stored.pivot_table(criterion, "scheme", "rate").idxmax(axis=1).to_dict()


def network(
    scheme: str, seed: int, *, num_steps: int = NUM_STEPS, learning_rate: float = 0, **shape: Any
) -> MaskedTransformer:
    """A network of the study, from a file that its name describes; by default with the rate of its own loss."""
    rate = learning_rate or tuned()[scheme]
    options = dict(seed=seed, num_steps=num_steps, learning_rate=rate) | SMALL | shape
    words = [scheme.replace("/", "-"), *(f"{key} {value}" for key, value in options.items())]
    return runs.kept(", ".join(words), lambda: pretrain(scheme, **options)[0])


def rates_of(group: str, scheme: str) -> Iterable[float]:
    """The learning rates by which a scheme is trained in a group."""
    if group == "tuning":
        return 5e-3, 1e-2, 2e-2, 4e-2
    own = tuned()
    rate = own.get(scheme, own["fixed 15%"])
    return {tuned("gap")[scheme]} - {rate} if group == "area" else {rate}


def units(group: str) -> list[tuple[str, int, float, int]]:
    """The arguments of `run` for each network of a group, seed by seed: what is done first is complete."""
    number, schemes, times = PLAN[group]
    return [
        (scheme, round(times * NUM_STEPS), rate, seed)
        for seed in seeds(number, 101 if group == "tuning" else FIRST_SEED)
        for scheme in schemes
        for rate in rates_of(group, scheme)
    ]


def run(
    group: str, scheme: str, num_steps: int, rate: float, seed: int
) -> Iterator[dict[str, Any]]:
    """The one line of a network, trained and read as its group asks."""
    net, carried = network(scheme, seed, num_steps=num_steps, learning_rate=rate), 0
    if group in ("carry", "stay"):
        then, carried = scheme if group == "stay" else "uniform sizes", num_steps // 10
        net = carry_on(net, then, seed=seed, num_steps=carried, learning_rate=CARRY_RATE)
    about = dict(scheme=scheme, num_tokens=32, **SMALL, num_steps=num_steps, rate=rate, seed=seed)
    read: VocabularyModel = net
    if group == "calibrated":
        read = Calibrated(net, language(), generator=draws.seeded(seed, 4))
    yield about | dict(carried=carried) | read_network(read, scheme, seed=seed)


TABLES = {
    f"known_language_{group}": runs.Table(partial(run, group), partial(units, group))
    for group in PLAN
}


if __name__ == "__main__":
    runs.main(TABLES)
