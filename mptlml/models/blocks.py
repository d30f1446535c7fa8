"""Rows a block at a time: what a model works out for each row and node, draw or word is larger than the rows."""

from collections.abc import Iterator

from torch import Tensor


def blocks(x: Tensor, observed: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and masks [n, D], at most `size` at a time, of x and observed [..., D], which have one shape."""
    rows, masks = (tensor.reshape(-1, tensor.shape[-1]).split(size) for tensor in (x, observed))
    return zip(rows, masks, strict=True)
