"""What a model answers, what it may answer besides, and the two small things that every answer needs.

A model with `conditional_log_prob` has a curve, its area, orders and objectives. One whose answers belong to one joint
distribution should have `log_prob` as well. The three methods of `MeanModel` make repeated work on the same rows faster
and change no result; the functions below are the only place that looks for them.
"""

import math
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor

Data = Any  # rows [N, D], a tensor, or what a model's own `summarise` made of them


class ConditionalModel(Protocol):
    """What every model answers, for rows of D = `num_tokens` tokens."""

    num_tokens: int

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D], for x [..., D] and observed bool [..., D], which broadcast.

        Exactly 0 at observed tokens. What x holds at a masked token predicts no other token.
        """
        ...


class TractableModel(ConditionalModel, Protocol):
    """A model whose log marginal likelihood is known as well."""

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...]; log p(x) of the whole row where `observed` is not given."""
        ...


class VocabularyModel(ConditionalModel, Protocol):
    """A model that answers for every word v = 0..V - 1, V = `vocab_size`, and also at tokens that it sees."""

    vocab_size: int

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V]."""
        ...


class MeanModel(ConditionalModel, Protocol):
    """A model that can average over rows faster than by answering for each. All three methods are optional.

    data: rows [N, D], or what `summarise` made of them.
    """

    def summarise(self, x: Tensor) -> Data:
        """What of the rows x [N, D] their mean score depends on; the summary has a `device`, as a tensor has."""
        ...

    def mean_conditional_log_prob(self, data: Data, observed: Tensor) -> Tensor:
        """log p(x_j | x_R) averaged over rows, nats per token [P, D], for masks [P, D] that all rows share."""
        ...

    def mean_log_prob(self, data: Data) -> Tensor:
        """log p(x) averaged over rows, nats per row: a scalar."""
        ...


def all_observed(num_tokens: int, device: torch.device | str | None = None) -> Tensor:
    """The mask that hides nothing: bool [D], all True. What `observed=None` means to `log_prob`."""
    return torch.ones(num_tokens, dtype=torch.bool, device=device)


def at_masked(answer: Tensor, x: Tensor, observed: Tensor) -> Tensor:
    """The `answer` [..., D] at masked tokens: exactly 0 at observed tokens, NaN where a masked token is NaN itself.

    The last step of a `conditional_log_prob` over discrete tokens, whose arithmetic turns NaN into some token's index.
    """
    return torch.where(observed, 0.0, torch.where(x.isnan(), math.nan, answer))


def summarise(model: ConditionalModel, x: Tensor) -> Data:
    """What of the rows x [N, D] the model needs to score their mean: its `summarise(x)` where it has one, else x."""
    method = getattr(model, "summarise", None)
    return x if method is None else method(x)


def scores_means(model: ConditionalModel) -> TypeGuard[MeanModel]:
    """Whether the model averages over rows by itself: it has `mean_conditional_log_prob`."""
    return hasattr(model, "mean_conditional_log_prob")


def mean_log_prob(model: TractableModel, data: Data) -> Tensor:
    """log p(x) averaged over rows, nats per row, a scalar: `data` is rows [N, D] or `summarise(model, x)`."""
    method = getattr(model, "mean_log_prob", None)
    return model.log_prob(data).mean() if method is None else method(data)
