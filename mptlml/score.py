"""The MPT curve m -> S(x; m), its area, and what else a model's conditionals can be asked for.

Everything here needs only `conditional_log_prob(x, observed)`, see `protocol`.
Proposition 1 (Eq. 5): log p(x) = sum over m = 1..D of S(x; m).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor
from tqdm import tqdm

from .allocation import SHORT, allocate, areas, check_passes
from .checks import Sizes, check_count, check_known, check_masks, check_rows, check_sizes
from .curve import RowEstimates, ScoreCurve
from .masks import all_masks, nested_masks, random_masks, random_orders, stratified_sizes
from .protocol import ConditionalModel, Data, ask, has_mean_scores, in_full, log_prob_at, summarise

MAX_ELEMENTS = 2**20  # rows x masks x tokens asked for at once: 8 MB of float64


def mean_score(model: ConditionalModel, data: Data, observed: Tensor, over: Tensor | None = None) -> Tensor:
    """(1/m) sum_{j in M} log p(x_j | x_R), averaged over rows: nats per token [P], one for each mask. Differentiable.

    data: rows [N, D] or `summarise(model, rows)`; observed: [P, D], shared by all rows, or [P, N, D], each
    row its own. over: what each sum is divided by in place of m, [P] or [P, N] as the masks. Raises
    ValueError: rows or masks out of range; where m divides, a mask that masks nothing among them.
    """
    if torch.is_tensor(data):
        check_rows(data, model.num_tokens)
    over = check_masks(observed, model.num_tokens) if over is None else over
    if observed.ndim == 2 and has_mean_scores(model):
        return in_full(model.mean_conditional_log_prob(data, observed)).sum(-1) / over
    if not torch.is_tensor(data):
        raise ValueError(f"a summary of rows is scored under masks [P, {model.num_tokens}] that all rows share, "
                         f"got masks of shape {tuple(observed.shape)}")
    if observed.ndim == 2:
        observed, over = observed[:, None], over[:, None]
    return (ask(model, data, observed).sum(-1) / over).mean(-1)


def score_curve(model: ConditionalModel, x: Tensor, sizes: Sizes | None = None, *, num_masks: int = 1,
                share_masks: bool = True, keep_rows: bool = False, max_elements: int = MAX_ELEMENTS,
                generator: Generator) -> ScoreCurve:
    """The MPT curve of rows x [N, D] at the given mask sizes (default: all of 1..D), P = `num_masks` masks per size.

    share_masks: the P masks of a size serve all rows (as in the paper); otherwise each row draws P of its
    own, which ones depends on max_elements too. keep_rows: keep each row's own score, for
    `area(rows="sample")`; always kept where rows have masks of their own. Masks are fresh for every size, so
    the errors at two sizes are independent. With P = 1 the curve is unbiased but has no standard error (NaN)
    for fixed rows. max_elements: how many answers (rows x masks x tokens) the model is asked for at once; it
    bounds the memory. Raises ValueError: rows, sizes or counts out of range, NaN among the answers.
    """
    check_rows(x, model.num_tokens)
    num_masks = check_count(num_masks, "num_masks")
    every = range(1, model.num_tokens + 1)
    asked = check_sizes(every if sizes is None else sizes, model.num_tokens).unique().cpu()
    together = share_masks and not keep_rows and has_mean_scores(model)
    data = summarise(model, x) if together else x
    per_size = num_masks * model.num_tokens * (1 if together else len(x))
    per_mask, per_row, noise = [], [], []
    with torch.no_grad():
        for part in tqdm(asked.split(_at_once(max_elements, per_size)), "curve", disable=None, delay=3, leave=False):
            if together:
                observed = random_masks(model.num_tokens, part.repeat_interleave(num_masks), generator=generator)
                score = check_known(mean_score(model, data, observed.to(x.device))).unflatten(0, (-1, num_masks))
            else:
                score = _row_scores(model, x, part, num_masks, share_masks, max_elements, generator)  # [s, P, N]
                per_row.append(score.mean(1))
            noise.append(mask_variance(score, shared=share_masks))
            per_mask.append(score.flatten(1).mean(1))
    variance, dof = (_numpy(parts) for parts in zip(*noise, strict=True))
    rows = _numpy(per_row) if per_row else None
    return ScoreCurve(model.num_tokens, asked.numpy(), _numpy(per_mask), variance, dof, rows, share_masks)


def exact_curve(model: ConditionalModel, x: Tensor, *, max_elements: int = MAX_ELEMENTS) -> ScoreCurve:
    """The MPT curve of rows x [N, D] over every mask of every size: no noise, 2^D - 1 masks. Returns a ScoreCurve.

    max_elements as in `score_curve`. Raises ValueError: D > 16, rows out of range, NaN among the answers.
    """
    check_rows(x, model.num_tokens)
    if model.num_tokens > 16:
        raise ValueError(f"2^{model.num_tokens} - 1 masks are too many: use score_curve")
    sizes = np.arange(1, model.num_tokens + 1)
    scores = []
    with torch.no_grad():
        for size in sizes.tolist():
            observed = all_masks(model.num_tokens, size).to(x.device)[:, None]  # [C_m, 1, D]
            blocks = observed.split(_at_once(max_elements, x.numel()))
            total = torch.stack([check_known(ask(model, x, part)).sum((0, -1)) for part in blocks]).sum(0)
            scores.append(total / (size * len(observed)))
    rows = torch.stack(scores).cpu().numpy()
    none = np.zeros(len(sizes))
    return ScoreCurve(model.num_tokens, sizes, rows.mean(1), none, none + math.inf, rows, True)


def estimate_area(model: ConditionalModel, x: Tensor, num_passes: int, *, error: float | None = None,
                  by_orders: bool = False, max_elements: int = MAX_ELEMENTS, generator: Generator) -> RowEstimates:
    """The area of each row of x [N, D] by `num_passes` forward passes per row: RowEstimates.

    Unbiased, with masks of each row's own. By sizes: num_passes / 2 strata of sizes, each drawn twice, so
    that the pairs give the error, which has about num_passes / 2 degrees of freedom. By orders: the chain
    rule along num_passes // D random orders; the error has one degree of freedom fewer than there are orders.
    Orders have no noise where the conditionals belong to one joint distribution. A network's orders disagree,
    and which of the two is less noisy depends on the network: compare the errors of both on a few rows first,
    at equal passes (Chapter 12).

    error: stop at this standard error, nats; num_passes is then the most. Passes go to the sizes where the
    noise is (`allocation`); rows of up to six tokens are asked under all masks. A row that needs more has a
    larger error. max_elements as in `score_curve`. Raises ValueError: by sizes, fewer than 2 passes or an odd
    number of them; by orders, fewer than 2 D; with an error, fewer than its pilot takes; an error that is not
    above 0; rows out of range.
    """
    check_rows(x, model.num_tokens)
    if error is not None:
        return _area_to_error(model, x, num_passes, error, by_orders, max_elements, generator)
    check_count(num_passes, "num_passes", at_least=2 * model.num_tokens if by_orders else 2)
    values = []
    with torch.no_grad():
        if by_orders:
            num_orders = num_passes // model.num_tokens
            for row in x[:, None]:
                orders = random_orders(model.num_tokens, num_orders, generator=generator)
                values.append(chain_rule(model, row, orders, max_elements=max_elements).double().sum(-1))
            value = torch.cat(values, -1)  # [Q, N]
            return _estimates(value.mean(0), value.std(0) / math.sqrt(num_orders), num_orders - 1,
                              num_orders * model.num_tokens)
        if num_passes % 2:
            raise ValueError(f"num_passes must be even, since each stratum is drawn twice, got {num_passes}")
        for rows in x.split(_at_once(max_elements, num_passes * model.num_tokens)):
            sizes = stratified_sizes(model.num_tokens, num_passes // 2, (2, len(rows)), generator=generator)
            blocks = [random_masks(model.num_tokens, part, generator=generator).to(x.device)
                      for part in sizes.split(_at_once(max_elements, rows.numel() * 2))]  # [h, 2, n, D]
            values.append(torch.cat([_answer(model, rows, observed).double() for observed in blocks]))
    value = torch.cat(values, -1) * model.num_tokens  # [strata, 2, N], of mean log p(x)
    stderr = (value[:, 0] - value[:, 1]).square().sum(0).sqrt() / num_passes
    return _estimates(value.mean((0, 1)), stderr, num_passes // 2, num_passes)


def _estimates(mean: Tensor, stderr: Tensor, dof: float, passes: int) -> RowEstimates:
    return RowEstimates(mean, stderr, torch.full_like(stderr, dof), torch.full_like(stderr, passes, dtype=torch.int64))


def _area_to_error(model: ConditionalModel, x: Tensor, num_passes: int, error: float, by_orders: bool,
                   max_elements: int, generator: Generator) -> RowEstimates:
    num_tokens = model.num_tokens
    check_passes(num_passes // (num_tokens if by_orders else 1), error, np.array([2 if by_orders else num_tokens]))
    if num_tokens <= SHORT and not by_orders:
        exact = torch.as_tensor(exact_curve(model, x, max_elements=max_elements).rows, device=x.device).sum(0)
        return _estimates(exact, torch.zeros_like(exact), math.inf, 2**num_tokens - 1)
    at_once = _at_once(max_elements, num_tokens**2 if by_orders else num_tokens)

    def score(rows: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The score of rows [P] under a mask of each of the sizes [P, k]."""
        parts = zip(*(torch.from_numpy(part).split(at_once) for part in (rows, sizes)), strict=True)
        masks = ((x[row.to(x.device)], random_masks(num_tokens, size.T, generator=generator)) for row, size in parts)
        return _numpy(_answer(model, row, observed.to(x.device)).T for row, observed in masks)

    def along(rows: np.ndarray, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The chain rule's sum for rows [P] along orders of their own, as many as there are places [P, k]."""
        orders = random_orders(num_tokens, places.shape, generator=generator).to(x.device)
        parts = zip(torch.from_numpy(rows).to(x.device).split(at_once), orders.split(at_once), strict=True)
        sums = (log_prob_at(model, x[row][:, None, None], nested_masks(order), order) for row, order in parts)
        return _numpy(check_known(part).sum(-1) for part in sums)

    with torch.no_grad():
        if by_orders:
            found = allocate(along, np.ones((1, len(x))), error, num_passes // num_tokens, generator=generator)
            found = found._replace(draws=found.draws * num_tokens)
        else:
            found = areas(score, np.full(len(x), num_tokens), num_passes, error, generator)
    return RowEstimates(*(torch.from_numpy(part).to(x.device) for part in found))


def chain_rule(model: ConditionalModel, x: Tensor, orders: Tensor, *, max_elements: int = MAX_ELEMENTS) -> Tensor:
    """The terms of Eq. 2 along orders [Q, D]: log p(x_{M(t)} | x_{M(t+1:D)}), nats [Q, N, t] for rows x [N, D].

    Their sum over t is log p(x) along that order, the same for every order if the conditionals belong to one
    joint distribution. max_elements as in `score_curve`. Raises ValueError: rows or orders out of range, NaN
    among the answers.
    """
    check_rows(x, model.num_tokens)
    every = torch.arange(model.num_tokens, device=orders.device)
    if orders.ndim != 2 or orders.shape[1] != model.num_tokens or not (orders.sort(-1).values == every).all():
        raise ValueError(f"orders must be permutations [Q, {model.num_tokens}], got shape {tuple(orders.shape)}")
    blocks = orders.to(x.device).split(_at_once(max_elements, x.numel() * model.num_tokens))
    rows = x.split(_at_once(max_elements, model.num_tokens**2))
    return torch.cat([torch.cat([_chain_rule(model, some, part) for some in rows], 1) for part in blocks])


def _chain_rule(model: ConditionalModel, x: Tensor, orders: Tensor) -> Tensor:
    """`chain_rule` of all orders and rows at once."""
    next_token = orders[:, None].expand(-1, len(x), -1)  # [Q, N, t]: at step t only token M(t) is asked for
    return check_known(log_prob_at(model, x[:, None], nested_masks(orders)[:, None], next_token))


def order_spread(model: ConditionalModel, x: Tensor, *, num_orders: int, generator: Generator) -> Tensor:
    """Standard deviation of the chain rule's sum over random orders, nats per row [N].

    Zero, to rounding, for conditionals of one joint distribution; above zero it measures how far they
    disagree. Raises ValueError: num_orders below 2.
    """
    check_count(num_orders, "num_orders", at_least=2)
    orders = random_orders(model.num_tokens, num_orders, generator=generator)
    return chain_rule(model, x, orders).sum(-1).std(0)


def order_gap(log_probs: Tensor) -> Tensor:
    """log of the mixture over orders minus the mean over orders, nats per row [...], for chain-rule sums [Q, ...].

    At least 0 by Jensen's inequality, and 0 exactly when all orders agree: E[mean] is the area, so the area
    bounds the log-likelihood of the mixture over orders from below.
    """
    return log_probs.logsumexp(0) - math.log(len(log_probs)) - log_probs.mean(0)


def _row_scores(model: ConditionalModel, x: Tensor, sizes: Tensor, num_masks: int, share_masks: bool,
                max_elements: int, generator: Generator) -> Tensor:
    """Each row's own score, nats per token [s, P, N], under P fresh masks for each of the sizes [s]."""
    drawn = sizes[:, None].expand(-1, num_masks)
    if share_masks:  # all rows at a time, so that a mask's own work is done once
        masks = random_masks(model.num_tokens, drawn.flatten(), generator=generator).to(x.device)[:, None]
        blocks = masks.split(_at_once(max_elements, x.numel()))
        return torch.cat([_answer(model, x, observed) for observed in blocks]).unflatten(0, drawn.shape)
    scores = []
    for rows in x.split(_at_once(max_elements, drawn.numel() * model.num_tokens)):
        own = drawn[..., None].expand(-1, -1, len(rows))
        observed = random_masks(model.num_tokens, own, generator=generator).to(x.device)  # [s, P, n, D]
        scores.append(_answer(model, rows, observed))
    return torch.cat(scores, -1)


def _answer(model: ConditionalModel, rows: Tensor, observed: Tensor) -> Tensor:
    """(1/m) sum_{j in M} log p(x_j | x_R), nats per token [..., n], for rows [n, D] and observed [..., n or 1, D]."""
    return check_known(ask(model, rows, observed)).sum(-1) / (~observed).sum(-1)


class MaskVariance(NamedTuple):
    """Variance of a mean score over the draw of the masks, and the degrees of freedom behind it: [s] each."""

    variance: Tensor
    dof: Tensor


def mask_variance(score: Tensor, *, shared: bool) -> MaskVariance:
    """How far the mean score of s sizes depends on the draw of the masks: a MaskVariance.

    score [s, P] or [s, P, N]. The variance is NaN for P = 1. Rows with masks of their own have errors of their own: a
    few wide ones may carry most of the variance, and then few degrees of freedom stand behind it.
    """
    score, num_masks = score.double(), score.shape[1]
    if num_masks == 1:
        return MaskVariance(score.new_full((len(score),), math.nan), score.new_zeros(len(score)))
    if shared:
        variance = (score if score.ndim == 2 else score.mean(-1)).var(1) / num_masks
        return MaskVariance(variance, torch.full_like(variance, num_masks - 1))
    by_row = score.var(1) / (num_masks * score.shape[-1] ** 2)  # [s, N]
    variance = by_row.sum(-1)
    dof = (num_masks - 1) * variance.square() / by_row.square().sum(-1)
    return MaskVariance(variance, torch.where(variance > 0, dof, math.inf))


def _at_once(max_elements: int, per_item: int) -> int:
    """How many items of `per_item` elements each fit into `max_elements`: at least one. ValueError: fewer than 1."""
    return max(1, check_count(max_elements, "max_elements") // per_item)


def _numpy(parts: Iterable[Tensor]) -> np.ndarray:
    return torch.cat(list(parts)).double().cpu().numpy()
