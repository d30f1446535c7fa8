"""Models: each answers the protocol `mptlml.ConditionalModel` and passes the contract suite as far as it applies.

Exported are the models, and what builds one or speeds it up: SecondMoment (the data, for means under PPCA), Rule and
its makers (nodes for LinearVAE and NodeMixture). `Recursive`, `NodeMixture` and `Importance` answer for a
`deep_vae.DeepVAE`, which is a network and no model: it has no conditionals of its own.
"""

from .deep_vae import NodeMixture, Recursive
from .hmm import HiddenMarkovModel
from .importance import Importance
from .linear_vae import LinearVAE, Rule, disc_rule, hermite_rule
from .masked_lm import MaskedLM
from .mixture import BernoulliMixture
from .ppca import PPCA, SecondMoment
from .shortfall import Shortfall
from .transformer import MaskedTransformer

__all__ = ["PPCA", "BernoulliMixture", "HiddenMarkovModel", "Importance", "LinearVAE", "MaskedLM", "MaskedTransformer",
           "NodeMixture", "Recursive", "Rule", "SecondMoment", "Shortfall", "disc_rule", "hermite_rule"]
