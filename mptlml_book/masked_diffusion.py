"""Chapter 12: what published evaluators measure, how noisy they are, and what LLaDA's sampler writes.

The evaluators are those of the public code of MDLM (Sahoo et al. 2024), LLaDA (Nie et al. 2025),
DUEL (Turok et al. 2026) and others.

Schedules: how many tokens each pass writes, g_1, ..., g_k with sum D. Pass s starts with m_s = D -
(g_1 + ... + g_{s-1}) tokens hidden, and writes g_s of them, at random places, each from its own
distribution given what is visible. The scores S(m) are then read as a staircase: the pass earns g_s
S(m_s) where one token at a time would earn S(m_s) + S(m_s - 1) + ... + S(m_s - g_s + 1). The area
between curve and staircase is the expected Kullback-Leibler divergence (Hoogeboom et al. 2022, Sec.
3.1; Chen, Cong & Li 2025).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import binom
from torch import Generator, Tensor
from torch.nn.functional import pad

from mptlml import (
    ConditionalModel,
    chain_rule,
    draws,
    random_masks,
    random_orders,
    score_curve,
    stratified_sizes,
)
from mptlml.protocol import VocabularyModel, own_words, token_log_probs

from .toy_grammar import every_mask

SMALLEST = 1e-3  # the smallest rate, in MDLM's code and in others
TIE = 1e-9  # confidences closer than this count as equal


class ScoreMoments(NamedTuple):
    """Mean and variance over masks of (1/m) sum_j log p(x_j | x_R), nats per token, of each text and size [T, D]."""

    mean: np.ndarray
    variance: np.ndarray


def score_moments(
    model: ConditionalModel, texts: Tensor, num_masks: int, *, generator: Generator
) -> ScoreMoments:
    """The ScoreMoments of texts [T, D] from `num_masks` masks per text and size, at least 2."""
    curves = [
        score_curve(model, text, num_masks=num_masks, generator=generator)
        for text in texts[:, None]
    ]
    return ScoreMoments(
        np.stack([curve.mean for curve in curves]),
        num_masks * np.stack([curve.variance for curve in curves]),
    )


def by_rate(moments: ScoreMoments, num_passes: int, *, spread: bool) -> np.ndarray:
    """Variance [T] of the rate form at `num_passes` passes of one text, weight 1/t, t in (SMALLEST, 1).

    spread: one t from each of `num_passes` equal parts, as in a batch of MDLM's code, not
    independent ones.
    """
    mean, variance = moments
    strata = num_passes if spread else 1
    ends = np.linspace(SMALLEST, 1, 8 * strata + 1)
    edges = np.union1d(np.geomspace(SMALLEST, 1, 3000), ends)
    t, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / (1 - SMALLEST) * strata
    size = np.arange(1, mean.shape[1] + 1)
    chance = binom.pmf(size[:, None], mean.shape[1], t) * width  # [D, t]
    # mean and mean square of sum / t over each part, [T, strata]
    first, second = (
        np.add.reduceat(each @ chance / t**power, np.searchsorted(edges, ends[:-1:8]), -1)
        for power, each in ((1, mean * size), (2, (mean**2 + variance) * size**2))
    )
    return (second - first**2).mean(-1) / num_passes


def by_size(moments: ScoreMoments, num_passes: int, *, strata: int = 1) -> np.ndarray:
    """Variance [T] at `num_passes` passes of sizes drawn evenly from 1..D, num_passes / strata from each equal part."""
    mean, variance = moments
    num_tokens = mean.shape[1]
    upper, h = np.arange(1, num_tokens + 1)[:, None] / num_tokens, np.arange(strata)
    low = np.maximum(upper - 1 / num_tokens, h / strata)
    share = np.clip(np.minimum(upper, (h + 1) / strata) - low, 0, None) * strata  # [D, H]
    first, second = num_tokens * mean @ share, num_tokens**2 * (mean**2 + variance) @ share
    return (second - first**2).mean(-1) / num_passes


def by_llada(moments: ScoreMoments, num_passes: int, batch: int = 16) -> np.ndarray:
    """Variance [T] of LLaDA's likelihood script: sizes D/b apart from one random start, b passes per batch.

    The script rounds k + i D/b, i = 0..b - 1, for a random k in 1..D, and starts again at 1 above
    D.
    """
    num_tokens = moments.mean.shape[1]
    start = np.arange(1, num_tokens + 1)[:, None]
    sizes = np.round(start + np.arange(batch) * (num_tokens / batch)).astype(int)  # [D, b]
    mean, variance = (each[:, (sizes - 1) % num_tokens] for each in moments)
    # of the mean of one batch: over starts, and given them
    over = mean.mean(-1).var(-1) + variance.mean((-1, -2)) / batch
    return num_tokens**2 * over * batch / num_passes


def _hidden(model: ConditionalModel, x: Tensor, observed: Tensor) -> Tensor:
    """The log-probability of all that is hidden of rows x [..., D], nats [...], float64."""
    with torch.no_grad():
        return token_log_probs(model, x, observed).double().sum(-1)


def _areas(model: ConditionalModel, x: Tensor, observed: Tensor) -> Tensor:
    """Estimates [...] of the area of rows x [..., D] from masks [passes, ..., D], all they hide scored: nats."""
    scores = [_hidden(model, x, seen) / (~seen).sum(-1) for seen in observed]
    return torch.stack(scores).mean(0) * model.num_tokens


def choice_agreement(
    model: Any, num_questions: int, num_passes: int, *, shared: bool, generator: Generator
) -> float:
    """How often the most probable of four answers is picked by areas at so many passes, a share of the questions.

    A question is a row's first quarter. The answers are the rest of the row, and the same with one word replaced
    by any other, three times. shared: all answers under the same masks, not each under its own.
    """
    length, start = model.num_tokens, model.num_tokens // 4
    # [Q, A, D]
    answers = model.sample(num_questions, generator=generator)[:, None].repeat(1, 4, 1)
    place = start + draws.randint(length - start, (num_questions, 3, 1), None, generator)
    other = 1 + draws.randint(model.vocab_size - 1, place.shape, None, generator)
    wrong = (answers[:, 1:].gather(-1, place) + other) % model.vocab_size
    answers[:, 1:].scatter_(-1, place, wrong)
    shape = (num_questions, 1 if shared else 4)
    sizes = stratified_sizes(length - start, num_passes, shape, generator=generator)
    # [passes, Q, A or 1, D - start]
    observed = random_masks(length - start, sizes, generator=generator)
    area = _areas(model, answers, pad(observed, (start, 0), value=True))
    return (area.argmax(-1) == model.log_prob(answers).argmax(-1)).double().mean().item()


# What an evaluator says of rows [N, D]: nats [N]
Evaluator = Callable[[ConditionalModel, Tensor, Generator], Tensor]


def _over_rates(
    num_passes: int,
    rate: Callable[[Tensor, Callable[[], Tensor]], Tensor],
    weight: Callable[[Tensor], Tensor] = torch.reciprocal,
) -> Evaluator:
    """Each pass hides each token with a rate, and counts the log-probability of all hidden ones `weight` times.

    rate: from the number of each pass, 0, 1, ..., and a draw, uniform on [0, 1) for each pass and
    row.
    """

    def evaluate(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
        shape, number = (num_passes, len(x)), torch.arange(num_passes, dtype=torch.float64)
        rates = rate(number[:, None], lambda: draws.rand(shape, None, generator)).expand(shape)
        total = torch.zeros(len(x), dtype=torch.float64)
        for each in rates:
            observed = draws.rand(x.shape, None, generator) >= each[:, None]
            total += _hidden(model, x, observed) * weight(each)
        return total / num_passes

    return evaluate


def _at_size(share: float) -> Evaluator:
    """D times the mean score of a share of the tokens, all hidden together, in 8 passes."""

    return lambda model, x, generator: _areas(
        model,
        x,
        random_masks(
            x.shape[-1], torch.full((8, len(x)), round(share * x.shape[-1])), generator=generator
        ),
    )


def _jointly(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
    """The area with all that is hidden predicted as one: the mean over sizes m of D/m log q(x_M | x_R).

    Masks of all sizes nested along an order of each row, and q(x_M | x_R) by the chain rule along
    it, so that the word asked for while h are hidden counts in sizes h..D.
    """
    rank, total = random_orders(x.shape[-1], len(x), generator=generator), torch.zeros(len(x))
    share = (1 / torch.arange(1, 1 + x.shape[-1]).double()).flip(0).cumsum(0).flip(0)
    for hidden, weight in enumerate(share, start=1):
        answer = token_log_probs(model, x, rank >= hidden)
        total = total + weight * answer.where(rank == hidden - 1, 0).sum(-1)
    return total


def over_orders(
    model: ConditionalModel, x: Tensor, start: int = 0, count: int | None = None
) -> Tensor:
    """The area, the mixture over all orders, and the best order, exactly: nats [3, N] of rows x [N, D].

    Of `count` tokens from `start` on, by default all, given those before. A recursion over the
    2^count sets of hidden tokens: whichever is filled first, what is left is one token fewer.
    """
    count = count or model.num_tokens
    hidden = every_mask(count)
    seen = pad(~hidden, (start, 0), value=True)
    seen = pad(seen, (0, model.num_tokens - start - count), value=False)
    with torch.no_grad():
        answer = token_log_probs(model, x, seen[:, None])[..., start : start + count].double()
    value = torch.zeros(3, len(hidden), len(x), dtype=torch.float64)
    for code in range(1, len(hidden)):
        places = hidden[code].nonzero()[:, 0]
        # one of the places, and then the rest: [3, places, N]
        mean, mixture, best = answer[code, :, places].T + value[:, code - 2**places]
        mixture = mixture.logsumexp(0) - math.log(len(places))
        value[:, code] = torch.stack([mean.mean(0), mixture, best.amax(0)])
    return value[:, -1]


def tube(area: Tensor, mixture: Tensor) -> Tensor:
    """The mean of TUBE (Ivanov et al. 2026): log psi + E[q_order / psi] - 1, at log psi = the area, nats [...]."""
    return area + (mixture - area).expm1()


def _oracle(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
    """The best order within each block of four tokens, blocks from left to right (Turok et al. 2026, Table 7)."""
    blocks = [over_orders(model, x, start, 4)[2] for start in range(0, x.shape[-1], 4)]
    return torch.stack(blocks).sum(0)


def _best_of_four(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
    """The best of four orders, which are the same for all texts."""
    orders = random_orders(x.shape[-1], 4, generator=draws.seeded(4))
    return chain_rule(model, x, orders).sum(-1).amax(0)


# Ways to a "log-likelihood" in public code
EVALUATORS: dict[str, Evaluator] = {
    "1/t": _over_rates(8, lambda number, draw: 1 - draw()),
    "1/t, rates spread evenly": _over_rates(8, lambda number, draw: (number + draw()) / 8),
    "1/t, Gauss's two rates": _over_rates(2, lambda number, draw: 0.5 + (number - 0.5) / 3**0.5),
    "half of the words": _at_size(0.5),
    "one at a time": lambda model, x, _: _areas(model, x, ~torch.eye(x.shape[-1]).bool()),
    # that of a discrete diffusion of so many steps
    "bound of 8 steps": _over_rates(8, lambda number, draw: (number + 1) / 8),
    "hidden words jointly": _jointly,
    "best of four orders": _best_of_four,
    "oracle": _oracle,
}


def surest_words(
    model: VocabularyModel, num_rows: int, *, likeliest: bool = False, generator: Generator
) -> Tensor:
    """Rows [N, D] written from nothing, one word per pass, as LLaDA's script does.

    Each pass draws a word for every hidden place, or takes the likeliest, and keeps the most
    probable of them. Ties are broken at random.
    """
    row = torch.zeros(num_rows, model.num_tokens, dtype=torch.long)
    seen = torch.zeros_like(row, dtype=torch.bool)
    while not seen.all():
        with torch.no_grad():
            probs = model.vocabulary_log_prob(row, seen).double().exp()  # [N, D, V]
        word = probs.argmax(-1)
        if not likeliest:
            word = draws.multinomial(probs.flatten(0, 1), 1, generator).view_as(row)
        tie = TIE / 2 * draws.rand(row.shape, None, generator)
        key = (own_words(probs, word) / TIE).round() * TIE + tie
        place = key.masked_fill(seen, -1).argmax(-1, keepdim=True)
        row = row.scatter(-1, place, word.gather(-1, place))
        seen = seen.scatter(-1, place, True)
    return row


def equal_steps(num_tokens: int, num_steps: int) -> list[int]:
    """Tokens written by each of `num_steps` passes, as equal as whole numbers can be, the larger first: sum D."""
    return [num_tokens // num_steps + (step < num_tokens % num_steps) for step in range(num_steps)]


def cosine_steps(num_tokens: int, num_steps: int) -> list[int]:
    """MaskGIT's schedule: after s of k passes about D cos(pi s / 2 k) tokens are hidden, and each pass writes one."""
    hidden = [num_tokens]
    for step in range(1, num_steps + 1):
        left = math.floor(num_tokens * math.cos(math.pi * step / (2 * num_steps)))
        hidden.append(min(max(left, num_steps - step), hidden[-1] - 1))
    return (-np.diff(hidden)).tolist()


def schedule_cost(scores: Sequence[float] | np.ndarray, steps: Sequence[int]) -> float:
    """The area between the curve and the schedule's staircase, nats per row: E[KL(p || q_schedule)], given the order.

    scores [D]: S(1), ..., S(D), nats per token, the model's expected scores for rows drawn from it.
    One pass costs the total correlation of the tokens; D passes cost nothing.
    """
    hidden = len(scores) - np.cumsum([0, *steps[:-1]])
    return float(np.sum(scores) - np.dot(steps, np.take(scores, hidden - 1)))


def best_steps(scores: Sequence[float] | np.ndarray, num_steps: int) -> list[int]:
    """The schedule of `num_steps` passes with the highest staircase, by dynamic programming: tokens per pass, sum D.

    scores [D]: S(1), ..., S(D), nats per token (Hoogeboom et al. 2022, Sec. 3.1). O(k D^2)
    operations.
    """
    # for each number of hidden tokens that the passes so far can write: the staircase, the steps
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for _ in range(num_steps):
        best = {
            hidden: max(
                (height + (hidden - left) * scores[hidden - 1], [hidden - left, *steps])
                for left, (height, steps) in best.items()
                if left < hidden
            )
            for hidden in range(min(best) + 1, len(scores) + 1)
        }
    return best[len(scores)][1]
