"""A deep variational autoencoder with a Gaussian likelihood, and ways to ask it for p(x_j | x_R).

x = f(z) + noise, z ~ N(0, I_K), noise of one learned variance s^2 a token. Given z the tokens are independent, so
p(x_j | x_R) = E_{z | x_R}[ N(x_j; f_j(z), s^2) ]. Only z given x_R is out of reach. `Recursive` replaces it by encoding
and decoding in turn (Rezende et al. 2014, Sec. F), `NodeMixture` by a grid, for one or two latents, and
`deep_importance.Importance` by weighted draws.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import softplus

from ..checks import check_count, check_finite, check_shapes
from .ppca import LOG_2PI


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
        z = mean + deviation * randn(mean.shape, mean, generator)
        distance = 0.5 * (mean.square() + deviation.square() - 1).sum(-1) - deviation.log().sum(-1)
        return self.token_log_prob(x, z).sum(-1) - distance

    def sample(self, num_rows, *, generator):
        """Rows [N, D] drawn from the model. Raises ValueError: num_rows below 1."""
        z = randn((check_count(num_rows, "num_rows"), self.num_latents), self.log_noise, generator)
        mean = self.decoder(z)
        return mean + self.log_noise.exp() * randn(mean.shape, mean, generator)

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
    def mode(self, x, observed, starts, num_steps=40):
        """A peak of p(z | x_R) and a root of its covariance there: [N, K], [N, K, K], for x and observed [N, D].

        Ten Gauss-Newton steps, each halved until it climbs, from every one of the `starts` [P, N, K]; then on from the
        highest point. A bent decoder has several peaks: this is the highest of those found.
        """
        count = len(starts)
        z = self._climb(x.repeat(count, 1), observed.repeat(count, 1), starts.flatten(0, 1), 10)
        heights = self.height(x, observed, z.view(starts.shape))
        z = z.view(starts.shape)[heights.argmax(0), torch.arange(len(x), device=x.device)]
        z = self._climb(x, observed, z, num_steps)
        return z, torch.linalg.cholesky(torch.linalg.inv(self._curvature(observed, z)[1]))

    def height(self, x, observed, z):
        """log p(x_R, z) but for a constant, [...]."""
        misfit = torch.where(observed, x - self.decoder(z), 0.0)
        return -0.5 * (misfit.square().sum(-1) / (2 * self.log_noise).exp() + z.square().sum(-1))

    def _curvature(self, observed, z):
        """The slopes of the observed tokens [N, D, K], and the Gauss-Newton precision of z [N, K, K]."""
        slope = self.slopes(z) * observed[..., None]
        eye = torch.eye(self.num_latents, dtype=z.dtype, device=z.device)
        return slope, eye + slope.mT @ slope / (2 * self.log_noise).exp()

    def _climb(self, x, observed, z, num_steps):
        """Gauss-Newton steps from z [N, K] toward a peak of p(z | x_R), until none is longer than 0.001."""
        for _ in range(num_steps):
            slope, precision = self._curvature(observed, z)
            misfit = torch.where(observed, x - self.decoder(z), 0.0)
            step = torch.linalg.solve(precision, (slope.mT @ misfit[..., None]).squeeze(-1)
                                      / (2 * self.log_noise).exp() - z)
            now, scale = self.height(x, observed, z), torch.ones_like(z[:, :1])
            for _ in range(8):
                falls = self.height(x, observed, z + scale * step) < now
                if not falls.any():
                    break
                scale = torch.where(falls[:, None], scale / 2, scale)
            scale = torch.where((self.height(x, observed, z + scale * step) < now)[:, None], 0.0, scale)
            z = z + scale * step
            if (scale * step).abs().max() < 1e-3:
                break
        return z

    @torch.no_grad()
    def condensed(self, x):
        """The same model with fewer tokens: (network, y [N, H], rest [N]) with log p(x) = log p(y) + rest.

        Turning the axes of the tokens leaves noise of one variance as it is. The decoder's last layer reaches H of the
        D directions; along the others x is noise whatever z is, and their log density is `rest`, nats a row. For whole
        rows only: an axis that was turned is no token any more. Only the decoder of the new network means anything.
        """
        last = self.decoder[-1]
        turn, weight = torch.linalg.qr(last.weight.double())  # [D, H], [H, H]
        centred = x.double() - last.bias
        y = centred @ turn
        left, count = (centred - y @ turn.T).square().sum(-1), self.num_tokens - len(weight)
        rest = -0.5 * left / (2 * self.log_noise.double()).exp() - count * (self.log_noise + LOG_2PI / 2)
        small = copy.deepcopy(self)
        small.num_tokens, small.decoder[-1] = len(weight), nn.utils.skip_init(nn.Linear, *weight.shape[::-1])
        small.decoder[-1].weight = nn.Parameter(weight.to(last.weight), requires_grad=False)
        small.decoder[-1].bias = nn.Parameter(torch.zeros_like(last.bias[:len(weight)]), requires_grad=False)
        return small, y.to(x), rest.to(x)


@dataclass
class Recursive:
    """p(x_j | x_R) by encoding and decoding in turn, T = `num_passes` times, the visible tokens put back each time.

    The hidden tokens start at `fill` (a number, or [D]). sample: draw z from the encoder at each pass, else take its
    mean. redraw: hidden tokens get the likelihood's noise as well, which with an exact encoder is Gibbs sampling; else
    they get f(z). The answer is log N(x_j; f_j(z_T), s^2) for that ONE z, so for a mask the sum over tokens is also the
    joint log p(x_M | z_T). Gradients flow through the last pass only, as if earlier ones filled in data; through=True
    lets them flow through all.
    """

    vae: DeepVAE
    generator: torch.Generator
    num_passes: int = 3
    sample: bool = True
    redraw: bool = False
    fill: torch.Tensor | float = 0.0
    through: bool = False

    def __post_init__(self):
        check_count(self.num_passes, "num_passes")
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x, observed):
        """log p(x_j | x_R), nats [..., D]; exactly 0 at observed tokens."""
        x, observed = checked(x, observed, self.vae)
        return torch.where(observed, 0.0, self.vae.token_log_prob(x, self.latent(x, observed)))

    def latent(self, x, observed):
        """z_T [..., K], after T passes."""
        guess = torch.where(observed, x, torch.as_tensor(self.fill, dtype=x.dtype, device=x.device))
        for turn in range(self.num_passes):
            with torch.set_grad_enabled(torch.is_grad_enabled() and (self.through or turn == self.num_passes - 1)):
                z, deviation = self.vae.encode(guess)
                if self.sample:
                    z = z + deviation * randn(z.shape, z, self.generator)
                if turn < self.num_passes - 1:
                    filled = self.vae.decoder(z)
                    if self.redraw:
                        filled = filled + self.vae.log_noise.exp() * randn(filled.shape, z, self.generator)
                    guess = torch.where(observed, x, filled)
        return z


class NodeMixture:
    """The same model with z on the nodes of a quadrature rule: a finite mixture, coherent to rounding.

    For one or two latents and enough nodes this is the truth that the other two aim at.
    """

    def __init__(self, vae, rule):
        rule = rule.to(vae.log_noise)
        self.means = vae.decoder(rule.nodes)  # [Q, D]
        self.log_noise, self.log_weights, self.num_tokens = vae.log_noise, rule.log_weights, vae.num_tokens
        self.sample = vae.sample

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


def checked(x, observed, vae):
    """x and observed, broadcast. Raises ValueError: rows unlike the network, NaN or infinity at a visible token."""
    check_shapes(x, observed, vae.num_tokens, vae.log_noise)
    check_finite(x, observed)
    return torch.broadcast_tensors(x, observed)


def randn(shape, like, generator):
    """Standard normal draws of a shape, in the dtype and on the device of `like`."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)

