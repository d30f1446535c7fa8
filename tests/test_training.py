"""The training loop: it climbs as told and keeps an honest history."""

import math

import numpy as np
import pytest
import torch

from mptlml import History, fit


def test_the_history_is_what_was_seen():
    """The objective before each step; what is tracked at steps 0, 4, 8 and after the last."""
    p, seen = torch.zeros((), requires_grad=True), []

    def objective():
        seen.append(p.item())
        return 3 * p

    track = {"p": lambda: p + 0.0, "word": lambda: "x", "gradients": torch.is_grad_enabled}
    history = fit(objective, [p], num_steps=10, learning_rate=0.5, track=track, track_every=4)
    assert history.objective == pytest.approx([3 * value for value in seen]) and len(seen) == 10
    assert seen == pytest.approx([0.5 * step for step in range(10)], abs=1e-4)
    assert history.at == [0, 4, 8, 10] and history.tracked["p"] == pytest.approx(
        [0, 2, 4, 5], abs=1e-4
    )
    assert all(type(value) is float for value in history.tracked["p"])
    assert history.tracked["word"] == ["x"] * 4 and not any(history.tracked["gradients"])
    # by identity
    assert history == history and {history} and history != History(tracked={"p": [torch.ones(2)]})


def path_of(**options):
    """Where a parameter stands before each step: for a constant gradient Adam's steps are the learning rate."""
    value, path = torch.zeros((), dtype=torch.float64, requires_grad=True), []

    def objective():
        path.append(value.item())
        return value * 1.0

    fit(objective, [value], **options)
    return [*path, value.item()]


def cosine(num_steps):
    return [0.05 * (1 + math.cos(math.pi * k / num_steps)) for k in range(num_steps)]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, [0.1] * 40),
        ({"decay_steps": 40}, cosine(40)),
        ({"decay_steps": 100}, cosine(100)[:40]),  # the beginning of a longer run
        ({"warm_up": 4}, [0.025, 0.04375, 0.0625, 0.08125] + [0.1] * 36),
    ],
)
def test_the_learning_rate_stays_or_falls_or_rises_first(options, steps):
    path = path_of(num_steps=40, learning_rate=0.1, **options)
    assert np.diff(path) == pytest.approx(steps, rel=1e-6, abs=1e-9)
    assert path_of(num_steps=1) == pytest.approx([0, 0.01])  # by default


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_objective_that_is_not_finite_stops_the_fit(bad):
    p, values = torch.zeros((), requires_grad=True), iter([1.0, 2.0, bad, 3.0])
    with pytest.raises(FloatingPointError, match=f"demo: the objective is {bad} at step 2"):
        fit(lambda: p * 0 + next(values), [p], num_steps=4, name="demo")
