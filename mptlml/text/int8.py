"""What linear layers in 8-bit whole numbers, which a CPU multiplies faster, do to the scores of a network."""

import copy
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator

from .. import draws
from .masked_lm import MaskedLM
from .text_curves import spaced_sizes


class Int8Error(NamedTuple):
    """Scores in int8 minus those in float32, nats per text: mean over texts, and standard deviation."""

    texts: int
    area: float
    area_spread: float
    pseudo_log_likelihood: float
    pseudo_log_likelihood_spread: float

    def __str__(self) -> str:
        return (f"int8 minus float32 on {self.texts} of the texts at equal masks, nats per text: area "
                f"{self.area:.2f} (spread {self.area_spread:.2f}), pseudo-log-likelihood "
                f"{self.pseudo_log_likelihood:.2f} (spread {self.pseudo_log_likelihood_spread:.2f})")


@torch.no_grad()
def int8_error(lm: MaskedLM, texts: list[str], *, generator: Generator) -> Int8Error:
    """How far scores in int8 lie from those in float32 on at least two texts, under the same masks, at most 64 each.

    lm: a MaskedLM with int8=True. Raises ValueError: without it, or fewer texts.
    """
    if lm.exact is None or len(texts) < 2:
        raise ValueError("the error of int8 needs a model with int8=True and at least two texts")
    whole, seed = copy.copy(lm), draws.seed(generator)
    whole.passes = whole.model = lm.exact
    whole.exact, whole._padded = None, {}
    areas, singles = [], []
    for one in (lm, whole):
        curves = one.curves(texts, partial(spaced_sizes, count=16), num_masks=4, generator=draws.seeded(seed))
        areas.append(torch.tensor([curve.area().mean for curve in curves]).double())
        singles.append(one.pseudo_log_likelihood(texts))
    area, single = areas[0] - areas[1], singles[0] - singles[1]
    return Int8Error(len(texts), *(float(part) for of in (area, single) for part in (of.mean(), of.std())))
