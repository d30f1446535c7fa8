"""Chapter 1: a mixture of ten templates of digits, trained by its likelihood and by masks from the same poor starts.

Its table has a line for each run from one of twelve starts: the log marginal likelihood of the
training rows at its end, or at the start, nats per row. It takes three minutes of one core.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
from torch import Generator, Tensor

from mptlml import History, fit, objectives
from mptlml.models import BernoulliMixture

from . import runs
from .data.images import Images, load_images

ROWS, TEMPLATES, STEPS = 1400, 10, 300


SCHEMES: dict[
    str, Callable[..., Tensor]
] = {  # objective(model, rows, generator=...), nats per row, a mask for each row
    "the LML itself": lambda model, rows, generator: model.log_prob(rows).mean(),
    "random sizes": partial(objectives.uniform_size, share_masks=False),
    "always 50%": partial(objectives.fixed_size, size=32, share_masks=False),  # of 64 pixels
    "always 15%": partial(objectives.fixed_size, size=10, share_masks=False),
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
        lambda: SCHEMES[scheme](now(), rows, generator=generator),
        [shares, logits],
        num_steps=STEPS,
        learning_rate=0.2,
        decay_steps=STEPS,
        track_every=10,
        track={"lml": lambda: now().log_prob(rows).mean()},
    )


def run(data: str, seed: int) -> Iterator[dict]:
    """The lines of all runs from one start."""
    rows, _ = split(load_images(data))
    history = by_em(rows, seed)
    ends = {scheme: train(scheme, rows, seed=seed).tracked["lml"][-1] for scheme in SCHEMES}
    for scheme, lml in (("start", history[0]), ("EM", history[-1]), *ends.items()):
        yield dict(data=data, seed=seed, scheme=scheme, lml=lml)


TABLES = {
    "masked_mixture": runs.Table(
        run, partial(product, ["digits"], range(1, 13)), lambda: [load_images("digits")]
    )
}

if __name__ == "__main__":
    runs.main(TABLES)
