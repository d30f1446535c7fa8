"""Models with exact answers: each answers `mptlml.ConditionalModel` and obeys the laws of `mptlml.testing`.

Beside them SecondMoment, a summary of rows for PPCA. A module is loaded when a name of it is asked
for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hmm import HiddenMarkovModel
    from .mixture import BernoulliMixture
    from .ppca import PPCA, SecondMoment

__all__ = ["PPCA", "BernoulliMixture", "HiddenMarkovModel", "SecondMoment"]


def __getattr__(name: str) -> Any:
    room = {"BernoulliMixture": "mixture", "HiddenMarkovModel": "hmm"}.get(name, "ppca")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{room}", __name__), name)
