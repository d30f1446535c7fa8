"""Models: each answers `mptlml.ConditionalModel` and obeys the laws of `mptlml.testing` that apply to it.

Beside them SecondMoment, a summary of rows for PPCA, and Rule with the functions that make one for
LinearVAE. `Recursive` and `Importance` answer for a `deep_vae.DeepVAE`, a network without
conditionals of its own.
"""

from .deep_vae import Recursive
from .hmm import HiddenMarkovModel
from .importance import Importance
from .linear_vae import LinearVAE
from .mixture import BernoulliMixture
from .ppca import PPCA, SecondMoment
from .quadrature import Rule, disc_rule, hermite_rule
from .shortfall import Shortfall
from .transformer import MaskedTransformer

__all__ = [
    "PPCA",
    "BernoulliMixture",
    "HiddenMarkovModel",
    "Importance",
    "LinearVAE",
    "MaskedTransformer",
    "Recursive",
    "Rule",
    "SecondMoment",
    "Shortfall",
    "disc_rule",
    "hermite_rule",
]
