"""What the objectives are on average, by enumeration of everything they can draw."""
# ruff: noqa: F401 (some calls are strings)

import math
from functools import partial
from unittest import mock
from unittest.mock import DEFAULT

import numpy as np
import pytest
import torch
from conftest import seeded
from fakes import Says, one_nat_each
from scipy import stats

from mptlml import (
    draws,
    estimate_area,
    exact_curve,
    objectives,
    order_spread,
    score_curve,
    summarise,
)
from mptlml.models import PPCA, BernoulliMixture

NUM_TOKENS = 4
SIZES = range(1, NUM_TOKENS + 1)


@pytest.fixture(params=["gaussian", "gaussian, summarised", "mixture"])
def problem(request):
    """(model, data, rows): data is what the objective is given, the rows or their summary."""
    draw = seeded(2)
    if request.param == "mixture":
        weights = torch.tensor([0.3, 0.7]).double()
        model = BernoulliMixture(weights, draws.rand((2, NUM_TOKENS), None, draw))
    else:
        model = PPCA(draws.randn((NUM_TOKENS, 2), None, draw), 0.5)
    rows = model.sample(6, generator=draw)
    return model, summarise(model, rows) if "summarised" in request.param else rows, rows


def watch(model, objective, generator, num_draws, monkeypatch):
    """Draw `objective()` many times: [(the masks it scored, its value)], by listening in on the model."""
    masks = []
    for name in ("conditional_log_prob", "mean_conditional_log_prob"):
        if answer := getattr(model, name, None):
            note = lambda _, seen: masks.append(seen) or DEFAULT  # noqa: E731
            monkeypatch.setattr(model, name, mock.Mock(wraps=answer, side_effect=note))
    values = [objective(generator) for _ in range(num_draws)]
    return [*zip(masks, values, strict=True)]


def test_uniform_size_is_unbiased(problem, generator, monkeypatch):
    """Sizes are equally frequent, and the sum over masks of p(mask) times the value is the LML (Eq. 5)."""
    model, data, rows = problem
    objective = lambda g: objectives.uniform_size(model, data, generator=g)  # noqa: E731
    found = watch(model, objective, generator, 2000, monkeypatch)
    sizes = torch.stack([(~observed).sum() for observed, _ in found]).bincount()
    assert stats.chisquare(sizes[1:]).pvalue > 0.01
    values = {}
    for observed, value in found:  # a mask always gives the same value
        key = tuple(observed.flatten().tolist())
        assert values.setdefault(key, value.item()) == pytest.approx(value.item(), abs=1e-12)
    assert len(values) == 2**NUM_TOKENS - 1  # every mask came up
    odds = [NUM_TOKENS * math.comb(NUM_TOKENS, mask.count(False)) for mask in values]
    mean = np.sum(np.array([*values.values()]) / odds)
    assert mean == pytest.approx(model.log_prob(rows).mean().item(), abs=1e-10)


def test_a_fixed_bernoulli_rate_masks_each_token_and_divides(problem, generator, monkeypatch):
    """A mask of no token counts as zero."""
    (model, _, rows), rate = problem, 0.3
    objective = lambda g: objectives.bernoulli_rate(model, rows, rate=rate, generator=g)  # noqa: E731
    found = watch(model, objective, generator, 100, monkeypatch)
    for observed, value in found:
        total = model.conditional_log_prob(rows, observed[0]).sum(-1).mean().item()
        assert value == pytest.approx(total / rate, abs=1e-10)
    counts = torch.bincount(torch.cat([(~observed).sum(-1).flatten() for observed, _ in found]))
    binomial = stats.binom.pmf(range(NUM_TOKENS + 1), NUM_TOKENS, rate)
    assert stats.chisquare(counts, int(counts.sum()) * binomial).pvalue > 0.01


@pytest.mark.parametrize(
    "draw", [objectives.stratified_size, partial(objectives.bernoulli_rate, rate=0.5)]
)
def test_rows_of_different_length(draw, generator):
    """Tokens cost as many nats as are masked: a row of L tokens scores -L (L + 1) / 2 on average."""
    lengths = torch.arange(1, 6).repeat(2000)
    model = Says(5, lambda x, observed: -(~observed).sum(-1, keepdim=True).double())
    x = torch.zeros(len(lengths), 5)
    value = draw(model, x, lengths=lengths, generator=generator)
    is_token = torch.arange(5) < lengths[:, None]
    assert (model.asked[0] | is_token).all()  # what is no token is not masked
    assert value == pytest.approx(-7, abs=0.2 if draw is objectives.stratified_size else 0.5)


def test_sums_are_in_float32_where_answers_are_not(generator):
    """4,096 answers of -1/3 nat in bfloat16: their sum there would not be within a percent."""
    short = Says(4096, lambda x, observed: (x - 1 / 3).bfloat16())
    value = objectives.fixed_size(short, torch.zeros(3, 4096), 1001, generator=generator)
    assert value.dtype == torch.float32 and len(short.asked[0]) == 1  # mask, by default
    assert value == pytest.approx(-4096 * torch.tensor(1 / 3).bfloat16().item(), rel=1e-5)


@pytest.mark.parametrize(
    "draw, given, sizes, shared",
    [
        ("fixed_size", dict(size=3, num_masks=2, share_masks=True), [3, 3], True),
        ("fixed_size", dict(size=3, num_masks=2, share_masks=False), [3, 3], False),
        ("uniform_size", dict(num_masks=20, share_masks=False), None, False),
        ("every_size", dict(num_masks=2), [1, 2, 3, 4, 1, 2, 3, 4], True),
    ],
)
def test_masks_are_shared_or_each_rows_own(draw, given, sizes, shared, generator, monkeypatch):
    """The value is D times the mean score over masks and rows; `every_size` meets each size equally often."""
    model = PPCA(torch.randn(NUM_TOKENS, 2, generator=generator, dtype=torch.float64), 0.5)
    rows, objective = model.sample(30, generator=generator), getattr(objectives, draw)
    call = lambda g: objective(model, rows, **given, generator=g)  # noqa: E731
    [(observed, value)] = watch(model, call, generator, 1, monkeypatch)
    masks = observed[:, None] if shared else observed
    size = (~masks).sum(-1)
    assert masks.shape[1:] == (1 if shared else 30, NUM_TOKENS)
    assert len(masks.flatten(0, 1).unique(dim=0)) > 1
    if sizes is None:
        assert {*size.flatten().tolist()} == {*SIZES}
    else:
        assert (size == torch.tensor(sizes)[:, None]).all()
    scores = model.conditional_log_prob(rows, masks).sum(-1) / size
    assert value == pytest.approx(NUM_TOKENS * scores.mean().item(), abs=1e-11)


LENGTHS = torch.tensor([1, 2, 3, 4, 4, 4])
DRAWS = [  # everything of the theorem that draws at random, its masks or more
    "objectives.fixed_size(model, data, 2, num_masks=3, generator=g)",
    "objectives.uniform_size(model, summarise(model, data), generator=g)",
    "objectives.uniform_size(model, data, share_masks=False, generator=g)",
    "objectives.every_size(model, data, generator=g)",
    "objectives.bernoulli_rate(model, data, rate=0.5, lengths=LENGTHS, generator=g)",
    "objectives.stratified_size(model, data, lengths=LENGTHS, generator=g)",
    "score_curve(model, data, generator=g).mean",
    "score_curve(model, data, share_masks=False, generator=g).rows",
    "estimate_area(model, data, 64, error=9.0, generator=g)[0]",
    "estimate_area(model, data, 32, by_orders=True, generator=g)[0]",
    "order_spread(model, data, num_orders=3, generator=g)",
    "exact_curve(model, data).rows",  # its masks travel too
]


@pytest.mark.parametrize("place", ["cpu", "gpu"])
@pytest.mark.parametrize("call", DRAWS)
def test_a_draw_is_repeated_by_its_seed_and_goes_to_the_data(call, place, request):
    """Also with data on another device than the generator: about the same numbers, on the data's device."""
    weight = draws.randn((NUM_TOKENS, 2), None, seeded(2))
    rows = torch.randint(2, (6, NUM_TOKENS), generator=seeded(4)).double()

    def value(weight, rows):
        return eval(call, globals(), dict(model=PPCA(weight, 0.5), data=rows, g=seeded(3)))

    here = value(weight, rows)
    assert np.array_equal(here, value(weight, rows))
    assert here.shape == () or not call.startswith("objectives")
    if place == "gpu":
        gpu = request.getfixturevalue("gpu")
        there = value(weight.to(gpu), rows.to(gpu))
        assert not torch.is_tensor(here) or there.device.type == gpu.type
        np.testing.assert_allclose(torch.as_tensor(there).cpu(), here, rtol=1e-9, atol=1e-12)
