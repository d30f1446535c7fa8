"""Passes go where the noise is: areas to an error that is asked for.

A row has blocks, and its total is the sum over them of width x mean value. Its draws are two
halves. In rounds, each half gives its draws to the blocks in proportion to width x noise (Neyman
1934), where the noise is what the *other* half has found: how often a block counts in an average
does not follow from its values.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator

from . import draws
from .checks import check_count
from .curve import RowEstimates

BLOCKS = 8  # of the mask sizes 1..D - 1
SHORT = 6  # tokens: rows of so many have fewer masks than a pilot has draws
EXACT = 255  # masks, those of eight tokens: so many are asked rather than a sample
MOST = 16  # tokens: rows of more are not asked under all masks
PILOT = 4  # draws of a block in each half before the first round
GROWTH = 1.5  # the most by which a round multiplies the draws of a half
EVEN = 0.15  # of all draws, spread over blocks by their width, so that no block that seems quiet is left alone
PRIOR = 4  # pairs that the neighbouring blocks count as, where the noise of a block is judged


class Pairs(NamedTuple):
    """Pairs of draws that come next: the row [P] and block [P] of each, and its places in [0, 1), [P, 2]."""

    row: np.ndarray
    block: np.ndarray
    place: np.ndarray


class Masks(NamedTuple):
    """Masks that come next, k for each of the rows [P], which may repeat: their sizes [P, k]."""

    row: np.ndarray
    size: np.ndarray


class Allocation:
    """Draws from the blocks of rows until each total has a standard error of about `error`, by ask and tell:

        while len((pairs := plan.next(generator)).row):
            plan.tell(values)  # one for each place, [P, 2]

    width [B, N]: of each block, 0 where a row has no such block; a row takes at most `most` draws
    (a number or [N]). A pair of places lies in one of equal parts of a block: its difference tells
    the noise. pilot: draws of a block in each half, even, at first. Raises ValueError: an error
    that is not above 0.

    With one round after the pilot the total has no bias; with more, how much a half draws also says
    how well the other half's noise is known: a bias of a tenth of the error was seen where most
    draws are the pilot's.
    """

    def __init__(
        self, width: np.ndarray, error: float, most: int | np.ndarray, pilot: int = PILOT
    ) -> None:
        if not 0 < error < np.inf:
            raise ValueError(f"error must be a number of nats above 0, got {error!r}")
        self.width, self.error, self.most = width, error, most
        # [half, B, N], of pairs: half a squared difference, the mean
        self.squares, self.sums, self.pairs = np.zeros((3, 2, *width.shape))
        self.more = np.broadcast_to(np.where(width > 0, pilot // 2, 0), self.pairs.shape)
        self.reached = np.ones(self.pairs.shape[::2], dtype=bool)  # [half, N]

    def next(self, generator: Generator) -> Pairs:
        """The pairs of the next round; none where enough are drawn."""
        more = self.more.ravel()
        self.cell = np.repeat(np.arange(more.size), more)  # of [half, B, N], for each pair [P]
        part = np.arange(len(self.cell)) - np.repeat(more.cumsum() - more, more)
        within = draws.rand((len(self.cell), 2), None, generator).numpy(force=True)
        places = (within + part[:, None]) / more[self.cell][:, None]
        _, block, row = np.unravel_index(self.cell, self.more.shape)
        return Pairs(row, block, places)

    def tell(self, value: np.ndarray) -> None:
        """The values of the pairs [P, 2] that `next` has named."""
        for total, new in (
            (self.squares, np.diff(value)[:, 0] ** 2 / 2),
            (self.sums, value.mean(1)),
        ):
            np.add.at(total.reshape(-1), self.cell, new)
        self.pairs = self.pairs + self.more
        # of a half's blocks, as the other half has found it
        spread = self.width * np.sqrt(_block_variance(self.squares, self.pairs)[::-1])
        self.reached = np.less_equal(_variance(spread, self.width, self.pairs), 2 * self.error**2)
        self.more = _next_pairs(self.width, spread, self.pairs, self.reached, self.error, self.most)

    def estimates(self) -> RowEstimates:
        """The total of each row; its passes are its draws."""
        seen = np.maximum(self.pairs, 1)
        # the variance that each adds to the mean of the halves
        by_block = self.width**2 * self.squares / seen / (2 * seen) / 4
        variance = by_block.sum((0, 1))
        fourth = (by_block**2 / seen).sum((0, 1))
        dof = np.divide(variance**2, fourth, out=np.full_like(variance, np.inf), where=fourth > 0)
        mean = (self.width * self.sums / seen).sum((0, 1)) / 2
        taken = 2 * self.pairs.sum((0, 1)).astype(int)
        found = mean, np.sqrt(variance), dof, taken, np.all(self.reached, 0)
        return RowEstimates(*map(torch.from_numpy, found))


class AreaPlan:
    """Which masks tell the areas of rows to a standard error of about `error` nats, by ask and tell:

        while len((masks := plan.next(generator)).row):
            plan.tell(scores)  # the row's score under a mask of each size, nats per token [P, k]
        plan.estimates({row: area for row in plan.in_full()})  # over all of its masks

    num_tokens [N]; a row of 0 tokens has area 0. The one rule of passes, at most `num_passes` for a
    row: all masks where these are few; else blocks of sizes 1..D - 1 by `Allocation`, and size D,
    which has one mask, once. Where all masks and half as many again fit, the sample stops at half,
    and all are asked if the error was not reached. Raises ValueError: fewer passes than the pilot
    takes, or all masks of a short row; an error that is not above 0.
    """

    def __init__(self, num_tokens: Sequence[int], num_passes: int, error: float) -> None:
        least = max(map(least_passes, num_tokens))
        self.num_passes = check_count(num_passes, "num_passes", at_least=least)
        tokens = np.array(num_tokens)
        self.masks = np.where(tokens <= MOST, np.exp2(np.minimum(tokens, MOST)) - 1, np.inf)
        self.short = self.masks <= min(num_passes, EXACT)
        self.tokens = np.where(self.short, 0, tokens)
        self.edges = np.round(np.linspace(0, np.maximum(self.tokens - 1, 0), BLOCKS + 1)).astype(
            int
        )
        half = (self.masks + 1) / 2
        most = np.where(half + self.masks <= num_passes, half, num_passes)
        self.sample = Allocation(np.diff(self.edges, axis=0), error, most - 1)
        self.score: np.ndarray | None = None  # of size D

    def next(self, generator: Generator) -> Masks:
        """The masks of the next round; none where enough are asked."""
        pairs = self.sample.next(generator)
        if len(pairs.row):
            first = self.edges[pairs.block, pairs.row][:, None] + 1
            count = self.sample.width[pairs.block, pairs.row][:, None]
            steps = np.minimum((pairs.place * count).astype(int), count - 1)
            return Masks(pairs.row, first + steps)
        [long] = np.nonzero(self.tokens if self.score is None else [])
        return Masks(long, self.tokens[long, None])

    def tell(self, score: np.ndarray) -> None:
        """The scores [P, k] of the masks that `next` has named."""
        if score.shape[1] == 2:
            self.sample.tell(score)
        else:
            self.score = score[:, 0]

    def in_full(self) -> list[int]:
        """The rows that are to be asked under all of their masks, once `next` names no more."""
        found = self.estimates()
        fits = self.masks + found.passes.numpy() <= self.num_passes
        return np.flatnonzero(self.short | ~found.reached.numpy() & fits).tolist()

    def estimates(self, in_full: Mapping[int, float] = MappingProxyType({})) -> RowEstimates:
        """The area of each row; in_full: those that are known over all masks."""
        found, long = self.sample.estimates(), self.tokens > 0
        if self.score is not None:
            found.mean[long] += torch.from_numpy(self.score)
            found.passes[long] += 1
        for row, area in in_full.items():
            found.mean[row], found.stderr[row], found.reached[row] = float(area), 0, True
            found.passes[row] += int(self.masks[row])
        return found


def least_passes(num_tokens: int) -> int:
    """The passes of a pilot for a row of so many tokens, or those of all masks of a short one."""
    return 2**num_tokens - 1 if num_tokens <= SHORT else 2 * PILOT * min(BLOCKS, num_tokens - 1) + 1


def _block_variance(squares: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The variance of a value in each block, drawn towards that of the block and its neighbours: [half, B, N]."""
    near_squares, near_pairs = (
        sum(np.pad(part, ((0, 0), (1, 1), (0, 0)))[:, k : k + part.shape[1]] for k in range(3))
        for part in (squares, pairs)
    )
    prior = PRIOR * near_squares / np.maximum(near_pairs, 1)
    return (squares + prior) / (pairs + PRIOR)


def _variance(spread: np.ndarray, width: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The variance of the total of each half [half, N] after so many pairs from each block [half, B, N]."""
    return (spread**2 / (2 * np.where(width > 0, pairs, 1))).sum(1)


def _next_pairs(
    width: np.ndarray,
    spread: np.ndarray,
    pairs: np.ndarray,
    reached: np.ndarray,
    error: float,
    most: int | np.ndarray,
) -> np.ndarray:
    """How many pairs the halves draw next from each block: whole numbers [half, B, N], none where enough are drawn."""
    share = np.divide(
        spread, spread.sum(1, keepdims=True), out=np.zeros_like(spread), where=spread > 0
    )
    share = (1 - EVEN) * share + EVEN * width / np.maximum(width.sum(0), 1)
    held = pairs.sum(1)  # [half, N]
    ideal = _variance(spread, width, share)
    # at least one pair
    wanted = np.maximum(np.minimum(ideal / (2 * error**2), GROWTH * held), held + 1)
    room = np.where(reached, 0, np.maximum(np.minimum(wanted, most // 4) - held, 0))
    lacking = np.maximum(wanted[:, None] * share - pairs, 0)
    planned = lacking * (room / np.maximum(lacking.sum(1), 1))[:, None]
    # in all, what is planned in all
    return np.diff(np.round(planned.cumsum(1)), axis=1, prepend=0).astype(int)
