"""A mixture of Bernoulli distributions: p(x) = sum_c weight_c prod_j prob_cj^x_j (1 - prob_cj)^(1 - x_j).

Given the observed tokens R, component c has the responsibility r_c proportional to weight_c
p_c(x_R), and p(x_j = 1 | x_R) = sum_c r_c prob_cj.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_binary, check_distributions, check_shapes
from ..draws import multinomial
from ..protocol import all_observed, at_masked


class BernoulliMixture:
    """weights [C], at least 0 and summing to 1; probs [C, D] in [0, 1]; tokens are 0 or 1, floating or int64.

    Parameters may require gradients, weights above 0; results follow their dtype and device. Raises
    ValueError: shapes that do not fit, values out of range; the methods also raise it for tokens
    other than 0 and 1.
    """

    def __init__(self, weights: Tensor, probs: Tensor) -> None:
        if weights.ndim != 1 or probs.ndim != 2 or len(weights) != len(probs) or not probs.numel():
            raise ValueError(
                f"weights [C] and probs [C, D] do not fit: {tuple(weights.shape)}, {tuple(probs.shape)}"
            )
        if not ((probs >= 0) & (probs <= 1)).all():
            raise ValueError(
                f"probs must lie in [0, 1], got {probs.detach().min():.3g} to {probs.detach().max():.3g}"
            )
        self.weights, self.probs = check_distributions(weights, "weights"), probs
        self.num_tokens = probs.shape[1]

    @classmethod
    def fit(
        cls,
        x: Tensor,
        num_components: int,
        *,
        num_steps: int = 200,
        tolerance: float = 1e-6,
        smoothing: float = 1.0,
        start: "BernoulliMixture | None" = None,
        generator: Generator,
    ) -> "Fitted":
        """Expectation maximisation from random rows of x [N, D], or from a model `start`, whose components count then.

        Each component also counts `smoothing` imaginary rows of fair coins, which keeps
        probabilities off 0 and 1; with smoothing = 0 this is maximum likelihood, and the
        log-likelihood never falls. Stops when a step gains less than `tolerance` nats per row.
        Raises ValueError: rows that are not binary, more components than rows, negative smoothing.
        """
        x = x if x.is_floating_point() else x.double()
        if x.ndim != 2 or not 1 <= num_components <= len(x):
            raise ValueError(
                f"rows must have shape [N, D], N >= {num_components} components, got {tuple(x.shape)}"
            )
        if not smoothing >= 0:
            raise ValueError(f"smoothing must be at least 0, got {smoothing!r}")
        every = all_observed(x.shape[1], x.device)
        check_binary(x, every)
        if start is None:
            chosen = torch.randperm(len(x), generator=generator)[:num_components]
            start = cls(x.new_full((num_components,), 1 / num_components), 0.25 + 0.5 * x[chosen])
        model = cls(start.weights.detach(), start.probs.detach())
        history: list[float] = []
        for _ in range(num_steps):
            joint = model._joint(x, every)
            history.append(float(joint.logsumexp(-1).mean()))
            if len(history) > 1 and history[-1] - history[-2] < tolerance:
                break
            model = cls._likeliest(x, joint.softmax(-1), smoothing)
        return Fitted(model, history)

    @classmethod
    def _likeliest(cls, x: Tensor, shares: Tensor, smoothing: float) -> "BernoulliMixture":
        """The best mixture of rows [N, D] of which each component has these shares [N, C]."""
        counts = shares.sum(0) + smoothing
        least = torch.finfo(x.dtype).tiny  # a component may lose all its rows
        probs = (shares.T @ x + smoothing / 2) / counts[:, None].clamp_min(least)
        return cls(counts / counts.sum(), probs.clamp_max(1))  # rounding may exceed 1

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [N, D] drawn from the model."""
        chances = self.probs[multinomial(self.weights, num_rows, generator)]
        return torch.bernoulli(chances.cpu(), generator=generator).to(chances.device)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...], of x [..., D]; by default of all tokens: the exact LML."""
        observed = all_observed(self.num_tokens, x.device) if observed is None else observed
        return self._joint(x, observed).logsumexp(-1)

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; see `at_masked`."""
        shares = self._joint(x, observed).softmax(-1)  # r_c [..., C]
        # [..., D]: sums of positive terms
        one, zero = (shares @ self.probs, shares @ (1 - self.probs))
        return at_masked(torch.where(x == 1, one, zero).log(), x, observed)

    def _joint(self, x: Tensor, observed: Tensor) -> Tensor:
        """log weight_c + log p_c(x_R), [..., C]; -inf where probabilities of exactly 0 or 1 forbid it."""
        x = x if x.is_floating_point() else x.to(self.probs.dtype)
        check_shapes(x, observed, self.num_tokens, self.probs)
        check_binary(x, observed)
        ones, zeros = torch.where(observed, x, 0.0), torch.where(observed, 1 - x, 0.0)
        return self.weights.log() + (
            _count_logs(ones, self.probs) + _count_logs(zeros, 1 - self.probs)
        )


class Fitted(NamedTuple):
    """A mixture that was fitted, and the log-likelihood before each step, nats per row."""

    model: BernoulliMixture
    log_likelihood: list[float]


def _count_logs(counts: Tensor, probs: Tensor) -> Tensor:
    """sum_j counts_j log probs_cj, [..., C], where 0 log 0 = 0 and a count at probability 0 gives -inf."""
    impossible = counts @ (probs == 0).T.to(counts.dtype)
    logs = counts @ torch.where(probs == 0, 1.0, probs).log().T
    return torch.where(impossible > 0, -torch.inf, logs)
