"""The MPT curve m -> S(x; m), its area, and what else a model's `conditional_log_prob` can be asked for.

Proposition 1 (Eq. 5): log p(x) = sum over m = 1..D of S(x; m).
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor
from tqdm import tqdm

from .checks import Sizes, check_count, check_known, check_mask, check_rows, check_sizes
from .curve import RowEstimates, ScoreCurve
from .masks import all_masks, nested_masks, random_masks, random_orders, stratified_sizes
from .memory import at_once
from .protocol import (
    ConditionalModel,
    Data,
    has_mean_scores,
    in_full,
    log_prob_at,
    summarise,
    token_log_probs,
)

AT_ONCE = 2**20  # rows x masks x tokens asked for at once: 8 MB of float64
FIRST = 32  # passes of the first estimate where an error is asked for


def mean_score(
    model: ConditionalModel, data: Data, observed: Tensor, over: Tensor | None = None
) -> Tensor:
    """(1/m) sum_{j in M} log p(x_j | x_R), averaged over rows: nats per token [P], one for each mask.

    data: rows [N, D] or `summarise(model, rows)`; observed: [P, D], shared by all rows, or [P, N,
    D], each row its own. over: what each sum is divided by in place of m, [P] or [P, N] as the
    masks. Raises ValueError: rows or masks out of range; where m divides, a mask that masks nothing
    among them.
    """
    if torch.is_tensor(data):
        check_rows(data, model.num_tokens)
    if over is None:
        over = (~check_mask(observed, model.num_tokens)).sum(-1)
        if not over.all():
            raise ValueError(f"{int((over == 0).sum())} of {over.numel()} masks mask no token")
    if observed.ndim == 2 and has_mean_scores(model):
        return in_full(model.mean_conditional_log_prob(data, observed)).sum(-1) / over
    if not torch.is_tensor(data):
        raise ValueError(
            f"a summary of rows is scored under masks [P, {model.num_tokens}] that all rows share, "
            f"got masks of shape {tuple(observed.shape)}"
        )
    if observed.ndim == 2:
        observed, over = observed[:, None], over[:, None]
    return (token_log_probs(model, data, observed).sum(-1) / over).mean(-1)


@torch.no_grad()
def score_curve(
    model: ConditionalModel,
    x: Tensor,
    sizes: Sizes | None = None,
    *,
    num_masks: int = 1,
    share_masks: bool = True,
    generator: Generator,
) -> ScoreCurve:
    """The MPT curve of rows x [N, D] at the given mask sizes (default: 1..D), P = `num_masks` masks each.

    share_masks: the P masks of a size serve all rows (as in the paper); otherwise each row draws P
    of its own, which ones depends on `memory.limit` too. The curve keeps each mask's score, or each row's.
    Errors at two sizes are independent; with P = 1 there are none (NaN) for fixed rows. A mask that
    all rows share is asked of all at once. Raises ValueError: rows, sizes or counts out of range,
    NaN among the answers.
    """
    check_rows(x, model.num_tokens)
    num_masks = check_count(num_masks, "num_masks")
    every = range(1, model.num_tokens + 1)
    asked = check_sizes(every if sizes is None else sizes, model.num_tokens).unique().cpu()
    data = summarise(model, x) if share_masks else x
    per_mask = model.num_tokens * (1 if share_masks and has_mean_scores(model) else len(x))
    kept, variances = [], []
    parts = asked.split(_at_once(num_masks * per_mask))
    for part in tqdm(parts, "curve", disable=None, delay=3, leave=False):
        drawn = part[:, None].expand(-1, num_masks)  # [s, P]
        if share_masks:
            score = _shared_scores(model, data, drawn, _at_once(per_mask), generator)
        else:
            score = torch.cat(
                [  # [s, P, N]
                    _own_scores(model, rows, drawn[..., None].expand(-1, -1, len(rows)), generator)
                    for rows in x.split(_at_once(drawn.numel() * model.num_tokens))
                ],
                -1,
            )
        kept.append(score if share_masks else score.mean(1))
        variances.append(_mask_variance(score))
    variance, dof = torch.cat(variances, 1).cpu().numpy()
    found = torch.cat(kept).cpu()  # of each mask [S, P], or of each row [S, N]
    mean, each = found.mean(1).double().numpy(), found.double().numpy()
    rows, scores = (None, each) if share_masks else (each, None)
    return ScoreCurve(model.num_tokens, asked.numpy(), mean, variance, dof, rows, scores)


@torch.no_grad()
def exact_curve(model: ConditionalModel, x: Tensor) -> ScoreCurve:
    """The MPT curve of rows x [N, D] over every mask of every size: no noise, 2^D - 1 masks.

    Raises ValueError: D > 16, rows out of range, NaN among the answers.
    """
    check_rows(x, model.num_tokens)
    if model.num_tokens > 16:
        raise ValueError(f"2^{model.num_tokens} - 1 masks are too many: use score_curve")
    sizes, scores = np.arange(1, model.num_tokens + 1), []
    for size in sizes.tolist():
        observed = all_masks(model.num_tokens, size).to(x.device)[:, None]  # [C_m, 1, D]
        blocks = observed.split(_at_once(x.numel()))
        sums = [check_known(token_log_probs(model, x, part)).sum((0, -1)) for part in blocks]
        scores.append(torch.stack(sums).sum(0) / (size * len(observed)))
    rows, none = torch.stack(scores).cpu().numpy(), np.zeros(len(sizes))
    return ScoreCurve(model.num_tokens, sizes, rows.mean(1), none, none + np.inf, rows)


@torch.no_grad()
def estimate_area(
    model: ConditionalModel,
    x: Tensor,
    num_passes: int,
    *,
    error: float | None = None,
    by_orders: bool = False,
    generator: Generator,
) -> RowEstimates:
    """The area of each row of x [N, D] by `num_passes` forward passes per row: RowEstimates.

    Unbiased, with masks of each row's own. By sizes: num_passes // 2 strata of
    sizes, each drawn twice, whose pairs give the error and, after Welch and Satterthwaite, its
    degrees of freedom. By orders: the chain rule along num_passes // D random orders, which have no
    noise where the conditionals belong to one joint distribution (Chapter 12 compares the two).
    error: as many passes as a standard error of about so many nats takes, num_passes at most (see
    `until_error`). Raises ValueError: rows out of range; fewer passes than 2, or than
    2 D by orders; an error that is not above 0.
    """
    check_rows(x, model.num_tokens)
    check_count(num_passes, "num_passes", at_least=2 * model.num_tokens if by_orders else 2)
    if error is not None:
        return until_error(
            lambda rows, passes: estimate_area(
                model, x[rows], passes, by_orders=by_orders, generator=generator
            ),
            len(x),
            num_passes,
            error,
            first=8 * model.num_tokens if by_orders else FIRST,
        )
    if by_orders:
        return _along_orders(model, x, num_passes // model.num_tokens, generator)
    num_passes -= num_passes % 2
    values = []
    for rows in x.split(_at_once(num_passes * model.num_tokens)):
        sizes = stratified_sizes(
            model.num_tokens, num_passes // 2, (2, len(rows)), generator=generator
        )
        values.append(_own_scores(model, rows, sizes, generator).double())
    value = torch.cat(values, -1) * model.num_tokens  # [strata, 2, N], of mean log p(x)
    squares = (value[:, 0] - value[:, 1]).square()  # of each pair: one degree of freedom
    total = squares.sum(0)
    dof = torch.where(total > 0, total.square() / squares.square().sum(0), math.inf)
    return _estimates(value.mean((0, 1)), total.sqrt() / num_passes, dof, num_passes)


def _along_orders(
    model: ConditionalModel, x: Tensor, num_orders: int, generator: Generator
) -> RowEstimates:
    """The area of each row by the chain rule along random orders of its own."""
    count = model.num_tokens
    values = [
        chain_rule(model, row, random_orders(count, num_orders, generator=generator))
        for row in x[:, None]
    ]
    value, passes = torch.cat(values, 1).double().sum(-1), num_orders * count  # [Q, N]
    error = value.std(0) / math.sqrt(num_orders)
    return _estimates(value.mean(0), error, torch.full_like(error, num_orders - 1), passes)


def _estimates(mean: Tensor, stderr: Tensor, dof: Tensor, num_passes: int) -> RowEstimates:
    passes = torch.full_like(stderr, num_passes, dtype=torch.int64)
    return RowEstimates(mean, stderr, dof, passes, passes > 0)


def until_error(
    estimate: Callable[[Tensor, int], RowEstimates],
    num_rows: int,
    num_passes: int,
    error: float,
    *,
    first: int = FIRST,
) -> RowEstimates:
    """Estimates of N rows with a standard error of about `error`, each by twice the passes of the one before.

    estimate(rows, num_passes): a fresh unbiased estimate of each of the rows, long [n],
    by so many passes, `first` of them at first. A row's next estimate is its last where the
    standard error of this one, divided by sqrt(2), meets the `error`; there is no next one where
    more than `num_passes` would be taken in all.

    The last estimate stands alone: those before it only say how many passes it gets. So it is as
    unbiased, and its standard error as honest, as those of a number of passes fixed beforehand,
    and `error` is met on average rather than by every row. To add up all passes, and to stop once
    their own error is small, would take half as many, but stop where the noise happens to look
    small: with skewed noise up to .4 errors of bias were seen.

    `passes` counts all that were taken; `reached` is False where num_passes were not enough. Raises
    ValueError: an error that is not above 0.
    """
    if not 0 < error < math.inf:
        raise ValueError(f"error must be a number of nats above 0, got {error!r}")
    rows, taken = torch.arange(num_rows), min(first, num_passes)
    found, total = estimate(rows, taken), taken
    while len(rows) and total + 2 * taken <= num_passes:
        taken, total = 2 * taken, total + 2 * taken
        enough = found.stderr[rows] <= math.sqrt(2) * error
        new = estimate(rows, taken)
        new.passes.add_(found.passes[rows])
        for whole, part in zip(found, new, strict=True):
            whole[rows] = part
        rows = rows[~enough.cpu()]
    found.reached[rows] = found.stderr[rows] <= error
    return found


def chain_rule(model: ConditionalModel, x: Tensor, orders: Tensor) -> Tensor:
    """log p(x_{pi(t)} | x_{pi(t+1:D)}), the terms of Eq. 2 along orders [Q, D], nats [Q, N, t].

    Their sum over t is log p(x) along that order. Raises ValueError: rows out of range, orders that
    are no permutations, NaN among the answers.
    """
    check_rows(x, model.num_tokens)
    every = torch.arange(model.num_tokens, device=orders.device)
    whole = orders.dtype == torch.int64 and orders.ndim == 2 and orders.shape[1] == len(every)
    if not whole or not (orders.sort(-1).values == every).all():
        raise ValueError(
            f"orders must be permutations [Q, {model.num_tokens}], got shape {tuple(orders.shape)}"
        )
    blocks = orders.to(x.device).split(_at_once(x.numel() * model.num_tokens))
    rows = x.split(_at_once(model.num_tokens**2))
    return torch.cat(
        [torch.cat([_terms(model, some, part) for some in rows], 1) for part in blocks]
    )


def _terms(model: ConditionalModel, x: Tensor, orders: Tensor) -> Tensor:
    """All of these rows along all of these orders: at step t only the answer for token pi(t) is kept."""
    token = orders[:, None].expand(-1, len(x), -1)  # [Q, N, t]
    return check_known(log_prob_at(model, x[:, None], nested_masks(orders)[:, None], token))


def order_spread(
    model: ConditionalModel, x: Tensor, *, num_orders: int, generator: Generator
) -> Tensor:
    """Standard deviation of the chain rule's sum over orders, nats per row [N]: how far answers disagree.

    Zero, to rounding, for conditionals of one joint distribution. Raises ValueError: num_orders
    below 2.
    """
    check_count(num_orders, "num_orders", at_least=2)
    orders = random_orders(model.num_tokens, num_orders, generator=generator)
    return chain_rule(model, x, orders).sum(-1).std(0)


def order_gap(log_probs: Tensor) -> Tensor:
    """log of the mixture over orders minus the mean over them, nats per row [...], for sums [Q, ...].

    At least 0 by Jensen's inequality, and 0 exactly when all orders agree. E[mean] is the area.
    """
    return log_probs.logsumexp(0) - math.log(len(log_probs)) - log_probs.mean(0)


def _shared_scores(
    model: ConditionalModel, data: Data, sizes: Tensor, few: int, generator: Generator
) -> Tensor:
    """The mean score of rows under masks of the sizes [s, P], which they share, nats per token [s, P]."""
    observed = random_masks(model.num_tokens, sizes.flatten(), generator=generator).to(data.device)
    means = [mean_score(model, data, some) for some in observed.split(few)]
    return check_known(torch.cat(means)).unflatten(0, sizes.shape)


def _own_scores(model: ConditionalModel, x: Tensor, sizes: Tensor, generator: Generator) -> Tensor:
    """The score of rows x [n, D] under masks of their own of the sizes [h, ..., n], nats per token."""
    scores = []
    for part in sizes.split(_at_once(sizes[0].numel() * model.num_tokens)):
        observed = random_masks(model.num_tokens, part, generator=generator).to(x.device)
        scores.append(
            check_known(token_log_probs(model, x, observed)).sum(-1) / (~observed).sum(-1)
        )
    return torch.cat(scores)


def _mask_variance(score: Tensor) -> Tensor:
    """Variance of the mean score of s sizes over the draw of the masks, and the degrees of freedom behind it: [2, s].

    score [s, P] of masks that all rows share, else [s, P, N]. NaN for P = 1. Where rows have masks
    of their own, a few may carry most of the variance; then few degrees of freedom stand behind it.
    """
    score = score.double().reshape(*score.shape[:2], -1)
    num_sizes, num_masks, num_rows = score.shape
    if num_masks == 1:
        return score.new_full((2, num_sizes), math.nan)
    by_row = score.var(1) / (num_masks * num_rows**2)  # [s, N]
    variance = by_row.sum(-1)
    dof = (num_masks - 1) * variance.square() / by_row.square().sum(-1)
    return torch.stack([variance, torch.where(variance > 0, dof, math.inf)])


def _at_once(per_item: int) -> int:
    """How many items of `per_item` answers a model is asked for at once."""
    return at_once(AT_ONCE // per_item, per_item)
