"""Chapter 9: a deep variational autoencoder, ways to ask it for p(x_j | x_R), its training, and the long runs.

x = f(z) + noise, z ~ N(0, I_K), with one learned noise variance s^2 for all tokens. Given z the
tokens are independent, so p(x_j | x_R) = E_{z | x_R}[ N(x_j; f_j(z), s^2) ]. Only the distribution
of z given x_R has no closed form. `Recursive` approximates it by encoding and decoding in turn
(Rezende et al. 2014, Sec. F). `Importance` weights draws of z: from the encoder (MIWAE, Mattei &
Frellsen 2019), or from a Student's t that is first placed on the highest peak of p(z | x_R) and
then fitted to its own weighted draws (population Monte Carlo, Cappé et al. 2004). That proposal has
one peak per row, so it cannot reveal a peak that the search missed. These two are models; `DeepVAE`
itself is a network. They raise ValueError for shapes or a dtype that do not fit and for NaN or
infinity at observed tokens.

A table, nats per image: deep_vae, an hour of one core, each scheme as PLAN says. A line per network
and step: the objective (mean of the 50 steps before; at step 0, of the first 25), the estimated log
marginal likelihood (LML) of the same 100 training and 500 held-out images, the share of these
images whose effective sample size is below 10, the CPU seconds of the training so far, and, where
a run with learned noise ends, the estimate of each image.
"""

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from mptlml import History, fit, objectives, random_masks
from mptlml.checks import check_choice, check_finite, check_shapes
from mptlml.draws import randn
from mptlml.protocol import at_masked

from . import runs
from .data.images import Images, train_and_held_out

LOG_2PI = math.log(2 * math.pi)
SHARE = 0.33  # of the tokens hidden, Fig. 3, lower row
LONG_RUN, BATCH, LEARNING_RATE = 3000, 100, 3e-3  # the paper gives none of these for its figure
SCORED = 100  # training images on which a network is scored, and held-out ones at once

TAILS = 8  # degrees of freedom of the proposal: heavier tails than the posterior's
# candidates around the encoder's mean, from the prior; climbed from
NEAR, FAR, CLIMBS = 200, 100, 3
ROUNDS, ROUND_DRAWS = 6, 200  # of fitting the proposal
LEAST_SIZE = 30  # effective sample size of a fit
KEPT = 0.1  # share of the old covariance in each fit, so that the proposal never collapses onto a few draws
HALVINGS = 8  # of a step that lowers the height, before it is dropped
AT_ONCE = 2**23  # draws x rows x tokens: 32 MB of float32

# The schemes. Masking answers by the recursion: it draws z in three passes, sends gradients through the last, and
# starts hidden tokens at the mean image. The weighted schemes draw z ten times from the encoder.
#
# Compared with the ELBO where the noise is held. The words of a scheme decide: weighted draws or the recursion; mask
# sizes; whether the encoder learns from the ELBO of the visible tokens, not the answers.
HELD = (
    "masking",
    "recursion uniform",
    "recursion 33%, own encoder",
    "recursion uniform, own encoder",
    "weighted 33%",
    "weighted uniform",
    "weighted 33%, own encoder",
    "weighted uniform, own encoder",
)
# The control: the ELBO of the whole image, but its encoder sees a third of the pixels, freshly drawn, at their mean.
HIDING = "elbo, 33% hidden"


class DeepVAE(nn.Module):
    """Encoder D -> H -> mean and deviation of z, decoder K -> H -> D, both ReLU; linear for num_hidden=0.

    The weights are drawn from `generator`.
    """

    def __init__(
        self, num_tokens: int, num_latents: int = 10, num_hidden: int = 256, *, generator: Generator
    ) -> None:
        super().__init__()
        self.num_tokens, self.num_latents = num_tokens, num_latents
        hidden = [num_hidden] if num_hidden else []
        self.encoder = _layers([num_tokens, *hidden, 2 * num_latents], generator)
        self.decoder = _layers([num_latents, *hidden, num_tokens], generator)
        self.log_noise = nn.Parameter(torch.tensor(-1.0))  # log s

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of q(z | x): two tensors [..., K]."""
        mean, raw = self.encoder(x).chunk(2, -1)
        return mean, softplus(raw) + 1e-4

    def token_log_prob(self, x: Tensor, z: Tensor) -> Tensor:
        """log N(x_j; f_j(z), s^2), nats per token [..., D]: x [..., D] and z [..., K] broadcast."""
        misfit = (x - self.decoder(z)) / self.log_noise.exp()
        return -0.5 * (LOG_2PI + misfit.square()) - self.log_noise

    def elbo(self, x: Tensor, *, generator: Generator, seen: Tensor | None = None) -> Tensor:
        """E_q[log p(x | z)] - KL(q || p) by one draw of z per row: nats per row [N].

        seen [N, D]: what the encoder is shown in place of x; the bound stays one.
        """
        mean, deviation = self.encode(x if seen is None else seen)
        z = mean + deviation * randn(mean.shape, mean, generator)
        distance = 0.5 * (mean.square() + deviation.square() - 1).sum(-1) - deviation.log().sum(-1)
        return self.token_log_prob(x, z).sum(-1) - distance

    def lesson(
        self, x: Tensor, observed: Tensor, fill: Tensor | float, generator: Generator
    ) -> Tensor:
        """Zeros [..., 1] whose gradient is that of the ELBO of log p(x_R), by one draw, for the encoder alone."""
        mean, deviation = self.encode(torch.where(observed, x, fill))
        z = mean + deviation * randn(mean.shape, mean, generator)
        decoder = copy.deepcopy(self.decoder).requires_grad_(False)
        misfit = torch.where(observed, x - decoder(z), 0.0)
        fit = -0.5 * misfit.square().sum(-1) / (2 * self.log_noise.detach()).exp()
        distance = 0.5 * (mean.square() + deviation.square()).sum(-1) - deviation.log().sum(-1)
        bound = fit - distance
        return (bound - bound.detach())[..., None]

    def log_joint(self, x: Tensor, observed: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """log N(x_j; f_j(z), s^2), nats per token [..., D], and log p(x_R, z), nats per row [...]."""
        tokens = self.token_log_prob(x, z)
        log_prior = -0.5 * (LOG_2PI + z.square()).sum(-1)
        return tokens, torch.where(observed, tokens, 0.0).sum(-1) + log_prior

    @torch.no_grad()
    def mode(self, x: Tensor, observed: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """The highest peak of p(z | x_R) that is found, for x and observed [N, D], and a root of its covariance there.

        Ten Newton steps from each of `starts` [P, N, K], then up to forty from the best.
        """
        height = lambda z: self.log_joint(x, observed, z)[1]  # noqa: E731
        ascend = partial(climb, height, tolerance=1e-3)
        z = ascend(starts, num_steps=10)
        best = height(z).argmax(0)
        peak = ascend(z[best, torch.arange(len(x))], num_steps=40)
        return peak, root_at(height, peak)


def climb(
    height: Callable[[Tensor], Tensor], start: Tensor, *, num_steps: int, tolerance: float
) -> Tensor:
    """A peak of height(z) [...] near the start z [..., K], by Newton's steps that never lower it: [..., K].

    Each step is halved until the height does not fall; after HALVINGS it is not taken. Ends after
    `num_steps`, or once no row's step is as long as `tolerance`.
    """
    z = start
    for _ in range(num_steps):
        slope, precision = curvature(height, z)
        step, now = torch.linalg.solve(precision, slope), height(z)
        scale = torch.ones_like(z[..., :1])
        for halved in range(HALVINGS + 1):
            falls = ~(height(z + scale * step) >= now)  # a height of NaN is a fall
            if not falls.any():
                break
            scale = torch.where(falls[..., None], scale / 2 if halved < HALVINGS else 0.0, scale)
        step = scale * step
        z = z + step
        if not (step.abs() >= tolerance).any():
            break
    return z


def curvature(height: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient [..., K] at z [..., K] of a height(z) [...] of each point by itself, and minus its Hessian."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        [slope] = torch.autograd.grad(height(z).sum(), z, create_graph=True)
        parts = slope.unbind(-1)
        bends = [torch.autograd.grad(part.sum(), z, retain_graph=True)[0] for part in parts]
    return slope.detach(), -torch.stack(bends, -1)


def root_at(height: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """A lower root [..., K, K] of the covariance of the normal density of the same peak as exp(height) at z."""
    return torch.linalg.cholesky(torch.linalg.inv(curvature(height, z)[1]))


def _layers(sizes: list[int], generator: Generator) -> nn.Sequential:
    """Linear maps with ReLU in between, initialised as in torch."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layer = nn.utils.skip_init(nn.Linear, before, after)
        for parameter in layer.parameters():
            bound = 1 / math.sqrt(before)
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def checked(x: Tensor, observed: Tensor, vae: DeepVAE) -> tuple[Tensor, Tensor]:
    """x without NaN, and observed, broadcast. Raises ValueError: they do not fit, or x_R has NaN or infinity."""
    check_shapes(x, observed, vae.num_tokens, vae.log_noise)
    check_finite(x, observed)
    some, seen = torch.broadcast_tensors(x.nan_to_num(), observed)
    return some, seen


@dataclass(eq=False)
class Recursive:
    """p(x_j | x_R) by encoding and decoding in turn, `num_passes` times; the visible tokens are put back.

    The hidden tokens start at `fill` (a number, or [D]). sample: draw z from the encoder at each
    pass, else take its mean. The answer is log N(x_j; f_j(z_T), s^2) for one z, so the sum over the
    tokens of a mask is also log p(x_M | z_T). Gradients flow through the last pass only.
    own_encoder: in training, the encoder follows the gradient of the ELBO of the visible tokens
    instead of that of the answers; the answers themselves do not change.
    """

    vae: DeepVAE
    generator: Generator
    num_passes: int = 3
    sample: bool = True
    fill: Tensor | float = 0.0
    own_encoder: bool = False

    def __post_init__(self) -> None:
        self.num_tokens = self.vae.num_tokens

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        """log p(x_j | x_R), nats per token [..., D]; exactly 0 at observed tokens."""
        some, seen = checked(x, observed, self.vae)
        answer = self.vae.token_log_prob(some, self.latent(some, seen))
        if self.own_encoder:
            answer = answer + self.vae.lesson(some, seen, self.fill, self.generator)
        return at_masked(answer, x, observed)

    def latent(self, x: Tensor, observed: Tensor) -> Tensor:
        """z_T [..., K], after T passes."""
        guess = torch.where(observed, x, self.fill)
        with torch.no_grad():
            for _ in range(self.num_passes - 1):
                guess = torch.where(observed, x, self.vae.decoder(self._encoded(guess)))
        z = self._encoded(guess)
        return z.detach() if self.own_encoder else z

    def _encoded(self, x: Tensor) -> Tensor:
        """z [..., K]: a draw from the encoder, or its mean."""
        mean, deviation = self.vae.encode(x)
        return mean + deviation * randn(mean.shape, mean, self.generator) if self.sample else mean


class StudentT(NamedTuple):
    """Student's t with TAILS degrees of freedom: mean [N, K], root [N, K, K] of the scale matrix."""

    mean: Tensor
    root: Tensor

    def draw(self, num_draws: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draws z [S, N, K], and their log densities [S, N]."""
        shape = (num_draws, *self.mean.shape)
        chi_square = randn((*shape[:-1], TAILS), self.mean, generator).square().sum(-1)
        u = randn(shape, self.mean, generator) * (TAILS / chi_square).sqrt()[..., None]
        half = 0.5 * (TAILS + shape[-1])
        norm = math.lgamma(half) - math.lgamma(TAILS / 2)
        norm -= 0.5 * shape[-1] * math.log(TAILS * math.pi)
        log_density = norm - half * (u.square().sum(-1) / TAILS).log1p()
        log_density = log_density - self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.mean + (self.root @ u[..., None]).squeeze(-1), log_density

    def fitted(self, z: Tensor, log_weight: Tensor) -> "StudentT":
        """The same with the mean and covariance of weighted draws; very uneven weights are tempered first."""
        share = (tempered(log_weight, LEAST_SIZE) * log_weight).softmax(0)[..., None]  # [S, N, 1]
        mean = (share * z).sum(0)
        apart = z - mean
        covariance = torch.einsum("sni,snj->nij", share * apart, apart)
        new = (1 - KEPT) * covariance + KEPT * self.root @ self.root.mT
        return StudentT(mean, torch.linalg.cholesky(new))


def tempered(log_weight: Tensor, size: float) -> Tensor:
    """The largest power in (0, 1] that leaves weights [S, N] an effective sample size of `size`: [N]."""
    low, high = torch.zeros_like(log_weight[0]), torch.ones_like(log_weight[0])
    for _ in range(30):
        power = (low + high) / 2
        enough = effective_size(power * log_weight) >= size
        low, high = torch.where(enough, power, low), torch.where(enough, high, power)
    return low


def effective_size(log_weight: Tensor) -> Tensor:
    """1 / sum r_s^2 of weights [S, N]: [N]."""
    return 1 / log_weight.softmax(0).square().sum(0)


@dataclass(eq=False)
class Importance:
    """p(x_j | x_R) and p(x_R) by S = `num_samples` draws of z, each weighted by p(x_R, z) / proposal(z).

    proposal "encoder": the encoder's answer to the visible tokens, with `fill` at the hidden ones;
    cheap and differentiable, but as poor as the encoder. "mode": Student's t around the highest
    peak of p(z | x_R) that a search finds, with mean and covariance fitted in ROUNDS rounds; the S
    draws of the estimate are fresh. Both are right as S grows; before that, log p(x_R) is too low
    on average. own_encoder: as in `Recursive`. Raises ValueError: another proposal.
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
        some, seen = checked(x, observed, self.vae)
        parts = []
        for rows, masks in self._blocks(some, seen):
            tokens, log_weight = self._weighted_draws(rows, masks)
            answer = (log_weight.log_softmax(0)[..., None] + tokens).logsumexp(0)
            if self.own_encoder:
                answer = answer + self.vae.lesson(rows, masks, self.fill, self.generator)
            parts.append(answer)
        return at_masked(torch.cat(parts).view(some.shape), x, observed)

    def log_prob(self, x: Tensor, observed: Tensor | None = None) -> Tensor:
        """log p(x_R), nats per row [...]; log p(x) where `observed` is not given."""
        return self.log_prob_and_size(x, observed)[0]

    def log_prob_and_size(self, x: Tensor, observed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same, and the effective sample size behind it, of each row."""
        seen = torch.ones_like(x, dtype=torch.bool) if observed is None else observed
        some, seen = checked(x, seen, self.vae)
        draws = [self._weighted_draws(*block)[1] for block in self._blocks(some, seen)]
        log_weight = torch.cat(draws, 1).view(-1, *some.shape[:-1])  # [S, ...]
        log_prob = log_weight.logsumexp(0) - math.log(self.num_samples)
        return log_prob, effective_size(log_weight)

    def _blocks(self, x: Tensor, observed: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows [n, D] and masks [n, D] in blocks in which draws x rows x tokens stay near AT_ONCE."""
        draws = max(self.num_samples, NEAR + FAR if self.proposal == "mode" else 0)
        size = max(1, AT_ONCE // (draws * x.shape[-1]))
        rows, masks = (each.reshape(-1, x.shape[-1]).split(size) for each in (x, observed))
        return zip(rows, masks, strict=True)

    def _weighted_draws(self, x: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """log N(x_j; f_j(z_s), s^2) [S, N, D] and log p(x_R, z_s) / proposal(z_s) [S, N] for rows x [N, D]."""
        mean, deviation = self.vae.encode(torch.where(observed, x, self.fill))
        if self.own_encoder:
            mean, deviation = mean.detach(), deviation.detach()
        if self.proposal == "encoder":
            u = randn((self.num_samples, *mean.shape), mean, self.generator)
            z = mean + deviation * u
            log_density = -0.5 * (LOG_2PI + u.square()).sum(-1) - deviation.log().sum(-1)
        else:
            proposal = self._fitted_proposal(x, observed, mean)
            z, log_density = proposal.draw(self.num_samples, self.generator)
        tokens, log_joint = self.vae.log_joint(x, observed, z)
        return tokens, log_joint - log_density

    @torch.no_grad()
    def _fitted_proposal(self, x: Tensor, observed: Tensor, mean: Tensor) -> StudentT:
        """Student's t at the highest peak found from the encoder's mean and many candidates; then fitted."""
        near = mean + 0.5 * randn((NEAR, *mean.shape), mean, self.generator)
        candidates = torch.cat([near, randn((FAR, *mean.shape), mean, self.generator)])
        best = self.vae.log_joint(x, observed, candidates)[1].topk(CLIMBS, 0).indices  # [CLIMBS, N]
        starts = torch.cat([mean[None], candidates[best, torch.arange(len(x))]])
        proposal = StudentT(*self.vae.mode(x, observed, starts))
        for _ in range(ROUNDS):
            z, log_density = proposal.draw(ROUND_DRAWS, self.generator)
            log_weight = self.vae.log_joint(x, observed, z)[1] - log_density
            proposal = proposal.fitted(z, log_weight)
        return proposal


def train(
    scheme: str,
    rows: Tensor,
    *,
    seed: int,
    num_steps: int = LONG_RUN,
    noise: float | None = None,
    stop: int | None = None,
    track_every: int = 300,
) -> tuple[DeepVAE, History]:
    """A fresh DeepVAE trained on rows [N, D] by "elbo", HIDING, or a scheme of HELD: (network, History).

    The seed decides the first weights, the batches, the masks and the draws; two schemes with the
    same seed start from the same weights. noise: a fixed standard deviation of the likelihood, else
    it is learned. The learning rate falls over `num_steps`; stop: last step. The history tracks a
    copy of the "network" and the CPU seconds so far.
    """
    check_choice(scheme, ("elbo", HIDING, *HELD), "scheme")
    vae = DeepVAE(rows.shape[1], generator=Generator().manual_seed(seed))
    if noise is not None:
        vae.log_noise.requires_grad_(False).fill_(math.log(noise))
    began = time.process_time()
    history = fit(
        _objective(scheme, vae, rows, Generator().manual_seed(seed)),
        vae.parameters(),
        num_steps=stop or num_steps,
        learning_rate=LEARNING_RATE,
        decay_steps=num_steps,
        name=f"{scheme}, seed {seed}",
        track_every=track_every,
        track={"network": lambda: (copy.deepcopy(vae), time.process_time() - began)},
    )
    return vae.requires_grad_(False), history


def _objective(
    scheme: str, vae: DeepVAE, rows: Tensor, generator: Generator
) -> Callable[[], Tensor]:
    """The objective, nats per row: each call takes a fresh batch, and a mask for each of its rows."""

    def batch() -> Tensor:
        return rows[torch.randperm(len(rows), generator=generator)[:BATCH]]

    def bound() -> Tensor:
        x = seen = batch()
        if scheme == HIDING:
            observed = random_masks(vae.num_tokens, [size] * len(x), generator=generator)
            seen = torch.where(observed, x, fill)
        return vae.elbo(x, seen=seen, generator=generator).mean()

    size, fill = round(SHARE * vae.num_tokens), rows.mean(0)
    if "elbo" in scheme:
        return bound
    options: dict[str, Any] = dict(fill=fill, own_encoder="own encoder" in scheme)
    model: Importance | Recursive
    if "weighted" in scheme:
        model = Importance(vae, generator, 10, "encoder", **options)
    else:
        model = Recursive(vae, generator, **options)
    own: dict[str, Any] = dict(share_masks=False, generator=generator)
    if "uniform" in scheme:
        return lambda: objectives.uniform_size(model, batch(), **own)
    return lambda: objectives.fixed_size(model, batch(), size, **own)


def images(name: str) -> tuple[Tensor, Tensor, tuple[Images, Images]]:
    """(training rows [N, D], held-out rows [M, D], Images of both): float32 pixels, as `train_and_held_out` splits."""
    found, held_out = train_and_held_out(name)
    return found.pixels.float(), held_out.pixels.float(), (found, held_out)


@torch.no_grad()
def mean_lml(
    vae: DeepVAE, rows: Tensor, num_samples: int = 200, **options: Any
) -> tuple[Tensor, Tensor]:
    """Estimates of log p(x), nats per row [N], and effective sample sizes [N], for rows [N, D]; always the same draws.

    options: of `Importance`.
    """
    model = Importance(vae, Generator().manual_seed(0), num_samples, **options)
    return model.log_prob_and_size(rows)


Lines = Iterator[dict[str, Any]]
THREE, LONG = ("elbo", "masking", HIDING), (0, 300, 600, 1200, 1800, 2400, LONG_RUN)
PLAN: tuple[tuple, ...] = (  # data, noise held, the steps that make a line, seeds, schemes
    ("mnist", "learned", LONG, (11, 12, 13, 14, 15), THREE),
    ("fashion-mnist", "learned", LONG, (11, 12, 13), THREE),
    ("mnist", 1.0, (600,), (11, 12, 13), ("elbo", HIDING, *HELD)),
    ("mnist", "learned", (1500,), (11, 12, 13), THREE),
)


def lines(data: str, noise: str | float, steps: tuple[int, ...], scheme: str, seed: int) -> Lines:
    """The lines of one training, one for each of the steps, the last of which ends it."""
    rows, held_out, _ = images(data)
    _, history = train(
        scheme,
        rows,
        seed=seed,
        num_steps=steps[-1],
        noise=None if isinstance(noise, str) else noise,
        track_every=math.gcd(*steps),
    )
    for step, (vae, seconds) in zip(history.at, history.tracked["network"], strict=True):
        if step not in steps:
            continue
        seen = slice(max(0, step - 50), step) if step else slice(25)
        blocks = [rows[:SCORED], *held_out.split(SCORED)]
        scores, sizes = zip(*(mean_lml(vae, block) for block in blocks), strict=True)
        each = torch.cat(scores)
        kept = noise == "learned" and step == steps[-1]
        yield dict(
            data=data,
            noise=noise,
            scheme=scheme,
            num_steps=steps[-1],
            seed=seed,
            step=step,
            objective=np.mean(history.objective[seen]),
            train=each[:SCORED].mean().item(),
            held_out=each[SCORED:].mean().item(),
            low=(torch.cat(sizes) < 10).double().mean().item(),
            seconds=round(seconds),
            images=[round(score, 1) for score in each.tolist()] if kept else [],
        )


TABLES = {
    "deep_vae": runs.Table(
        lines,
        lambda: [
            (*run, scheme, seed)
            for *run, seeds, schemes in PLAN
            for seed in seeds
            for scheme in schemes
        ],
        lambda: [part for data in ("mnist", "fashion-mnist") for part in images(data)[2]],
    ),
}

if __name__ == "__main__":
    runs.main(TABLES)
