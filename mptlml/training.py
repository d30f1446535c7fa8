"""One training loop, and its history."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler
from tqdm import trange

from .checks import check_count


@dataclass(eq=False)
class History:
    """What was seen in training: `objective` at every step, nats per row; `tracked` values at steps `at`."""

    objective: list[float] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    tracked: dict[str, list] = field(default_factory=dict)


def fit(
    objective: Callable[[], Tensor],
    parameters: Iterable[Tensor],
    *,
    num_steps: int,
    learning_rate: float = 1e-2,
    track: Mapping[str, Callable[[], Any]] | None = None,
    track_every: int = 1,
    decay_steps: int | None = None,
    warm_up: int = 0,
    optimiser: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
    name: str = "fit",
) -> History:
    """Maximise `objective()` over `parameters` with `optimiser` (Adam is the paper's); returns a History.

    objective: called at each step, returns a scalar tensor in nats per row. track: {name:
    function}, called without gradients at every `track_every`-th step from 0 and after the last.
    decay_steps: the learning rate falls along a half cosine, to zero after so many steps, of which
    this run may be the beginning. warm_up: it rises linearly over so many steps. Raises ValueError:
    counts below 1 (warm_up: below 0), more steps than the decay has, a rate that is not positive,
    nothing to train; FloatingPointError: a value not finite.
    """
    check_count(num_steps, "num_steps")
    check_count(track_every, "track_every")
    if decay_steps is not None and check_count(decay_steps, "decay_steps") < num_steps:
        raise ValueError(
            f"{num_steps} steps are more than the {decay_steps} over which the learning rate falls"
        )
    parameters, measures = list(parameters), dict(track or {})
    if not learning_rate > 0 or not any(p.requires_grad for p in parameters):
        raise ValueError(
            f"learning rate {learning_rate!r} must be positive, and a parameter must require gradients"
        )
    climber = optimiser(parameters, lr=learning_rate, maximize=True)
    schedules = _schedules(climber, decay_steps, check_count(warm_up, "warm_up", at_least=0))
    history = History(tracked={key: [] for key in measures})
    for step in trange(num_steps, desc=name, disable=None, leave=False):
        if step % track_every == 0:
            _note(history, step, measures)
        climber.zero_grad()
        value = objective()
        history.objective.append(value.item())
        if not math.isfinite(history.objective[-1]):
            raise FloatingPointError(
                f"{name}: the objective is {history.objective[-1]} at step {step}"
            )
        value.backward()
        climber.step()
        for schedule in schedules:
            schedule.step()
    _note(history, num_steps, measures)
    return history


def _schedules(
    climber: torch.optim.Optimizer, decay_steps: int | None, warm_up: int
) -> list[LRScheduler]:
    schedules: list[LRScheduler] = [CosineAnnealingLR(climber, decay_steps)] if decay_steps else []
    return schedules + ([LinearLR(climber, 1 / warm_up, total_iters=warm_up)] if warm_up else [])


@torch.no_grad()
def _note(history: History, step: int, measures: Mapping[str, Callable[[], Any]]) -> None:
    history.at.append(step)
    for key, measure in measures.items():
        value = measure()
        history.tracked[key].append(
            value.item() if torch.is_tensor(value) and value.ndim == 0 else value
        )
