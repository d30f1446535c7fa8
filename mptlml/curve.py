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
        """(low, high): covers the truth with probability `level`, by Student's t."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        half = self.stderr * float(stats.t.ppf(0.5 + level / 2, self.dof))
        return self.mean - half, self.mean + half

    def __str__(self) -> str:
        return (
            f"{self.mean:.3f}"
            if math.isnan(self.stderr)
            else f"{self.mean:.3f} +- {self.stderr:.3f}"
        )


class RowEstimates(NamedTuple):
    """For each of N rows [N]: mean and standard error in nats, its degrees of freedom, passes
    taken, and whether they were enough for the error asked for, if any was.
    """

    mean: Tensor
    stderr: Tensor
    dof: Tensor
    passes: Tensor
    reached: Tensor


@dataclass(frozen=True, eq=False)
class ScoreCurve:
    """S(x; m) at some mask sizes, averaged over masks and rows.

    sizes [S]; mean [S], nats per token; variance [S] of that mean over the draw of the masks, with
    the rows held fixed (NaN where one mask per size was drawn); dof [S]: degrees of freedom of each
    variance; rows [S, N]: the score of each row, None where rows share random masks; scores [S, P]:
    that of each mask, where they do. A curve equals only itself.
    """

    num_tokens: int
    sizes: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    dof: np.ndarray
    rows: np.ndarray | None
    scores: np.ndarray | None = None

    @property
    def stderr(self) -> np.ndarray:
        """Standard error of the mean at each size over the draw of the masks, nats per token [S]."""
        return np.sqrt(self.variance)

    @property
    def weights(self) -> np.ndarray:
        """How often each size counts in the area [S]: ones for sizes 1..D; missing ones as in `straight_lines`."""
        return straight_lines(self.sizes, self.num_tokens).sum(1)

    def area(self, *, rows: str = "fixed") -> Estimate:
        """The area under the curve, an Estimate of the log marginal likelihood in nats per row (Eq. 5).

        rows="fixed": the truth is the mean LML of these rows; only the draw of the masks is noise.
        rows="sample": the truth is the expected LML of the population; the spread of the rows'
        areas holds the noise of rows and masks. Neither error covers missing sizes. Raises
        ValueError: another word for rows, or "sample" with fewer than two rows or with masks that
        rows share.
        """
        check_choice(rows, ("fixed", "sample"), "rows")
        w = self.weights
        mean, by_mask = float(w @ self.mean), w**2 * self.variance
        if rows == "fixed":  # with Welch and Satterthwaite's degrees of freedom
            total = float(by_mask.sum())
            dof = total**2 / float(np.sum(by_mask**2 / self.dof)) if total > 0 else math.inf
            return Estimate(mean, math.sqrt(total), dof)
        if self.rows is None or self.rows.shape[1] < 2:
            raise ValueError(
                'rows="sample" needs at least two rows with masks of their own: use share_masks=False'
            )
        areas = w @ self.rows
        return Estimate(mean, float(areas.std(ddof=1)) / math.sqrt(len(areas)), len(areas) - 1)


def straight_lines(sizes: np.ndarray, num_tokens: int) -> np.ndarray:
    """What each of the sizes [S] adds at every size 1..D, [S, D], where straight lines join them.

    Beyond the ends the nearest size counts; entries of one size share its weight.
    """
    known, place, count = np.unique(sizes, return_inverse=True, return_counts=True)
    every = np.arange(1, num_tokens + 1)
    lines = np.array([np.interp(every, known, unit) for unit in np.eye(len(known))])
    return (lines / count[:, None])[place]
