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

from .checks import check_choice, check_count, check_sizes
from .curve import Estimate, ScoreCurve, straight_lines

RATES = tuple(percent / 100 for percent in range(1, 100))  # the paper's 99 masking rates (Sec. 3.2)


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
class RateCurve:
    """Mean log-probability of a masked token by masking rate.

    rates [S]; scores [S, N], nats per token, of each row; lengths [N] in tokens. A row of D tokens
    has `hidden_tokens(r, D)` of them masked at rate r.
    """

    rates: np.ndarray
    scores: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean over rows, nats per token [S]: every token of the corpus counts alike."""
        return self.scores @ self.lengths / self.lengths.sum()

    @property
    def weights(self) -> np.ndarray:
        """Share of each rate in the area of each row [S, N], summing to 1 over the rates.

        The area is the sum over the sizes m = 1..D, read as `ScoreCurve.weights` says.
        """
        known, place = np.unique(self.lengths, return_inverse=True)
        each = [straight_lines(hidden_tokens(self.rates, int(n)), int(n)).mean(1) for n in known]
        return np.stack(each, 1)[:, place]

    @property
    def row_areas(self) -> np.ndarray:
        """The area of each row, nats per row [N]."""
        return (self.weights * self.scores).sum(0) * self.lengths

    def area(self, unit: str = "token") -> Estimate:
        """The area, an Estimate of the log-likelihood averaged over orders, in nats per unit.

        unit: "token", where every token counts alike, or "sentence", where every row does. The
        error is over rows, and does not cover the sizes that are read off straight lines; per token
        it is that of a ratio, too small where a few long rows hold most tokens. Raises ValueError:
        another unit.
        """
        check_choice(unit, ("sentence", "token"), "unit")
        if unit == "token":
            return self.weighted(self.weights)
        areas = self.row_areas
        return Estimate(float(areas.mean()), _row_error(areas, np.ones(len(areas))), len(areas) - 1)

    def weighted(self, weights: np.ndarray) -> Estimate:
        """Each row's sum over rates of weights [S, N or 1] times its scores, on average.

        Every token of the corpus counts alike; the error is over rows.
        """
        rows = (weights * self.scores).sum(0)
        mean = float(rows @ self.lengths / self.lengths.sum())
        return Estimate(mean, _row_error(rows, self.lengths), len(rows) - 1)

    def share_above(self, rate: float) -> float:
        """Share of the area at masking rates above `rate`, in [0, 1]: at sizes m > rate x D of a row."""
        high, whole = 0.0, 0.0
        for scores, length in zip(self.scores.T, self.lengths, strict=True):
            every = scores @ straight_lines(hidden_tokens(self.rates, length), length)
            high, whole = high + every[int(rate * length + 1e-9) :].sum(), whole + every.sum()
        return float(high / whole)


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


def hidden_tokens(rates: np.ndarray | Sequence[float], length: int) -> np.ndarray:
    """How many of a row's `length` tokens are masked at each rate [S]: round(r D), and at least one."""
    return np.maximum(1, np.round(np.asarray(rates) * length)).astype(int)


def spaced_sizes(num_tokens: int, count: int) -> Tensor:
    """At most `count` mask sizes of 1..D, long [S]: all, or most near both ends, for curves bend there."""
    if check_count(count, "count", at_least=2) >= num_tokens:
        return torch.arange(1, num_tokens + 1)
    angle = np.linspace(0, np.pi, count)
    sizes = 1 + (num_tokens - 1) * (1 - np.cos(angle)) / 2
    return check_sizes(np.unique(sizes.round().astype(int)), num_tokens)


def table2_area(curve: RateCurve) -> Estimate:
    """The area in the unit of the paper's Table 2: 512 x 0.01 x the sum of the mean at the rates 1%..99%.

    It calls every text 512 tokens long, whatever its length, and sums 99 of 100 rates, so it is
    comparable across models but is nats of no actual text; a uniform guess over V tokens comes to
    -506.88 log V. Other rates than the curve's are read off straight lines, or the nearest at the
    ends. The error is over rows.
    """
    weights = np.array(
        [np.interp(RATES, curve.rates, unit).sum() for unit in np.eye(len(curve.rates))]
    )
    return curve.weighted(512 * 0.01 * weights[:, None])


def _row_error(rows: np.ndarray, lengths: np.ndarray) -> float:
    """Standard error of the length-weighted mean of a sample of rows [N]; NaN for one row."""
    if len(rows) < 2:
        return math.nan
    weight = lengths / lengths.sum()
    return float(
        np.sqrt(((weight * (rows - weight @ rows)) ** 2).sum() * len(rows) / (len(rows) - 1))
    )
