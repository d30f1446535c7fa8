"""A network's linear layers in 8-bit whole numbers, which a CPU multiplies faster, and what that does to its scores."""

import copy
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Generator, ao

from .. import draws
from .text_curves import spaced_sizes

if TYPE_CHECKING:
    from .masked_lm import MaskedLM


class Int8Error(NamedTuple):
    """Scores in int8 minus those in float32, nats per text: the mean over texts, and the standard deviation."""

    texts: int
    area: float
    area_spread: float
    pseudo_log_likelihood: float
    pseudo_log_likelihood_spread: float

    def __str__(self) -> str:
        return (f"int8 minus float32 on {self.texts} of the texts at equal masks, nats per text: area "
                f"{self.area:.2f} (spread {self.area_spread:.2f}), pseudo-log-likelihood "
                f"{self.pseudo_log_likelihood:.2f} (spread {self.pseudo_log_likelihood_spread:.2f})")


def in_int8(model: Any) -> Any:
    """A copy whose linear layers are in int8: weights once, what they read anew in each pass (torch's dynamic way).

    Raises ValueError: not in float32 on a CPU, or torch cannot do it here, as it says itself that it will not always.
    """
    weights = next(model.parameters())
    if (weights.device.type, weights.dtype) != ("cpu", torch.float32):
        raise ValueError(f"int8 needs a model in float32 on the CPU, got {weights.dtype} on {weights.device.type}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it will be removed
        try:
            return ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
        except (AttributeError, ImportError, RuntimeError) as error:
            raise ValueError(f"torch {torch.__version__} has no int8 on this machine: {error}") from error


@torch.no_grad()
def int8_error(lm: "MaskedLM", texts: list[str], *, generator: Generator) -> Int8Error:
    """How far scores in int8 lie from those in float32 on at least two texts, under the same 64 masks each.

    lm: a MaskedLM with int8=True. Raises ValueError: without it, or fewer texts.
    """
    if lm.exact is None or len(texts) < 2:
        raise ValueError("the error of int8 needs a model with int8=True and at least two texts")
    whole, seed = copy.copy(lm), draws.seed(generator)
    whole.passes = whole.model = lm.exact
    whole.exact, whole._padded = None, {}
    found = [torch.stack([torch.tensor([curve.area().mean for curve in one.curves(
        texts, partial(spaced_sizes, count=16), num_masks=4, generator=draws.seeded(seed))]).double(),
        one.pseudo_log_likelihood(texts)]) for one in (lm, whole)]
    area, single = found[0] - found[1]
    return Int8Error(len(texts), *(float(part) for of in (area, single) for part in (of.mean(), of.std())))
