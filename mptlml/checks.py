"""Checks of the input: they refuse it before any work starts, and their messages say what was given."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

WORDS = torch.int64, torch.float32, torch.float64  # what token ids may be held in
Sizes = Tensor | np.ndarray | Sequence[int] | int  # mask sizes, as a caller may give them


def check_shapes(
    x: Tensor, observed: Tensor, num_tokens: int, parameters: Tensor | None = None
) -> None:
    """ValueError unless x [..., D] and observed bool [..., D] fit a model of D tokens, and each other.

    parameters: a tensor of the model, whose dtype and device x must have.
    """
    if parameters is not None and (x.dtype, x.device) != (parameters.dtype, parameters.device):
        raise ValueError(
            f"x is {x.dtype} on {x.device}, but the model's parameters are {parameters.dtype} on "
            f"{parameters.device}: convert one of them, e.g. with x.to({parameters.dtype})"
        )
    if x.ndim == 0 or x.shape[-1] != num_tokens:
        raise ValueError(f"x has shape {tuple(x.shape)}; its last axis must be {num_tokens} tokens")
    check_mask(observed, num_tokens)
    try:
        torch.broadcast_shapes(x.shape, observed.shape)
    except RuntimeError:
        raise ValueError(
            f"x {tuple(x.shape)} and observed {tuple(observed.shape)} do not broadcast"
        ) from None


def check_mask(observed: Tensor, num_tokens: int) -> Tensor:
    """The masks, bool [..., D]. Raises ValueError: others."""
    if observed.dtype != torch.bool or observed.ndim == 0 or observed.shape[-1] != num_tokens:
        raise ValueError(
            f"observed must be a bool tensor [..., {num_tokens}] (True where observed), "
            f"got {observed.dtype} of shape {tuple(observed.shape)}"
        )
    return observed


def check_finite(x: Tensor, observed: Tensor | None = None, what: str = "x") -> None:
    """ValueError for NaN and infinity; where `observed` is given, at observed tokens only."""
    bad = ~torch.isfinite(x) if observed is None else ~torch.isfinite(x) & observed
    if bad.any():
        raise ValueError(
            f"{what} holds NaN or infinity: {int(bad.sum())} such values in {tuple(x.shape)}"
        )


def check_distributions(probs: Tensor, what: str) -> Tensor:
    """The rows [..., C], normalised exactly. Raises ValueError: negative ones, or sums other than 1."""
    check_finite(probs, what=what)
    total = probs.sum(-1, keepdim=True)
    if not (probs >= 0).all() or not ((total.detach() - 1).abs() < 1e-5).all():
        raise ValueError(
            f"{what} must hold probabilities that sum to 1; the least is {probs.detach().min():.3g}, and "
            f"the sums run from {total.detach().min():.6g} to {total.detach().max():.6g}"
        )
    return probs / total


def check_binary(x: Tensor, observed: Tensor) -> None:
    """ValueError for observed tokens other than 0 and 1, and masked ones other than 0, 1 and NaN."""
    if not ((x == 0) | (x == 1)).all():  # rare; in training the full check would double the cost
        check_vocabulary(x, observed, 2)


def check_vocabulary(x: Tensor, observed: Tensor, vocab_size: int) -> None:
    """ValueError for observed tokens other than 0, 1, ..., V - 1, and masked ones other than these and NaN.

    Ids are int64, or whole numbers in float32 or float64: other floats turn large ids into others.
    """
    if x.dtype not in WORDS:
        raise ValueError(f"token ids must be int64, got {x.dtype}, which cannot hold every id")
    bad = ~((x >= 0) & (x < vocab_size) & (x == x.floor())) & (observed | ~torch.isnan(x))
    if bad.any():
        example = torch.broadcast_to(x, bad.shape)[bad][0]
        words = "0 or 1" if vocab_size == 2 else f"whole numbers in 0..{vocab_size - 1}"
        raise ValueError(
            f"tokens must be {words}: {int(bad.sum())} are not in shape {tuple(x.shape)}, "
            f"e.g. {example:g}"
        )


def check_rows(x: Tensor, num_tokens: int) -> None:
    """ValueError unless rows are a matrix [N, D] of finite real numbers or int64 ids with N >= 1."""
    if not torch.is_tensor(x) or not (x.is_floating_point() or x.dtype == torch.int64):
        got = getattr(x, "dtype", type(x))
        raise ValueError(f"rows must be a floating tensor or int64 token ids, got {got}")
    if x.ndim != 2 or x.shape[-1] != num_tokens or x.shape[0] < 1:
        raise ValueError(
            f"rows must have shape [N, {num_tokens}] with N >= 1, got {tuple(x.shape)}"
        )
    check_finite(x, what="rows")


def check_sizes(sizes: Sizes, num_tokens: int) -> Tensor:
    """Mask sizes as a long tensor. Raises ValueError: a size not in 1..D, or no size at all."""
    given = torch.as_tensor(sizes)
    if given.is_floating_point() or given.dtype == torch.bool or given.numel() == 0:
        raise ValueError(f"mask sizes must be whole numbers, got {sizes!r}")
    if given.min() < 1 or given.max() > num_tokens:
        raise ValueError(
            f"mask sizes must lie in 1..{num_tokens} (D = {num_tokens} tokens), "
            f"got sizes from {int(given.min())} to {int(given.max())}"
        )
    return given.long()


def check_lengths(lengths: Tensor | None, num_rows: int, num_tokens: int) -> Tensor:
    """How many tokens each of N rows has, long [N] on the CPU; None: D each. ValueError: not in 1..D."""
    if lengths is None:
        return torch.full((num_rows,), num_tokens)
    if lengths.shape != (num_rows,):
        raise ValueError(
            f"lengths must have one entry for each of {num_rows} rows, got {tuple(lengths.shape)}"
        )
    return check_sizes(lengths, num_tokens).cpu()


def check_known(answer: Tensor) -> Tensor:
    """The model's answers about rows without NaN. Raises ValueError where one of them is NaN all the same."""
    if unknown := int(answer.isnan().sum()):
        raise ValueError(
            f"{unknown} of the model's {answer.numel()} answers are NaN: are the rows possible under it, "
            "and its parameters numbers?"
        )
    return answer


def check_count(value: Any, name: str, at_least: int = 1) -> int:
    """A whole number >= `at_least`, as an int. Raises ValueError for anything else, a bool included."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")
    return int(value)


def check_choice(value: Any, choices: Iterable[str], name: str) -> None:
    """Refuse a value that is none of the choices. Raises ValueError."""
    if value not in (known := tuple(choices)):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


def check_rate(rate: float) -> float:
    """A masking rate in (0, 1]. Raises ValueError."""
    if not 0 < rate <= 1:
        raise ValueError(f"rate must lie in (0, 1], got {rate!r}")
    return rate


def check_list(texts: object) -> None:
    """Refuse one string, and what is no collection, where texts are meant: ValueError."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        got = f"{type(texts).__name__} {str(texts)[:40]!r}"
        raise ValueError(f"give a list of texts, got {got}")
