"""Masked pre-training and the marginal likelihood: the theorem as a library.

One idea: any model that answers log p(x_j | x_R) for an arbitrary observed set R has an MPT curve m
-> S(x; m), and the area under it is the log marginal likelihood (Proposition 1 of Moreno-Munoz,
Recasens & Hauberg 2023).

The package itself holds what works on any such model: masks, the curve and its area, objectives,
the training loop, the protocol, and `mptlml.testing`, the laws that every model obeys. Models are
in `mptlml.models`; `MaskedLM` makes one of a masked language model of transformers. Names are
loaded when they are asked for; they need torch, numpy, scipy and tqdm.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import objectives
    from .curve import Estimate, RowEstimates, ScoreCurve
    from .masked_lm import MaskedLM
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
HOMES = {  # of all but `objectives`, which is a module
    "curve": "Estimate RowEstimates ScoreCurve",
    "masked_lm": "MaskedLM",
    "masks": "all_masks all_orders count_masks nested_masks random_masks random_orders stratified_sizes",
    "protocol": "ConditionalModel summarise",
    "score": "chain_rule estimate_area exact_curve mean_score order_gap order_spread score_curve",
    "training": "History fit",
}


def __getattr__(name: str) -> Any:
    """A name of `__all__`, whose module is imported when it is asked for."""
    if name == "objectives":
        return import_module(".objectives", __name__)
    for module, names in HOMES.items():
        if name in names.split():
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
