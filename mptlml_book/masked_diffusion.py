"""Chapter 12: how noisy published estimators of an area are, and what published samplers write.

The estimators are those of the public code of MDLM (Sahoo et al. 2024) and LLaDA (Nie et al. 2025),
and others; the samplers MDLM's (random places), and MaskGIT's (Chang et al. 2022) and LLaDA's (by
confidence).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import binom
from torch import Generator, Tensor

from mptlml import draws
from mptlml.checks import check_choice
from mptlml.masks import random_masks, random_orders, stratified_sizes
from mptlml.protocol import ConditionalModel, VocabularyModel, token_log_probs
from mptlml.score import score_curve

SMALLEST = 1e-3  # the smallest rate, in MDLM's code and in others
LLADA_BATCH = 16  # LLaDA's script spreads its sizes over batches of this many passes
PLACES = ("random", "surest place", "surest word")  # see `unmask`
AT_ONCE = 2048  # masks in one call of a model
TIE = 1e-9  # confidences closer than this count as equal


class ScoreMoments(NamedTuple):
    """Mean and variance over masks of (1/m) sum_j log p(x_j | x_R), nats per token, of each text and size [T, D]."""

    mean: np.ndarray
    variance: np.ndarray


class BiasAndVariance(NamedTuple):
    """Bias and variance of an estimator of each text's area [T]."""

    bias: np.ndarray
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


def by_rate(moments: ScoreMoments, num_passes: int, *, spread: bool) -> BiasAndVariance:
    """The rate form at `num_passes` passes of one text, weight 1/t, t in (SMALLEST, 1).

    spread: one t from each of `num_passes` equal parts, as in a batch of MDLM's code, not
    independent ones.
    """
    mean, variance = moments
    strata = num_passes if spread else 1
    edges = np.unique(
        np.r_[np.geomspace(SMALLEST, 1, 3000), np.linspace(SMALLEST, 1, 8 * strata + 1)]
    )
    t, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / (1 - SMALLEST)
    size = np.arange(1, mean.shape[1] + 1)
    chance = binom.pmf(size[:, None], mean.shape[1], t)  # [D, t]
    first = (mean * size) @ chance / t  # given t, mean and mean square of sum / t: [T, t]
    second = ((mean**2 + variance) * size**2) @ chance / t**2
    part = np.minimum(((t - SMALLEST) / (1 - SMALLEST) * strata).astype(int), strata - 1)
    within = np.zeros((len(t), strata))
    within[np.arange(len(t)), part] = width * strata
    by_part = first @ within
    spread_of = (second @ within - by_part**2).mean(-1) / num_passes
    return BiasAndVariance(by_part.mean(-1) - mean.sum(-1), spread_of)


def by_size(
    moments: ScoreMoments, num_passes: int, chance: np.ndarray | None = None, *, strata: int = 1
) -> np.ndarray:
    """Variance [T] at `num_passes` passes of sizes drawn with probabilities `chance` [D] or [T, D].

    Each score is divided by the probability of its size, by default 1/D. strata: parts of equal
    probability, each drawn num_passes / strata times.
    """
    mean, variance = moments
    num_tokens = mean.shape[1]
    chance = np.broadcast_to(1 / num_tokens if chance is None else chance, mean.shape)
    upper = np.cumsum(chance, -1)[..., None]  # [T, D, 1]
    h = np.arange(strata)
    lower = upper - chance[..., None]
    # [T, D, H]
    share = (
        np.clip(np.minimum(upper, (h + 1) / strata) - np.maximum(lower, h / strata), 0, None)
        * strata
    )
    first = np.einsum("td,tdh->th", mean / chance, share)
    second = np.einsum("td,tdh->th", (mean**2 + variance) / chance**2, share)
    return (second - first**2).mean(-1) / num_passes


def by_llada(moments: ScoreMoments, num_passes: int, batch: int = LLADA_BATCH) -> BiasAndVariance:
    """LLaDA's likelihood script: sizes D/b apart from one random start, b passes per batch.

    The script rounds k + i D/b, i = 0..b - 1, for a random k in 1..D, and starts again at 1 above
    D.
    """
    mean, variance = moments
    num_tokens = mean.shape[1]
    start = np.arange(1, num_tokens + 1)[:, None]
    sizes = (
        np.round(start + np.arange(batch) * (num_tokens / batch)).astype(int) - 1
    ) % num_tokens + 1  # [D, b]
    # the mean of one batch, given its start: [T, D]
    area = num_tokens * mean[:, sizes - 1].mean(-1)
    noise = num_tokens**2 * variance[:, sizes - 1].mean((-1, -2)) / batch
    return BiasAndVariance(
        area.mean(-1) - mean.sum(-1), (area.var(-1) + noise) * batch / num_passes
    )


def nested_areas(
    model: ConditionalModel,
    texts: Tensor,
    num_passes: int,
    num_orders: int,
    *,
    generator: Generator,
) -> Tensor:
    """Estimates [orders, T] of the area of texts [T, D], each from one order's nested masks: nats per row.

    The sizes lie in the middle of `num_passes` equal parts of 1..D, and all hidden tokens are
    scored.
    """
    num_tokens = model.num_tokens
    size = 1 + ((torch.arange(num_passes) + 0.5) / num_passes * num_tokens).long()
    # [Q, T, D]
    rank = random_orders(num_tokens, (num_orders, len(texts)), generator=generator).argsort(-1)
    estimates = []
    for some in rank.split(max(1, AT_ONCE // (num_passes * len(texts)))):
        observed = some[:, None] >= size[:, None, None]  # [q, passes, T, D]
        with torch.no_grad():
            score = token_log_probs(model, texts, observed).sum(-1).double() / size[:, None]
        estimates.append(score.mean(1) * num_tokens)
    return torch.cat(estimates)


def complementary_areas(
    model: ConditionalModel, texts: Tensor, num_passes: int, num_draws: int, *, generator: Generator
) -> Tensor:
    """Estimates [draws, T] of the area of texts [T, D], from masks and what they leave: nats per row.

    Half of the passes have sizes spread evenly; the others hide what these show, or all where all
    is hidden, so that their sizes are as even.
    """
    num_tokens, shape = model.num_tokens, (num_draws, len(texts))
    sizes = stratified_sizes(num_tokens, num_passes // 2, shape, generator=generator)
    observed = random_masks(num_tokens, sizes, generator=generator)  # [passes / 2, Q, T, D]
    observed = torch.cat([observed, ~observed & observed.any(-1, keepdim=True)])
    estimates = []
    for some in observed.split(max(1, AT_ONCE // (num_passes * len(texts))), 1):
        with torch.no_grad():
            score = token_log_probs(model, texts, some).sum(-1).double() / (~some).sum(-1)
        estimates.append(score.mean(0) * num_tokens)
    return torch.cat(estimates)


def choice_agreement(
    model: Any, num_questions: int, num_passes: int, *, shared: bool, generator: Generator
) -> float:
    """How often the most probable of four answers is picked by areas at so many passes, a share of the questions.

    A question is a row's first quarter. The answers are the rest of the row, and the same with one word replaced
    by any other, three times. shared: all answers under the same masks, not each under its own.
    """
    length, start = model.num_tokens, model.num_tokens // 4
    rows = model.sample(num_questions, generator=generator)
    answers = rows[:, None].repeat(1, 4, 1)  # [Q, A, D]
    place = start + draws.randint(length - start, (num_questions, 3, 1), None, generator)
    other = 1 + draws.randint(model.vocab_size - 1, place.shape, None, generator)
    changed = (answers[:, 1:].gather(-1, place) + other) % model.vocab_size
    answers[:, 1:] = answers[:, 1:].scatter(-1, place, changed)
    shape = (num_questions, 1 if shared else 4)
    sizes = stratified_sizes(length - start, num_passes, shape, generator=generator)
    hides = ~random_masks(
        length - start, sizes, generator=generator
    )  # [passes, Q, A or 1, D - start]
    area = torch.zeros(answers.shape[:-1], dtype=torch.float64)
    for hidden in hides:
        observed = torch.cat([torch.ones(*hidden.shape[:-1], start, dtype=torch.bool), ~hidden], -1)
        area += token_log_probs(model, answers, observed).double().sum(-1) / hidden.sum(-1)
    exact = model.log_prob(answers)
    return (area.argmax(-1) == exact.argmax(-1)).double().mean().item()


# What an evaluator says of rows [N, D]: nats [N]
Evaluator = Callable[[ConditionalModel, Tensor, Generator], Tensor]


def _over_rates(
    rates: Callable[[tuple[int, int], Generator], Tensor],
    num_passes: int,
    weight: Callable[[Tensor], Tensor] = torch.reciprocal,
) -> Evaluator:
    """Each pass hides each token with a rate, and counts the log-probability of all hidden ones `weight` times."""

    def evaluate(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
        total = torch.zeros(len(x), dtype=torch.float64)
        for rate in rates((num_passes, len(x)), generator).expand(-1, len(x)):
            observed = draws.rand(x.shape, None, generator) >= rate[:, None]
            total += token_log_probs(model, x, observed).double().sum(-1) * weight(rate)
        return total / num_passes

    return evaluate


def _at_size(share: float, num_passes: int) -> Evaluator:
    """D times the mean score of a share of the tokens, at least one, all hidden together."""

    def evaluate(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
        size = max(1, round(share * model.num_tokens))
        sizes, total = torch.full((len(x),), size), torch.zeros(len(x), dtype=torch.float64)
        for _ in range(num_passes):
            observed = random_masks(model.num_tokens, sizes, generator=generator)
            total += token_log_probs(model, x, observed).double().sum(-1)
        return total * model.num_tokens / (size * num_passes)

    return evaluate


def _one_at_a_time(model: ConditionalModel, x: Tensor, generator: Generator) -> Tensor:
    observed = ~torch.eye(model.num_tokens, dtype=torch.bool)
    return sum(
        (token_log_probs(model, x, one).double().sum(-1) for one in observed), torch.zeros(len(x))
    )


def _even(shape: tuple[int, int], generator: Generator) -> Tensor:
    """The same rates for all rows: the middles of equal parts."""
    return ((torch.arange(shape[0]).double() + 0.5) / shape[0])[:, None]


def _levels(shape: tuple[int, int], generator: Generator) -> Tensor:
    """The same rates for all rows: 1/T, 2/T, ..., 1, those of a discrete diffusion of T steps."""
    return ((torch.arange(shape[0]).double() + 1) / shape[0])[:, None]


def _spread(shape: tuple[int, int], generator: Generator) -> Tensor:
    return (torch.arange(shape[0])[:, None] + draws.rand(shape, None, generator)) / shape[0]


def _uniform(shape: tuple[int, int], generator: Generator) -> Tensor:
    """Of a noise schedule that leaves a share SMALLEST visible: see `EVALUATORS`."""
    return (1 - SMALLEST) * draws.rand(shape, None, generator)


# Ways to a "log-likelihood" in public code, with 8 passes where nothing else is said
EVALUATORS: dict[str, Evaluator] = {
    "1/t": _over_rates(lambda shape, g: 1 - draws.rand(shape, None, g), 8),
    "1/t, rates spread evenly": _over_rates(_spread, 8),
    "1/t, five rates": _over_rates(_even, 5),
    "half of the tokens": _at_size(0.5, 8),
    "15% of the tokens": _at_size(0.15, 8),
    "one at a time": _one_at_a_time,
    **{f"bound of {steps} steps": _over_rates(_levels, steps) for steps in (8, 64, 512)},
    "weight without its divisor": _over_rates(
        _uniform, 8, lambda rate: (1 - SMALLEST) / (1 - rate)
    ),
}


def unmask(
    model: VocabularyModel,
    steps: Sequence[int],
    x: Tensor | None = None,
    *,
    places: str = "random",
    likeliest: bool = False,
    noise: float = 0.0,
    num_rows: int = 1,
    generator: Generator,
) -> tuple[Tensor, Tensor]:
    """Rows [N, D] written from nothing, and log q of each [N], nats, given the draws that order the places.

    steps: how many tokens each pass writes. Each pass draws a word for every hidden place from
    q(x_j | x_R), or takes the likeliest, and keeps those at some places, chosen by `places`: at
    random; the places whose likeliest words are most probable ("surest place", chosen before the
    words are drawn); or those whose drawn words are most probable ("surest word": LLaDA's script).
    Ties are broken at random. For "surest word" log q is NaN: see `log_prob_surest`. noise: MaskGIT
    adds Gumbel noise to the log-probability of each drawn word before it keeps the surest, times
    this number in the first pass and less by equal steps, down to zero in the last. x [N, D]: read
    these rows in place of writing, by other places than the surest words. Raises ValueError:
    unknown places; steps that do not sum to D.
    """
    num_tokens = model.num_tokens
    check_choice(places, PLACES, "places")
    if sum(steps) != num_tokens:
        raise ValueError(f"steps must sum to {num_tokens} tokens, got {list(steps)}")
    row = torch.zeros(num_rows, num_tokens, dtype=torch.long) if x is None else x.long()
    seen = torch.zeros_like(row, dtype=torch.bool)
    log_q = torch.zeros(len(row), dtype=torch.float64)
    for done, step in enumerate(steps, start=1):
        with torch.no_grad():
            answer = model.vocabulary_log_prob(row, seen).double()  # [N, D, V]
        if x is not None:
            word = row
        elif likeliest:
            word = answer.argmax(-1)
        else:
            word = draws.multinomial(answer.exp().flatten(0, 1), 1, generator).view_as(row)
        drawn = answer.gather(-1, word[..., None]).squeeze(-1)
        key = _keys(answer, drawn, places, generator)
        if noise:
            gumbel = -draws.rand(row.shape, None, generator).log().neg().log()
            key = drawn + noise * (1 - done / len(steps)) * gumbel
        chosen = key.masked_fill(seen, -math.inf).topk(step).indices
        filled = torch.zeros_like(seen).scatter(-1, chosen, True)
        if not likeliest or x is not None:  # the likeliest words are written with probability 1
            log_q += torch.where(filled, drawn, 0).sum(-1)
        row, seen = torch.where(filled, word, row), seen | filled
    return row, log_q if places != "surest word" else log_q * math.nan


def _keys(answer: Tensor, drawn: Tensor, places: str, generator: Generator) -> Tensor:
    """Keys of the places [N, D], the highest first, from answers [N, D, V] and those about drawn words."""
    key = draws.rand(drawn.shape, None, generator)
    if places == "random":
        return key
    sure = answer.amax(-1) if places == "surest place" else drawn
    return _rounded(sure.exp()) + TIE / 2 * key


def log_prob_surest(
    model: VocabularyModel, x: Tensor, num_paths: int, *, generator: Generator
) -> Tensor:
    """log q(x) of rows [N, D] under "surest word", one token per pass: nats [N], from `num_paths` paths per row.

    A step keeps place j with word x_j with probability s_j = q(x_j | x_R) P(no other drawn word is
    more probable). A path follows x, each place drawn in proportion to s_j; the product of sum_j
    s_j along it is an unbiased estimate of q(x). On average the log of the mean of `num_paths`
    products is below log q(x).
    """
    rows = x.long().repeat_interleave(num_paths, 0)  # [N K, D]
    seen = torch.zeros_like(rows, dtype=torch.bool)
    log_weight = torch.zeros(len(rows), dtype=torch.float64)
    for _ in range(model.num_tokens):
        with torch.no_grad():
            probs = _rounded(model.vocabulary_log_prob(rows, seen).double().exp())
        own = probs.gather(-1, rows[..., None]).squeeze(-1)  # q(x_j | x_R): [n, D]
        before = draws.rand(rows.shape, None, generator)  # the random order that breaks ties
        below = _below(probs, own, before).masked_fill(seen[..., None], 1)
        below.diagonal(dim1=-2, dim2=-1).fill_(1)
        chance = (own * below.prod(-2)).masked_fill(seen, 0)
        log_weight += chance.sum(-1).log()
        place = draws.multinomial(chance.clamp(min=1e-300), 1, generator)
        seen = seen.scatter(-1, place, True)
    return log_weight.view(len(x), num_paths).logsumexp(-1) - math.log(num_paths)


def _below(probs: Tensor, own: Tensor, before: Tensor) -> Tensor:
    """P(the word drawn at place i loses to x_j at place j): [n, i, j], for probs [n, D, V], own [n, D], ties [n, D]."""
    chance = probs.sort(-1).values
    total = torch.cat([torch.zeros_like(chance[..., :1]), chance.cumsum(-1)], -1)
    limit = own[:, None].expand(-1, probs.shape[1], -1).contiguous()  # [n, i, j]
    less = total.gather(-1, torch.searchsorted(chance, limit))
    equal = total.gather(-1, torch.searchsorted(chance, limit, right=True))
    return torch.where(before[:, :, None] < before[:, None], equal, less)


def _rounded(probs: Tensor) -> Tensor:
    """Probabilities in whole units of TIE, so that what differs by rounding counts as equal."""
    return (probs / TIE).round() * TIE
