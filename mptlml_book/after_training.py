"""Chapter 11, last section: what a network is good for after its training, where the best possible answer is known.

A network trained on `known_language.language()` is used at home and in four new domains, each a
hidden Markov model too. It fills in single words and writes from left to right, unchanged. And it
reads a sentence, so that a classifier learns the topic of the middle word from a few labels. Losses
are above that of the exact model.

The long run, some twenty minutes of one core, trains networks by four schemes for an eighth and for
a half of Chapter 11's steps, with the rates of that chapter. A line for each network: what it is,
what can be known of it before it is used (`foretellers`), how far it is above the least loss in
every task and domain (`afterwards`), in nats per sentence.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import pad

from mptlml import chain_rule, draws, score_curve
from mptlml.models import HiddenMarkovModel
from mptlml.protocol import all_observed

from . import known_language, runs
from .known_language import NOUNS, NUM_STEPS, VERBS, Shortfall, language
from .transformer import MaskedTransformer

# What each domain changes of the language
CHANGES: dict[str, dict[str, Any]] = {
    "home": {},
    "short topics": dict(stay=0.8),  # the next word has the same topic: topics of 5 words, not 30
    "nouns renamed": dict(nouns=(*NOUNS[1:], NOUNS[0])),  # as those of the next topic
    "typing noise": dict(
        noise=1 - 0.9 * (1 - known_language.NOISE)
    ),  # a tenth is replaced by any of the 24 words
    # a fourth topic, as frequent as the others, whose words are known from different topics
    "new topic": dict(
        nouns=(*NOUNS, ("cook", "bee", "sailor")), verbs=(*VERBS, ("blooms", "dives", "hisses"))
    ),
}
DOMAINS = tuple(CHANGES)
# labelled sentences: how many such sets are drawn from all 512
LABELLED = {8: 16, 32: 8, 128: 4, 512: 1}
AT = 1, 2, 5, 9, 13, 17, 21, 25, 29, 31, 32  # mask sizes of the area


def domain(name: str, num_tokens: int = 32) -> HiddenMarkovModel:
    """The language of one of DOMAINS, exactly."""
    return language(num_tokens, **CHANGES[name])


def topic_posterior(truth: HiddenMarkovModel, x: Tensor) -> Tensor:
    """p(topic of the middle word | x), [N, topics], for visible rows x [N, D].

    The middle word is number (D + 1) // 2 of 1..D, so 16 of 32. No classifier has a smaller
    expected log loss.
    """
    states = truth.state_posterior(x, all_observed(truth.num_tokens))
    return states[:, (truth.num_tokens - 1) // 2].unflatten(-1, (-1, 4)).sum(-1)  # of four phases


def middle_states(net: MaskedTransformer, x: Tensor) -> Tensor:
    """The state that the readout sees at the middle word of each visible row x [N, D]: [N, width].

    A mean over all words could not do: the network knows distances only, so it does not tell where
    the middle is.
    """
    return net.states(x.long(), all_observed(net.num_tokens))[:, (net.num_tokens - 1) // 2]


def with_constant(inputs: Tensor) -> Tensor:
    """inputs [..., n, K] with a last column of ones, [..., n, K + 1]."""
    return torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1)


def probe(inputs: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The linear classifier with the largest posterior density under a normal prior of variance 1 for each weight.

    inputs [S, n, K], float64, and labels [S, n], int64, are S data sets; returns weights [S, K + 1,
    classes], the last row for a constant input of 1. A class without a label has its weights too:
    each class has a row of weight zero.
    """
    logistic = LogisticRegression(C=1, fit_intercept=False, tol=1e-9, max_iter=1000)
    every, heads = torch.arange(num_classes), []
    for x, y in zip(with_constant(inputs), labels, strict=True):
        rows = pad(x, (0, 0, 0, num_classes))
        share = pad(torch.ones(len(x)), (0, num_classes))
        heads.append(logistic.fit(rows, torch.cat([y, every]), share).coef_.T)
    return torch.from_numpy(np.stack(heads))


def regret(posterior: Tensor, log_answer: Tensor) -> Tensor:
    """Mean KL(posterior || answer), nats per sentence [...], for [N, classes] and log-answers [..., N, classes].

    This is the answer's expected log loss minus that of the exact posterior, without the noise of
    the labels.
    """
    return -(torch.special.entr(posterior) + posterior * log_answer).sum(-1).mean(-1)


@torch.no_grad()
def afterwards(net: MaskedTransformer, *, seed: int) -> dict[str, float]:
    """How far a network is above the least possible loss, by "task, domain", in nats per sentence.

        fill      one hidden word at a time: D times the mean divergence from the exact answer
        write     the divergences summed along the words from left to right
        probe n   the regret of the topic of the middle word, from n labelled sentences of the domain

    The answers are held against exact ones on 256 sentences, the written words on 16. Sentences,
    labels and sets are new draws for each seed and domain, the same for all networks of a seed.
    """
    found: dict[str, float] = {}
    for number, name in enumerate(DOMAINS):
        truth, generator = domain(name, net.num_tokens), draws.seeded(seed, 3, number)
        test, x = truth.sample(256 + max(LABELLED), generator=generator).tensor_split([256])
        posterior, shortfall = topic_posterior(truth, test), Shortfall(net, truth)
        labels = draws.multinomial(topic_posterior(truth, x), 1, generator)[:, 0]
        one = score_curve(shortfall, test, (1,), share_masks=False, generator=generator)
        ahead = torch.arange(net.num_tokens).flip(0)[None]
        written = chain_rule(shortfall, test[:16], ahead).sum(-1).mean()
        found[f"fill, {name}"] = -net.num_tokens * float(one.mean[0])
        found[f"write, {name}"] = -float(written)
        inputs, read = (middle_states(net, part).double() for part in (x, test))
        for count, sets in LABELLED.items():
            read_in, known = (
                part[: count * sets].unflatten(0, (sets, count)) for part in (inputs, labels)
            )
            heads = probe(read_in, known, posterior.shape[-1])
            answer = (with_constant(read) @ heads).log_softmax(-1)  # [sets, 256, topics]
            found[f"probe {count}, {name}"] = float(regret(posterior, answer).mean())
    return found


def foretellers(net: MaskedTransformer, *, seed: int) -> dict[str, float]:
    """What can be known of a network before it is used, nats per sentence; each is at least 0, less is better.

        area gap  expected LML minus area: the mean divergence along a random order (sizes AT, straight lines between)
        S(1)      D times the distance below the exact curve with one word hidden

    Both are read from the same 512 sentences.
    """
    truth, generator = language(net.num_tokens), draws.seeded(seed, 5)
    x = truth.sample(512, generator=generator)
    curve = score_curve(Shortfall(net, truth), x, AT, share_masks=False, generator=generator)
    return {"area gap": -curve.area().mean, "S(1)": -net.num_tokens * float(curve.mean[0])}


# The long run

KINDS = "uniform sizes", "fixed 40%", "fixed 15%", "15%, 80/10/10"


def units() -> list[tuple[str, int, int]]:
    """(kind, num_steps, seed) of each network, seed by seed, so that what is done first is complete."""
    steps = NUM_STEPS // 2, NUM_STEPS // 8
    every = known_language.seeds(10)
    return [(kind, count, seed) for seed in every for count in steps for kind in KINDS]


def run(kind: str, num_steps: int, seed: int) -> Iterator[dict[str, Any]]:
    """The one line of a network."""
    net = known_language.network(kind, seed, num_steps=num_steps)
    about = dict(kind=kind, num_steps=num_steps, rate=known_language.tuned()[kind], seed=seed)
    yield about | foretellers(net, seed=seed) | afterwards(net, seed=seed)


TABLES = {"after_training": runs.Table(run, units)}


if __name__ == "__main__":
    runs.main(TABLES)
