"""Curves over text by masking rate, as the paper draws them, and their areas: Chapters 10 and 13.

A network's answers need not belong to one joint distribution: an area is then the mean over orders
of the chain rule (`mptlml.masked_lm`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator

from mptlml import draws
from mptlml.checks import check_choice, check_count, check_rate
from mptlml.curve import Estimate, straight_lines
from mptlml.masked_lm import CORRUPTIONS, MaskedLM, Texts

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


@torch.no_grad()
def rate_curve(
    lm: MaskedLM,
    texts: Texts,
    rates: Sequence[float] = RATES,
    *,
    num_masks: int = 1,
    corruption: str = "mask",
    generator: Generator,
) -> RateCurve:
    """Mean log-probability of a masked token at each rate, nats per token, over texts: a RateCurve.

    At rate r every row hides `hidden_tokens(r, D)` of its D tokens, drawn afresh for each rate
    and mask. What is drawn for a row follows from the generator and the row's number among the
    texts. corruption: "mask" replaces each by the mask token, as the theorem needs; "80/10/10"
    is BERT's rule: 80% by the mask token, 10% by a random token, 10% stay as they are (Devlin
    et al. 2019, Sec. 3.1). Raises ValueError: rates out of (0, 1] or not increasing, num_masks
    below 1, another corruption.
    """
    rates = [check_rate(rate) for rate in rates]
    if len(rates) < 1 or (np.diff(rates) <= 0).any():
        raise ValueError(f"rates must increase, got {rates}")
    check_count(num_masks, "num_masks")
    check_choice(corruption, CORRUPTIONS, "corruption")
    corpus, seed = lm.read(texts), draws.seed(generator)
    lengths = corpus.lengths
    # [N, S]
    sizes = torch.from_numpy(np.stack([hidden_tokens(rates, length) for length in lengths]))
    asked = [
        lm.request(ids, sizes[i].repeat_interleave(num_masks), draws.seeded(seed, i), corruption)
        for i, ids in enumerate(corpus.rows)
    ]
    scores = np.empty((len(rates), len(lengths)))
    for i, answer in lm.network.log_probs(asked):
        scores[:, i] = [
            float(part.mean()) for part in answer.split((sizes[i] * num_masks).tolist())
        ]
    return RateCurve(np.array(rates, dtype=float), scores, np.array(lengths))


def hidden_tokens(rates: np.ndarray | Sequence[float], length: int) -> np.ndarray:
    """How many of a row's `length` tokens are masked at each rate [S]: round(r D), and at least one."""
    return np.maximum(1, np.round(np.asarray(rates) * length)).astype(int)


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
