"""A tool for masked language models of others: one table in, the same table out, and the command `mptlml`.

`Scorer` is imported when it is asked for, so that the command answers at once.
"""

from typing import Any

__all__ = ["Scorer"]


def __getattr__(name: str) -> Any:
    if name != "Scorer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .scorer import Scorer

    return Scorer
