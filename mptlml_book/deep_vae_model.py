"""A deep variational autoencoder with a Gaussian likelihood, and ways to ask it for p(x_j | x_R).

x = f(z) + noise, z ~ N(0, I_K), with one learned noise variance s^2 for all tokens. Given z the
tokens are independent, so p(x_j | x_R) = E_{z | x_R}[ N(x_j; f_j(z), s^2) ]. Only the distribution
of z given x_R has no closed form. `Recursive` approximates it by encoding and decoding in turn
(Rezende et al. 2014, Sec. F), `importance.Importance` by weighted draws. These two are models;
`DeepVAE` itself is a network. They raise ValueError for shapes or a dtype that do not fit and for
NaN or infinity at observed tokens.
"""

import copy
import itertools
import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from mptlml.checks import check_finite, check_shapes
from mptlml.draws import randn

from .numerics import LOG_2PI, Peak, climb


class DeepVAE(nn.Module):
    """Encoder D -> H -> mean and deviation of z, decoder K -> H -> D, both ReLU; linear for num_hidden=0.

    The weights are drawn from `generator`, on its device.
    """

    def __init__(
        self, num_tokens: int, num_latents: int = 10, num_hidden: int = 256, *, generator: Generator
    ) -> None:
        super().__init__()
        self.num_tokens, self.num_latents = num_tokens, num_latents
        self.encoder = _layers(num_tokens, num_hidden, 2 * num_latents, generator)
        self.decoder = _layers(num_latents, num_hidden, num_tokens, generator)
        self.log_noise = nn.Parameter(torch.tensor(-1.0, device=generator.device))  # log s

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of q(z | x): two tensors [..., K]."""
        mean, raw = self.encoder(x).chunk(2, -1)
        return mean, softplus(raw) + 1e-4

    def token_log_prob(self, x: Tensor, z: Tensor) -> Tensor:
        """log N(x_j; f_j(z), s^2), nats per token [..., D]: x [..., D] and z [..., K] broadcast."""
        misfit = (x - self.decoder(z)) / self.log_noise.exp()
        return -0.5 * (LOG_2PI + misfit.square()) - self.log_noise

    def elbo(self, x: Tensor, *, generator: Generator) -> Tensor:
        """E_q[log p(x | z)] - KL(q || p) by one draw of z per row: nats per row [N]."""
        mean, deviation = self.encode(x)
        z = mean + deviation * randn(mean.shape, mean, generator)
        distance = 0.5 * (mean.square() + deviation.square() - 1).sum(-1) - deviation.log().sum(-1)
        return self.token_log_prob(x, z).sum(-1) - distance

    def sample(self, num_rows: int, *, generator: Generator) -> Tensor:
        """Rows [N, D] drawn from the model."""
        z = randn((num_rows, self.num_latents), self.log_noise, generator)
        mean = self.decoder(z)
        return mean + self.log_noise.exp() * randn(mean.shape, mean, generator)

    def slopes(self, z: Tensor) -> Tensor:
        """The decoder's derivative df_j / dz_k, [N, D, K], carried forward through its layers."""
        value, slope = (
            z,
            torch.eye(self.num_latents, dtype=z.dtype, device=z.device).expand(len(z), -1, -1),
        )
        for layer in self.decoder:
            value = layer(value)
            slope = (
                layer.weight @ slope
                if isinstance(layer, nn.Linear)
                else (value > 0).to(value)[..., None] * slope
            )
        return slope

    @torch.no_grad()
    def mode(self, x: Tensor, observed: Tensor, starts: Tensor) -> Peak:
        """The highest peak of p(z | x_R) that is found, for x and observed [N, D].

        Ten Gauss-Newton steps from each of `starts` [P, N, K], then up to forty from the best.
        """
        count = len(starts)
        z = self._climb(
            x.repeat(count, 1), observed.repeat(count, 1), starts.flatten(0, 1), 10
        ).view(starts.shape)
        best = self.height(x, observed, z).argmax(0)
        z = self._climb(x, observed, z[best, torch.arange(len(x), device=x.device)], 40)
        return Peak.at(z, self._slope_and_precision(x, observed, z)[1])

    def height(self, x: Tensor, observed: Tensor, z: Tensor) -> Tensor:
        """log p(x_R, z) up to a constant, nats per row [...]."""
        misfit = torch.where(observed, x - self.decoder(z), 0.0)
        return -0.5 * (misfit.square().sum(-1) / (2 * self.log_noise).exp() + z.square().sum(-1))

    def _climb(self, x: Tensor, observed: Tensor, z: Tensor, num_steps: int) -> Tensor:
        """Gauss-Newton steps from z [N, K] toward a peak of p(z | x_R), until none is longer than 0.001."""
        return climb(
            lambda z: self.height(x, observed, z),
            lambda z: self._slope_and_precision(x, observed, z),
            z,
            num_steps=num_steps,
            tolerance=1e-3,
        )

    def _slope_and_precision(self, x: Tensor, observed: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of `height` [N, K], and Gauss and Newton's precision of z [N, K, K]."""
        slopes, variance = self.slopes(z) * observed[..., None], (2 * self.log_noise).exp()
        misfit = torch.where(observed, x - self.decoder(z), 0.0)
        eye = torch.eye(self.num_latents, dtype=z.dtype, device=z.device)
        return (slopes.mT @ misfit[..., None]).squeeze(
            -1
        ) / variance - z, eye + slopes.mT @ slopes / variance

    @torch.no_grad()
    def condensed(self, x: Tensor) -> tuple["DeepVAE", Tensor, Tensor]:
        """The same model with fewer tokens: (network, y [N, H], rest [N]) with log p(x) = log p(y) + rest.

        Rotated axes leave noise of equal variance as it is. The decoder's last layer reaches H of
        the D directions; along the others x is noise whatever z is, of log density `rest`, nats per
        row. For whole rows only, since a rotated axis is no token, and for the decoder alone. Where
        D <= H nothing changes.
        """
        last = cast(nn.Linear, self.decoder[-1])
        if self.num_tokens <= last.in_features:
            return self, x, x.new_zeros(len(x))
        turn, weight = torch.linalg.qr(last.weight.double())  # [D, H], [H, H]
        centred = x.double() - last.bias
        y = centred @ turn
        left, count = (centred - y @ turn.T).square().sum(-1), self.num_tokens - len(weight)
        rest = -0.5 * left / (2 * self.log_noise.double()).exp() - count * (
            self.log_noise + LOG_2PI / 2
        )
        small = copy.deepcopy(self)
        small.num_tokens, layer = len(weight), cast(nn.Linear, small.decoder[-1])
        layer.weight = nn.Parameter(weight.to(last.weight), requires_grad=False)
        layer.bias = nn.Parameter(torch.zeros_like(last.bias[: len(weight)]), requires_grad=False)
        return small, y.to(x), rest.to(x)


@dataclass(eq=False)
class Recursive:
    """p(x_j | x_R) by encoding and decoding in turn, `num_passes` times; the visible tokens are put back.

    The hidden tokens start at `fill` (a number, or [D]). sample: draw z from the encoder at each
    pass, else take its mean. redraw: add the likelihood's noise to the hidden tokens, which with an
    exact encoder is Gibbs sampling; else they are f(z). The answer is log N(x_j; f_j(z_T), s^2) for
    one z, so the sum over the tokens of a mask is also log p(x_M | z_T). through: gradients flow
    through all passes, not only the last.
    """

    vae: DeepVAE
    generator: Generator
    num_passes: int = 3
    sample: bool = True
    redraw: bool = False
    fill: Tensor | float = 0.0
    through: bool = False

    def __post_init__(self) -> None:
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; exactly 0 at observed tokens."""
        x, observed = checked(x, observed, self.vae)
        return torch.where(observed, 0.0, self.vae.token_log_prob(x, self.latent(x, observed)))

    def latent(self, x: Tensor, observed: Tensor) -> Tensor:
        """z_T [..., K], after T passes."""
        guess = filled(x, observed, self.fill)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.through):
            for _ in range(self.num_passes - 1):
                guess = torch.where(observed, x, self._decoded(self._encoded(guess)))
        return self._encoded(guess)

    def _encoded(self, x: Tensor) -> Tensor:
        """z [..., K]: a draw from the encoder, or its mean."""
        mean, deviation = self.vae.encode(x)
        return mean + deviation * randn(mean.shape, mean, self.generator) if self.sample else mean

    def _decoded(self, z: Tensor) -> Tensor:
        """A row [..., D] for z: a draw from the likelihood, or its mean."""
        mean = self.vae.decoder(z)
        return (
            mean + self.vae.log_noise.exp() * randn(mean.shape, mean, self.generator)
            if self.redraw
            else mean
        )


def checked(x: Tensor, observed: Tensor, vae: DeepVAE) -> tuple[Tensor, Tensor]:
    """x and observed, broadcast. Raises ValueError: they do not fit, NaN or infinity at a visible token."""
    check_shapes(x, observed, vae.num_tokens, vae.log_noise)
    check_finite(x, observed)
    x, observed = torch.broadcast_tensors(x, observed)
    return x, observed


def filled(x: Tensor, observed: Tensor, fill: Tensor | float) -> Tensor:
    """x [..., D] with `fill` (a number, or [D]) at hidden tokens, as input of an encoder."""
    return torch.where(observed, x, torch.as_tensor(fill, dtype=x.dtype, device=x.device))


def _layers(num_in: int, num_hidden: int, num_out: int, generator: Generator) -> nn.Sequential:
    """Two linear maps with ReLU in between, or one, initialised as in torch, on the generator's device."""
    sizes = [num_in, num_hidden, num_out] if num_hidden else [num_in, num_out]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layer = nn.Linear(before, after, device="meta").to_empty(device=generator.device)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(
                parameter, -1 / math.sqrt(before), 1 / math.sqrt(before), generator=generator
            )
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
