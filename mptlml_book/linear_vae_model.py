"""A linear Bernoulli variational autoencoder, with its latent variable integrated out by quadrature.

p(x | z) = prod_j Bernoulli(x_j; sigmoid(eta_j)), eta = W z + b, z ~ N(0, I_K). So log p(x | z) = x
. eta - sum_j softplus(eta_j), and x . eta = (W^T x) . z + b . x reads each row once, whatever the
number of nodes z_q. With nodes z_q and weights w_q that sum to one the model is a finite mixture of
products: given the observed tokens R, node q has the share r_q proportional to w_q p(x_R | z_q),
and p(x_j = 1 | x_R) = sum_q r_q sigmoid(eta_qj). These conditionals belong to one joint
distribution, whatever the rule.
"""

from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus

from mptlml.checks import check_binary, check_finite, check_shapes
from mptlml.draws import bernoulli, randn
from mptlml.memory import at_once
from mptlml.protocol import all_observed, at_masked

from .numerics import Peak, batches, climb
from .quadrature import Rule, hermite_rule

ROWS = 100  # per call where each has nodes of its own
CANCELS = 1e-4  # a smaller 1 - p has lost four digits: it is computed as a sum over the other outcome instead


class LinearVAE:
    """weight W [D, K], bias b [D], rule for z; tokens are 0.0 or 1.0.

    Parameters may require gradients; results follow their dtype and device. Raises ValueError:
    shapes that do not fit, NaN; the methods also raise it for tokens other than 0 and 1.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rule: Rule) -> None:
        if (
            weight.ndim != 2
            or bias.shape != weight.shape[:1]
            or rule.nodes.shape[1:] != weight.shape[1:]
        ):
            raise ValueError(
                f"weight [D, K], bias [D] and nodes [Q, K] do not fit: {tuple(weight.shape)}, "
                f"{tuple(bias.shape)}, {tuple(rule.nodes.shape)}"
            )
        check_finite(weight, what="weight")
        check_finite(bias, what="bias")
        self.weight, self.bias, self.rule = weight, bias, rule.to(weight)
        self.num_tokens, self.num_latents = weight.shape
        self.logits = self.rule.nodes @ weight.T + bias  # eta [Q, D]
        self.log_partition = softplus(self.logits)  # of each token at each node

    def adaptive_log_prob(
        self, x: Tensor, observed: Tensor | None = None, *, per_axis: int = 3
    ) -> Tensor:
        """log p(x_R), nats per row [...], by Gauss-Hermite nodes around the peak of p(z | x_R).

        Accurate where many tokens are observed: with few, p(z | x_R) is far from a normal density.
        """
        x, observed = torch.broadcast_tensors(x, self._check(x, observed))
        rule = hermite_rule(per_axis, self.num_latents).to(self.weight)
        size = at_once(ROWS, len(rule.nodes) * self.num_tokens)
        parts = [
            self.around_mode(*some, *rule).log_weights.logsumexp(-1)
            for some in batches(x, observed, size)
        ]
        return torch.cat(parts).view(x.shape[:-1])

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [N, D] drawn from the model, with z from the prior itself, not from the rule."""
        z = randn((num_rows, self.num_latents), self.weight, generator)
        return bernoulli((z @ self.weight.T + self.bias).sigmoid(), generator)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...], of x [..., D]; by default of all tokens: the LML."""
        joint = self._log_joint(x, observed)
        # thrice as fast as logsumexp, for want of denormal numbers
        top = joint.detach().amax(-1, keepdim=True)
        return top[..., 0] + (joint - top).clamp(min=-80).exp().sum(-1).log()

    def posterior(self, x: Tensor, observed: Tensor) -> Tensor:
        """p(z_q | x_R): each node's share r_q, [..., Q]."""
        return self._log_joint(x, observed).softmax(-1)

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; see `at_masked`."""
        chance = mixed(self.posterior(x, observed), self.logits, torch.where(observed, 1.0, x))
        # log of 0 has no gradient
        return at_masked(chance.where(~observed, 1.0).log(), x, observed)

    def mode(self, x: Tensor, observed: Tensor, *, tolerance: float = 1e-6) -> Peak:
        """The peak of p(z | x_R).

        log p(z | x_R) is concave, so there is one. Newton's steps find it, from the posterior mean
        under the rule, and end when none is longer than `tolerance`.
        """
        x, observed = torch.broadcast_tensors(x, self._check(x, observed))
        seen, mask = torch.where(observed, x, 0.0), observed.to(self.weight)
        height, slope = (
            partial(self._height, seen, mask),
            partial(self._slope_and_precision, seen, mask),
        )
        start = self.posterior(x, observed) @ self.rule.nodes
        peak = climb(height, slope, start, num_steps=30, tolerance=tolerance, slack=8)
        return Peak.at(peak, slope(peak)[1])

    def _height(self, seen: Tensor, mask: Tensor, z: Tensor) -> Tensor:
        return _log_likelihood(seen, mask, self._logits_at(z)) - 0.5 * z.square().sum(-1)

    def _slope_and_precision(self, seen: Tensor, mask: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        chance = self._logits_at(z).sigmoid()
        spread = mask * chance * (1 - chance)
        # w_j w_j^T, [D, K K]
        outer = (self.weight[:, :, None] * self.weight[:, None, :]).flatten(1)
        eye = torch.eye(self.num_latents).to(outer)
        return (seen - mask * chance) @ self.weight - z, eye + (spread @ outer).unflatten(
            -1, eye.shape
        )

    def around_mode(
        self, x: Tensor, observed: Tensor, offsets: Tensor, log_weights: Tensor
    ) -> Rule:
        """A rule of each row's own: nodes [..., Q, K] at mode + L offset, log weight + log p(x_R, z) there.

        offsets [Q, K] or [..., Q, K] with log_weights [Q] for u ~ N(0, I): a Gauss-Hermite rule
        gives adaptive quadrature; draws of u with log_weights -log Q importance sampling from the
        Laplace approximation. The logsumexp of the new log weights is log p(x_R); their softmax
        holds the posterior's shares.
        """
        x, observed = torch.broadcast_tensors(x, self._check(x, observed))
        # the nodes need not lie exactly around the peak
        mode, root = self.mode(x, observed, tolerance=0.01)
        nodes = mode[..., None, :] + offsets @ root.mT
        seen, mask = torch.where(observed, x, 0.0)[..., None, :], observed[..., None, :]
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        tilt = 0.5 * (offsets.square().sum(-1) - nodes.square().sum(-1))  # prior over proposal
        log_likelihood = _log_likelihood(seen, mask, self._logits_at(nodes))
        return Rule(nodes, log_weights + log_likelihood + tilt + log_det[..., None])

    def _logits_at(self, z: Tensor) -> Tensor:
        """eta [..., D] for z [..., K]."""
        return z @ self.weight.T + self.bias

    def _check(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """The observed set, every token where it is None. Raises ValueError: see the class."""
        observed = all_observed(self.num_tokens, x.device) if observed is None else observed
        check_shapes(x, observed, self.num_tokens, self.weight)
        check_binary(x, observed)
        return observed

    def _log_joint(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """log w_q + log p(x_R | z_q), [..., Q]; what depends on the mask alone is computed once."""
        observed = self._check(x, observed)
        seen = torch.where(observed, x, 0.0)
        fit = (seen @ self.weight) @ self.rule.nodes.T + (seen @ self.bias)[..., None]  # x_R . eta
        return self.rule.log_weights + fit - observed.to(seen) @ self.log_partition.T


def _log_likelihood(seen: Tensor, mask: Tensor, logits: Tensor) -> Tensor:
    """log p(x_R | z), nats [...], for x with zeros at masked tokens, the mask and the logits eta [..., D]."""
    return (seen * logits - mask * softplus(logits)).sum(-1)


def mixed(shares: Tensor, logits: Tensor, x: Tensor) -> Tensor:
    """sum_q shares_q p(x_j | eta_qj), [..., J], for x [..., J], shares [..., Q], logits [Q, J]."""
    one = shares @ logits.sigmoid()
    zero = 1 - one
    lost = torch.atleast_2d((zero < CANCELS) & (x == 0)).flatten(0, -2).any(0)  # tokens [J]
    if lost.any():
        zero = zero.clone()
        zero[..., lost] = shares @ (-logits[:, lost]).sigmoid()
    return torch.where(x == 1, one, zero)
