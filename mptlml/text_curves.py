"""Curves over text: by masking rate over a corpus, by mask size over one sentence, and their areas.

Areas are in nats per sentence or per token. For a network whose answers belong to no joint
distribution they are the mean over orders of the chain rule (`masked_lm`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .checks import check_count, check_sizes
from .curve import ScoreCurve, straight_lines


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts as rows of token ids, long [D_i] each, and what they were read from, where that is known.

    Raises ValueError: no rows, or others.
    """

    rows: list[Tensor]
    texts: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.rows, list) or not self.rows:
            raise ValueError(
                f"a corpus needs a list of at least one row, got {type(self.rows).__name__}"
            )
        for row in self.rows:
            if not torch.is_tensor(row) or row.ndim != 1 or row.dtype != torch.int64:
                raise ValueError(f"a row of a corpus holds token ids [D] of int64, got {row!r}")

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [len(ids) for ids in self.rows]


Texts = str | Tensor | Sequence[str | Tensor] | Corpus  # as a caller may give them


@dataclass(frozen=True, eq=False)
class TextCurve(ScoreCurve):
    """The MPT curve of one text: a ScoreCurve and its scores under P masks per size [S, P], nats per token."""

    scores: np.ndarray

    @property
    def quadrature_error(self) -> float:
        """How far the area moves when every other size is left out, nats; 0 for a curve of all
        sizes, NaN for one of fewer than three, which says nothing.

        For a convex or concave curve the error of the area itself is smaller. Noise of the masks is
        in it too.
        """
        if len(self.sizes) == self.num_tokens:
            return 0.0
        if len(self.sizes) < 3:
            return math.nan
        keep = np.unique(np.append(np.arange(0, len(self.sizes), 2), len(self.sizes) - 1))
        coarse = straight_lines(self.sizes[keep], self.num_tokens).sum(1) @ self.mean[keep]
        return abs(float(coarse - self.weights @ self.mean))


def spaced_sizes(num_tokens: int, count: int) -> Tensor:
    """At most `count` mask sizes of 1..D, long [S]: all, or most near both ends, for curves bend there."""
    if check_count(count, "count", at_least=2) >= num_tokens:
        return torch.arange(1, num_tokens + 1)
    angle = np.linspace(0, np.pi, count)
    sizes = 1 + (num_tokens - 1) * (1 - np.cos(angle)) / 2
    return check_sizes(np.unique(sizes.round().astype(int)), num_tokens)
