"""Schedules: their cost by hand (Chapter 12 has it by enumeration), and the best one is the best of all."""

import itertools

import numpy as np
import pytest

from mptlml_book.studies.schedules import best_steps, cosine_steps, equal_steps, schedule_cost


@pytest.mark.parametrize(("steps", "cost"), [([1, 1, 1], 0), ([1, 2], 1), ([2, 1], 2), ([3], 5)])
def test_the_cost_is_the_area_between_curve_and_staircase(steps, cost):
    """A pass that starts with m hidden earns S(m) for each token that it writes: S is -1, -2, -4."""
    assert schedule_cost([-1, -2, -4], steps) == pytest.approx(cost)


@pytest.mark.parametrize("num_tokens", [1, 2, 7])
def test_the_best_schedule_is_the_best_of_all(num_tokens):
    scores = np.random.default_rng(num_tokens).normal(size=num_tokens)  # no curve need fall for that
    for num_steps in range(1, num_tokens + 1):
        cuts = itertools.combinations(range(1, num_tokens), num_steps - 1)
        costs = {tuple(steps): schedule_cost(scores, steps)
                 for steps in (np.diff([0, *cut, num_tokens]).tolist() for cut in cuts)}
        assert costs[tuple(best_steps(scores, num_steps))] == pytest.approx(min(costs.values()), abs=1e-12)


@pytest.mark.parametrize("schedule", [equal_steps, cosine_steps])
@pytest.mark.parametrize("num_tokens", [1, 5, 32, 33])
def test_schedules_write_every_token_and_some_in_each_pass(schedule, num_tokens):
    for num_steps in range(1, num_tokens + 1):
        steps = schedule(num_tokens, num_steps)
        assert len(steps) == num_steps and sum(steps) == num_tokens and min(steps) >= 1


def test_schedules_by_hand():
    assert equal_steps(8, 3) == [3, 3, 2]
    assert cosine_steps(32, 4) == [3, 7, 10, 12]  # 32 cos(pi s / 8) = 29.6, 22.6, 12.2, 0
