"""Masked pre-training and the marginal likelihood: the theorem as a library.

One idea: any model that answers log p(x_j | x_R) for an arbitrary observed set R has an MPT curve m
-> S(x; m), and the area under it is the log marginal likelihood (Proposition 1 of Moreno-Munoz,
Recasens & Hauberg 2023).

The package itself holds what works on any such model: masks, the curve and its area, objectives,
the training loop, the protocol, and `mptlml.testing`, the laws that every model obeys. Models are
in `mptlml.models`; `MaskedLM` makes one of a masked language model of transformers, and is loaded
when it is asked for. `import mptlml` needs torch, numpy, scipy and tqdm.
"""

from typing import TYPE_CHECKING, Any

from . import objectives
from .curve import Estimate, RowEstimates, ScoreCurve
from .masks import (
    all_masks,
    all_orders,
    count_masks,
    nested_masks,
    random_masks,
    random_orders,
    stratified_sizes,
)
from .protocol import ConditionalModel, summarise
from .score import (
    chain_rule,
    estimate_area,
    exact_curve,
    mean_score,
    order_gap,
    order_spread,
    score_curve,
)
from .training import History, fit

if TYPE_CHECKING:
    from .masked_lm import MaskedLM

__version__ = "0.1.0"

__all__ = [
    "ConditionalModel",
    "Estimate",
    "History",
    "MaskedLM",
    "RowEstimates",
    "ScoreCurve",
    "all_masks",
    "all_orders",
    "chain_rule",
    "count_masks",
    "estimate_area",
    "exact_curve",
    "fit",
    "mean_score",
    "nested_masks",
    "objectives",
    "order_gap",
    "order_spread",
    "random_masks",
    "random_orders",
    "score_curve",
    "stratified_sizes",
    "summarise",
]


def __getattr__(name: str) -> Any:
    if name != "MaskedLM":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .masked_lm import MaskedLM

    return MaskedLM
