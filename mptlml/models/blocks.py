"""Rows in blocks: what a model computes for each row and node, draw or word takes more memory than the rows."""

from collections.abc import Iterator

from torch import Tensor


def blocks(x: Tensor, observed: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and masks [n, D], at most `size` at a time, of x and observed [..., D], which have the same shape."""
    rows, masks = (tensor.reshape(-1, tensor.shape[-1]).split(size) for tensor in (x, observed))
    return zip(rows, masks, strict=True)
