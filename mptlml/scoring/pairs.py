"""Which of two texts is likelier, and is that sure: areas under shared masks, and all single mutants.

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
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from .. import draws
from ..allocation import EXACT
from ..checks import check_count
from ..masked_lm import MaskedLM, check_scores, exact_area, mask_scores, mean_by_mask, not_yet_asked
from ..passes import Request, Rows

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


class Mutants(NamedTuple):
    """All single mutants of a text, minus the text's own, nats: row j, column v has words[v] at place j.

    masked_marginals [D, V]: log p(v | all others) - log p(x_j | all others) (Meier et al. 2021);
    areas [D, V]: differences of areas, with standard errors [D, V] over masks that mutants share.
    The text is 0.
    """

    words: list[str]
    masked_marginals: Tensor
    areas: Tensor
    errors: Tensor


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
    fit into the passes of a pair that is not sure, they are asked instead, and none of them twice.
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
    known = {
        i: not_yet_asked(len(text)) for i, text in enumerate(ids) if masks[i // 2] <= num_passes
    }
    differ = [k for k, (one, other) in enumerate(each) if not torch.equal(one, other)]
    exact = _other_differences(lm, each, differ if others else [])
    rounds = [np.zeros(0) for _ in keys]
    found = {k: Comparison(0.0, 0.0, 0.0, 0.0, False, 0, *exact[k]) for k in range(len(keys))}
    count = 0
    going = [k for k in differ if masks[k] > min(num_passes, 2 * EXACT)]
    while going and count < most:
        more = min(most, max(FIRST, math.ceil(count * GROWTH))) - count
        count += more
        hidden, weight = {}, {}
        for k in going:
            weight[k], hidden[2 * k], hidden[2 * k + 1] = _hide_both(
                more, len(ids[2 * k]), keys[k], own[k]
            )
        scores = mask_scores(lm, ids, hidden, known)
        areas = {i: (len(ids[i]) * score).numpy() for i, score in scores.items()}
        for k in going:
            new = (areas[2 * k] - areas[2 * k + 1]).reshape(more, STRATA) * weight[k].numpy()
            rounds[k] = np.append(rounds[k], new.mean(1))
            found[k] = _compared(rounds[k], level, exact[k])
        going = [k for k in going if not found[k].sure and found[k].passes < masks[k]]
    for k in differ:
        if not found[k].sure and 2 * k in known:
            one, other = (exact_area(lm, ids, i, known) for i in (2 * k, 2 * k + 1))
            found[k] = Comparison(
                one - other, 0.0, one - other, one - other, one != other, masks[k], *exact[k]
            )
        elif 2 * k in known:  # a mask that was drawn again was asked once
            passes = sum(int(known[i].isfinite().sum()) for i in (2 * k, 2 * k + 1))
            found[k] = found[k]._replace(passes=passes)
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
    if asked:
        texts = [text for k in asked for text in pairs[k]]
        scores = [
            -lm.pseudo_log_likelihood(texts, later).view(-1, 2).diff()[:, 0]
            for later in ("none", "all")
        ]
        for k, single, left in zip(asked, *map(Tensor.tolist, scores), strict=True):
            found[k] = (single, left, 2 * sum(map(len, pairs[k])))
    return found


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


@torch.no_grad()
def single_mutants(
    lm: MaskedLM, text: str, words: Sequence[str], *, num_passes: int = 16, generator: Generator
) -> Mutants:
    """All texts that have one of `words`, such as the letters of residues, in one place of `text`: Mutants.

    num_passes: masks, a multiple of 4, which all mutants share. A mask that hides the mutated place
    answers for all words there; where the place is seen, each mutant is asked by itself: (words -
    1) x D x num_passes / 2 rows on average. Raises ValueError: as `encode`, a word of more tokens,
    another number of masks.
    """
    ids, columns = lm.encode(text), _single_tokens(lm, words)
    if check_count(num_passes, "num_passes", at_least=4) % 4:
        raise ValueError(
            "num_passes must be a multiple of 4, since each stratum is drawn twice, "
            f"got {num_passes}"
        )
    length, others = len(ids), columns != ids[:, None]  # [D, V]
    share, weight = shares(2, num_passes // 2, length, generator)
    hidden = hide(draws.rand((num_passes, length), None, generator), share.flatten())
    [(_, answer)] = lm.network.log_probs([lm.network.hiding(ids, hidden)], vocabulary=True)
    true = answer.gather(1, ids.expand_as(hidden)[hidden][:, None])
    value = answer.new_zeros(*hidden.shape, len(words))  # [masks, D, V]
    value[hidden] = answer[:, columns] - true
    value *= (length / hidden.sum(1).double())[:, None, None]
    wild = _area_by_mask(true[:, 0], hidden)
    asked = [_mutated(lm, ids, hidden, j, columns[others[j]]) for j in range(length)]
    for j, scores in lm.network.log_probs(asked):
        seen = (~hidden[:, j]).nonzero()[:, 0]
        masks = hidden[seen].repeat_interleave(int(others[j].sum()), 0)
        by_mask = _area_by_mask(scores, masks).view(len(seen), -1)
        value[seen[:, None], j, others[j].nonzero()[:, 0]] = by_mask - wild[seen, None]
    value *= weight.view(-1, 1, 1)
    pairs = value.unflatten(0, (2, -1)).diff(dim=0)[0]
    marginals = lm.masked_marginals(text)
    return Mutants(
        [*words],
        marginals[:, columns] - marginals.gather(1, ids[:, None]),
        value.mean(0),
        pairs.square().sum(0).sqrt() / num_passes,
    )


def _single_tokens(lm: MaskedLM, words: Sequence[str]) -> Tensor:
    """The token of each word, long [V]. Raises ValueError: one that is not one token, or no word."""
    ids = [lm.encode(word) for word in words]
    if not ids or max(map(len, ids)) > 1:
        raise ValueError(f"words must be single tokens, at least one, got {list(words)}")
    return torch.cat(ids)


def _mutated(lm: MaskedLM, ids: Tensor, hidden: Tensor, place: int, others: Tensor) -> Request:
    """The text with each of `others` at a place, under the masks that show it, mask by mask."""
    seen = hidden[~hidden[:, place]]

    def rows() -> Rows:
        there = ids.repeat(len(seen), len(others), 1)
        there[..., place] = others
        masks = seen[:, None].expand_as(there)
        return Rows.hiding(there.flatten(0, 1), masks.flatten(0, 1), lm.network.mask_id)

    return Request(len(ids), len(seen) * len(others), rows)


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


def _area_by_mask(answer: Tensor, hidden: Tensor) -> Tensor:
    """D times the mean of the answers to each mask [n, D], which stand one after the other: [n]."""
    return hidden.shape[1] * check_scores(mean_by_mask(answer, hidden.sum(1)))
