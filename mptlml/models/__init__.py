"""Models with exact answers: each answers `mptlml.ConditionalModel` and obeys the laws of `mptlml.testing`.

Beside them SecondMoment, a summary of rows for PPCA.
"""

from .hmm import HiddenMarkovModel
from .mixture import BernoulliMixture
from .ppca import PPCA, SecondMoment

__all__ = ["PPCA", "BernoulliMixture", "HiddenMarkovModel", "SecondMoment"]
