"""Passes go where the noise is: areas to an error that is asked for.

A row has blocks, and its total is the sum over them of width x mean value. Its draws are two halves. In
rounds, each half gives its draws to the blocks in proportion to width x noise (Neyman 1934), where the noise
is what the *other* half has found: how often a block counts in an average does not follow from its values.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from torch import Generator

from . import draws
from .checks import check_count

BLOCKS = 8  # of the mask sizes 1..D - 1
SHORT = 6  # tokens: rows of so many have fewer masks than a pilot has draws
PILOT = 4  # draws of a block in each half before the first round
GROWTH = 1.5  # the most by which a round multiplies the draws of a half
EVEN = 0.15  # of all draws, spread over blocks by their width, so that no block that seems quiet is left alone
PRIOR = 4  # pairs that the neighbouring blocks count as, where the noise of a block is judged

Draw = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Totals(NamedTuple):
    """For each of N rows [N]: total, its standard error, the degrees of freedom of that, how many draws it
    took, and whether they were enough.
    """

    mean: np.ndarray
    stderr: np.ndarray
    dof: np.ndarray
    draws: np.ndarray
    reached: np.ndarray


def areas(
    ask: Callable[[np.ndarray, np.ndarray], np.ndarray],
    num_tokens: np.ndarray,
    num_passes: int,
    error: float,
    generator: Generator,
    limit: np.ndarray | None = None,
) -> Totals:
    """The areas under the curves of rows of num_tokens [N], to a standard error of about `error` nats: Totals.

    ask(rows [P], sizes [P, k]) answers the score under a mask of each size, nats per token [P, k]. Blocks are
    of sizes 1..D - 1; size D has one mask, which is asked once. A row of 0 tokens has area 0. num_passes: the
    most for a row, or its `limit` [N]. Raises ValueError: an error that is not above
    0, or fewer passes than the pilot takes.
    """
    check_passes(num_passes, error, max(map(least_passes, num_tokens.tolist())))
    edges = np.round(np.linspace(0, np.maximum(num_tokens - 1, 0), BLOCKS + 1)).astype(int)
    width = np.diff(edges, axis=0)

    def draw(rows: np.ndarray, blocks: np.ndarray, places: np.ndarray) -> np.ndarray:
        first, count = (part[blocks, rows][:, None] for part in (edges + 1, width))
        return ask(rows, first + np.minimum((places * count).astype(int), count - 1))

    most = np.minimum(num_passes, np.inf if limit is None else limit) - 1
    found = allocate(draw, width, error, most, generator=generator)
    [long] = np.nonzero(num_tokens)
    found.mean[long] += ask(long, num_tokens[long, None])[:, 0]
    found.draws[long] += 1
    return found


def least_passes(num_tokens: int) -> int:
    """The passes of a pilot for a row of so many tokens, or those of all masks of a short one."""
    return 2**num_tokens - 1 if num_tokens <= SHORT else 2 * PILOT * min(BLOCKS, num_tokens - 1) + 1


def check_passes(num_passes: int, error: float, least: int) -> None:
    """Refuse an error that is not above 0, or fewer passes than the least: ValueError."""
    if not 0 < error < np.inf:
        raise ValueError(f"error must be a number of nats above 0, got {error!r}")
    check_count(num_passes, "num_passes", at_least=least)


def allocate(
    draw: Draw,
    width: np.ndarray,
    error: float,
    most: int | np.ndarray,
    *,
    pilot: int = PILOT,
    generator: Generator,
) -> Totals:
    """The total of each row to a standard error of about `error`, in at most `most` draws (a number or [N]): Totals.

    width [B, N]: of each block, 0 where a row has no such block. draw(rows [P], blocks [P], places [P, 2])
    answers one value for each place in [0, 1) of its block, [P, 2]; a pair of places lies in one of equal
    parts of a block: its difference tells the noise. pilot: draws of a block in each half, even, at first.

    With one round after the pilot the total has no bias; with more, how much a half draws also says how well
    the other half's noise is known: a bias of a tenth of the error was seen where most draws are the pilot's.
    """
    # [half, B, N], of pairs: half a squared difference, the mean
    squares, sums, pairs = np.zeros((3, 2, *width.shape))
    more = np.broadcast_to(np.where(width > 0, pilot // 2, 0), pairs.shape)
    reached = np.ones(pairs.shape[::2], dtype=bool)  # [half, N]
    while more.any():
        cell, value = _drawn(draw, more, generator)
        for total, new in ((squares, np.diff(value)[:, 0] ** 2 / 2), (sums, value.mean(1))):
            np.add.at(total.reshape(-1), cell, new)
        pairs = pairs + more
        # of a half's blocks, as the other half has found it
        spread = width * np.sqrt(_noise(squares, pairs)[::-1])
        reached = np.less_equal(_variance(spread, width, pairs), 2 * error**2)
        more = _next_pairs(width, spread, pairs, reached, error, most)
    return _totals(width, squares, sums, pairs, reached)


def _drawn(draw: Draw, more: np.ndarray, generator: Generator) -> tuple[np.ndarray, np.ndarray]:
    """The cell of [half, B, N] of each new pair [P], `more` in each, and the pair's two values [P, 2]."""
    cell = np.repeat(np.arange(more.size), more.ravel())
    part = np.arange(len(cell)) - np.repeat(more.ravel().cumsum() - more.ravel(), more.ravel())
    within = draws.rand((len(cell), 2), None, generator).numpy(force=True)
    places = (within + part[:, None]) / more.ravel()[cell][:, None]
    _, block, row = np.unravel_index(cell, more.shape)
    return cell, draw(row, block, places)


def _totals(
    width: np.ndarray, squares: np.ndarray, sums: np.ndarray, pairs: np.ndarray, reached: np.ndarray
) -> Totals:
    seen = np.maximum(pairs, 1)
    # the variance that each adds to the mean of the halves
    by_block = width**2 * squares / seen / (2 * seen) / 4
    variance = by_block.sum((0, 1))
    fourth = (by_block**2 / seen).sum((0, 1))
    dof = np.divide(variance**2, fourth, out=np.full_like(variance, np.inf), where=fourth > 0)
    mean = (width * sums / seen).sum((0, 1)) / 2
    return Totals(
        mean, np.sqrt(variance), dof, 2 * pairs.sum((0, 1)).astype(int), np.all(reached, 0)
    )


def _noise(squares: np.ndarray, pairs: np.ndarray) -> np.ndarray:
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
