"""Areas to an error that is asked for: where passes go, what comes out, and what it costs."""

import itertools

import numpy as np
import pytest
import torch
from conftest import near, same
from fakes import Says, one_nat_each
from scipy import stats
from test_score import a_model

from mptlml import estimate_area, exact_curve, memory
from mptlml.allocation import Allocation, AreaPlan

D, REPEATS = 60, 1000


def allocate(draw, shape, error, most, generator, **options):
    """The estimates of [blocks, rows] when draw(rows, blocks, places) answers whatever is asked next."""
    plan = Allocation(np.ones(shape), error, most, **options)
    while len((pairs := plan.next(generator)).row):
        plan.tell(draw(*pairs))
    return plan.estimates()


def steep(seed):
    """ask() for rows of D tokens with skewed noise, most of it at large sizes as germline genes have it; their area."""
    rng, sizes = np.random.default_rng(seed), np.arange(1, D + 1)
    mean, noise = -3 * (sizes / D) ** 6 - 0.05, 0.01 + 0.5 * (sizes / D) ** 6
    noise[-1] = 0  # one mask

    def ask(rows, asked):
        place = asked - 1
        return mean[place] + noise[place] * (1 - rng.exponential(size=place.shape))

    return ask, mean.sum(), noise


@pytest.mark.parametrize("error", [2, 0.5, 0.2])
def test_areas_have_the_error_that_was_asked_for_and_know_it(error, generator):
    ask, area, noise = steep(1)
    plan = AreaPlan([D] * REPEATS, 20_000, error)
    while len((masks := plan.next(generator)).row):
        plan.tell(ask(*masks))
    assert plan.in_full() == []
    found = plan.estimates()
    away = found.mean.numpy() - area
    scatter = np.sqrt((away**2).mean())
    # the pilot may be more than enough
    assert scatter == pytest.approx(error, rel=0.1) or scatter < error
    assert near(away, 0)
    covered = abs(away) <= stats.t.ppf(0.975, found.dof) * found.stderr.numpy()
    assert abs(covered.mean() - 0.95) < 4 * (0.95 * 0.05 / REPEATS) ** 0.5 + 0.01
    # less than half of the passes that even strata need, and not many more than where the noise is known
    if error < 0.5:
        known = min(D * (noise**2).sum() / 2, 1.4 * noise.sum() ** 2) / error**2
        assert found.passes.double().mean() < known


@pytest.mark.parametrize("most, bias", [(12, 1e-7), (16, 0.02)])
def test_one_round_after_the_pilot_has_no_bias_and_two_hardly_any(most, bias, generator):
    """The mean over every outcome, of two blocks that answer one of two values: a row for each outcome of all draws."""
    values, chance = np.array([[0, 3], [1, 1.5]]), np.array([0.8, 0.2])
    # what comes next, [outcomes, draws]
    tapes = np.array(list(itertools.product(range(2), repeat=most)))
    taken = np.zeros(len(tapes), dtype=int)

    def draw(rows, blocks, places):
        order = np.argsort(rows, kind="stable")
        nth = np.empty_like(rows)  # of the pairs that this call asks of the row
        nth[order] = np.arange(len(rows)) - np.searchsorted(rows[order], rows[order])
        next_two = (taken[rows] + 2 * nth)[:, None] + np.arange(2)
        found = values[blocks[:, None], tapes[rows[:, None], next_two]]
        np.add.at(taken, rows, 2)
        # so that no noise is zero, and both halves draw in each round
        return found + 1e-8 * np.arange(2)

    found = allocate(draw, (2, len(tapes)), 1e-12, most, generator, pilot=2)
    odds = np.where(np.arange(most) < found.passes.numpy()[:, None], chance[tapes], 0.5).prod(1)
    assert len(set(map(tuple, tapes[:, :8]))) == 256
    assert (found.passes <= most).all()
    assert odds.sum() == pytest.approx(1)
    assert abs(odds @ found.mean.numpy() - chance @ values.sum(0)) < bias


@pytest.mark.parametrize("by_orders", [False, True])
def test_a_model_is_asked_until_the_error_is_reached(by_orders, generator):
    sizes = torch.arange(12) / 20
    model = Says(12, lambda x, observed: -x * sizes * (1 + observed.sum(-1, keepdim=True)))
    x = torch.rand(1, 12, generator=generator, dtype=torch.float64).expand(300, -1)
    with memory.limit(999):
        found = estimate_area(model, x, 5_000, error=0.2, by_orders=by_orders, generator=generator)
    assert max(map(torch.numel, model.asked)) <= 999
    exact = exact_curve(model, x[:1]).area().mean
    # the spread of few orders says badly how many more it takes
    scatter = (found.mean - exact).square().mean().sqrt()
    assert scatter == pytest.approx(0.2, rel=0.35 if by_orders else 0.15)
    assert near(found.mean, exact)


def test_orders_of_one_joint_distribution_agree_at_once(generator):
    x = a_model().sample(2, generator=generator)
    found = estimate_area(a_model(), x, 10_000, error=1e-6, by_orders=True, generator=generator)
    assert (found.passes == 8 * 5).all()
    same(found.mean, a_model().log_prob(x), 1e-12)


def test_passes_are_counted_and_have_a_limit(generator):
    model = one_nat_each(9)
    found = estimate_area(model, torch.zeros(3, 9), 100, error=0.1, generator=generator)
    assert (found.mean == -9).all() and (found.stderr == 0).all()
    assert (found.passes == 2 * 4 * 8 + 1).all()
    assert sum(map(torch.numel, model.asked)) == 9 * found.passes.sum()
    steps = Says(9, lambda x, observed: -x * (1 + observed.sum(-1, keepdim=True)))
    x = torch.rand(3, 9, generator=generator)
    found = estimate_area(steps, x, 99, error=1e-3, generator=generator)
    assert (found.stderr > 1e-3).all() and (found.passes <= 99).all() and (found.passes > 90).all()


def test_all_masks_are_asked_where_they_are_few_or_fit_after_the_sample(generator):
    """One rule for models and texts: up to 255 masks; more where the error was not reached, and they fit."""
    for few in (1, 5, 8):
        x = torch.zeros(2, few)
        found = estimate_area(one_nat_each(few), x, 300, error=1, generator=generator)
        assert (found.mean == -few).all() and (found.passes == 2**few - 1).all()
    for num_passes, error, reached, passes in (
        (1000, 1e-3, True, 253 + 511),  # half of them first
        (1000, 9.0, True, 65),
        (766, 1e-3, False, 765),
    ):
        plan, rng = AreaPlan([9], num_passes, error), np.random.default_rng(0)
        while len((masks := plan.next(generator)).row):
            plan.tell(rng.standard_normal(masks.size.shape))
        found = plan.estimates({row: -2.0 for row in plan.in_full()})
        assert (found.reached.item(), found.passes.item()) == (reached, passes)
        assert (found.mean.item() == -2) == (found.stderr.item() == 0) == (passes == 764)
    assert AreaPlan([16, 17], 10**6, 1.0).masks.tolist() == [2**16 - 1, np.inf]  # too many to list


def test_all_draws_up_to_the_limit_are_used_and_no_more(generator):
    rng, scale = np.random.default_rng(0), np.array([1, 2, 2, 2, 8])

    def noise(rows, blocks, places):
        return rng.standard_normal(places.shape) * scale[blocks, None]

    def signs(rows, blocks, places):
        return np.where(places < places[:, ::-1], -1, 1)

    for most in range(20, 80):
        found = allocate(noise, (5, 40), 1e-9, most, generator, pilot=2)
        assert (found.passes == most // 4 * 4).all()  # whole pairs in each half
    found = allocate(signs, (1, 4), 0.05, 10_000, generator)
    assert (found.passes == 800).all()  # 2 / 0.05^2, where the variance is known to be 2


def test_a_quiet_block_is_not_left_alone(generator):
    """Noise that the pilot seldom sees is found, since some draws are spread evenly: intervals still cover."""
    rng = np.random.default_rng(0)

    def draw(rows, blocks, places):
        rare = (blocks == 2)[:, None] & (rng.random(places.shape) < 0.05)
        return np.where(rare, -10, rng.standard_normal(places.shape) * (blocks < 2)[:, None])

    found = allocate(draw, (4, REPEATS), 0.1, 10**5, generator, pilot=4)
    assert (found.mean + 0.5).std() < 0.15 and abs(found.mean + 0.5).max() < 1


def test_an_error_knows_how_well_it_is_known(generator):
    """From the pilot alone, of two pairs in each half: between two and four degrees of freedom, whatever the unit."""
    found = allocate(lambda rows, blocks, places: 1e3 * places, (1, REPEATS), 1e6, 100, generator)
    assert found.dof.min() >= 2 and found.dof.max() <= 4 and found.dof.std() > 0.1


def test_texts_of_all_lengths_have_the_areas_of_all_their_masks(lm, generator):
    texts = ["the cat sat on the mat a dog", "a dog ran on the mat a cat sat on", "mat"] * 40
    found = lm.areas(texts, 10_000, error=0.1, generator=generator)
    for k in range(3):
        own, exact = found.mean[k::3], lm.exact_curve(texts[k]).area().mean
        assert near(own, exact) or own.mean() == pytest.approx(exact, abs=1e-5)
        assert (found.stderr[k::3] <= 0.11).all() and own.std() < 0.13
    assert (found.passes[2::3] == 1).all() and found.passes[0] != found.passes[1]
