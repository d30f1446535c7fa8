"""A deep VAE's p(x_j | x_R) and p(x_R) by weighted draws of the latent variable, and a second opinion by annealing.

`Importance` draws z from the encoder (MIWAE, Mattei & Frellsen 2019), or from a bell that is first set on the highest
peak of p(z | x_R) and then fitted to its own weighted draws (population Monte Carlo, Cappé et al. 2004). Its proposal
is one bell a row, so it says nothing of peaks that the search missed. `annealed_log_prob` starts from the whole prior
and knows nothing of peaks or encoders (Neal 2001; Del Moral et al. 2006).
"""

import math
from dataclasses import dataclass

import torch

from ..checks import check_count
from ..draws import randn
from .deep_vae import DeepVAE, checked
from .ppca import LOG_2PI

TAILS = 8  # degrees of freedom of the bell: heavier tails than the posterior's
NEAR, FAR, CLIMBS = 200, 100, 3  # candidates around the encoder's mean, from the prior; how many to climb from
ROUNDS, ROUND_DRAWS, LEAST_SIZE = 6, 200, 30  # fitting the bell, and the effective sample size that a fit rests on
KEPT = 0.1  # of the bell's covariance, at each fit: it never collapses onto a few draws
MOST_ELEMENTS = 2**23  # draws x rows x tokens at a time: 32 MB of float32


@dataclass
class Importance:
    """p(x_j | x_R) and p(x_R) by S = `num_samples` draws of z, each weighted by p(x_R, z) / proposal(z).

    proposal "encoder": the encoder's answer to the visible tokens with `fill` at the hidden ones; cheap, can be
    differentiated, poor where the encoder is. "mode": Student's t around the highest peak of p(z | x_R) that a search
    finds, its mean and covariance fitted over `rounds` rounds; the S draws that count are fresh ones. Both are
    consistent: right as S grows, too low in the logarithm before, on average. own_encoder: in training, the encoder
    follows the gradient of the ELBO of the visible tokens in place of that of the answers, which are the same numbers.
    """

    vae: DeepVAE
    generator: torch.Generator
    num_samples: int = 200
    proposal: str = "mode"
    fill: torch.Tensor | float = 0.0
    rounds: int = ROUNDS
    own_encoder: bool = False

    def __post_init__(self):
        check_count(self.num_samples, "num_samples")
        check_count(self.rounds, "rounds", at_least=0)
        if self.proposal not in ("encoder", "mode"):
            raise ValueError(f'proposal must be "encoder" or "mode", got {self.proposal!r}')
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x, observed):
        """log sum_s r_s N(x_j; f_j(z_s), s^2), nats [..., D]; exactly 0 at observed tokens."""
        x, observed = checked(x, observed, self.vae)
        parts = [self._conditional(a, b) for a, b in self._blocks(x, observed)]
        return torch.cat(parts).view(x.shape)

    def joint_log_prob(self, x, observed):
        """log p(x_M | x_R) of all hidden tokens at once, nats a row [...], from the same draws."""
        x, observed = checked(x, observed, self.vae)
        parts = []
        for a, b in self._blocks(x, observed):
            tokens, log_weight = self._draw(a, b)
            hidden = torch.where(b, 0.0, tokens).sum(-1)
            parts.append((log_weight.log_softmax(0) + hidden).logsumexp(0))
        return torch.cat(parts).view(x.shape[:-1])

    def log_prob(self, x, observed=None, *, with_sizes=False):
        """log p(x_R), nats a row [...]; with_sizes adds the effective sample size 1 / sum r_s^2 of each row."""
        whole = observed is None
        x, observed = checked(x, torch.ones_like(x, dtype=torch.bool) if whole else observed, self.vae)
        weights = []
        for a, b in self._blocks(x, observed):
            if whole and self.num_tokens > self.vae.decoder[-1].in_features:
                small, y, rest = self.vae.condensed(a)
                encoded = self.vae.encode(a)
                weights.append(self._draw(y, b[:, :y.shape[1]], small, encoded)[1] + rest)
            else:
                weights.append(self._draw(a, b)[1])
        weights = torch.cat(weights, 1)  # [S, N]
        value = (weights.logsumexp(0) - math.log(self.num_samples)).view(x.shape[:-1])
        size = 1 / weights.softmax(0).square().sum(0)
        return (value, size.view(x.shape[:-1])) if with_sizes else value

    def _conditional(self, x, observed):
        tokens, log_weight = self._draw(x, observed)
        answer = (log_weight.log_softmax(0)[..., None] + tokens).logsumexp(0)
        if self.own_encoder:
            bound = self._visible_elbo(x, observed)
            answer = answer + (bound - bound.detach())[..., None]  # nothing but a gradient
        return torch.where(observed, 0.0, answer)

    def _visible_elbo(self, x, observed):
        """The ELBO of log p(x_R), nats [N], one draw of z a row; its gradient reaches the encoder alone."""
        vae = self.vae
        mean, deviation = vae.encode(torch.where(observed, x, torch.as_tensor(self.fill).to(x)))
        z = mean + deviation * randn(mean.shape, mean, self.generator)
        fixed = {name: value.detach() for name, value in vae.decoder.named_parameters()}
        misfit = torch.where(observed, x - torch.func.functional_call(vae.decoder, fixed, (z,)), 0.0)
        fit = -0.5 * misfit.square().sum(-1) / (2 * vae.log_noise.detach()).exp()
        return fit - 0.5 * (mean.square() + deviation.square()).sum(-1) + deviation.log().sum(-1)

    def _draw(self, x, observed, vae=None, encoded=None):
        """log N(x_j; f_j(z_s), s^2) [S, N, D] and log p(x_R, z_s) / proposal(z_s) [S, N] for rows x [N, D]."""
        vae = vae or self.vae
        if encoded is None:
            fill = torch.as_tensor(self.fill, dtype=x.dtype, device=x.device)
            encoded = vae.encode(torch.where(observed, x, fill))
        mean, deviation = (value.detach() for value in encoded) if self.own_encoder else encoded
        if self.proposal == "encoder":
            u = randn((self.num_samples, *mean.shape), mean, self.generator)
            z = mean + deviation * u
            log_proposal = -0.5 * (LOG_2PI + u.square()).sum(-1) - deviation.log().sum(-1)
            return _weighed(vae, x, observed, z, log_proposal)
        bell = vae.mode(x, observed, self._starts(vae, x, observed, mean))
        with torch.no_grad():
            for _ in range(self.rounds):
                z, log_proposal = _student(bell, ROUND_DRAWS, self.generator)
                bell = _fitted(bell, z, _weighed(vae, x, observed, z, log_proposal)[1])
        return _weighed(vae, x, observed, *_student(bell, self.num_samples, self.generator))

    @torch.no_grad()
    def _starts(self, vae, x, observed, mean):
        """Where the search for a peak begins: the encoder's mean, and the best of many candidates, [1 + CLIMBS, N, K].

        A row unlike those that trained the encoder often has its highest peak elsewhere.
        """
        near = mean + 0.5 * randn((NEAR, *mean.shape), mean, self.generator)
        far = randn((FAR, *mean.shape), mean, self.generator)
        candidates = torch.cat([near, far])
        best = vae.height(x, observed, candidates).topk(CLIMBS, 0).indices  # [CLIMBS, N]
        return torch.cat([mean[None], candidates.gather(0, best[..., None].expand(-1, -1, mean.shape[-1]))])

    def _blocks(self, x, observed):
        """Rows [n, D] and masks [n, D], so many at a time that draws x rows x tokens stay near MOST_ELEMENTS."""
        draws = self.num_samples if self.proposal == "encoder" else max(self.num_samples, ROUND_DRAWS, NEAR + FAR)
        step = max(1, MOST_ELEMENTS // (draws * x.shape[-1]))
        flat = x.reshape(-1, x.shape[-1]), observed.reshape(-1, x.shape[-1])
        return zip(flat[0].split(step), flat[1].split(step), strict=True)


@torch.no_grad()
def annealed_log_prob(vae, x, *, generator, num_draws=64, num_moves=5):
    """log p(x), nats [N], of rows x [N, D] by draws that walk from the prior to the posterior of z.

    Each row's draws see p(z) p(x | z)^b with b from 0 to 1, raised whenever half of the effective sample size is left;
    then they are drawn again by weight and make `num_moves` Metropolis steps as wide as they lie apart. Slow (some
    hundred decoder passes a row) and independent of encoder, peaks and bells: a check on `Importance`. Raises
    ValueError: counts below 1 (num_draws: 2), x that does not fit.
    """
    check_count(num_draws, "num_draws", at_least=2)
    check_count(num_moves, "num_moves")
    x, observed = checked(x, torch.ones_like(x, dtype=torch.bool), vae)
    rest = x.new_zeros(len(x))
    if vae.num_tokens > vae.decoder[-1].in_features:
        vae, x, rest = vae.condensed(x)
    z = randn((num_draws, len(x), vae.num_latents), x, generator)
    seen = vae.token_log_prob(x, z).sum(-1)  # log p(x | z) [S, N]
    total, heat, width = rest, x.new_zeros(len(x)), 2.4 / math.sqrt(vae.num_latents)
    while (heat < 1).any():
        rise = (1 - heat) * _tempered(seen * (1 - heat), num_draws / 2)
        heat = torch.where(rise > 0.999 * (1 - heat), 1.0, heat + rise)
        total = total + (rise * seen).logsumexp(0) - math.log(num_draws)
        chosen = torch.multinomial((rise * seen).softmax(0).T, num_draws, True, generator=generator).T  # [S, N]
        z, seen = z.gather(0, chosen[..., None].expand_as(z)), seen.gather(0, chosen)
        spread = z - z.mean(0)
        cover = torch.einsum("sni,snj->nij", spread, spread) / num_draws
        root = torch.linalg.cholesky(cover + 1e-6 * torch.eye(vae.num_latents).to(cover))
        for _ in range(num_moves):
            moved = z + width * (root @ randn(z.shape, z, generator)[..., None]).squeeze(-1)
            value = vae.token_log_prob(x, moved).sum(-1)
            gain = heat * (value - seen) + 0.5 * (z.square() - moved.square()).sum(-1)
            accept = torch.rand(gain.shape, generator=generator, dtype=x.dtype, device=x.device).log() < gain
            z, seen = torch.where(accept[..., None], moved, z), torch.where(accept, value, seen)
    return total


def _weighed(vae, x, observed, z, log_proposal):
    """log N(x_j; f_j(z_s), s^2) [S, N, D] and log p(x_R, z_s) - log_proposal [S, N]."""
    tokens = vae.token_log_prob(x, z)
    log_prior = -0.5 * (LOG_2PI + z.square()).sum(-1)
    return tokens, torch.where(observed, tokens, 0.0).sum(-1) + log_prior - log_proposal


def _student(bell, num_draws, generator):
    """Draws z [S, N, K] from Student's t around the mean [N, K] with root [N, K, K], and log densities [S, N]."""
    mean, root = bell
    shape = (num_draws, *mean.shape)
    chi_square = randn((*shape[:-1], TAILS), mean, generator).square().sum(-1)
    u = randn(shape, mean, generator) * (TAILS / chi_square).sqrt()[..., None]
    count = shape[-1]
    norm = math.lgamma((TAILS + count) / 2) - math.lgamma(TAILS / 2) - 0.5 * count * math.log(TAILS * math.pi)
    log_density = norm - 0.5 * (TAILS + count) * (u.square().sum(-1) / TAILS).log1p()
    return mean + (root @ u[..., None]).squeeze(-1), log_density - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _fitted(bell, z, log_weight):
    """The bell with the mean and covariance of weighted draws; weights too uneven to rely on are levelled first."""
    share = (_tempered(log_weight, LEAST_SIZE) * log_weight).softmax(0)[..., None]  # [S, N, 1]
    mean = (share * z).sum(0)
    apart = z - mean
    cover = torch.einsum("sni,snj->nij", share * apart, apart)
    return mean, torch.linalg.cholesky((1 - KEPT) * cover + KEPT * bell[1] @ bell[1].mT)


def _tempered(log_weight, size):
    """The largest power in (0, 1] to raise weights [S, N] to, so that their effective sample size is `size`: [N]."""
    low, high = torch.zeros_like(log_weight[0]), torch.ones_like(log_weight[0])
    for _ in range(30):
        power = (low + high) / 2
        enough = 1 / (power * log_weight).softmax(0).square().sum(0) >= size
        low, high = torch.where(enough, power, low), torch.where(enough, high, power)
    return low
