"""Training of the deep VAE of Chapter 9, on the page and in the stored long runs (benchmarks/deep_vae.py)."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from mptlml import objectives
from mptlml.checks import check_choice
from mptlml.draws import randperm
from mptlml.training import History, fit

from .data.images import Images, train_and_held_out
from .deep_vae_model import DeepVAE, Recursive
from .importance import Importance

SHARE = 0.33  # of the tokens hidden, Fig. 3, lower row
LONG_RUN, BATCH, LEARNING_RATE = 3000, 100, 3e-3  # the paper gives none of these for its figure
SHORT_RUN = 1500  # of the variants
NUM_DRAWS = 10  # of z, in the weighted schemes
SCORED = 100  # images of each kind, training and held out, on which a network is scored

# The schemes. Masking answers by the recursion, with three passes; it draws z, sends gradients through the last pass,
# and starts hidden tokens at the mean image; each variant changes one of these. The weighted schemes draw z from the
# encoder.
VARIANTS: dict[str, dict[str, Any]] = {
    "T = 1": {"num_passes": 1},
    "T = 2": {"num_passes": 2},
    "T = 5": {"num_passes": 5},
    "z not drawn": {"sample": False},
    "gradient through all": {"through": True},
    "hidden start at 0": {"fill": 0.0},
}
# Compared with the ELBO where the noise is held, each with its name in a table. The words of a scheme decide: weighted
# draws or the recursion; mask sizes; whether the encoder learns from the ELBO of the visible tokens, not the answers.
HELD = {
    "masking": "masking by the recursion, 33%",
    "recursion uniform": "masking by the recursion, uniform sizes",
    "recursion 33%, own encoder": "the same, encoder trained apart, 33%",
    "recursion uniform, own encoder": "the same, encoder trained apart, uniform sizes",
    "weighted 33%": "masking by weighted draws, 33%",
    "weighted uniform": "masking by weighted draws, uniform sizes",
    "weighted 33%, own encoder": "the same, encoder trained apart, 33%",
    "weighted uniform, own encoder": "the same, encoder trained apart, uniform sizes",
}
SCHEMES = ("elbo", *HELD, *VARIANTS)


class EncoderApart(Recursive):
    """The recursion, whose encoder learns from the ELBO of the visible tokens, as that of `Importance` can."""

    def conditional_log_prob(self, x: Tensor, observed: Tensor) -> Tensor:
        answer = super().conditional_log_prob(x, observed)
        bound = Importance(self.vae, self.generator, fill=self.fill).visible_elbo(x, observed)
        # adds a gradient, not a value
        return torch.where(observed, 0.0, answer + (bound - bound.detach())[..., None])

    def _encoded(self, x: Tensor) -> Tensor:
        return super()._encoded(x).detach()


def train(
    scheme: str,
    rows: Tensor,
    *,
    seed: int,
    num_steps: int = LONG_RUN,
    noise: float | None = None,
    stop: int | None = None,
    track: Mapping[str, Callable[[DeepVAE], Any]] | None = None,
    track_every: int = 300,
) -> tuple[DeepVAE, History]:
    """A fresh DeepVAE trained on rows [N, D] by one of SCHEMES: (network without gradients, History).

    The seed decides the first weights, the batches, the masks and the draws; two schemes with the
    same seed start from the same weights. noise: a fixed standard deviation of the likelihood, else
    it is learned. The learning rate falls over `num_steps`; stop: last step. track: {name: function
    of the network}, as `fit`'s.
    """
    check_choice(scheme, SCHEMES, "scheme")
    vae = DeepVAE(rows.shape[1], generator=Generator().manual_seed(seed)).to(rows.device)
    if noise is not None:
        vae.log_noise.requires_grad_(False).fill_(math.log(noise))
    objective = _objective(scheme, vae, rows, Generator(rows.device).manual_seed(seed))
    history = fit(
        objective,
        vae.parameters(),
        num_steps=num_steps if stop is None else stop,
        learning_rate=LEARNING_RATE,
        decay_steps=num_steps,
        name=f"{scheme}, seed {seed}",
        track_every=track_every,
        track={key: partial(measure, vae) for key, measure in (track or {}).items()},
    )
    return vae.requires_grad_(False), history


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
    generator = Generator(rows.device).manual_seed(0)
    return Importance(vae, generator, num_samples, **options).log_prob_and_size(rows)


def _objective(
    scheme: str, vae: DeepVAE, rows: Tensor, generator: Generator
) -> Callable[[], Tensor]:
    """The objective, nats per row: each call takes a fresh batch, and a mask for each of its rows."""

    def batch() -> Tensor:
        return rows[randperm(len(rows), rows, generator)[:BATCH]]

    if scheme == "elbo":
        return lambda: vae.elbo(batch(), generator=generator).mean()
    own_encoder, options = (
        "own encoder" in scheme,
        {"fill": rows.mean(0)} | VARIANTS.get(scheme, {}),
    )
    model: Importance | Recursive
    if "weighted" in scheme:
        model = Importance(vae, generator, NUM_DRAWS, "encoder", own_encoder=own_encoder, **options)
    else:
        model = (EncoderApart if own_encoder else Recursive)(vae, generator, **options)
    if "uniform" in scheme:
        return lambda: objectives.uniform_size(
            model, batch(), share_masks=False, generator=generator
        )
    size = round(SHARE * vae.num_tokens)
    return lambda: objectives.fixed_size(
        model, batch(), size, share_masks=False, generator=generator
    )
