"""Curves over text by masking rate, as the paper draws them, and their areas: Chapters 10 and 13.

A network's answers need not belong to one joint distribution: an area is then the mean over orders
of the chain rule (`mptlml.masked_lm`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mptlml import draws
from mptlml.checks import check_rate
from mptlml.curve import Estimate, straight_lines
from mptlml.masked_lm import MaskedLM, Rows, Texts
from mptlml.masks import random_masks

RATES = tuple(percent / 100 for percent in range(1, 100))  # the paper's 99 masking rates (Sec. 3.2)


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
    def at_sizes(self) -> list[np.ndarray]:
        """The scores of each row at its sizes 1..D, read as `ScoreCurve.weights` says: nats per token [D_i]."""
        return [
            own @ straight_lines(hidden_tokens(self.rates, n), n)
            for own, n in zip(self.scores.T, self.lengths, strict=True)
        ]

    @property
    def row_areas(self) -> np.ndarray:
        """The area of each row, nats per row [N]."""
        return np.array([scores.sum() for scores in self.at_sizes])

    def area(self) -> Estimate:
        """The area, an Estimate of the log-likelihood averaged over orders, in nats per token; all tokens count alike.

        The error is over rows, and does not cover the sizes that are read off straight lines; it is
        that of a ratio, too small where a few long rows hold most tokens.
        """
        return over_rows(self.row_areas / self.lengths, self.lengths)

    def share_above(self, rate: float) -> float:
        """Share of the area at masking rates above `rate`, in [0, 1]: at sizes m > rate x D of a row."""
        high = [scores[int(rate * len(scores) + 1e-9) :].sum() for scores in self.at_sizes]
        return sum(high) / self.row_areas.sum()


@torch.no_grad()
def rate_curve(
    lm: MaskedLM,
    texts: Texts,
    rates: Sequence[float],
    *,
    num_masks: int = 1,
    generator: torch.Generator,
) -> RateCurve:
    """Mean log-probability of a masked token at each rate, nats per token, over texts: a RateCurve.

    At rate r every row hides `hidden_tokens(r, D)` of its D tokens, drawn afresh for each rate
    and mask. What is drawn for a row follows from the generator and the row's number among the
    texts. rates: increasing. Raises ValueError: rates out of (0, 1], num_masks below 1.
    """
    ids, seed = lm.read(texts), draws.seed(generator)
    lengths = [len(row) for row in ids]
    sizes = [hidden_tokens([*map(check_rate, rates)], length) for length in lengths]

    def masked(i: int) -> Rows:
        each = sizes[i].repeat(num_masks)
        observed = random_masks(lengths[i], each, generator=draws.seeded(seed, i))
        return lm.hiding(ids[i], ~observed)

    scores = np.empty((len(rates), len(ids)))
    for i, answer in lm.log_probs(lengths, masked):
        scores[:, i] = [part.mean() for part in answer.split((num_masks * sizes[i]).tolist())]
    return RateCurve(np.array(rates), scores, np.array(lengths))


def hidden_tokens(rates: np.ndarray | Sequence[float], length: int) -> np.ndarray:
    """How many of a row's `length` tokens are masked at each rate [S]: round(r D), and at least one."""
    return np.maximum(1, np.round(np.multiply(rates, length))).astype(int)


def table2_area(curve: RateCurve) -> Estimate:
    """The area in the unit of the paper's Table 2: 512 x 0.01 x the sum of the mean at the rates 1%..99%.

    It calls every text 512 tokens long, whatever its length, and sums 99 of 100 rates, so it is
    comparable across models but is nats of no actual text; a uniform guess over V tokens comes to
    -506.88 log V. Other rates than the curve's are read off straight lines, or the nearest at the
    ends. The error is over rows.
    """
    sums = [np.interp(RATES, curve.rates, scores).sum() for scores in curve.scores.T]
    return over_rows(5.12 * np.array(sums), curve.lengths)


def over_rows(values: np.ndarray, weights: np.ndarray) -> Estimate:
    """The weighted mean of a sample of rows [N], and its standard error; NaN for one row."""
    count, share = len(values), weights / weights.sum()
    mean = share @ values
    error = math.hypot(*(share * (values - mean)))
    stderr = error * math.sqrt(count / (count - 1)) if count > 1 else math.nan
    return Estimate(mean, stderr, count - 1)
