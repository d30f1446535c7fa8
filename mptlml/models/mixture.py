"""A mixture of Bernoulli distributions: p(x) = sum_c weight_c prod_j prob_cj^x_j (1 - prob_cj)^(1 - x_j).

Given the observed tokens R, component c has the responsibility r_c proportional to weight_c p_c(x_R), and
p(x_j = 1 | x_R) = sum_c r_c prob_cj.
"""

import torch

from ..checks import check_binary, check_count, check_finite, check_shapes


class BernoulliMixture:
    """weights [C], at least 0 and summing to 1; probs [C, D] in [0, 1]; tokens are 0.0 or 1.0.

    Parameters may require gradients; results follow their dtype and device. Raises ValueError: shapes that do not fit,
    values out of range.
    """

    def __init__(self, weights, probs):
        if weights.ndim != 1 or probs.ndim != 2 or len(weights) != len(probs) or not probs.numel():
            raise ValueError(f"weights [C] and probs [C, D] do not fit: {tuple(weights.shape)}, {tuple(probs.shape)}")
        check_finite(weights, what="weights")
        check_finite(probs, what="probs")
        if not (weights >= 0).all() or abs(float(weights.detach().sum()) - 1) > 1e-5:
            raise ValueError(f"weights must be at least 0 and sum to 1, they sum to {weights.detach().sum():.6g}, "
                             f"the least is {weights.detach().min():.3g}")
        if probs.min() < 0 or probs.max() > 1:
            raise ValueError(f"probs must lie in [0, 1], got {probs.detach().min():.3g} to {probs.detach().max():.3g}")
        self.weights, self.probs = weights / weights.sum(), probs  # exactly normalised, also after a change of dtype
        self.num_tokens = probs.shape[1]

    @classmethod
    def fit(cls, x, num_components, *, num_steps=200, tolerance=1e-6, smoothing=1.0, generator):
        """Expectation maximisation from random rows; returns (model, log-likelihood at each step in nats a row).

        Each component also counts `smoothing` imaginary rows of fair coins, which keeps probabilities off 0 and 1; with
        smoothing = 0 it is maximum likelihood, and the log-likelihood never falls. Stops when a step gains less than
        `tolerance` nats a row. Raises ValueError: rows that are not binary, more components than rows, counts below 1,
        negative smoothing.
        """
        check_count(num_components, "num_components")
        check_count(num_steps, "num_steps")
        if x.ndim != 2 or len(x) < num_components:
            raise ValueError(f"rows must have shape [N, D], N >= {num_components} components, got {tuple(x.shape)}")
        if not smoothing >= 0:
            raise ValueError(f"smoothing must be at least 0, got {smoothing!r}")
        every = torch.ones(x.shape[1], dtype=torch.bool, device=x.device)
        check_binary(x, every)
        chosen = torch.randperm(len(x), generator=generator, device=generator.device)[:num_components]
        model = cls(x.new_full((num_components,), 1 / num_components), 0.25 + 0.5 * x[chosen.to(x.device)])
        history = []
        for _ in range(num_steps):
            joint = model._joint(x, every)
            history.append(float(joint.logsumexp(-1).mean()))
            if len(history) > 1 and history[-1] - history[-2] < tolerance:
                break
            shares = joint.softmax(-1)
            counts = shares.sum(0) + smoothing
            model = cls(counts / counts.sum(), (shares.T @ x + smoothing / 2) / counts[:, None])
        return model, history

    def sample(self, num_rows, *, generator):
        """Rows [N, D] drawn from the model."""
        check_count(num_rows, "num_rows")
        component = torch.multinomial(self.weights, num_rows, replacement=True, generator=generator)
        return torch.bernoulli(self.probs[component], generator=generator)

    def log_prob(self, x, observed=None):
        """log p(x_R), nats a row [...], for x [..., D]: the exact LML where every token is observed (the default)."""
        if observed is None:
            observed = torch.ones(self.num_tokens, dtype=torch.bool, device=x.device)
        return self._joint(x, observed).logsumexp(-1)

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D]; exactly 0 at observed tokens; NaN where a masked token is NaN itself."""
        shares = self._joint(x, observed).softmax(-1)  # r_c [..., C]
        one, zero = shares @ self.probs, shares @ (1 - self.probs)  # [..., D]: sums of positive terms
        log_prob = torch.where(x == 1, one, zero).log() + torch.where(torch.isnan(x), x, 0.0)
        return torch.where(observed, 0.0, log_prob)

    def _joint(self, x, observed):
        """log weight_c + log p_c(x_R), [..., C]."""
        check_shapes(x, observed, self.num_tokens, self.probs)
        check_binary(x, observed)
        return self.weights.log() + self._log_likelihoods(x, observed)

    def _log_likelihoods(self, x, observed):
        """log p_c(x_R), [..., C]; probabilities of exactly 0 or 1 are allowed, so a likelihood may be -inf."""
        ones = torch.where(observed, x, 0.0)
        zeros = torch.where(observed, 1 - x, 0.0)
        return _count_logs(ones, self.probs) + _count_logs(zeros, 1 - self.probs)


def _count_logs(counts, probs):
    """sum_j counts_j log probs_cj, [..., C], where 0 log 0 = 0 and a count at probability 0 gives -inf."""
    impossible = counts @ (probs == 0).T.to(counts.dtype)
    logs = counts @ torch.where(probs == 0, 1.0, probs).log().T
    return torch.where(impossible > 0, -torch.inf, logs)
