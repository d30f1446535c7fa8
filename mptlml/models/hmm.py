"""A hidden Markov model: p(x, z) = initial_{z_1} prod_t transition_{z_{t-1} z_t} prod_t emission_{z_t x_t}.

Leaving out the factor of a hidden token sums it out: a forward and a backward pass answer any
observed set.
"""

import math

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_distributions, check_shapes, check_vocabulary
from ..curve import Estimate
from ..draws import multinomial
from ..protocol import all_observed, at_masked


class HiddenMarkovModel:
    """Probabilities initial [H], transition [H from, H to], emission [H, V]; tokens are 0..V - 1, int64.

    Parameters may require gradients; results follow their dtype and device. Raises ValueError:
    shapes that do not fit, distributions that do not sum to 1; the methods also raise it for tokens
    not in 0..V - 1.
    """

    def __init__(
        self, initial: Tensor, transition: Tensor, emission: Tensor, num_tokens: int
    ) -> None:
        shapes = tuple(initial.shape), tuple(transition.shape), tuple(emission.shape)
        square = len(shapes[0]) == 1 and shapes[1] == 2 * shapes[0] and shapes[2][:1] == shapes[0]
        if not square or emission.ndim != 2 or not emission.numel():
            raise ValueError(
                f"initial [H], transition [H, H] and emission [H, V] do not fit: "
                f"{', '.join(map(str, shapes))}"
            )
        self.num_tokens = check_count(num_tokens, "num_tokens")
        self.initial = check_distributions(initial, "initial")
        self.transition = check_distributions(transition, "transition")
        self.emission = check_distributions(emission, "emission")
        self.vocab_size = emission.shape[1]

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows drawn from the model, int64 [N, D]."""
        state, tokens = _one_of(self.initial.expand(num_rows, -1), generator), []
        for _ in range(self.num_tokens):
            tokens.append(_one_of(self.emission[state], generator))
            state = _one_of(self.transition[state], generator)
        return torch.stack(tokens, -1)

    def entropy(self, num_rows: int, *, generator: Generator) -> Estimate:
        """-E[log p(x)] from `num_rows` fresh rows, nats per row. Raises ValueError: fewer than 2 rows."""
        check_count(num_rows, "num_rows", at_least=2)
        cost = -self.log_prob(self.sample(num_rows, generator=generator))
        return Estimate(cost.mean().item(), cost.std().item() / math.sqrt(num_rows), num_rows - 1)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...], of x [..., D]; by default of all tokens: the exact LML."""
        observed = all_observed(self.num_tokens, x.device) if observed is None else observed
        return self._forward(*self._check(x, observed))[1]

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; see `at_masked`."""
        ids, seen = self._check(x, observed)
        answer = [
            (state * self.emission.T[ids[..., t]]).sum(-1).log()
            for t, state in enumerate(self._smooth(ids, seen))
        ]
        return at_masked(torch.stack(answer, -1), x, observed)

    def vocabulary_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j = v | x_R) of each word v, nats per token [..., D, V]; an observed token's word is certain."""
        ids, seen = self._check(x, observed)
        answer = (torch.stack(self._smooth(ids, seen), -2) @ self.emission).log()
        certain = ids[..., None] == torch.arange(self.vocab_size, device=ids.device)
        return torch.where(seen[..., None], torch.where(certain, 0.0, -math.inf), answer)

    def state_posterior(self, x: Tensor, observed: Tensor) -> Tensor:
        """p(z_t | x_R), [..., D, H], of the hidden state at each token; NaN where x_R is impossible."""
        return torch.stack(self._smooth(*self._check(x, observed)), -2)

    def _check(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids (0 in place of NaN) and the observed set, broadcast together [..., D]."""
        check_shapes(x, observed, self.num_tokens)
        check_vocabulary(x, observed, self.vocab_size)
        ids, observed = torch.broadcast_tensors(torch.nan_to_num(x).long(), observed)
        return ids, observed

    def _likelihood(self, ids: Tensor, seen: Tensor, t: int) -> Tensor:
        """p(x_t | z_t), [..., H], where token t is observed, and 1 where it is masked."""
        return torch.where(seen[..., t, None], self.emission.T[ids[..., t]], 1.0)

    def _forward(self, ids: Tensor, seen: Tensor) -> tuple[list[Tensor], Tensor]:
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

    def _smooth(self, ids: Tensor, seen: Tensor) -> list[Tensor]:
        """p(z_t | x_R) for each t, a list of [..., H]."""
        states, _ = self._forward(ids, seen)
        after = torch.ones_like(states[0])  # proportional to p(x_R from t on | z_t)
        for t in reversed(range(self.num_tokens)):
            after = self._likelihood(ids, seen, t) * after
            joint = states[t] * after
            states[t] = joint / joint.sum(-1, keepdim=True)
            after = after @ self.transition.T
            after = after / after.sum(-1, keepdim=True)
        return states


def _one_of(probs: Tensor, generator: Generator) -> Tensor:
    """An index drawn from each row of probabilities [N, C]: [N]."""
    return multinomial(probs, 1, generator, replacement=False).squeeze(-1)
