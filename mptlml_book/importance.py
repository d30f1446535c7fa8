"""A deep VAE's p(x_j | x_R) and p(x_R) by weighted draws of the latent variable.

`Importance` draws z from the encoder (MIWAE, Mattei & Frellsen 2019), or from a Student's t that is
first placed on the highest peak of p(z | x_R) and then fitted to its own weighted draws (population
Monte Carlo, Cappé et al. 2004). That proposal has one peak per row, so it cannot reveal a peak that
the search missed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from mptlml.checks import check_choice
from mptlml.draws import randn
from mptlml.memory import at_once

from .deep_vae_model import DeepVAE, checked, filled
from .numerics import LOG_2PI, batches

TAILS = 8  # degrees of freedom of the proposal: heavier tails than the posterior's
# candidates around the encoder's mean, from the prior; climbed from
NEAR, FAR, CLIMBS = (200, 100, 3)
# of fitting the proposal; least effective sample size of a fit
ROUNDS, ROUND_DRAWS, LEAST_SIZE = (6, 200, 30)
KEPT = 0.1  # share of the old covariance in each fit, so that the proposal never collapses onto a few draws
AT_ONCE = 2**23  # draws x rows x tokens: 32 MB of float32


class LogProb(NamedTuple):
    """log p(x_R), nats per row [...], and the effective sample size 1 / sum r_s^2 behind it [...]."""

    log_prob: Tensor
    size: Tensor


class StudentT(NamedTuple):
    """Student's t with TAILS degrees of freedom: mean [N, K], root [N, K, K] of the scale matrix."""

    mean: Tensor
    root: Tensor

    def draw(self, num_draws: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draws z [S, N, K], and their log densities [S, N]."""
        shape = (num_draws, *self.mean.shape)
        chi_square = randn((*shape[:-1], TAILS), self.mean, generator).square().sum(-1)
        u = randn(shape, self.mean, generator) * (TAILS / chi_square).sqrt()[..., None]
        count = shape[-1]
        norm = (
            math.lgamma((TAILS + count) / 2)
            - math.lgamma(TAILS / 2)
            - 0.5 * count * math.log(TAILS * math.pi)
        )
        log_density = norm - 0.5 * (TAILS + count) * (u.square().sum(-1) / TAILS).log1p()
        log_density = log_density - self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.mean + (self.root @ u[..., None]).squeeze(-1), log_density

    def fitted(self, z: Tensor, log_weight: Tensor) -> "StudentT":
        """The same with the mean and covariance of weighted draws; very uneven weights are tempered first."""
        share = (tempered(log_weight, LEAST_SIZE) * log_weight).softmax(0)[..., None]  # [S, N, 1]
        mean = (share * z).sum(0)
        apart = z - mean
        covariance = torch.einsum("sni,snj->nij", share * apart, apart)
        return StudentT(
            mean, torch.linalg.cholesky((1 - KEPT) * covariance + KEPT * self.root @ self.root.mT)
        )


@dataclass(eq=False)
class Importance:
    """p(x_j | x_R) and p(x_R) by S = `num_samples` draws of z, each weighted by p(x_R, z) / proposal(z).

    proposal "encoder": the encoder's answer to the visible tokens, with `fill` at the hidden ones;
    cheap and differentiable, but as poor as the encoder. "mode": Student's t around the highest
    peak of p(z | x_R) that a search finds, with mean and covariance fitted in ROUNDS rounds; the S
    draws of the estimate are fresh. Both are right as S grows; before that, log p(x_R) is too low
    on average. own_encoder: in training, the encoder follows the gradient of the ELBO of the
    visible tokens instead of that of the answers; the answers themselves do not change. Raises
    ValueError: another proposal.
    """

    vae: DeepVAE
    generator: Generator
    num_samples: int = 200
    proposal: str = "mode"
    fill: Tensor | float = 0.0
    own_encoder: bool = False

    def __post_init__(self) -> None:
        check_choice(self.proposal, ("encoder", "mode"), "proposal")
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log sum_s r_s N(x_j; f_j(z_s), s^2), nats per token [..., D]; exactly 0 at observed tokens."""
        x, observed = checked(x, observed, self.vae)
        parts = []
        for rows, masks in self._batches(x, observed):
            tokens, log_weight = self._weighted_draws(rows, masks)
            answer = (log_weight.log_softmax(0)[..., None] + tokens).logsumexp(0)
            if self.own_encoder:
                bound = self.visible_elbo(rows, masks)
                # adds a gradient, not a value
                answer = answer + (bound - bound.detach())[..., None]
            parts.append(torch.where(masks, 0.0, answer))
        return torch.cat(parts).view(x.shape)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...]; log p(x) where `observed` is not given."""
        return self.log_prob_and_size(x, observed).log_prob

    def log_prob_and_size(self, x: Tensor, observed: Tensor | None = None) -> LogProb:
        """The same, with the effective sample size of each row."""
        condense = observed is None and not torch.is_grad_enabled()  # `condensed` has no gradient
        x, observed = checked(
            x, torch.ones_like(x, dtype=torch.bool) if observed is None else observed, self.vae
        )
        x = x.where(observed, 0.0)  # NaN at a masked token would pass into gradients
        parts = [
            self._weighted_draws(rows, masks, condense)[1]
            for rows, masks in self._batches(x, observed)
        ]
        log_weight = torch.cat(parts, 1)  # [S, N]
        log_prob = log_weight.logsumexp(0) - math.log(self.num_samples)
        size = 1 / log_weight.softmax(0).square().sum(0)
        return LogProb(log_prob.view(x.shape[:-1]), size.view(x.shape[:-1]))

    def visible_elbo(self, x: Tensor, observed: Tensor) -> Tensor:
        """The ELBO of log p(x_R), nats per row [N], by one draw, with a gradient for the encoder alone."""
        vae = self.vae
        mean, deviation = vae.encode(filled(x, observed, self.fill))
        z = mean + deviation * randn(mean.shape, mean, self.generator)
        fixed = {name: value.detach() for name, value in vae.decoder.named_parameters()}
        misfit = torch.where(
            observed, x - torch.func.functional_call(vae.decoder, fixed, (z,)), 0.0
        )
        fit = -0.5 * misfit.square().sum(-1) / (2 * vae.log_noise.detach()).exp()
        return fit - 0.5 * (mean.square() + deviation.square()).sum(-1) + deviation.log().sum(-1)

    def _weighted_draws(
        self, x: Tensor, observed: Tensor, condense: bool = False
    ) -> tuple[Tensor, Tensor]:
        """log N(x_j; f_j(z_s), s^2) [S, N, D] and log p(x_R, z_s) / proposal(z_s) [S, N] for rows x [N, D].

        condense: x are whole rows, and the first result has the tokens of `DeepVAE.condensed`.
        """
        mean, deviation = self.vae.encode(filled(x, observed, self.fill))
        if self.own_encoder:
            mean, deviation = mean.detach(), deviation.detach()
        vae, rest = self.vae, x.new_zeros(())
        if condense:
            vae, x, rest = vae.condensed(x)
            observed = observed[:, : x.shape[1]]
        if self.proposal == "encoder":
            u = randn((self.num_samples, *mean.shape), mean, self.generator)
            z = mean + deviation * u
            log_density = -0.5 * (LOG_2PI + u.square()).sum(-1) - deviation.log().sum(-1)
        else:
            z, log_density = self._fitted_proposal(vae, x, observed, mean).draw(
                self.num_samples, self.generator
            )
        tokens, log_weight = _weighed(vae, x, observed, z, log_density)
        return tokens, log_weight + rest

    @torch.no_grad()
    def _fitted_proposal(self, vae: DeepVAE, x: Tensor, observed: Tensor, mean: Tensor) -> StudentT:
        """Student's t at the highest peak found from the encoder's mean and many candidates; then fitted."""
        near = mean + 0.5 * randn((NEAR, *mean.shape), mean, self.generator)
        candidates = torch.cat([near, randn((FAR, *mean.shape), mean, self.generator)])
        best = vae.height(x, observed, candidates).topk(CLIMBS, 0).indices  # [CLIMBS, N]
        starts = [mean[None], candidates.gather(0, best[..., None].expand(-1, -1, mean.shape[-1]))]
        proposal = StudentT(*vae.mode(x, observed, torch.cat(starts)))
        for _ in range(ROUNDS):
            z, log_density = proposal.draw(ROUND_DRAWS, self.generator)
            proposal = proposal.fitted(z, _weighed(vae, x, observed, z, log_density)[1])
        return proposal

    def _batches(self, x: Tensor, observed: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows [n, D] and masks [n, D] in blocks in which draws x rows x tokens stay near AT_ONCE."""
        draws = (
            self.num_samples
            if self.proposal == "encoder"
            else max(self.num_samples, ROUND_DRAWS, NEAR + FAR)
        )
        per_row = draws * x.shape[-1]
        return batches(x, observed, at_once(AT_ONCE // per_row, per_row))


def _weighed(
    vae: DeepVAE, x: Tensor, observed: Tensor, z: Tensor, log_density: Tensor
) -> tuple[Tensor, Tensor]:
    """log N(x_j; f_j(z_s), s^2) [S, N, D] and log p(x_R, z_s) minus the proposal's density [S, N]."""
    tokens = vae.token_log_prob(x, z)
    log_prior = -0.5 * (LOG_2PI + z.square()).sum(-1)
    return tokens, torch.where(observed, tokens, 0.0).sum(-1) + log_prior - log_density


def tempered(log_weight: Tensor, size: float) -> Tensor:
    """The largest power in (0, 1] that leaves weights [S, N] an effective sample size of `size`: [N]."""
    low, high = torch.zeros_like(log_weight[0]), torch.ones_like(log_weight[0])
    for _ in range(30):
        power = (low + high) / 2
        enough = 1 / (power * log_weight).softmax(0).square().sum(0) >= size
        low, high = torch.where(enough, power, low), torch.where(enough, high, power)
    return low
