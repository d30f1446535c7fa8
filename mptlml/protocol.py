"""What a model answers."""

from typing import Protocol


class ConditionalModel(Protocol):
    """What every model here answers."""

    num_tokens: int

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D]; 0 at observed tokens; what x holds at masked ones predicts no other."""


class TractableModel(ConditionalModel, Protocol):
    """A model whose log marginal likelihood is known as well."""

    def log_prob(self, x):
        """log p(x), nats a row [...]."""
