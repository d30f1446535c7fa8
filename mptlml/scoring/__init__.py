"""A tool for masked language models of others: scores of a corpus, pairs that are compared, the command `mptlml`.

Names are imported when they are asked for, so that the command answers at once.
"""

from importlib import import_module
from typing import Any

NAMES = {
    "FromLogits": "logits",
    "choose": "pairs",
    "compare": "pairs",
    "by_word": "texts",
    "given": "texts",
}
__all__ = [*NAMES]


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{NAMES[name]}", __name__), name)
