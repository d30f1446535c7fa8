"""The distance of a model's curve below that of the truth, size by size, where the truth is known."""

import torch
from torch import Tensor

from mptlml.checks import check_shapes
from mptlml.memory import at_once
from mptlml.protocol import VocabularyModel

from .numerics import batches

ROWS = 2048  # per call


class Shortfall:
    """Minus KL(truth || model) at each masked token, as a model: `score_curve` averages it for each size.

    For rows drawn from the truth, the area of its curve has the same mean as the model's area minus
    the truth's, without the noise of the token itself. Both must answer `vocabulary_log_prob`.
    Raises ValueError: they differ in tokens or vocabulary.
    """

    def __init__(self, model: VocabularyModel, truth: VocabularyModel) -> None:
        if (model.num_tokens, model.vocab_size) != (truth.num_tokens, truth.vocab_size):
            raise ValueError(
                f"{model.num_tokens} tokens of {model.vocab_size} words against {truth.num_tokens} of "
                f"{truth.vocab_size}"
            )
        self.model, self.truth, self.num_tokens = model, truth, model.num_tokens

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """-sum_v p(v | x_R) log(p(v | x_R) / q(v | x_R)), nats per token [..., D]; 0 at observed tokens."""
        check_shapes(x, observed, self.num_tokens)
        x, observed = torch.broadcast_tensors(x, observed)
        size = at_once(ROWS, self.num_tokens * self.model.vocab_size)
        parts = [self._minus_kl(*block) for block in batches(x, observed, size)]
        return torch.cat(parts).view(x.shape)

    def _minus_kl(self, x: Tensor, observed: Tensor) -> Tensor:
        p, q = (
            self.truth.vocabulary_log_prob(x, observed),
            self.model.vocabulary_log_prob(x, observed),
        )
        kl = torch.where(p == -torch.inf, 0.0, p.exp() * (p - q)).sum(-1)
        return torch.where(observed, 0.0, -kl)
