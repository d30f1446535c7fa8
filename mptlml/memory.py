"""How much is computed at once: one bound on memory for every function and model, in one unit.

The unit is one number of the largest tensor that a call makes: of the answers to rows x masks x
tokens, and where a network answers for every word also x words; a model of latent variables adds
its latents or draws.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .checks import check_count

_limit: ContextVar[int] = ContextVar("limit", default=sys.maxsize)


@contextmanager
def limit(numbers: int) -> Iterator[None]:
    """In a `with` block, and in its thread: no more numbers than this at once, but at least one row or mask.

    Without it each function has a bound of its own, which suits a processor with a few GB. Results
    depend on it by rounding, and where rows draw masks of their own, by which they draw. Raises
    ValueError: below 1.
    """
    before = _limit.set(check_count(numbers, "numbers"))
    try:
        yield
    finally:
        _limit.reset(before)


def at_once(usual: int, per_item: int) -> int:
    """How many items of `per_item` numbers are computed at once: `usual`, or fewer under a `limit`; at least one."""
    return max(1, min(usual, _limit.get() // per_item))
