"""Chapter 12: how noisy published estimators of an area are, and what published samplers write.

The estimators are those of the public code of MDLM (Sahoo et al. 2024) and LLaDA (Nie et al. 2025),
and others; the samplers MDLM's (random places), and MaskGIT's (Chang et al. 2022) and LLaDA's (by
confidence).

Schedules: how many tokens each pass writes, g_1, ..., g_k with sum D. Pass s starts with m_s = D -
(g_1 + ... + g_{s-1}) tokens hidden, and writes g_s of them, at random places, each from its own
distribution given what is visible. The scores S(m) are then read as a staircase: the pass earns g_s
S(m_s) where one token at a time would earn S(m_s) + S(m_s - 1) + ... + S(m_s - g_s + 1). The area
between curve and staircase is the expected Kullback-Leibler divergence (Hoogeboom et al. 2022, Sec.
3.1; Chen, Cong & Li 2025).
"""

import math
from collections.abc import Callable, Iterator, Sequence
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
from mptlml.checks import check_choice
from mptlml.protocol import VocabularyModel, own_words, token_log_probs

from . import known_language, runs

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


def by_size(
    moments: ScoreMoments, num_passes: int, chance: np.ndarray | None = None, *, strata: int = 1
) -> np.ndarray:
    """Variance [T] at `num_passes` passes of sizes drawn with probabilities `chance` [D] or [T, D].

    Each score is divided by the probability of its size, by default 1/D. strata: parts of equal
    probability, each drawn num_passes / strata times.
    """
    mean, variance = moments
    chance = np.broadcast_to(1 / mean.shape[1] if chance is None else chance, mean.shape)
    upper, h = np.cumsum(chance, -1)[..., None], np.arange(strata)
    low = np.maximum(upper - chance[..., None], h / strata)
    share = np.clip(np.minimum(upper, (h + 1) / strata) - low, 0, None) * strata  # [T, D, H]
    first = np.einsum("td,tdh->th", mean / chance, share)
    second = np.einsum("td,tdh->th", (mean**2 + variance) / chance**2, share)
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
    size = 1 + ((torch.arange(num_passes) + 0.5) / num_passes * model.num_tokens).long()
    orders = random_orders(model.num_tokens, (num_orders, len(texts)), generator=generator)
    return _areas(model, texts, orders.argsort(-1) >= size[:, None, None, None])


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
    return _areas(model, texts, torch.cat([observed, ~observed & observed.any(-1, keepdim=True)]))


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


# Ways to a "log-likelihood" in public code
EVALUATORS: dict[str, Evaluator] = {
    "1/t": _over_rates(8, lambda number, draw: 1 - draw()),
    "1/t, rates spread evenly": _over_rates(8, lambda number, draw: (number + draw()) / 8),
    "1/t, five rates": _over_rates(5, lambda number, draw: (number + 0.5) / 5),
    "half of the tokens": _at_size(0.5),
    "15% of the tokens": _at_size(0.15),
    "one at a time": lambda model, x, _: _areas(model, x, ~torch.eye(x.shape[-1]).bool()),
    # those of a discrete diffusion of so many steps
    **{
        f"bound of {steps} steps": _over_rates(
            steps, lambda number, draw: (number + 1) / len(number)
        )
        for steps in (8, 64, 512)
    },
    # of a noise schedule that leaves a share SMALLEST visible
    "weight without its divisor": _over_rates(
        8,
        lambda number, draw: (1 - SMALLEST) * draw(),
        lambda rate: (1 - SMALLEST) / (1 - rate),
    ),
}


def unmask(
    model: VocabularyModel,
    steps: Sequence[int],
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
    this number in the first pass and less by equal steps, down to zero in the last. Raises
    ValueError: unknown places.
    """
    check_choice(places, ("random", "surest place", "surest word"), "places")
    row = torch.zeros(num_rows, model.num_tokens, dtype=torch.long)
    seen = torch.zeros_like(row, dtype=torch.bool)
    log_q = torch.zeros(num_rows, dtype=torch.float64)
    for done, step in enumerate(steps, start=1):
        with torch.no_grad():
            answer = model.vocabulary_log_prob(row, seen).double()  # [N, D, V]
        word = answer.argmax(-1)
        if not likeliest:
            word = draws.multinomial(answer.exp().flatten(0, 1), 1, generator).view_as(row)
        drawn = own_words(answer, word)
        key = draws.rand(row.shape, None, generator)
        if places != "random":
            sure = answer.amax(-1) if places == "surest place" else drawn
            key = _rounded(sure.exp()) + TIE / 2 * key
        if noise:
            gumbel = -draws.rand(row.shape, None, generator).log().neg().log()
            key = drawn + noise * (1 - done / len(steps)) * gumbel
        chosen = key.masked_fill(seen, -math.inf).topk(step).indices
        filled = torch.zeros_like(seen).scatter(-1, chosen, True)
        if not likeliest:  # which are written with probability 1
            log_q += torch.where(filled, drawn, 0).sum(-1)
        row, seen = torch.where(filled, word, row), seen | filled
    return row, log_q if places != "surest word" else log_q * math.nan


def chosen_order_terms(
    model: ConditionalModel, x: Tensor, policy: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The terms of log q of rows x [N, D] along an order that each row's visible tokens choose: nats [N, t].

    policy: from rows [N, D], with 0 at hidden tokens, and which are visible, to keys [N, D]; the
    hidden token with the highest key becomes visible next. So the probabilities of all rows sum to
    1, as they do not for the best of several orders. The last term is that of the first token
    chosen.
    """
    observed, terms = torch.zeros_like(x, dtype=torch.bool), []
    for _ in range(model.num_tokens):
        key = policy(torch.where(observed, x, 0), observed).masked_fill(observed, -math.inf)
        place = key.argmax(-1, keepdim=True)
        terms.append(token_log_probs(model, x, observed).gather(-1, place))
        observed = observed.scatter(-1, place, True)
    return torch.cat(terms[::-1], -1)


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
        # ties are broken at random
        key = probs + TIE / 2 * draws.rand(rows.shape, None, generator)[..., None]
        limit = own_words(key, rows)[:, None, :, None]
        # P(the word drawn at place i loses to x_j at place j): [n, i, j]
        below = torch.where(key[:, :, None] < limit, probs[:, :, None], 0.0).sum(-1)
        below = below.masked_fill(seen[..., None], 1)
        below.diagonal(dim1=-2, dim2=-1).fill_(1)
        chance = (own_words(probs, rows) * below.prod(-2)).masked_fill(seen, 0)
        log_weight += chance.sum(-1).log()
        place = draws.multinomial(chance.clamp(min=1e-300), 1, generator)
        seen = seen.scatter(-1, place, True)
    return log_weight.view(len(x), num_paths).logsumexp(-1) - math.log(num_paths)


def _rounded(probs: Tensor) -> Tensor:
    """Probabilities in whole units of TIE, so that what differs by rounding counts as equal."""
    return (probs / TIE).round() * TIE


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


# The long run, about 15 minutes


def run(scheme: str, seed: int) -> Iterator[dict[str, Any]]:
    """The noise of an area from D passes for one of Chapter 11's networks, nats, root mean square over texts.

    By strata of sizes, and by the chain rule along one random order: from 16 texts, 4 masks of each
    size and 16 orders.
    """
    net, generator = known_language.network(scheme, seed), draws.seeded(seed, 3)
    texts = known_language.language().sample(256, generator=generator)[:16]
    moments = score_moments(net, texts, 4, generator=generator)
    strata = by_size(moments, net.num_tokens, strata=net.num_tokens).mean() ** 0.5
    orders = random_orders(net.num_tokens, 16, generator=generator)
    along = chain_rule(net, texts, orders).sum(-1).double().var(0).mean().item() ** 0.5
    rate = known_language.tuned()[scheme]
    yield dict(scheme=scheme, rate=rate, seed=seed, strata=strata) | {"chain rule": along}


def units() -> list[tuple[str, int]]:
    """(scheme, seed) of each network."""
    seeds = known_language.seeds(10)
    return [(scheme, seed) for seed in seeds for scheme in known_language.TWO]


TABLES = {"masked_diffusion_orders": runs.Table(run, units)}


if __name__ == "__main__":
    runs.main(TABLES)
