"""Chapter 1: a mixture of ten templates of digits, trained by its likelihood and by masks from the same poor starts."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from mptlml import History, fit, objectives
from mptlml.models import BernoulliMixture

from .data.images import Images

ROWS, TEMPLATES, STEPS = 1400, 10, 300
HALF, FIFTEEN = 32, 10  # of 64 pixels


def _masked(objective: Callable[..., Tensor], *size: int) -> Callable[..., Tensor]:
    """The objective with a mask for each row."""
    return lambda model, rows, generator: objective(
        model, rows, *size, share_masks=False, generator=generator
    )


SCHEMES = {  # objective(model, rows, generator), nats per row
    "the LML itself": lambda model, rows, generator: model.log_prob(rows).mean(),
    "random sizes": _masked(objectives.uniform_size),
    "always 50%": _masked(objectives.fixed_size, HALF),
    "always 15%": _masked(objectives.fixed_size, FIFTEEN),
}


def split(images: Images) -> tuple[Tensor, Tensor]:
    """Black and white digits, in a random order: rows to train on [1400, 64], and the others."""
    pixels = images.binary()
    pixels = pixels[torch.randperm(len(pixels), generator=Generator().manual_seed(1))]
    return pixels[:ROWS], pixels[ROWS:]


def start(rows: Tensor, seed: int) -> BernoulliMixture:
    """Ten of the rows, blurred, as equally likely templates."""
    chosen = rows[torch.randperm(len(rows), generator=Generator().manual_seed(seed))[:TEMPLATES]]
    return BernoulliMixture(torch.full((TEMPLATES,), 1 / TEMPLATES).double(), 0.25 + 0.5 * chosen)


def by_em(rows: Tensor, seed: int) -> list[float]:
    """The log marginal likelihood of the rows before each step of expectation maximisation, until it stops rising."""
    return BernoulliMixture.fit(
        rows,
        TEMPLATES,
        start=start(rows, seed),
        smoothing=0.0,
        num_steps=3000,
        tolerance=1e-7,
        generator=Generator(),
    ).log_likelihood


def train(scheme: str, rows: Tensor, *, seed: int) -> History:
    """A run of Adam from a poor start; it tracks the log marginal likelihood of the rows, nats per row."""
    begin, generator = start(rows, seed), Generator().manual_seed(seed)
    # [10], [10, 64]
    shares, logits = (begin.weights.log().requires_grad_(), begin.probs.logit().requires_grad_())
    now = lambda: BernoulliMixture(shares.softmax(0), logits.sigmoid())  # noqa: E731
    return fit(
        lambda: SCHEMES[scheme](now(), rows, generator),
        [shares, logits],
        num_steps=STEPS,
        learning_rate=0.2,
        decay_steps=STEPS,
        track_every=10,
        track={"lml": lambda: now().log_prob(rows).mean()},
    )
