"""A language whose log marginal likelihood is known, a hidden Markov model, and the training of transformers on it.

The hidden state is one of three topics and a phase of the sentence. The phases follow in a circle: article, noun, verb,
connective. Articles and connectives are the same in every topic; nouns and verbs differ.
"""

import textwrap
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Generator, Tensor

from .. import objectives
from ..models.hmm import HiddenMarkovModel
from ..models.transformer import MaskedTransformer
from ..training import History, fit

ARTICLES, CONNECTIVES = ("the", "a", "one"), ("and", "then", "while")
NOUNS = (("boat", "gull", "sailor"), ("cook", "soup", "pan"), ("rose", "bee", "spade"))  # three for each topic
VERBS = (("drifts", "dives", "rows"), ("stirs", "simmers", "hisses"), ("blooms", "hums", "digs"))
WORDS = (*ARTICLES, *sum(NOUNS, ()), *sum(VERBS, ()), *CONNECTIVES)  # token v is WORDS[v], V = 24

STAY = 0.97  # probability that the next word has the same topic, so a topic lasts about 30 words
ADVANCE, HOLD = 0.85, 0.10  # probabilities of the next phase and of the same one; otherwise any of the four
NOISE = 0.02  # share of words drawn from the whole vocabulary

BATCH, NUM_STEPS, LEARNING_RATE, WARM_UP = 32, 600, 5e-3, 50

# The choice of the tokens to predict in training: 5 of 32 tokens are BERT's 15%, 13 are 40%
SCHEMES: dict[str, Callable[[MaskedTransformer, Tensor, Generator], Tensor]] = {
    "uniform sizes": lambda net, x, g: objectives.stratified_size(net, x, generator=g),
    "fixed 40%": lambda net, x, g: objectives.fixed_size(net, x, 13, share_masks=False, generator=g),
    "fixed 15%": lambda net, x, g: objectives.fixed_size(net, x, 5, share_masks=False, generator=g),
    "15%, 80/10/10": lambda net, x, g: objectives.eighty_ten_ten(net, x, 5, generator=g),
}


def language(num_tokens: int = 32) -> HiddenMarkovModel:
    """The language as a model of rows of `num_tokens` words: 3 topics x 4 phases = 12 states, V = 24 words, float64.

    A state draws one of its three words with weights 1, 1/2, 1/3 (Zipf). Raises ValueError: num_tokens below 1.
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
    return HiddenMarkovModel(torch.full((12,), 1 / 12, dtype=torch.float64), torch.kron(topic, phase), emission,
                             num_tokens)


def sentence(row: Iterable[float] | Tensor, width: int = 80) -> str:
    """The words of a row [D], in lines of at most `width` characters."""
    return textwrap.fill(" ".join(WORDS[int(token)] for token in row), width)


def pretrain(scheme: str, *, seed: int, num_steps: int = NUM_STEPS, track: dict[str, Callable] | None = None,
             track_every: int = 100, **shape: int) -> tuple[MaskedTransformer, History]:
    """A new MaskedTransformer trained on `language()` by one of SCHEMES: (network, History), nats per row.

    Every batch is new, so over-fitting is impossible. The seed decides the first weights, the rows and the masks; two
    schemes with the same seed share the weights and the rows. track: {name: function of the network}, as in `fit`;
    shape: options of MaskedTransformer. Raises ValueError: an unknown scheme, counts below 1.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(map(repr, SCHEMES))}, got {scheme!r}")
    truth, generator = language(), torch.Generator().manual_seed(seed)
    net = MaskedTransformer(truth.num_tokens, truth.vocab_size, **shape, generator=generator)
    rows = iter(truth.sample(num_steps * BATCH, generator=generator).split(BATCH))
    history = fit(lambda: SCHEMES[scheme](net, next(rows), generator), net.parameters(), num_steps=num_steps,
                  learning_rate=LEARNING_RATE, decay=True, warm_up=WARM_UP, track_every=track_every, name=scheme,
                  track={key: partial(measure, net) for key, measure in (track or {}).items()})
    return net, history
