"""Which tokens are observed: all masks of one size, random masks, orders, and their numbers.

A mask is a bool tensor [..., D]: True where a token is observed (it belongs to R), False where it
is masked (it belongs to M). The size m of a mask counts the masked tokens: |M| = m, |R| = D - m, 1
<= m <= D.
"""

import itertools
import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Generator, Tensor

from . import draws
from .checks import Sizes, check_count, check_lengths, check_sizes


def count_masks(num_tokens: int, size: int) -> int:
    """C_m = C(D, m), the exact number of masks of one size (Sec. 2). Raises ValueError: size not in 1..D."""
    return math.comb(num_tokens, int(check_sizes(size, num_tokens)))


def all_masks(num_tokens: int, size: int) -> Tensor:
    """Every mask of one size: observed [C_m masks, D tokens], in lexicographic order of the masked tokens.

    Raises ValueError: size not in 1..D, or more than 2^20 masks (use `random_masks`).
    """
    count = count_masks(num_tokens, size)
    if count > 2**20:
        raise ValueError(
            f"C({num_tokens}, {size}) = {count:.3g} are too many to list: use random_masks"
        )
    masked = torch.tensor(list(itertools.combinations(range(num_tokens), size)))  # [C_m, m]
    return torch.ones(count, num_tokens, dtype=torch.bool).scatter_(1, masked, False)


def random_masks(
    num_tokens: int, sizes: Sizes, *, lengths: Tensor | None = None, generator: Generator
) -> Tensor:
    """A uniformly random mask for each of the sizes: observed [*sizes.shape, D], on the CPU.

    lengths [N], for sizes [..., N], masks of row n only its first lengths[n] tokens. Raises
    ValueError: a size not in 1..D, or above the length of its row.
    """
    sizes = check_sizes(sizes, num_tokens).cpu()
    keys = draws.rand((*sizes.shape, num_tokens), None, generator)  # float64: hardly ever a tie
    if lengths is not None:
        lengths = check_lengths(lengths, sizes.shape[-1], num_tokens)
        if (sizes > lengths).any():
            raise ValueError(f"masks of up to {sizes.max()} tokens hide more than their row has")
        keys = keys + (torch.arange(num_tokens) >= lengths[:, None])
    ranked = torch.from_numpy(np.sort(keys, -1))  # faster than torch's
    # the m tokens with the smallest keys are masked
    return keys > ranked.gather(-1, sizes[..., None] - 1)


def spread_places(count: int, *, generator: Generator) -> Tensor:
    """A place in each of `count` equal parts of [0, 1), in random order: float64 [count]."""
    [part] = random_orders(count, 1, generator=generator)
    return (part + draws.rand([count], None, generator)) / count


def stratified_sizes(
    num_tokens: int, num_strata: int, shape: Iterable[int] = (), *, generator: Generator
) -> Tensor:
    """Mask sizes spread over 1..D, one from each of `num_strata` equal parts: int64 [num_strata, *shape].

    Size h is ceil(D (h + u) / num_strata), h = 0, 1, ..., u uniform on [0, 1): the mean of D S(m)
    over the strata is an unbiased estimate of the area. Raises ValueError: num_strata below 1.
    """
    shape = (check_count(num_strata, "num_strata"), *shape)
    stratum = torch.arange(num_strata).reshape(-1, *[1] * (len(shape) - 1))
    place = (stratum + draws.rand(shape, None, generator)) / num_strata
    return 1 + (place * num_tokens).long().clamp(max=num_tokens - 1)


def random_orders(num_tokens: int, shape: int | Iterable[int], *, generator: Generator) -> Tensor:
    """Uniformly random orders of the tokens: long [*shape, D], or [shape, D] for a whole number."""
    if not isinstance(shape, Iterable):
        shape = [check_count(shape, "number of orders")]
    return draws.rand([*shape, num_tokens], None, generator).argsort(-1)


def all_orders(num_tokens: int) -> Tensor:
    """All D! orders of the tokens: long [D!, D]. Raises ValueError for D > 9 (10! is over 3 million)."""
    if num_tokens > 9:
        raise ValueError(f"{num_tokens}! orders are too many to list: use random_orders")
    return torch.tensor(list(itertools.permutations(range(num_tokens))))


def nested_masks(orders: Tensor) -> Tensor:
    """The D masks along an order: observed [..., t, D], t = 1..D, for orders [..., D].

    Mask t leaves x_{pi(t+1:D)} observed, on which the chain rule conditions token pi(t) (Eq. 2 of the
    paper).
    """
    rank = orders.argsort(-1)  # [..., D]: where each token stands in the order
    return rank[..., None, :] > torch.arange(orders.shape[-1], device=orders.device)[:, None]
