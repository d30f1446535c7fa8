"""Models that answer the protocol `mptlml.ConditionalModel`; each has its own file and passes the contract suite."""

from .hmm import HiddenMarkovModel
from .linear_vae import LinearVAE
from .mixture import BernoulliMixture
from .ppca import PPCA, SecondMoment
from .shortfall import Shortfall
from .transformer import MaskedTransformer

__all__ = ["PPCA", "BernoulliMixture", "HiddenMarkovModel", "LinearVAE", "MaskedTransformer", "SecondMoment",
           "Shortfall"]
