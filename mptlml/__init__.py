"""Masked pre-training and the marginal likelihood: the package under the book.

One idea: any model that answers log p(x_j | x_R) for an arbitrary observed set R has an MPT curve m -> S(x; m), and the
area under it is the log marginal likelihood (Moreno-Munoz, Recasens & Hauberg 2023, Proposition 1).
"""

from .deep_vae import DeepVAE
from .discrete import BernoulliMixture, HiddenMarkovModel
from .fit import History, fit
from .gaussian import PPCA, SecondMoment
from .linear_vae import LinearVAE
from .masks import all_masks, all_orders, nested_masks, num_masks, random_masks, random_orders
from .score import (
    ConditionalModel,
    Estimate,
    ScoreCurve,
    TractableModel,
    chain_rule,
    exact_curve,
    mean_score,
    order_spread,
    score_curve,
    summarise,
)
from .transformer import MaskedTransformer, Shortfall

__all__ = [
    "PPCA", "BernoulliMixture", "ConditionalModel", "DeepVAE", "Estimate", "HiddenMarkovModel", "History", "LinearVAE",
    "MaskedTransformer", "ScoreCurve", "SecondMoment", "Shortfall", "TractableModel", "all_masks", "all_orders",
    "chain_rule", "exact_curve", "fit", "mean_score", "nested_masks", "num_masks", "order_spread", "random_masks",
    "random_orders", "score_curve", "summarise",
]
