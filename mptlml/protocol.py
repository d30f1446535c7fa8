"""The protocol of models: what each must answer, what it may answer in addition, and helpers for the answers.

A model with `conditional_log_prob` has a curve, its area, orders and objectives. A model whose
answers belong to one joint distribution should have `log_prob(x, observed=None)` as well: log
p(x_R), nats per row [...], by default of the whole row. The methods of `MeanModel`, and a
`log_prob_at`, only save time.
"""

import math
from typing import Protocol, TypeGuard

import torch
from torch import Tensor


class Summary(Protocol):
    """What a model's own `summarise` made of rows; like a tensor, it lies on a device."""

    @property
    def device(self) -> torch.device: ...


Data = Tensor | Summary  # rows [N, D], or a summary of them


class ConditionalModel(Protocol):
    """What every model answers, for rows of D = `num_tokens` tokens."""

    num_tokens: int

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]: x [..., D] and observed bool [..., D] broadcast.

        Exactly 0 at observed tokens. What x holds at a masked token must not affect another's
        answer.
        """


class VocabularyModel(ConditionalModel, Protocol):
    """A model that answers for every word v = 0..V - 1, V = `vocab_size`, and at observed tokens too."""

    vocab_size: int

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V]: a distribution at every token.

        A joint distribution is certain of an observed token's word. A network need not be.
        """

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; see `at_masked`."""
        return at_masked(own_words(self.vocabulary_log_prob(x, observed), x), x, observed)


class MeanModel(ConditionalModel, Protocol):
    """A model that averages over rows [N, D], or what `summarise` made of them, faster than row by row.

    Both methods are optional; `summarise` is of use only beside the other.
    """

    def summarise(self, x: Tensor) -> Data:
        """All that the mean score of rows x [N, D] depends on; like a tensor, it has a `device`."""

    def mean_conditional_log_prob(self, data: Data, observed: Tensor) -> Tensor:
        """log p(x_j | x_R) averaged over rows, nats per token [P, D], for masks [P, D]."""


def all_observed(num_tokens: int, device: torch.device | str | None = None) -> Tensor:
    """The mask that hides nothing, bool [D]: what `observed=None` means."""
    return torch.ones(num_tokens, dtype=torch.bool, device=device)


def at_masked(answer: Tensor, x: Tensor, observed: Tensor) -> Tensor:
    """The `answer` [..., D] at masked tokens; 0 at observed ones, NaN where a masked token is NaN itself."""
    return torch.where(observed, 0.0, torch.where(x.isnan(), math.nan, answer))


def token_log_probs(model: ConditionalModel, x: Tensor, observed: Tensor) -> Tensor:
    """The model's `conditional_log_prob`, `in_full`, so that sums keep their digits under autocast too."""
    return in_full(model.conditional_log_prob(x, observed))


def in_full(answer: Tensor) -> Tensor:
    """The answer in float32 at least."""
    return answer.to(torch.promote_types(answer.dtype, torch.float32))


def own_words(every: Tensor, x: Tensor) -> Tensor:
    """Of answers for every word [..., D, V] those for the words of x [..., D], which broadcasts: [..., D]."""
    ids = torch.nan_to_num(x).long().expand(every.shape[:-1])
    return every.gather(-1, ids[..., None]).squeeze(-1)


def log_prob_at(model: ConditionalModel, x: Tensor, observed: Tensor, token: Tensor) -> Tensor:
    """log p(x_j | x_R) of one masked token j = `token` [...] of each row, nats [...]; x and observed broadcast to it.

    By the model's own `log_prob_at(x, observed, token)` where it has one, which may be faster: `chain_rule` asks for
    whole orders, their masks nested, and a causal network answers all places of one in a single pass.
    """
    if hasattr(model, "log_prob_at"):
        return model.log_prob_at(x, observed, token)
    return token_log_probs(model, x, observed).gather(-1, token[..., None]).squeeze(-1)


def summarise(model: ConditionalModel, x: Tensor) -> Data:
    """All that the model needs to score the mean of rows x [N, D]: its `summarise(x)`, or x."""
    return model.summarise(x) if hasattr(model, "summarise") else x


def has_mean_scores(model: ConditionalModel) -> TypeGuard[MeanModel]:
    """Whether the model averages over rows by itself: it has `mean_conditional_log_prob`."""
    return hasattr(model, "mean_conditional_log_prob")
