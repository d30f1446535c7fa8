"""Schedules: their cost is the divergence worked out by enumeration, and the best one is the best of all."""

import itertools
import math

import numpy as np
import oracles
import pytest
import torch

from mptlml import exact_curve
from mptlml.models import BernoulliMixture
from mptlml_book.studies.schedules import best_steps, cosine_steps, equal_steps, schedule_cost, staircase


def compositions(total):
    """Every way to write `total` as a sum of ordered whole numbers of at least 1."""
    cuts = itertools.chain.from_iterable(itertools.combinations(range(1, total), k) for k in range(total))
    return [np.diff([0, *cut, total]).tolist() for cut in cuts]


def divergence(table, order, steps):
    """KL(p || q) of the sampler that fills `order` in parts of `steps` tokens, from the table of p alone."""
    total = 0.0
    for row, p in table.items():
        log_q, seen = 0.0, []
        for stop, size in zip(np.cumsum(steps), steps, strict=True):
            part = list(order[stop - size: stop])
            before = oracles.table_marginal(table, row, seen)
            log_q += sum(oracles.table_marginal(table, row, [*seen, t]) - before for t in part)
            seen += part
        total += p * (math.log(p) - log_q)
    return total


@pytest.mark.parametrize("steps", compositions(4), ids=str)
def test_the_cost_of_a_schedule_is_the_mean_divergence_over_orders(steps, generator):
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    probs = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    table = oracles.bernoulli_table(weights.tolist(), probs.tolist())
    rows = torch.tensor(list(table), dtype=torch.float64)
    scores = exact_curve(BernoulliMixture(weights, probs), rows).rows @ np.array(list(table.values()))
    orders = list(itertools.permutations(range(4)))
    mean = sum(divergence(table, order, steps) for order in orders) / len(orders)
    assert schedule_cost(scores, steps) == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("num_tokens", [1, 2, 7])
def test_the_best_schedule_is_the_best_of_all(num_tokens):
    scores = np.random.default_rng(num_tokens).normal(size=num_tokens)  # no curve need fall for that
    for num_steps in range(1, num_tokens + 1):
        ways = [steps for steps in compositions(num_tokens) if len(steps) == num_steps]
        found = best_steps(scores, num_steps)
        assert found in ways
        assert staircase(scores, found) == pytest.approx(max(staircase(scores, steps) for steps in ways), abs=1e-12)


@pytest.mark.parametrize("schedule", [equal_steps, cosine_steps])
@pytest.mark.parametrize("num_tokens", [1, 5, 32, 33])
def test_schedules_write_every_token_and_some_in_each_pass(schedule, num_tokens):
    for num_steps in range(1, num_tokens + 1):
        steps = schedule(num_tokens, num_steps)
        assert len(steps) == num_steps and sum(steps) == num_tokens and min(steps) >= 1
    assert schedule(num_tokens, num_tokens) == [1] * num_tokens


def test_schedules_by_hand():
    assert equal_steps(8, 3) == [3, 3, 2]
    assert cosine_steps(32, 4) == [3, 7, 10, 12]  # 32 cos(pi s / 8) = 29.6, 22.6, 12.2, 0
    assert staircase([-1, -2, -4], [2, 1]) == pytest.approx(2 * -4 - 1)
    assert schedule_cost([-1, -2, -4], [2, 1]) == pytest.approx(-7 + 9)
