"""Networks outside of Hugging Face transformers: functions from token ids to logits, as conditional models."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import check_count, check_known, check_shapes, check_vocabulary
from ..memory import at_once
from ..protocol import at_masked, own_words

ROWS = 64  # that a network is asked about at once


class FromLogits:
    """A ConditionalModel of rows of D token ids, from what a masked network answers: `score` can work on it.

    logits: takes ids, long [B, D], with `mask_id` where a token is hidden, and answers [B, D, V]. A
    time, a frame of special tokens or another device is its own affair: `lambda ids: network(ids,
    time)[:, 1:-1]`. V is found by asking once. Raises ValueError: answers of another shape, a
    mask_id or counts out of range.
    """

    def __init__(self, logits: Callable[[Tensor], Tensor], mask_id: int, num_tokens: int) -> None:
        self.logits, self.mask_id = logits, check_count(mask_id, "mask_id", at_least=0)
        self.num_tokens = check_count(num_tokens, "num_tokens")
        with torch.no_grad():
            found = logits(torch.full((1, num_tokens), mask_id))
        if found.ndim != 3 or found.shape[:2] != (1, num_tokens):
            raise ValueError(
                f"logits of ids of shape (1, {num_tokens}) must have shape (1, {num_tokens}, V), "
                f"got {tuple(found.shape)}"
            )
        self.vocab_size = found.shape[-1]

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R), nats per token [..., D, V]; x [..., D] and observed [..., D] broadcast."""
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.vocab_size)
        ids, seen = torch.broadcast_tensors(torch.nan_to_num(x).long(), observed)
        shown = torch.where(seen, ids, self.mask_id).reshape(-1, self.num_tokens)
        size = at_once(ROWS, self.num_tokens * self.vocab_size)
        parts = [self.logits(part).to(x.device) for part in shown.split(size)]
        found = check_known(torch.cat(parts))
        return (
            found.to(torch.promote_types(found.dtype, torch.float32))
            .log_softmax(-1)
            .view(*ids.shape, -1)
        )

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; 0 at observed tokens."""
        found = self.vocabulary_log_prob(x, observed)
        return at_masked(own_words(found, x), x, observed)
