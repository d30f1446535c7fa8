"""A deep variational autoencoder with a Gaussian likelihood, and three ways to ask it for p(x_j | x_R).

x = f(z) + noise, z ~ N(0, I_K), noise of one learned variance s^2 a token. Given z the tokens are independent, so
p(x_j | x_R) = E_{z | x_R}[ N(x_j; f_j(z), s^2) ]. Only z given x_R is out of reach. `Recursive` replaces it by encoding
and decoding in turn (Rezende et al. 2014, Sec. F), `Importance` by weighted draws from the encoder (MIWAE, Mattei &
Frellsen 2019) or from a bell around the peak of p(z | x_R), and `NodeMixture` by a grid, for one or two latents.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import softplus

from .checks import check_count, check_finite, check_shapes
from .gaussian import LOG_2PI

TAILS = 8  # degrees of freedom of the proposal around a mode: heavier tails than the posterior's


class DeepVAE(nn.Module):
    """Encoder D -> H -> (mean, log variance of z), decoder K -> H -> D; num_hidden=0 makes both linear.

    The weights are drawn from `generator`. Tokens are real numbers; for images, values in [0, 1] (`check_pixels`).
    Raises ValueError: counts below 1, an activation other than "relu" or "tanh".
    """

    def __init__(self, num_tokens, num_latents=10, num_hidden=256, activation="relu", *, generator):
        super().__init__()
        check_count(num_tokens, "num_tokens")
        check_count(num_latents, "num_latents")
        check_count(num_hidden, "num_hidden", at_least=0)
        if activation not in ("relu", "tanh"):
            raise ValueError(f'activation must be "relu" or "tanh", got {activation!r}')
        self.num_tokens, self.num_latents = num_tokens, num_latents
        kind = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
        self.encoder = _layers(num_tokens, num_hidden, 2 * num_latents, kind, generator)
        self.decoder = _layers(num_latents, num_hidden, num_tokens, kind, generator)
        self.log_noise = nn.Parameter(torch.tensor(-1.0))  # log s

    def encode(self, x):
        """Mean and standard deviation of q(z | x): two tensors [..., K]."""
        mean, raw = self.encoder(x).chunk(2, -1)
        return mean, softplus(raw) + 1e-4

    def token_log_prob(self, x, z):
        """log N(x_j; f_j(z), s^2), nats [..., D]: x [..., D] and z [..., K] broadcast."""
        return -0.5 * (LOG_2PI + ((x - self.decoder(z)) / self.log_noise.exp()).square()) - self.log_noise

    def elbo(self, x, *, generator):
        """E_q[log p(x | z)] - KL(q || p), one draw of z a row: nats a row [N], at most log p(x) on average."""
        mean, deviation = self.encode(x)
        z = mean + deviation * _randn(mean.shape, mean, generator)
        distance = 0.5 * (mean.square() + deviation.square() - 1).sum(-1) - deviation.log().sum(-1)
        return self.token_log_prob(x, z).sum(-1) - distance

    def slopes(self, z):
        """The decoder's derivative df_j / dz_k, [N, D, K], carried forward through its layers."""
        value, slope = z, torch.eye(self.num_latents, dtype=z.dtype, device=z.device).expand(len(z), -1, -1)
        for layer in self.decoder:
            value = layer(value)
            if isinstance(layer, nn.Linear):
                slope = layer.weight @ slope
            else:
                bend = (value > 0).to(value) if isinstance(layer, nn.ReLU) else 1 - value.square()
                slope = bend[..., None] * slope
        return slope

    @torch.no_grad()
    def mode(self, x, observed, *, fill, num_steps=40):
        """A peak of p(z | x_R) and a root of its covariance there: [N, K], [N, K, K], for x and observed [N, D].

        Gauss-Newton from the encoder's mean, each row's step halved until it climbs. With a bent decoder there may be
        other peaks: weighted draws around this one say nothing of them.
        """
        variance = (2 * self.log_noise).exp()
        eye = torch.eye(self.num_latents, dtype=variance.dtype, device=variance.device)
        z = self.encode(torch.where(observed, x, fill))[0]

        def height(z):
            misfit = torch.where(observed, x - self.decoder(z), 0.0)
            return -0.5 * (misfit.square().sum(-1) / variance + z.square().sum(-1))

        def curvature(z):
            slope = self.slopes(z) * observed[..., None]  # [N, D, K]
            return slope, eye + slope.mT @ slope / variance

        for _ in range(num_steps):
            slope, bend = curvature(z)
            misfit = torch.where(observed, x - self.decoder(z), 0.0)
            step = torch.linalg.solve(bend, (slope * misfit[..., None]).sum(-2) / variance - z)
            now, scale = height(z), torch.ones_like(z[:, :1])
            for _ in range(8):
                falls = height(z + scale * step) < now
                if not falls.any():
                    break
                scale = torch.where(falls[:, None], scale / 2, scale)
            scale = torch.where((height(z + scale * step) < now)[:, None], 0.0, scale)
            z = z + scale * step
            if (scale * step).abs().max() < 1e-3:
                break
        return z, torch.linalg.cholesky(torch.linalg.inv(curvature(z)[1]))


@dataclass
class Recursive:
    """p(x_j | x_R) by encoding and decoding in turn, T = `num_passes` times, the visible tokens put back each time.

    The hidden tokens start at `fill` (a number, or [D]). sample: draw z from the encoder at each pass, else take its
    mean. redraw: hidden tokens get the likelihood's noise as well, which with an exact encoder is Gibbs sampling; else
    they get f(z). The answer is log N(x_j; f_j(z_T), s^2) for that ONE z, so for a mask the sum over tokens is also the
    joint log p(x_M | z_T). Gradients flow through the last pass only: earlier ones fill in data.
    """

    vae: DeepVAE
    generator: torch.Generator
    num_passes: int = 3
    sample: bool = True
    redraw: bool = False
    fill: torch.Tensor | float = 0.0

    def __post_init__(self):
        check_count(self.num_passes, "num_passes")
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D]; exactly 0 at observed tokens."""
        x, observed = _checked(x, observed, self.vae)
        return torch.where(observed, 0.0, self.vae.token_log_prob(x, self.latent(x, observed)))

    def latent(self, x, observed):
        """z_T [..., K], after T passes."""
        guess = torch.where(observed, x, torch.as_tensor(self.fill, dtype=x.dtype, device=x.device))
        for turn in range(self.num_passes):
            with torch.set_grad_enabled(torch.is_grad_enabled() and turn == self.num_passes - 1):
                z, deviation = self.vae.encode(guess)
                if self.sample:
                    z = z + deviation * _randn(z.shape, z, self.generator)
                if turn < self.num_passes - 1:
                    filled = self.vae.decoder(z)
                    if self.redraw:
                        filled = filled + self.vae.log_noise.exp() * _randn(filled.shape, z, self.generator)
                    guess = torch.where(observed, x, filled)
        return z


@dataclass
class Importance:
    """p(x_j | x_R) and p(x_R) by S = `num_samples` draws of z, each weighted by p(x_R, z) / proposal(z).

    proposal "encoder": the encoder's answer to the visible tokens with `fill` at the hidden ones; cheap, can be
    differentiated, poor where the encoder is. "mode": Student's t around a peak of p(z | x_R); costs a search a row.
    Both are consistent: right as S grows, too low in the logarithm before, on average.
    """

    vae: DeepVAE
    generator: torch.Generator
    num_samples: int = 100
    proposal: str = "mode"
    fill: torch.Tensor | float = 0.0

    def __post_init__(self):
        check_count(self.num_samples, "num_samples")
        if self.proposal not in ("encoder", "mode"):
            raise ValueError(f'proposal must be "encoder" or "mode", got {self.proposal!r}')
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x, observed):
        """log sum_s r_s N(x_j; f_j(z_s), s^2), nats [..., D]; exactly 0 at observed tokens."""
        x, observed = _checked(x, observed, self.vae)
        parts = [self._conditional(a, b) for a, b in _blocks(x, observed, self.num_samples)]
        return torch.cat(parts).view(x.shape)

    def joint_log_prob(self, x, observed):
        """log p(x_M | x_R) of all hidden tokens at once, nats a row [...], from the same draws."""
        x, observed = _checked(x, observed, self.vae)
        parts = []
        for a, b in _blocks(x, observed, self.num_samples):
            tokens, log_weight = self._draw(a, b)
            hidden = torch.where(b, 0.0, tokens).sum(-1)
            parts.append((log_weight.log_softmax(0) + hidden).logsumexp(0))
        return torch.cat(parts).view(x.shape[:-1])

    def log_prob(self, x, observed=None, *, with_sizes=False):
        """log p(x_R), nats a row [...]; with_sizes adds the effective sample size 1 / sum r_s^2 of each row."""
        x, observed = _checked(x, torch.ones_like(x, dtype=torch.bool) if observed is None else observed, self.vae)
        weights = torch.cat([self._draw(a, b)[1] for a, b in _blocks(x, observed, self.num_samples)], 1)  # [S, N]
        value = (weights.logsumexp(0) - math.log(self.num_samples)).view(x.shape[:-1])
        size = 1 / weights.softmax(0).square().sum(0)
        return (value, size.view(x.shape[:-1])) if with_sizes else value

    def _conditional(self, x, observed):
        tokens, log_weight = self._draw(x, observed)
        answer = (log_weight.log_softmax(0)[..., None] + tokens).logsumexp(0)
        return torch.where(observed, 0.0, answer)

    def _draw(self, x, observed):
        """log N(x_j; f_j(z_s), s^2) [S, N, D] and log p(x_R, z_s) / proposal(z_s) [S, N] for rows x [N, D]."""
        shape = (self.num_samples, len(x), self.vae.num_latents)
        fill = torch.as_tensor(self.fill, dtype=x.dtype, device=x.device)
        if self.proposal == "encoder":
            mean, deviation = self.vae.encode(torch.where(observed, x, fill))
            u = _randn(shape, mean, self.generator)
            z = mean + deviation * u
            log_proposal = -0.5 * (LOG_2PI + u.square()).sum(-1) - deviation.log().sum(-1)
        else:
            mean, root = self.vae.mode(x, observed, fill=fill)
            u, log_density = _student(shape, mean, self.generator)
            z = mean + (root @ u[..., None]).squeeze(-1)
            log_proposal = log_density - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        tokens = self.vae.token_log_prob(x, z)
        log_prior = -0.5 * (LOG_2PI + z.square()).sum(-1)
        return tokens, torch.where(observed, tokens, 0.0).sum(-1) + log_prior - log_proposal


class NodeMixture:
    """The same model with z on the nodes of a quadrature rule: a finite mixture, coherent to rounding.

    For one or two latents and enough nodes this is the truth that the other two aim at.
    """

    def __init__(self, vae, rule):
        self.means = vae.decoder(rule.nodes)  # [Q, D]
        self.log_noise, self.log_weights, self.num_tokens = vae.log_noise, rule.log_weights, vae.num_tokens

    def log_prob(self, x, observed=None):
        """log p(x_R), nats a row [...]: the LML where every token is observed (the default)."""
        observed = torch.ones(self.num_tokens, dtype=torch.bool, device=x.device) if observed is None else observed
        return self._joint(x, observed)[1].logsumexp(-1)

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D]; exactly 0 at observed tokens."""
        tokens, joint = self._joint(x, observed)
        return torch.where(observed, 0.0, (joint.log_softmax(-1)[..., None] + tokens).logsumexp(-2))

    def _joint(self, x, observed):
        check_shapes(x, observed, self.num_tokens, self.means)
        check_finite(x, observed)
        tokens = -0.5 * (LOG_2PI + ((x[..., None, :] - self.means) / self.log_noise.exp()).square()) - self.log_noise
        return tokens, self.log_weights + torch.where(observed[..., None, :], tokens, 0.0).sum(-1)


def check_pixels(x):
    """Refuse what is no image: values outside [0, 1], NaN, no rows. Raises ValueError."""
    if x.ndim != 2 or not len(x) or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"pixels must be rows [N, D] with values in [0, 1], got shape {tuple(x.shape)}"
                         + (f" with values from {x.min():.3g} to {x.max():.3g}" if x.numel() else ""))
    return x


def _layers(num_in, num_hidden, num_out, kind, generator):
    sizes = [num_in, num_hidden, num_out] if num_hidden else [num_in, num_out]
    layers = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layer = nn.utils.skip_init(nn.Linear, a, b)  # torch's own start, from our generator
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -1 / math.sqrt(a), 1 / math.sqrt(a), generator=generator)
        layers += [layer, kind()]
    return nn.Sequential(*layers[:-1])


def _checked(x, observed, vae):
    check_shapes(x, observed, vae.num_tokens, vae.log_noise)
    check_finite(x, observed)
    return torch.broadcast_tensors(x, observed)


def _blocks(x, observed, num_samples):
    """Rows [n, D] and masks [n, D], so many at a time that draws x rows x tokens stay near 2^23 elements."""
    step = max(1, 2**23 // (num_samples * x.shape[-1]))
    flat = x.reshape(-1, x.shape[-1]), observed.reshape(-1, x.shape[-1])
    return zip(flat[0].split(step), flat[1].split(step), strict=True)


def _randn(shape, like, generator):
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def _student(shape, like, generator):
    """Draws u [..., K] from Student's t in K dimensions, and their log densities [...]."""
    chi_square = _randn((*shape[:-1], TAILS), like, generator).square().sum(-1)
    u = _randn(shape, like, generator) * (TAILS / chi_square).sqrt()[..., None]
    count = shape[-1]
    norm = math.lgamma((TAILS + count) / 2) - math.lgamma(TAILS / 2) - 0.5 * count * math.log(TAILS * math.pi)
    return u, norm - 0.5 * (TAILS + count) * (u.square().sum(-1) / TAILS).log1p()
