"""Objectives: each takes a model and rows and returns a scalar in nats per row, to be maximised.

All are D times a mean masked log-probability, so that each can be read beside log p(x). Where
`share_masks` is an argument, rows share their masks unless it is False; the others draw a mask for
each row. data: rows [N, D], or, where rows share masks, `summarise(model, rows)`, the cheaper way to
train on the same rows many times.
All raise ValueError: sizes, rates or numbers of masks out of range, rows that do not fit the model.
"""

import torch
from torch import Generator, Tensor

from . import draws
from .checks import check_count, check_lengths, check_rate, check_sizes
from .masks import random_masks, spread_places
from .protocol import ConditionalModel, Data
from .score import mean_score


def fixed_size(
    model: ConditionalModel,
    data: Data,
    size: int,
    *,
    num_masks: int = 1,
    share_masks: bool = True,
    generator: Generator,
) -> Tensor:
    """D S(x; size): masked pre-training at one rate, as BERT's 15%. Not the LML: see Chapter 7."""
    sizes = check_sizes(size, model.num_tokens).expand(check_count(num_masks, "num_masks"))
    return _fresh_scores(model, data, sizes, share_masks, generator).mean() * model.num_tokens


def uniform_size(
    model: ConditionalModel,
    data: Data,
    *,
    num_masks: int = 1,
    share_masks: bool = True,
    generator: Generator,
) -> Tensor:
    """D S(x; m) with m uniform on 1..D, fresh for each mask: an unbiased estimate of the LML (Eq. 5)."""
    shape = [check_count(num_masks, "num_masks")] + ([] if share_masks else [_num_rows(data)])
    sizes = 1 + draws.randint(model.num_tokens, shape, None, generator)
    return _fresh_scores(model, data, sizes, share_masks, generator).mean() * model.num_tokens


def stratified_size(
    model: ConditionalModel, data: Tensor, *, lengths: Tensor | None = None, generator: Generator
) -> Tensor:
    """D S(x; m) with the sizes of the N rows spread evenly over 1..D: `uniform_size` with less noise.

    One size for each row, the strata in random order (`masks.stratified_sizes` keeps their order).

    lengths [N]: rows of D_i <= D tokens, filled up to D with whatever the model takes for no token;
    what is filled in is neither masked nor scored.
    """
    num_rows, fixed_length = _num_rows(data), lengths is None
    lengths = check_lengths(lengths, num_rows, model.num_tokens)
    place = spread_places(num_rows, generator=generator)
    sizes = 1 + torch.minimum((place * lengths).long(), lengths - 1)
    observed = random_masks(model.num_tokens, sizes[None], lengths=lengths, generator=generator)
    observed = observed.to(data.device)
    if fixed_length:
        return mean_score(model, data, observed).mean() * model.num_tokens
    shares = (sizes.double() / lengths)[None].to(data.device)
    return mean_score(model, data, observed, shares).mean()


def every_size(
    model: ConditionalModel, data: Data, *, num_masks: int = 1, generator: Generator
) -> Tensor:
    """sum_m S(x; m) with `num_masks` masks per size: the area itself (Fig. 2, left)."""
    sizes = torch.arange(1, model.num_tokens + 1).repeat(check_count(num_masks, "num_masks"))
    return _fresh_scores(model, data, sizes, True, generator).sum() / num_masks


def bernoulli_rate(
    model: ConditionalModel,
    data: Tensor,
    *,
    rate: float,
    lengths: Tensor | None = None,
    generator: Generator,
) -> Tensor:
    """Each token masked independently at one rate, the log-probabilities summed and divided by it: BERT's practice.

    Averaged over a rate ~ U(0, 1) this is the loss of masked diffusion language models, whose
    mean is the LML, as that of `stratified_size`. Each row has its own mask. lengths as there.
    """
    num_rows = _num_rows(data)
    given = check_lengths(lengths, num_rows, model.num_tokens)
    rates = torch.full([1, num_rows], check_rate(rate), dtype=torch.float64)
    observed = draws.rand([1, num_rows, model.num_tokens], None, generator) >= rate
    observed |= torch.arange(model.num_tokens) >= given[:, None]
    return mean_score(model, data, observed.to(data.device), rates.to(data.device)).mean()


def _fresh_scores(
    model: ConditionalModel, data: Data, sizes: Tensor, share_masks: bool, generator: Generator
) -> Tensor:
    """Mean score under one fresh mask for each of `sizes`, nats per token [P]; each row may have its own."""
    if not share_masks and sizes.ndim == 1:
        sizes = sizes[:, None].expand(-1, _num_rows(data))
    return mean_score(
        model, data, random_masks(model.num_tokens, sizes, generator=generator).to(data.device)
    )


def _num_rows(data: Data) -> int:
    if not torch.is_tensor(data):
        raise ValueError("masks of each row's own need the rows themselves, not a summary of them")
    return len(data)
