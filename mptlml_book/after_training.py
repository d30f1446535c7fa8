"""What a network is good for after its training, on languages where the best possible answer is known.

A network trained on `known_language.language()` is used at home and in four new domains, each a
hidden Markov model too. It fills in single words and writes from left to right, unchanged. And it
reads a sentence, so that a classifier learns the topic of the middle word from a few labels. Losses
are above that of the exact model.
"""

import copy
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, one_hot

from mptlml import draws
from mptlml.models.hmm import HiddenMarkovModel
from mptlml.protocol import all_observed
from mptlml.score import chain_rule, score_curve
from mptlml.training import fit

from .known_language import BATCH, NOUNS, STAY, VERBS, WORDS, language
from .numerics import climb
from .shortfall import Shortfall
from .transformer import MaskedTransformer

PHASES = 4  # states of one topic; state z has topic z // 4
# topics of 5 words, not 30; share of words that are replaced by any of the 24
SHORT_STAY, TYPING = (0.8, 0.10)
DOMAINS = "home", "short topics", "nouns renamed", "typing noise", "new topic"
# labelled sentences: how many such sets are drawn from all 512
LABELLED = {8: 16, 32: 8, 128: 4, 512: 1}
# sentences on which a network is held against exact answers; those it writes
NUM_TEST, NUM_WRITTEN = (256, 16)
AT = 1, 2, 5, 9, 13, 17, 21, 25, 29, 31, 32  # mask sizes of the area
NUM_READ = 512  # sentences from which a network is read before its use
TUNING_NUMBERS, TUNING_STEPS, TUNING_RATE = (32, 512), 20, 1e-3


def domain(name: str, num_tokens: int = 32) -> HiddenMarkovModel:
    """The language of one of DOMAINS, exactly.

    home           the language of the training
    short topics   the next word has the same topic with probability 0.8, not 0.97
    nouns renamed  each noun is called by the noun of the same rank in the next topic
    typing noise   a tenth of the words is replaced by words drawn from the vocabulary
    new topic      a fourth topic, as frequent as the others, whose nouns and verbs are known from different topics
    """
    home = language(num_tokens)
    if name == "home":
        return home
    transition, emission = home.transition, home.emission
    # [from, to], the same in every topic
    phase = transition[:PHASES].unflatten(1, (-1, PHASES)).sum(1)
    if name == "short topics":
        transition = torch.kron(_stay(3, SHORT_STAY), phase)
    if name == "nouns renamed":
        former = dict(zip(sum(NOUNS, ()), sum((NOUNS[-1], *NOUNS[:-1]), ()), strict=True))
        emission = emission[:, [WORDS.index(former.get(word, word)) for word in WORDS]]
    if name == "typing noise":
        emission = (1 - TYPING) * emission + TYPING / len(WORDS)
    if name == "new topic":
        transition = torch.kron(_stay(4, STAY), phase)
        emission = torch.cat([emission, _fourth_topic(emission)])
    states = len(emission)
    return HiddenMarkovModel(
        torch.full((states,), 1 / states, dtype=emission.dtype), transition, emission, num_tokens
    )


def _stay(num_topics: int, stay: float) -> Tensor:
    """The topic's transition: it stays, or becomes any of the others."""
    other = (1 - stay) / (num_topics - 1)
    return torch.full((num_topics,) * 2, other, dtype=torch.float64).fill_diagonal_(stay)


def _fourth_topic(emission: Tensor) -> Tensor:
    """What its states emit, [4, V]: as the first topic's, with nouns and verbs from different topics."""
    added = emission[:PHASES].clone()
    for state, kind in ((1, NOUNS), (2, VERBS)):
        for rank in range(3):
            given, taken = (WORDS.index(kind[topic][rank]) for topic in (0, (rank + state) % 3))
            added[state, given], added[state, taken] = emission[0, -1], emission[state, given]
    return added


def topic_posterior(truth: HiddenMarkovModel, x: Tensor) -> Tensor:
    """p(topic of the middle word | x), [N, topics], for visible rows x [N, D].

    The middle word is number (D + 1) // 2 of 1..D, so 16 of 32. No classifier has a smaller
    expected log loss.
    """
    states = truth.state_posterior(x, all_observed(truth.num_tokens))
    return states[:, (truth.num_tokens - 1) // 2].unflatten(-1, (-1, PHASES)).sum(-1)


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
    classes], the last row for a constant input of 1. The density has one maximum, which Newton's
    steps find: no slope exceeds 1e-6. (It is scikit-learn's logistic regression with C = 1 and no
    other intercept.) Raises FloatingPointError: no convergence in 100 steps.
    """
    inputs, target = with_constant(inputs), one_hot(labels, num_classes).to(inputs)
    height, slope = (
        partial(_log_density, inputs, target),
        partial(_slope_and_precision, inputs, target),
    )
    start = inputs.new_zeros(len(inputs), inputs.shape[-1] * num_classes)
    weight = climb(height, slope, start, num_steps=100, tolerance=1e-4, slack=8)
    if (left := slope(weight)[0].abs().max()) > 1e-6:
        raise FloatingPointError(f"a slope of {left:.1e} is left after 100 steps")
    return weight.unflatten(-1, (-1, num_classes))


def _log_density(inputs: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The log density of `probe`, less a constant, [S], for weights [S, (K + 1) classes]."""
    log_prob = (inputs @ weight.unflatten(-1, (-1, target.shape[-1]))).log_softmax(-1)
    return (target * log_prob).sum((-1, -2)) - weight.square().sum(-1) / 2


def _slope_and_precision(inputs: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    prob = (inputs @ weight.unflatten(-1, (-1, target.shape[-1]))).softmax(-1)  # [S, n, classes]
    slope = (inputs.mT @ (target - prob)).flatten(-2) - weight
    spread = prob.diag_embed() - prob[..., None] * prob[..., None, :]  # [S, n, classes, classes]
    bend = torch.einsum("sni,snj,snab->siajb", inputs, inputs, spread).flatten(-4, -3).flatten(-2)
    return slope, torch.eye(weight.shape[-1]).to(bend) + bend


def regret(posterior: Tensor, log_answer: Tensor) -> Tensor:
    """Mean KL(posterior || answer), nats per sentence [...], for [N, classes] and log-answers [..., N, classes].

    This is the answer's expected log loss minus that of the exact posterior, without the noise of
    the labels.
    """
    return (torch.special.entr(posterior).neg() - posterior * log_answer).sum(-1).mean(-1)


def fine_tune(
    net: MaskedTransformer, x: Tensor, labels: Tensor, head: Tensor, *, generator: Generator
) -> tuple[MaskedTransformer, Tensor]:
    """A copy of the network and of a probe's `head` [width + 1, classes], trained on labelled rows x [n, D].

    20 steps of Adam on batches of 32, with a rate that falls from 1e-3 to zero along a half cosine.
    """
    net, weight = copy.deepcopy(net), head.float().requires_grad_()

    def objective() -> Tensor:
        chosen = draws.randperm(len(x), None, generator)[:BATCH]
        return -cross_entropy(with_constant(middle_states(net, x[chosen])) @ weight, labels[chosen])

    fit(
        objective,
        [*net.parameters(), weight],
        num_steps=TUNING_STEPS,
        learning_rate=TUNING_RATE,
        decay_steps=TUNING_STEPS,
        name="fine-tuning",
    )
    return net, weight.detach()


def afterwards(net: MaskedTransformer, *, seed: int, tuned: bool = True) -> dict[str, float]:
    """How far a network is above the least possible loss, by "task, domain", in nats per sentence.

        fill      one hidden word at a time: D times the mean divergence from the exact answer
        write     the divergences summed along the words from left to right
        probe n   the regret of the topic of the middle word, from n labelled sentences of the domain
        tune n    the same after fine-tuning on the first such sentences, at home only; left out with tuned=False

    Sentences, labels and sets are new draws for each seed and domain, the same for all networks of
    a seed.
    """
    found: dict[str, float] = {}
    for number, name in enumerate(DOMAINS):
        truth, generator = domain(name, net.num_tokens), draws.seeded(seed, 3, number)
        test, x = truth.sample(max(LABELLED) + NUM_TEST, generator=generator).tensor_split(
            [NUM_TEST]
        )
        posterior, shortfall = topic_posterior(truth, test), Shortfall(net, truth)
        labels = draws.multinomial(topic_posterior(truth, x), 1, generator)[:, 0]
        with torch.no_grad():
            one = (
                score_curve(shortfall, test, (1,), share_masks=False, generator=generator).mean[0]
                * net.num_tokens
            )
            written = chain_rule(
                shortfall, test[:NUM_WRITTEN], torch.arange(net.num_tokens).flip(-1)[None]
            )
            inputs, read = (middle_states(net, rows).double() for rows in (x, test))
        found |= {f"fill, {name}": -float(one), f"write, {name}": -float(written.sum(-1).mean())}
        for count, sets in LABELLED.items():
            some = slice(0, count * sets)
            heads = probe(
                inputs[some].unflatten(0, (sets, count)),
                labels[some].unflatten(0, (sets, count)),
                posterior.shape[-1],
            )
            answer = (with_constant(read) @ heads).log_softmax(-1)  # [sets, NUM_TEST, topics]
            found[f"probe {count}, {name}"] = float(regret(posterior, answer).mean())
            if tuned and name == "home" and count in TUNING_NUMBERS:
                other, head = fine_tune(
                    net, x[:count], labels[:count], heads[0], generator=generator
                )
                with torch.no_grad():
                    answer = (
                        (with_constant(middle_states(other, test)) @ head).double().log_softmax(-1)
                    )
                found[f"tune {count}, {name}"] = float(regret(posterior, answer))
    return found


def foretellers(net: MaskedTransformer, *, seed: int) -> dict[str, float]:
    """What can be known of a network before it is used, nats per sentence; each is at least 0, less is better.

        area gap  expected LML minus area: the mean divergence along a random order (sizes AT, straight lines between)
        S(1)      D times the distance below the exact curve with one word hidden

    Both are read from the same NUM_READ sentences.
    """
    truth, generator = language(net.num_tokens), draws.seeded(seed, 5)
    x = truth.sample(NUM_READ, generator=generator)
    curve = score_curve(Shortfall(net, truth), x, AT, share_masks=False, generator=generator)
    return {"area gap": -curve.area().mean, "S(1)": -net.num_tokens * float(curve.mean[0])}


def best_possible(name: str, *, seed: int, num_rows: int = 4096) -> dict[str, float]:
    """What the exact posterior achieves in a domain: its log loss, nats per sentence, and its share of right ones.

    Means over num_rows new sentences, the exact expectation given each, and their standard errors.
    """
    truth = domain(name)
    posterior = topic_posterior(truth, truth.sample(num_rows, generator=draws.seeded(seed, 4)))
    loss, right = torch.special.entr(posterior).sum(-1), posterior.amax(-1)
    return {
        "log loss": float(loss.mean()),
        "log loss, error": float(loss.std() / num_rows**0.5),
        "right": float(right.mean()),
        "right, error": float(right.std() / num_rows**0.5),
    }
