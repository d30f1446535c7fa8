"""One training loop, and its history."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from tqdm import trange

from .checks import check_count


@dataclass
class History:
    """What was seen in training: `objective` at every step, nats a row [steps]; `tracked` values at steps `at`."""

    objective: list[float] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    tracked: dict[str, list] = field(default_factory=dict)


def fit(objective: Callable, parameters, *, num_steps, learning_rate=1e-2, track=None, track_every=1, decay=False,
        warm_up=0, optimiser=torch.optim.Adam, name="fit"):
    """Maximise `objective()` over `parameters` with `optimiser` (Adam is the paper's); returns a History.

    objective: called at each step, returns a scalar tensor in nats a row. track: {name: function}, called without
    gradients at steps 0, track_every, 2 track_every, ... and after the last step. decay: let the learning rate fall to
    zero along a half cosine; a number says over how many steps, where this run is the beginning of a longer one.
    warm_up: let it rise in equal steps from 1 / warm_up of it first. Shows a progress bar in a terminal. Raises
    ValueError: counts below 1 (warm_up: below 0), a learning rate that is not positive, nothing to train;
    FloatingPointError when the objective stops being finite.
    """
    check_count(num_steps, "num_steps")
    check_count(track_every, "track_every")
    parameters = list(parameters)
    if not learning_rate > 0 or not any(p.requires_grad for p in parameters):
        raise ValueError(f"learning rate {learning_rate!r} must be positive, and a parameter must require gradients")
    optimiser = optimiser(parameters, lr=learning_rate, maximize=True)
    horizon = num_steps if decay is True else decay
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, horizon)] if decay else []
    if check_count(warm_up, "warm_up", at_least=0):
        schedules.append(torch.optim.lr_scheduler.LinearLR(optimiser, 1 / warm_up, total_iters=warm_up))
    history = History(tracked={key: [] for key in track or {}})

    def note(step):
        history.at.append(step)
        with torch.no_grad():
            for key, measure in (track or {}).items():
                value = measure()
                history.tracked[key].append(value.item() if torch.is_tensor(value) and value.ndim == 0 else value)

    for step in trange(num_steps, desc=name, disable=None, leave=False):
        if step % track_every == 0:
            note(step)
        optimiser.zero_grad()
        value = objective()
        history.objective.append(value.item())
        if not math.isfinite(history.objective[-1]):
            raise FloatingPointError(f"{name}: the objective is {history.objective[-1]} at step {step}")
        value.backward()
        optimiser.step()
        for schedule in schedules:
            schedule.step()
    note(num_steps)
    return history
