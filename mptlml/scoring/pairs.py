"""Which of two texts is likelier, and is that sure: areas under shared masks.

A draw is a share t of the tokens and a random key for each token; a text hides the ceil(t D) tokens
with the lowest keys. Seen alone, a text is asked under a random size and random masks of that size,
so D times its score has its area as mean. Tokens that two texts have in common share their keys, so
they are hidden together, or nearly so where lengths differ: the difference of the two scores has
the difference of the areas as mean, and less noise. Small masks that hide what differs are rare and
count much, so half of the shares are drawn evenly in log t, and weighted accordingly.
"""

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from .. import draws
from ..checks import check_count
from ..masked_lm import MaskedLM
from .texts import left_to_right

EXACT = 255  # masks, those of eight tokens: so many are asked rather than a sample
MOST = 2**16  # masks of a pair that are asked, whatever the passes
STRATA = 8  # of the shares of a round, half of them of t and half of its logarithm
# The prior standard deviation of mean / deviation of rounds is small, so that few rounds decide nothing.
EFFECT = 0.05**0.5
FIRST, GROWTH = 13, 1.25  # rounds before the first look; by how much they grow until the next
LEAST_PASSES = 2 * STRATA * FIRST


class Comparison(NamedTuple):
    """The first text of a pair minus the second, in nats: above 0 where the first is likelier.

    difference: of the areas, with its standard error; low and high: a confidence sequence around
    it, valid at every look; sure: 0 lies outside; passes: rows asked for these. An error of 0 is of
    all masks, or of texts that are one to the tokenizer: then there are no passes, and nothing is
    sure. The differences of the pseudo-log-likelihoods and of the chain rules from left to right
    are exact, and took `other_passes`.
    """

    difference: float
    error: float
    low: float
    high: float
    sure: bool
    passes: int
    pseudo_log_likelihood: float
    left_to_right: float
    other_passes: int


class Choice(NamedTuple):
    """The answer that was chosen, by its place from 0; whether the sign of each comparison was sure; rows asked."""

    answer: int
    decided: bool
    passes: int


def compare(
    lm: MaskedLM,
    pairs: Iterable[Sequence[str | Tensor]],
    *,
    num_passes: int = 10_000,
    level: float = 0.95,
    others: bool = True,
    generator: Generator,
) -> list[Comparison]:
    """For each pair of texts, which is likelier: a Comparison. The texts of a pair may differ in length.

    A pair is asked in rounds of 8 shares t, thirteen rounds at first, until the sign of the
    difference is sure at `level` or `num_passes` rows are spent. The interval is a confidence
    sequence for the mean of normal rounds of unknown variance, so one may look again and again
    (Wang and Ramdas 2024, arXiv:2310.03722); the noise of masks is skewed, and what that does to
    the level is tested. It holds for each pair, not for all at once. Where all masks are few, or
    fit into the passes of a pair that is not sure, they are asked instead.
    others: measure the two other scores, else NaN. What is drawn for a pair follows from the
    generator and its place in the list. pairs: two texts each, or their ids. Raises ValueError:
    texts that cannot be scored, passes for fewer than thirteen rounds, a level outside (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level!r}")
    pairs = list(pairs)
    if any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
        raise ValueError("give a list of pairs, two texts each")
    most = check_count(num_passes, "num_passes", at_least=LEAST_PASSES) // (2 * STRATA)
    ids, seed = lm.read([text for pair in pairs for text in pair]).rows, draws.seed(generator)
    each = [*zip(ids[::2], ids[1::2], strict=True)]
    keys = [shared_keys(one.tolist(), other.tolist()) for one, other in each]
    own = [draws.seeded(seed, k) for k in range(len(keys))]
    masks = [2 ** len(one) + 2 ** len(other) - 2 for one, other in each]
    differ = [k for k, (one, other) in enumerate(each) if not torch.equal(one, other)]
    exact = _other_differences(lm, each, differ if others else [])
    rounds = [np.zeros(0) for _ in keys]
    found = {k: Comparison(0.0, 0.0, 0.0, 0.0, False, 0, *exact[k]) for k in range(len(keys))}
    count = 0
    going = [k for k in differ if masks[k] > min(num_passes, 2 * EXACT)]
    while going and count < most:
        more = min(most, max(FIRST, math.ceil(count * GROWTH))) - count
        count += more
        drawn = [_hide_both(more, len(each[k][0]), keys[k], own[k]) for k in going]
        texts = [text for k in going for text in each[k]]
        areas = mask_areas(lm, texts, [hidden for _, *both in drawn for hidden in both])
        for place, (k, (weight, *_)) in enumerate(zip(going, drawn, strict=True)):
            one, other = areas[2 * place : 2 * place + 2]
            new = (one - other).reshape(more, STRATA) * weight
            rounds[k] = np.append(rounds[k], new.mean(1).numpy())
            found[k] = _compared(rounds[k], level, exact[k])
        going = [k for k in going if not found[k].sure and found[k].passes < masks[k]]
    for k in differ:
        if not found[k].sure and masks[k] <= min(num_passes, MOST):
            areas_of = [lm.exact_curve(text).area().mean for text in each[k]]
            gap, passes = areas_of[0] - areas_of[1], found[k].passes + masks[k]
            found[k] = Comparison(gap, 0.0, gap, gap, gap != 0, passes, *exact[k])
    return [found[k] for k in range(len(keys))]


def choose(
    lm: MaskedLM,
    questions: Sequence[Sequence[str | Tensor]],
    *,
    num_passes: int = 10_000,
    level: float = 0.95,
    generator: Generator,
) -> list[Choice]:
    """For each question, which of its answers is likeliest by area: a Choice.

    The answer that leads is compared with the next one, under masks that both share, as `compare`
    does; of K answers each time at 1 - (1 - level) / (K - 1), so that all K - 1 signs are right at
    `level`. num_passes: the most rows for one comparison. questions: of each its answers, texts or
    their ids. Raises ValueError: fewer than two answers, and as `compare`.
    """
    if any(isinstance(answers, str) or len(answers) < 2 for answers in questions):
        raise ValueError("give a list of questions, at least two answers each")
    ids = [lm.read(answers).rows for answers in questions]
    found = [Choice(0, True, 0) for _ in ids]
    for k in range(1, max(map(len, ids), default=0)):
        going = [q for q, answers in enumerate(ids) if k < len(answers)]
        asked = [(ids[q][found[q].answer], ids[q][k]) for q in going]
        most = max(len(ids[q]) for q in going) - 1
        pairs = compare(
            lm,
            asked,
            num_passes=num_passes,
            level=1 - (1 - level) / most,
            others=False,
            generator=generator,
        )
        for q, pair in zip(going, pairs, strict=True):
            best = k if pair.difference < 0 else found[q].answer
            found[q] = Choice(best, found[q].decided and pair.sure, found[q].passes + pair.passes)
    return found


def _other_differences(
    lm: MaskedLM, pairs: Sequence[tuple[Tensor, Tensor]], asked: Sequence[int]
) -> list[tuple[float, float, int]]:
    """Differences of pseudo-log-likelihoods and chain rules of pairs, and their passes; NaN where not asked.

    Texts that are one to the tokenizer differ by 0.
    """
    same = [torch.equal(*pair) for pair in pairs]
    found = [(0.0, 0.0, 0) if equal else (math.nan, math.nan, 0) for equal in same]
    for k in asked:
        single, left = (
            [float(part.sum()) for part in scores]
            for scores in (lm.single_scores(pairs[k]), [left_to_right(lm, ids) for ids in pairs[k]])
        )
        passes = 2 * sum(map(len, pairs[k]))
        found[k] = (single[0] - single[1], left[0] - left[1], passes)
    return found


def mask_areas(lm: MaskedLM, rows: Sequence[Tensor], hidden: Sequence[Tensor]) -> list[Tensor]:
    """D times the mean log-probability of what masks hidden[i] [n, D] hide of each text, nats [n]."""
    asked = lm.log_probs([*map(len, rows)], lambda i: lm.hiding(rows[i], hidden[i]))
    found: list[Any] = [None] * len(rows)
    for i, answer in asked:
        sizes = hidden[i].sum(1)
        each = [part.mean() for part in answer.split(sizes.tolist())]
        found[i] = check_scores(len(rows[i]) * torch.stack(each))
    return found


def check_scores(scores: Tensor) -> Tensor:
    """Scores as they are. Raises ValueError: one that is not finite."""
    if not scores.isfinite().all():
        raise ValueError("the model has no finite score for it")
    return scores


def _hide_both(
    rounds: int, num_tokens: int, keys: Sequence[list[int]], generator: Generator
) -> list[Tensor]:
    """The weights of some rounds of a pair, and where each of its two texts hides its tokens."""
    share, weight = shares(rounds, STRATA, num_tokens, generator)
    key = draws.rand((rounds * STRATA, 1 + max(map(max, keys))), None, generator)
    return [weight, *(hide(key[:, own], share.flatten()) for own in keys)]


def _compared(rounds: np.ndarray, level: float, others: tuple[float, float, int]) -> Comparison:
    mean, error = float(rounds.mean()), float(rounds.std(ddof=1)) / math.sqrt(len(rounds))
    half = half_width(len(rounds), error, level)
    passes = 2 * STRATA * len(rounds)
    return Comparison(mean, error, mean - half, mean + half, abs(mean) > half, passes, *others)


def shares(
    rounds: int, strata: int, num_tokens: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Shares t of the tokens that are hidden, and their weights, [rounds, strata] each.

    The mean of weight x f(t) is that of f over (0, 1].

    Half of the strata are equal parts of t, half of log(t + 1 / D).
    """
    half, least = strata // 2, 1 / num_tokens
    place = 1 - (torch.arange(strata) % half + draws.rand((rounds, strata), None, generator)) / half
    span = math.log1p(num_tokens)  # of the logarithm
    share = torch.where(torch.arange(strata) < half, place, least * torch.expm1(place * span))
    return share, 2 / (1 + 1 / ((share + least) * span))


def hide(keys: Tensor, share: Tensor) -> Tensor:
    """Where a text hides its tokens: bool [n, D], the ceil(t D) lowest of keys [n, D] for shares t [n]."""
    size = (share * keys.shape[1]).ceil().clamp(1, keys.shape[1])
    return keys.argsort(-1).argsort(-1) < size[:, None]


def shared_keys(one: list[int], other: list[int]) -> tuple[list[int], list[int]]:
    """Which key each token of two texts takes, from 0: what they have in common, in order, takes the same.

    So do tokens that stand in for each other, as many as both have between what is common.
    """
    there = [*range(len(one), len(one) + len(other))]
    for _, start, stop, begin, end in difflib.SequenceMatcher(
        None, one, other, autojunk=False
    ).get_opcodes():
        both = min(stop - start, end - begin)
        there[begin : begin + both] = range(start, start + both)
    return [*range(len(one))], there


def half_width(count: int, error: float, level: float) -> float:
    """Half of a confidence sequence around the mean of `count` normal values, of standard error `error`.

    Where the effect mean / deviation is normal with standard deviation EFFECT, and the deviation of
    no known scale, the Bayes factor against any mean is a test martingale (Wang and Ramdas 2024).
    Few values: infinite.
    """
    spread = 1 + count * EFFECT**2
    ratio = (math.sqrt(spread) / (1 - level)) ** (2 / count)
    if ratio >= spread:
        return math.inf
    return error * math.sqrt((count - 1) * (ratio - 1) / (1 - ratio / spread))
