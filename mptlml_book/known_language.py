"""A language whose log marginal likelihood is known, and the training of transformers on it.

It is a hidden Markov model. The hidden state is one of three topics and a phase of the sentence.
The phases follow in a circle: article, noun, verb, connective. Only nouns and verbs differ from
topic to topic.
"""

import copy
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from mptlml import draws, objectives
from mptlml.masks import random_masks, random_orders, spread_places
from mptlml.models.hmm import HiddenMarkovModel
from mptlml.protocol import ConditionalModel, VocabularyModel, own_words, token_log_probs
from mptlml.score import chain_rule, mean_score, order_gap, score_curve
from mptlml.training import History, fit

from .shortfall import Shortfall
from .transformer import MaskedTransformer

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


def weighted_size(model: ConditionalModel, x: Tensor, *, generator: Generator) -> Tensor:
    """The area from rows x [N, D], size m drawn with P(m) in proportion to m^-1/2: small sizes more often.

    A score of size m is divided by P(m), so that the mean is the area, as for
    `objectives.stratified_size`; the sizes of the N rows are spread evenly over the distribution P
    as they are there over 1..D. Nats per row.
    """
    every = torch.arange(1, model.num_tokens + 1, dtype=torch.float64)
    probs = every.rsqrt() / every.rsqrt().sum()
    place = spread_places(len(x), generator=generator)
    sizes = 1 + torch.searchsorted(probs.cumsum(0)[:-1], place, right=True)
    observed = random_masks(model.num_tokens, sizes[None], generator=generator)
    return mean_score(model, x, observed, (sizes * probs[sizes - 1])[None]).mean()


def hide_more(
    model: ConditionalModel, x: Tensor, hidden: int, scored: int, *, generator: Generator
) -> Tensor:
    """D times the mean score of `scored` tokens of each row x [N, D], among `hidden` ones. Nats per row."""
    rank = random_orders(model.num_tokens, len(x), generator=generator)
    answer = token_log_probs(model, x, rank >= hidden)
    return torch.where(rank < scored, answer, 0.0).sum(-1).mean() * model.num_tokens / scored


def half_random(model: VocabularyModel, x: Tensor, size: int, *, generator: Generator) -> Tensor:
    """D times the mean score of `size` tokens of each row x [N, D], of which half show another word. Nats per row.

    The others are left as they are: none is hidden, and any word may stand in the place of a token,
    its own too.
    """
    chosen = random_orders(model.num_tokens, len(x), generator=generator) < size
    other = draws.randint(model.vocab_size, x.shape, x, generator).to(x.dtype)
    replaced = chosen & (draws.rand(x.shape, None, generator) < 0.5)
    answer = model.vocabulary_log_prob(torch.where(replaced, other, x), torch.ones_like(chosen))
    return torch.where(chosen, own_words(answer, x), 0.0).sum(-1).mean() * model.num_tokens / size


def smoothed(model: VocabularyModel, x: Tensor, size: int, *, generator: Generator) -> Tensor:
    """D times the mean of `size` hidden tokens of each row x [N, D], with smoothed labels. Nats per row.

    A tenth of each label is spread evenly over all words.
    """
    hidden = random_orders(model.num_tokens, len(x), generator=generator) < size
    answer = model.vocabulary_log_prob(x, ~hidden)
    label = 0.9 * own_words(answer, x) + 0.1 * answer.mean(-1)
    return torch.where(hidden, label, 0.0).sum(-1).mean() * model.num_tokens / size


def sure_places(
    model: VocabularyModel,
    x: Tensor,
    *,
    judge: ConditionalModel | None = None,
    generator: Generator,
) -> Tensor:
    """As `objectives.stratified_size`, but each hidden token counts by how probable its place's likeliest word is.

    These weights have mean 1 over the hidden tokens of a row, and no gradient. judge: whose answers
    are weighed, by default the model's. Nats per row.
    """
    place = spread_places(len(x), generator=generator)
    sizes = 1 + (place * model.num_tokens).long()
    observed = random_masks(model.num_tokens, sizes, generator=generator)
    every = model.vocabulary_log_prob(x, observed)
    own = own_words(every, x) if judge is None else token_log_probs(judge, x, observed)
    sure = torch.where(observed, 0.0, every.detach().amax(-1).exp())
    return (sure * own).sum(-1).div(sure.sum(-1)).mean() * model.num_tokens


def _by_share(
    objective: Callable[..., Tensor], *shares: float, **options: Any
) -> Callable[..., Tensor]:
    """The objective with its counts of tokens as shares of all: of 32 tokens, 15% are 5 and 40% are 13."""
    return lambda net, x, *, generator: objective(
        net, x, *(round(share * net.num_tokens) for share in shares), generator=generator, **options
    )


# The tokens to predict in training: a function of network, rows [N, D] and generator, nats per row
SCHEMES: dict[str, Callable[..., Tensor]] = {
    "uniform sizes": objectives.stratified_size,
    "weighted sizes": weighted_size,
    "fixed 40%": _by_share(objectives.fixed_size, 0.4, share_masks=False),
    "fixed 15%": _by_share(objectives.fixed_size, 0.15, share_masks=False),
    "15%, 80/10/10": _by_share(objectives.eighty_ten_ten, 0.15),
}
HIDE_MORE = "40% hidden, 15% scored"  # harder contexts than 15% has, and no more tokens to predict
RECIPES = "half left, half random", "smoothed labels"  # beside a fixed 15% and 80/10/10
OBJECTIVES = SCHEMES | {
    HIDE_MORE: _by_share(hide_more, 0.4, 0.15),
    "sure places": sure_places,
    RECIPES[0]: _by_share(half_random, 0.15),
    RECIPES[1]: _by_share(smoothed, 0.15),
}


def language(num_tokens: int = 32) -> HiddenMarkovModel:
    """A model of rows of `num_tokens` words: 3 topics x 4 phases = 12 states, V = 24 words, float64.

    A state draws one of its three words with weights 1, 1/2, 1/3 (Zipf).
    """
    topic = torch.full((3, 3), (1 - STAY) / 2, dtype=torch.float64).fill_diagonal_(STAY)
    here = torch.eye(4, dtype=torch.float64)
    phase = ADVANCE * here.roll(1, 1) + HOLD * here + (1 - ADVANCE - HOLD) / 4
    zipf = 1 / torch.arange(1, 4, dtype=torch.float64)
    emission = torch.full((12, len(WORDS)), NOISE / len(WORDS), dtype=torch.float64)
    for state in range(12):
        words = (ARTICLES, NOUNS[state // 4], VERBS[state // 4], CONNECTIVES)[state % 4]
        for word, weight in zip(words, zipf / zipf.sum(), strict=True):
            emission[state, WORDS.index(word)] += (1 - NOISE) * weight
    return HiddenMarkovModel(
        torch.full((12,), 1 / 12, dtype=torch.float64),
        torch.kron(topic, phase),
        emission,
        num_tokens,
    )


def sentence(row: Iterable[float] | Tensor) -> str:
    """The words of a row [D], in lines of at most 80 characters."""
    return textwrap.fill(" ".join(WORDS[int(token)] for token in row), 80)


def pretrain(
    scheme: str,
    *,
    seed: int,
    num_steps: int = NUM_STEPS,
    learning_rate: float = LEARNING_RATE,
    num_tokens: int = 32,
    **shape: Any,
) -> tuple[MaskedTransformer, History]:
    """A new MaskedTransformer trained on the language by one of OBJECTIVES: (network, History), nats per row.

    Every batch is new, so over-fitting is impossible. The seed decides the first weights, the rows
    and the masks; two schemes with the same seed share the weights and the rows. shape: of
    MaskedTransformer.
    """
    truth, generator = language(num_tokens), torch.Generator().manual_seed(seed)
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
    scheme: str,
    generator: Generator,
    learning_rate: float,
    warm_up: int,
) -> History:
    """The network trained on rows [N, D], one batch after the other and each row once: the History."""
    rest, steps = iter(rows.split(BATCH)), len(rows) // BATCH
    return fit(
        lambda: OBJECTIVES[scheme](net, next(rest), generator=generator),
        net.parameters(),
        num_steps=steps,
        learning_rate=learning_rate,
        decay_steps=steps,
        warm_up=warm_up,
        track_every=steps,
        name=scheme,
    )


@torch.no_grad()
def read_network(
    net: VocabularyModel, scheme: str, *, seed: int, num_rows: int = 128, num_orders: int = 16
) -> dict[str, Any]:
    """How far a network stops below the exact values of the language, in nats per row, by every reading.

    Each seed draws its own rows, masks and orders, the same for all networks: errors over seeds
    include theirs.

        gap             area minus expected LML
        curve           the distance below the exact curve at each size, nats per token (a list)
        size 1, 15%, 40%  D S(m) minus its exact value, at one size
        own             the same for the objective of its scheme; for 80/10/10 the objective itself
        left to right   log q along this order minus log p
        best order      the same along the best of the orders below, left to right and its reverse: the order that is
                        best on one half of the rows is scored on the other half
        mixture         log of the mixture over num_orders random orders minus their mean
        spread          standard deviation of log q over orders

    The readings of several orders use an eighth of the rows; with num_orders=0 they are left out.
    """
    truth, generator = language(net.num_tokens), draws.seeded(seed, 2)
    shortfall, length = Shortfall(net, truth), net.num_tokens
    x = truth.sample(4 * num_rows, generator=generator)
    curve = score_curve(shortfall, x[:num_rows], share_masks=False, generator=generator)
    single = 1, round(0.15 * length), round(0.4 * length)
    sizes = score_curve(shortfall, x, single, share_masks=False, generator=generator).mean * length
    judged = net if scheme == "15%, 80/10/10" else shortfall
    # the last: left to right
    ends = torch.stack([torch.arange(length), torch.arange(length - 1, -1, -1)])
    own = OBJECTIVES[scheme](judged, x, generator=generator)
    written = chain_rule(shortfall, x[:num_rows], ends[1:]).sum(-1)
    found = {
        "gap": curve.area().mean,
        **dict(zip(("size 1", "15%", "40%"), sizes.tolist(), strict=True)),
        "own": float(own),
        "left to right": float(written.mean()),
        "curve": curve.mean.tolist(),
    }
    if num_orders:
        orders, some = random_orders(length, num_orders, generator=generator), x[: num_rows // 8]
        log_prob = chain_rule(net, some, orders).double().sum(-1)  # [orders, rows]
        below = chain_rule(shortfall, some, torch.cat([orders, ends])).sum(-1)
        first, second = (half.mean(1) for half in below.tensor_split(2, 1))  # [orders]
        found |= {
            "best order": float(first[second.argmax()] + second[first.argmax()]) / 2,
            "mixture": float(order_gap(log_prob).mean()),
            "spread": float(log_prob.std(0).mean()),
        }
    return found


def holm(p: Any) -> np.ndarray:
    """Adjusted p-values: below 5% at a risk of 5% of even one false rejection."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(steps, 1)[np.argsort(order)]


@torch.no_grad()
def read_right_end(net: VocabularyModel, *, seed: int, num_rows: int = 512) -> dict[str, float]:
    """What a network expects where all is hidden, what it gets and what the language's own model gets, nats per token.

    expects: minus the mean entropy of its answers. Each seed draws its own rows, the same for all
    networks.
    """
    truth = language(net.num_tokens)
    x = truth.sample(num_rows, generator=draws.seeded(seed, 3))
    hidden = torch.zeros(net.num_tokens, dtype=torch.bool)
    answer = net.vocabulary_log_prob(x[:1], hidden)[0].double()  # the same for all rows
    gets = answer[torch.arange(net.num_tokens), x.long()].mean()
    return {
        "expects": float((answer.exp() * answer).sum(-1).mean()),
        "gets": float(gets),
        "exact": float(truth.conditional_log_prob(x, hidden).mean()),
    }
