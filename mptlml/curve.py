"""A measured MPT curve, and its area."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats
from torch import Tensor

from .checks import check_choice


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error (nats), which has `dof` degrees of freedom."""

    mean: float
    stderr: float
    dof: float = math.inf

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high): covers the truth with probability `level`, by Student's t with `dof` degrees of freedom."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        half = self.stderr * float(stats.t.ppf(0.5 + level / 2, self.dof)) if self.stderr > 0 else self.stderr
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if math.isnan(self.stderr) else f"{self.mean:.3f} +- {self.stderr:.3f}"


class RowEstimates(NamedTuple):
    """An estimate for each of N rows [N]: mean and standard error in nats, the degrees of freedom behind that
    error, and the forward passes that it took.
    """

    mean: Tensor
    stderr: Tensor
    dof: Tensor
    passes: Tensor


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """S(x; m) at some mask sizes, averaged over masks and rows.

    sizes [S]; mean [S], nats per token; variance [S] of that mean over the draw of the masks, with the rows
    held fixed (NaN where one mask per size was drawn); dof [S]: degrees of freedom of each variance; rows [S,
    N]: the score of each row, or None where the model answered for the mean of all rows at once; shared:
    whether all rows had the same masks. A curve equals only itself; to compare two curves, compare their
    arrays.
    """

    num_tokens: int
    sizes: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    dof: np.ndarray
    rows: np.ndarray | None
    shared: bool

    @property
    def stderr(self) -> np.ndarray:
        """Standard error of the mean at each size over the draw of the masks, nats per token [S]."""
        return np.sqrt(self.variance)

    @property
    def weights(self) -> np.ndarray:
        """How often each size counts in the area [S]: ones for sizes 1..D.

        For a subset, the score of a missing size is read off the straight line between its neighbours; beyond
        the ends it is that of the nearest size.
        """
        return straight_lines(self.sizes, self.num_tokens).sum(1)

    def area(self, *, rows: str = "fixed") -> Estimate:
        """The area under the curve, an Estimate of the log marginal likelihood in nats per row (Eq. 5).

        rows="fixed": the truth is the mean LML of these rows; only the draw of the masks is noise.
        rows="sample": the truth is the expected LML of the population from which the rows were drawn; the
        draws of rows and of masks are noise. Where the rows share their masks, the interval is slightly too
        wide, because the interaction of rows and masks is counted in both variances. Neither error covers the
        missing sizes that are read off straight lines. Raises ValueError: another word for rows, or "sample"
        with fewer than two rows or without their scores (`score_curve(..., keep_rows=True)`).
        """
        check_choice(rows, ("fixed", "sample"), "rows")
        w = self.weights
        mean = float(w @ self.mean)
        by_mask = w**2 * self.variance
        mask_variance = float(by_mask.sum())
        if rows == "fixed":
            return Estimate(mean, math.sqrt(mask_variance), _pooled_dof(by_mask, self.dof))
        if self.rows is None or self.rows.shape[1] < 2:
            raise ValueError('rows="sample" needs the score of each row, for at least two rows: use keep_rows=True')
        count = self.rows.shape[1]
        row_variance = float((w @ self.rows).var(ddof=1)) / count
        if not self.shared:  # each row had its own masks: their noise is already in the spread over rows
            return Estimate(mean, math.sqrt(row_variance), count - 1)
        parts = np.append(by_mask, row_variance)
        return Estimate(mean, math.sqrt(parts.sum()), _pooled_dof(parts, np.append(self.dof, count - 1)))

def straight_lines(sizes: np.ndarray, num_tokens: int) -> np.ndarray:
    """What each of some sizes [S] adds to the curve at every size 1..D, [S, D], where straight lines join them.

    Beyond the ends the nearest size counts; entries of one size share its weight.
    """
    known, place, count = np.unique(sizes, return_inverse=True, return_counts=True)
    every = np.arange(1, num_tokens + 1)
    lines = np.array([np.interp(every, known, unit) for unit in np.eye(len(known))])
    return (lines / count[:, None])[place]


def _pooled_dof(variances: np.ndarray, dofs: np.ndarray) -> float:
    """Welch and Satterthwaite's degrees of freedom of a sum of independent variance estimates."""
    total = np.sum(variances)
    if not total > 0:
        return math.inf
    return float(total**2 / np.sum(variances**2 / dofs))
