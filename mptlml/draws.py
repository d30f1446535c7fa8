"""Random draws follow one rule: they are made on the CPU, where generators live, and then put on the device of `like`.

A seed therefore gives the same numbers whatever device a model computes on. `like` is a tensor of
the data; with like=None a draw stays on the CPU, and real numbers are float64.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor


def rand(shape: Sequence[int], like: Tensor | None, generator: Generator) -> Tensor:
    """Uniform numbers in [0, 1), of the given shape, in the dtype of `like`."""
    return _placed(torch.rand(shape, generator=generator, dtype=_dtype(like)), like)


def randn(shape: Sequence[int], like: Tensor | None, generator: Generator) -> Tensor:
    """Standard normal numbers, of the given shape, in the dtype of `like`."""
    return _placed(torch.randn(shape, generator=generator, dtype=_dtype(like)), like)


def randint(high: int, shape: Sequence[int], like: Tensor | None, generator: Generator) -> Tensor:
    """Whole numbers 0..high - 1, int64, of the given shape."""
    return _placed(torch.randint(high, shape, generator=generator), like)


def seed(generator: Generator) -> int:
    """A whole number from which several generators of their own can start: see `seeded`."""
    return int(torch.randint(2**62, (), generator=generator))


def seeded(*numbers: int) -> Generator:
    """A generator that these numbers decide: such as a seed, and which row it draws for."""
    [state] = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return Generator().manual_seed(int(state >> 1))


def multinomial(
    weights: Tensor, num_draws: int, generator: Generator, *, replacement: bool = True
) -> Tensor:
    """`num_draws` indices for each row of weights [..., C], in proportion to them: int64 [..., num_draws]."""
    drawn = torch.multinomial(weights.cpu(), num_draws, replacement, generator=generator)
    return _placed(drawn, weights)


def _dtype(like: Tensor | None) -> torch.dtype:
    return torch.float64 if like is None else like.dtype


def _placed(drawn: Tensor, like: Tensor | None) -> Tensor:
    return drawn if like is None else drawn.to(like.device)
