"""The curve, its area, and above all its standard error: it covers the truth as often as it says."""

import math

import numpy as np
import pytest
import torch
from conftest import near, same, seeded
from fakes import Says, one_nat_each
from scipy import stats

from mptlml import Estimate, RowEstimates, ScoreCurve, draws, memory
from mptlml.masks import all_orders
from mptlml.models import PPCA, SecondMoment
from mptlml.score import (
    chain_rule,
    estimate_area,
    exact_curve,
    order_gap,
    order_spread,
    score_curve,
    until_error,
)

REPEATS = 1000
LEVEL = 0.95
NOISE = 3 * math.sqrt(LEVEL * (1 - LEVEL) / REPEATS)  # three binomial standard errors of a coverage


def a_model(num_tokens=5, num_latents=2):
    return PPCA(draws.randn((num_tokens, num_latents), None, seeded(8)), 0.4)


every_way = pytest.mark.parametrize("shared", [True, False])


# At P = 2 shared masks have one degree of freedom per size, and the interval is cautious.
@pytest.mark.parametrize(
    "num_masks, shared, most",
    [
        (5, True, {"fixed": LEVEL + NOISE}),
        (2, True, {"fixed": 0.995}),
        (1, False, {"sample": LEVEL + NOISE}),
        (5, False, {"fixed": LEVEL + NOISE, "sample": LEVEL + NOISE}),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(num_masks, shared, most):
    """Many areas of one model, each from fresh rows and masks: for these rows, and for their population."""
    generator = seeded(9)
    model = a_model()
    found = {rows: [] for rows in most}
    covariance = model.weight @ model.weight.T + model.noise_variance * torch.eye(5)
    expected = model.mean_log_prob(SecondMoment(model.mean, covariance)).item()
    for _ in range(REPEATS):
        x = model.sample(40, generator=generator)
        curve = score_curve(model, x, num_masks=num_masks, share_masks=shared, generator=generator)
        truths = {"fixed": model.log_prob(x).mean().item(), "sample": expected}
        for rows, areas in found.items():
            area = curve.area(rows=rows)
            low, high = area.interval(LEVEL)
            areas.append((low <= truths[rows] <= high, area.mean - truths[rows]))
    for rows, areas in found.items():
        covered, errors = np.array(areas).T
        assert LEVEL - NOISE <= covered.mean() <= most[rows]
        assert near(errors, 0)


@every_way
def test_the_curve_tends_to_the_exact_one(shared, generator):
    model, options = a_model(), dict(share_masks=shared, generator=generator)
    x = model.sample(4, generator=generator)
    curve, exact = score_curve(model, x, num_masks=2000, **options), exact_curve(model, x)
    assert (abs(curve.mean - exact.mean)[:-1] < 4 * curve.stderr[:-1]).all()
    assert curve.stderr[-1] == pytest.approx(0, abs=1e-12)  # m = D has one mask only
    assert curve.sizes.tolist() == [1, 2, 3, 4, 5] and (curve.rows is None) == shared
    if not shared:
        same(curve.rows.mean(1), curve.mean, 1e-12)
        same(curve.rows, exact.rows, 0.2)
    single = score_curve(model, x, **options)  # one mask a size has no standard error
    assert np.isnan(single.stderr).all() and math.isfinite(single.area().mean)
    assert all(map(math.isnan, single.area().interval()))


def linear_curve(num_tokens, sizes):
    sizes = np.array(sizes)
    return ScoreCurve(num_tokens, sizes, -2 - 0.3 * sizes, 0.01 * sizes, 4.0 + 0 * sizes, None)


@pytest.mark.parametrize("sizes", [[1, 3, 10], list(range(1, 11)), [4], [2, 5, 5, 9]])
def test_missing_sizes_are_read_off_straight_lines(sizes):
    """Exact for a straight line; beyond the ends the curve is level; a size that comes twice counts once."""
    curve = linear_curve(10, sizes)
    every = np.clip(np.arange(1, 11), sizes[0], sizes[-1])
    assert curve.weights.sum() == pytest.approx(10, abs=1e-12)
    assert curve.area().mean == pytest.approx((-2 - 0.3 * every).sum(), abs=1e-12)
    assert curve.area().stderr ** 2 == pytest.approx((curve.weights**2 * curve.variance).sum())
    # arrays are not compared
    assert curve == curve and curve != linear_curve(10, sizes) and {curve}


def test_sizes_are_sorted_and_counted_once(generator):
    x, sizes = torch.zeros(2, 5), torch.tensor([5, 2, 2])
    curve = score_curve(one_nat_each(5), x, sizes, generator=generator)
    assert curve.sizes.tolist() == [2, 5] and curve.mean.tolist() == [-1, -1]
    assert curve.weights == pytest.approx([3, 2])


def test_pooled_degrees_of_freedom():
    """Welch and Satterthwaite by hand: (1 + 4)^2 / (1^2/4 + 4^2/4), and one variance keeps its own."""
    rows = np.array([[0.0, 1.0, 2.0], [1.0, 3.0, 8.0]])  # three rows, whose areas are 1, 4 and 10
    sizes, none = np.array([1, 2]), np.zeros(2)
    curve = ScoreCurve(2, sizes, none, np.array([1.0, 4.0]), np.full(2, 4.0), rows)
    assert curve.area().dof == pytest.approx(25 / (17 / 4))
    assert curve.area(rows="sample").stderr ** 2 == pytest.approx(7)
    assert curve.area(rows="sample").dof == 2
    one = ScoreCurve(2, sizes, none, np.array([3.0, 0.0]), np.array([7.0, math.inf]), None)
    assert one.area().dof == pytest.approx(7)


def ramp():
    """log p(x_j | x_R) = -j x_j (1 + |R|), which no joint distribution has; 0 for rows of zeros."""
    return Says(5, lambda x, observed: -x * torch.arange(5) * (1 + observed.sum(-1, keepdim=True)))


def test_a_few_wide_rows_bring_few_degrees_of_freedom(generator):
    """Where one row alone has any spread, P - 1 degrees of freedom stand behind it."""
    one = torch.tensor([[1.0], [0], [0], [0]], dtype=torch.float64).expand(4, 5)
    options = dict(share_masks=False, generator=generator)
    own = score_curve(ramp(), one, [2, 5], num_masks=6, **options)
    assert own.dof == pytest.approx([5, math.inf])
    alike = score_curve(ramp(), torch.ones_like(one), [2], num_masks=200, **options)
    assert alike.dof[0] == pytest.approx(4 * 199, rel=0.05)  # those of all rows
    shared = score_curve(ramp(), one, [2, 5], num_masks=6, generator=generator)
    assert shared.dof.tolist() == [5, math.inf]


def test_intervals_by_hand():
    for estimate, given, width in (
        (Estimate(-3.0, 0.5, 4), [0.9], 0.5 * 2.131847),
        (Estimate(-3.0, 0.5), [], 0.5 * 1.959964),
        (Estimate(-3.0, 0.0), [], 0),
    ):
        assert estimate.interval(*given) == pytest.approx((-3 - width, -3 + width), abs=1e-6)
    assert str(Estimate(-3.0, math.nan)) == "-3.000"


@every_way
def test_blocks_bound_memory_and_change_nothing(shared, generator):
    """A model is asked for at most so many answers at once, under the same masks."""
    model, x = ramp(), torch.rand(60, 5, generator=generator)

    def answers():
        curve = score_curve(model, x, num_masks=100, share_masks=shared, generator=seeded(2))
        found = [exact_curve(model, x).rows, chain_rule(model, x, all_orders(5))]
        # with masks of their own, blocks draw others
        return found + [curve.mean, curve.variance] * shared

    whole = answers()
    model.asked.clear()
    with memory.limit(1000):
        blocks = answers()
    assert 500 < max(map(torch.numel, model.asked)) <= 1000
    for one, other in zip(whole, blocks, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_order_spread_measures_disagreement(generator):
    """Zero for one joint distribution; above zero for conditionals that no joint has."""
    model = a_model()
    x = model.sample(3, generator=generator)
    assert order_spread(model, x, num_orders=20, generator=generator).max() < 1e-12
    sums = chain_rule(ramp(), x, all_orders(5)).sum(-1)
    spread = order_spread(ramp(), x, num_orders=500, generator=generator)
    same(spread, sums.std(0), 0, 0.1)
    same(order_gap(sums), (sums - sums.mean(0)).exp().mean(0).log())
    # the area is the mean over orders of the chain rule, joint or not (Eq. 3)
    same(exact_curve(ramp(), x).rows.sum(0), sums.mean(0), 1e-11)


@pytest.mark.parametrize("num_passes", [4, 16])
def test_the_interval_of_a_rows_area_covers_it_where_strata_differ_in_noise(num_passes):
    """Most of the noise of these rows is at small sizes, so fewer degrees of freedom than pairs stand behind it."""
    generator, model = seeded(3), a_model(30, 3)
    x = model.sample(2000, generator=generator)
    found = estimate_area(model, x, num_passes, generator=generator)
    half = found.stderr * torch.from_numpy(stats.t.ppf(0.5 + LEVEL / 2, found.dof))
    assert 0.92 <= (abs(found.mean - model.log_prob(x)) <= half).double().mean() <= 0.97
    assert found.dof.max() < num_passes / 2


def test_the_degrees_of_freedom_of_a_rows_area_by_hand(generator):
    """Those of a sum of squares with one degree of freedom each, (a + b + c)^2 / (a^2 + b^2 + c^2), from the masks."""
    model, row = ramp(), torch.ones(1, 5, dtype=torch.float64)
    dof = estimate_area(model, row, 6, generator=generator).dof.item()
    seen = torch.cat(model.asked)
    scores = -torch.arange(5) * (1 + seen.sum(-1, keepdim=True)) * ~seen
    pairs = (scores.sum(-1) / (~seen).sum(-1)).view(3, 2)
    squares = pairs.diff() ** 2
    assert dof == pytest.approx(float(squares.sum() ** 2 / (squares**2).sum()))
    constant = estimate_area(one_nat_each(5), row, 6, generator=generator)
    assert constant.stderr.item() == 0 and constant.dof.item() == math.inf


@pytest.mark.parametrize("num_passes, by_orders", [(2, False), (8, False), (12, True)])
def test_an_area_of_so_many_passes_is_right_and_knows_its_error(num_passes, by_orders, generator):
    """Rows that are all one row: their areas scatter as their errors say, about the area of all masks."""
    x = a_model().sample(1, generator=generator).expand(2000, -1)
    model, options = ramp(), dict(by_orders=by_orders, generator=generator)
    with memory.limit(5000):
        value, error, dof, passes, _ = estimate_area(model, x, num_passes, **options)
    assert (passes == (10 if by_orders else num_passes)).all()
    assert sum(map(torch.numel, model.asked)) == 5 * passes.sum()
    exact = exact_curve(model, x[:1]).area().mean
    assert near(value, exact)
    assert error.square().mean() == pytest.approx(value.var().item(), rel=0.15)
    pairs = 1 if by_orders else num_passes // 2
    dof = dof[error > 0]
    assert 1 - 1e-12 < dof.min() and dof.max() < pairs + 1e-12
    assert (dof.std() > 0.1) == (pairs > 1)
    joint = a_model()  # for which two orders agree
    value, error, *_ = estimate_area(joint, x[:1], num_passes, **options)
    assert (abs(value - joint.log_prob(x[:1])) < 1e-12 and error < 1e-12) == by_orders


def skewed(error, num_rows, num_passes, generator):
    """until_error for a mean of 0 under skewed noise; found, and the error of one pass is 4 nats."""

    def ask(rows, passes):
        noise = 4 * (1 - draws.rand((passes, len(rows)), None, generator).log().neg())
        dof, taken = torch.full((len(rows),), passes - 1.0), torch.full((len(rows),), passes)
        scatter = noise.std(0) / math.sqrt(passes)
        return RowEstimates(noise.mean(0), scatter, dof.double(), taken, taken > 0)

    return until_error(ask, num_rows, num_passes, error)


@pytest.mark.parametrize("error", [0.6, 0.3])
def test_an_error_that_is_asked_for_is_met_without_bias_and_covers(error, generator):
    """Skewed noise shows what it costs to stop where the error happens to look small."""
    found = skewed(error, 8000, 10**6, generator)
    half = found.stderr * torch.from_numpy(stats.t.ppf(0.5 + LEVEL / 2, found.dof))
    assert near(found.mean, 0)
    assert found.mean.std() == pytest.approx(error, rel=0.25)
    assert 0.92 <= (abs(found.mean) <= half).double().mean() <= 0.97
    assert found.reached.all()


def test_passes_for_an_error_are_counted_and_have_a_limit(generator):
    few = skewed(0.1, 5, 500, generator)
    assert (few.passes == 32 + 64 + 128 + 256).all()
    assert not few.reached.any()
    model, x = one_nat_each(9), torch.zeros(3, 9)
    found = estimate_area(model, x, 100, error=0.1, generator=generator)
    assert (found.mean == -9).all() and (found.stderr == 0).all() and found.reached.all()
    assert (found.passes == 32 + 64).all()
    assert sum(map(torch.numel, model.asked)) == 9 * found.passes.sum()


@pytest.mark.parametrize("by_orders", [False, True])
def test_a_model_is_asked_until_the_error_is_met(by_orders, generator):
    x = torch.ones(500, 5, dtype=torch.float64)
    options = dict(error=0.5, by_orders=by_orders, generator=generator)
    found = estimate_area(ramp(), x, 10_000, **options)
    assert near(found.mean, exact_curve(ramp(), x[:1]).area().mean)
    assert found.mean.std() == pytest.approx(0.5, rel=0.3)
