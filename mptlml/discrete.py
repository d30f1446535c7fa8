"""Discrete models in closed form: a mixture of Bernoulli distributions, and a hidden Markov model.

Mixture: p(x) = sum_c weight_c prod_j prob_cj^x_j (1 - prob_cj)^(1 - x_j). Given the observed tokens R, component c has
the responsibility r_c proportional to weight_c p_c(x_R), and p(x_j = 1 | x_R) = sum_c r_c prob_cj.

Hidden Markov model: p(x, z) = initial_{z_1} prod_t transition_{z_{t-1} z_t} prod_t emission_{z_t x_t}. A token that is
not observed is summed out by leaving its factor away, so one pass forward and one backward answer any observed set.
"""

import math

import torch

from .checks import check_binary, check_count, check_finite, check_shapes, check_vocabulary
from .score import Estimate


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


class HiddenMarkovModel:
    """initial [H], transition [H from, H to], emission [H, V]: probabilities; tokens are 0.0, 1.0, ..., V - 1.

    Rows have `num_tokens` tokens. Parameters may require gradients; results follow their dtype and device. Raises
    ValueError: shapes that do not fit, negative values, distributions that do not sum to 1, num_tokens below 1.
    """

    def __init__(self, initial, transition, emission, num_tokens):
        shapes = tuple(initial.shape), tuple(transition.shape), tuple(emission.shape)
        if initial.ndim != 1 or shapes[1] != 2 * shapes[0] or emission.ndim != 2 or shapes[2][:1] != shapes[0] \
                or not emission.numel():
            given = ", ".join(map(str, shapes))
            raise ValueError(f"initial [H], transition [H, H] and emission [H, V] do not fit: {given}")
        self.num_tokens = check_count(num_tokens, "num_tokens")
        self.initial = _distributions(initial, "initial")
        self.transition = _distributions(transition, "transition")
        self.emission = _distributions(emission, "emission")
        self.vocab_size = emission.shape[1]

    def sample(self, num_rows, *, generator):
        """Rows [N, D] drawn from the model."""
        check_count(num_rows, "num_rows")

        def draw(probs):
            return torch.multinomial(probs, 1, generator=generator).squeeze(-1)

        state, tokens = draw(self.initial.expand(num_rows, -1)), []
        for _ in range(self.num_tokens):
            tokens.append(draw(self.emission[state]))
            state = draw(self.transition[state])
        return torch.stack(tokens, -1).to(self.emission.dtype)

    def entropy(self, num_rows, *, generator):
        """-E[log p(x)] from `num_rows` fresh rows: an Estimate in nats a row. Raises ValueError: fewer than 2 rows."""
        check_count(num_rows, "num_rows", at_least=2)
        cost = -self.log_prob(self.sample(num_rows, generator=generator))
        return Estimate(cost.mean().item(), cost.std().item() / math.sqrt(num_rows), num_rows - 1)

    def log_prob(self, x, observed=None):
        """log p(x_R), nats a row [...], for x [..., D]: the exact LML where every token is observed (the default)."""
        if observed is None:
            observed = torch.ones(self.num_tokens, dtype=torch.bool, device=x.device)
        return self._forward(*self._check(x, observed))[1]

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D]; exactly 0 at observed tokens; NaN where a masked token is NaN itself."""
        ids, seen = self._check(x, observed)
        by_word = self.emission.T
        answer = [(state * by_word[ids[..., t]]).sum(-1).log() for t, state in self._smooth(ids, seen)]
        answer = torch.stack(answer[::-1], -1) + torch.where(torch.isnan(x), x, 0.0)
        return torch.where(observed, 0.0, answer)

    def vocabulary_log_prob(self, x, observed):
        """log p(x_j = v | x_R), nats [..., D, V], for every masked token j and word v; exactly 0 at observed tokens."""
        ids, seen = self._check(x, observed)
        answer = torch.stack([(state @ self.emission).log() for _, state in self._smooth(ids, seen)][::-1], -2)
        return torch.where(observed[..., None], 0.0, answer)

    def _check(self, x, observed):
        """Token ids (0 in place of NaN) and the observed set, broadcast together [..., D]."""
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.vocab_size)
        return torch.broadcast_tensors(torch.nan_to_num(x).long(), observed)

    def _likelihood(self, ids, seen, t):
        """p(x_t | z_t), [..., H], where token t is observed, and 1 where it is masked."""
        return torch.where(seen[..., t, None], self.emission.T[ids[..., t]], 1.0)

    def _forward(self, ids, seen):
        """(p(z_t | x_R before t) for each t, a list of [..., H]; log p(x_R) [...]). Scaled at each token."""
        state, before = self.initial.expand(*ids.shape[:-1], -1), []
        log_prob = torch.zeros_like(state[..., 0])
        for t in range(self.num_tokens):
            before.append(state)
            joint = state * self._likelihood(ids, seen, t)
            scale = joint.sum(-1)
            log_prob = log_prob + torch.where(seen[..., t], scale.log(), 0.0)
            state = (joint / torch.where(scale > 0, scale, 1.0)[..., None]) @ self.transition
        return before, log_prob

    def _smooth(self, ids, seen):
        """Yield (t, p(z_t | x_R without x_t) [..., H]) for t = D - 1, ..., 0; NaN where x_R is impossible."""
        before, _ = self._forward(ids, seen)
        after = torch.ones_like(before[0])  # proportional to p(x_R after t | z_t)
        for t in reversed(range(self.num_tokens)):
            state = before.pop() * after
            yield t, state / state.sum(-1, keepdim=True)
            after = (self._likelihood(ids, seen, t) * after) @ self.transition.T
            after = after / after.sum(-1, keepdim=True)


def _distributions(probs, what):
    """Rows that sum to 1, exactly normalised, also after a change of dtype. Raises ValueError otherwise."""
    check_finite(probs, what=what)
    total = probs.sum(-1, keepdim=True)
    if not (probs >= 0).all() or not ((total.detach() - 1).abs() < 1e-5).all():
        raise ValueError(f"{what} must hold probabilities that sum to 1, the least is {probs.detach().min():.3g}, "
                         f"the sums run from {total.detach().min():.6g} to {total.detach().max():.6g}")
    return probs / total
