"""What the objectives are on average, by enumeration of everything they can draw."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from mptlml import exact_curve, mean_score, objectives, order_spread, score_curve, summarise
from mptlml.models import PPCA, BernoulliMixture, SecondMoment

NUM_TOKENS = 4
SIZES = range(1, NUM_TOKENS + 1)


@pytest.fixture(params=["gaussian", "gaussian, summarised", "mixture"])
def problem(request):
    """(model, data, rows): data is what the objective is given, the rows or their summary."""
    draw = torch.Generator().manual_seed(2)
    if request.param == "mixture":
        model = BernoulliMixture(torch.tensor([0.3, 0.7]).double(), torch.rand(2, NUM_TOKENS, generator=draw).double())
    else:
        model = PPCA(torch.randn(NUM_TOKENS, 2, generator=draw, dtype=torch.float64), 0.5)
    rows = model.sample(6, generator=draw)
    return model, summarise(model, rows) if "summarised" in request.param else rows, rows


def watch(objective, generator, num_draws, monkeypatch):
    """Draw `objective()` many times: [(the masks it scored, its value)], by listening in on mean_score."""
    seen = []

    def listening(model, data, observed):
        seen.append(observed)
        return mean_score(model, data, observed)

    monkeypatch.setattr(objectives, "mean_score", listening)
    values = [objective(generator) for _ in range(num_draws)]
    return list(zip(seen, values, strict=True))


def table(draws):
    """{mask: value} of draws of one mask each; a mask must always give the same value."""
    found = {}
    for observed, value in draws:
        key = tuple(observed.flatten().tolist())
        assert found.setdefault(key, value.item()) == pytest.approx(value.item(), abs=1e-12)
    return found


def test_uniform_size_is_unbiased(problem, generator, monkeypatch):
    """Enumerated: sum over masks of p(mask) times the value, p(mask) = 1 / (D C(D, m)), is the LML (Eq. 5)."""
    model, data, rows = problem
    draws = watch(lambda g: objectives.uniform_size(model, data, generator=g), generator, 800, monkeypatch)
    values = table(draws)
    assert len(values) == 2**NUM_TOKENS - 1  # every mask came up
    mean = sum(value / (NUM_TOKENS * math.comb(NUM_TOKENS, key.count(False))) for key, value in values.items())
    assert mean == pytest.approx(model.log_prob(rows).mean().item(), abs=1e-10)


def test_uniform_size_draws_each_size_equally_often(problem, generator, monkeypatch):
    model, data, _ = problem
    (observed, _), = watch(lambda g: objectives.uniform_size(model, data, num_masks=5000, generator=g),
                           generator, 1, monkeypatch)
    sizes = (~observed).sum(-1)
    assert stats.chisquare(torch.bincount(sizes, minlength=NUM_TOKENS + 1)[1:]).pvalue > 0.01


@pytest.mark.parametrize("size", SIZES)
def test_fixed_size_is_d_times_one_score(problem, size, generator, monkeypatch):
    """Enumerated: its mean is D S(m), which is not the LML."""
    model, data, rows = problem
    draws = watch(lambda g: objectives.fixed_size(model, data, size, generator=g), generator, 150, monkeypatch)
    values = table(draws)
    assert len(values) == math.comb(NUM_TOKENS, size)
    mean = np.mean(list(values.values()))
    assert mean == pytest.approx(NUM_TOKENS * exact_curve(model, rows).mean[size - 1], abs=1e-10)
    assert abs(mean - model.log_prob(rows).mean().item()) > 0.01


def test_every_size_has_each_size_once(problem, generator, monkeypatch):
    """sum_m S(x; m): the sum over sizes of the mean over the masks drawn of that size."""
    model, data, rows = problem
    (observed, value), = watch(
        lambda g: objectives.every_size(model, data, num_masks=3, generator=g), generator, 1, monkeypatch)
    sizes = (~observed).sum(-1)
    assert sorted(sizes.tolist()) == sorted([*SIZES] * 3)
    score = mean_score(model, rows, observed)
    assert value.item() == pytest.approx(sum(score[sizes == m].mean().item() for m in SIZES), abs=1e-12)


def bernoulli_totals(model, data, generator, monkeypatch):
    """{mask: summed log-probability of its tokens}, from draws at rate 1/2: the value is that sum over the rate."""
    draws = watch(lambda g: objectives.bernoulli_rate(model, data, rate=0.5, generator=g), generator, 500, monkeypatch)
    assert all(value == 0 for observed, value in draws if not len(observed))  # nothing masked: zero, not an error
    totals = {key: value * 0.5 for key, value in table([draw for draw in draws if len(draw[0])]).items()}
    assert len(totals) == 2**NUM_TOKENS - 1
    counts = np.bincount([(~observed).sum().item() for observed, _ in draws], minlength=NUM_TOKENS + 1)
    assert stats.chisquare(counts, 500 * stats.binom.pmf(range(NUM_TOKENS + 1), NUM_TOKENS, 0.5)).pvalue > 0.01
    return totals


def test_a_uniform_bernoulli_rate_is_unbiased(problem, generator, monkeypatch):
    """The mean over masks at a rate t, integrated over t by Gauss and Legendre's rule (exact here), is the LML."""
    model, data, rows = problem
    totals = bernoulli_totals(model, data, generator, monkeypatch)
    nodes, weights = np.polynomial.legendre.leggauss(NUM_TOKENS)
    integral = sum(
        weight / 2 * rate ** (key.count(False) - 1) * (1 - rate) ** key.count(True) * total
        for rate, weight in zip((1 + nodes) / 2, weights, strict=True) for key, total in totals.items()
    )
    assert integral == pytest.approx(model.log_prob(rows).mean().item(), abs=1e-10)


class OneNatEach:
    """Every token has -1 nat; with many tokens the share masked tells the rate that was drawn."""

    num_tokens = 40_000

    def conditional_log_prob(self, x, observed):
        self.rate = (~observed).double().mean().item()
        return torch.where(observed, 0.0, -torch.ones_like(x))


def test_a_bernoulli_rate_is_drawn_uniformly_and_divides(generator):
    model, x = OneNatEach(), torch.zeros(1, 40_000)
    rates = []
    for _ in range(200):
        value = objectives.bernoulli_rate(model, x, generator=generator).item()
        rates.append(model.rate)
        spread = math.sqrt((1 - model.rate) / (model.rate * 40_000))  # of (tokens masked) / (rate D), about 1
        assert value / 40_000 == pytest.approx(-1, abs=5 * spread + 1e-6)
    assert stats.kstest(rates, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("rate", "num_masks"), [(0.15, 1), (0.3, 5), (1.0, 1)])
def test_a_fixed_bernoulli_rate_divides_and_masks_are_averaged(problem, rate, num_masks, generator, monkeypatch):
    model, data, _ = problem
    totals = bernoulli_totals(model, data, generator, monkeypatch)
    draws = watch(lambda g: objectives.bernoulli_rate(model, data, rate=rate, num_masks=num_masks, generator=g),
                  generator, 20, monkeypatch)
    for observed, value in draws:
        expected = sum(totals[tuple(mask.tolist())] for mask in observed) / rate / num_masks
        assert float(value) == pytest.approx(expected, abs=1e-10)


def test_gradients_of_unbiased_objectives_are_the_lmls(generator, monkeypatch):
    """Enumerated: the gradient of uniform_size, averaged over all masks, is the gradient of the LML."""
    weight = torch.randn(NUM_TOKENS, 2, generator=generator, dtype=torch.float64).requires_grad_()
    log_noise = torch.tensor(-0.4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(7, NUM_TOKENS, generator=generator, dtype=torch.float64)

    def gradient(value):
        return torch.cat([part.flatten() for part in torch.autograd.grad(value, (weight, log_noise))])

    lml = gradient(objectives.exact_lml(PPCA(weight, log_noise.exp()), x))
    draws = watch(lambda g: objectives.uniform_size(PPCA(weight, log_noise.exp()), x, generator=g),
                  generator, 800, monkeypatch)
    gradients = {tuple(observed.flatten().tolist()): gradient(value) for observed, value in draws}
    assert len(gradients) == 2**NUM_TOKENS - 1
    mean = sum(part / (NUM_TOKENS * math.comb(NUM_TOKENS, key.count(False))) for key, part in gradients.items())
    torch.testing.assert_close(mean, lml, rtol=0, atol=1e-10)
    fixed = sum(part / math.comb(NUM_TOKENS, 2) for key, part in gradients.items() if key.count(False) == 2)
    assert (fixed - lml).abs().max() > 0.01  # one fixed size has another gradient


def test_an_empty_bernoulli_mask_has_a_gradient_of_zero(monkeypatch):
    weight = torch.ones(3, 1, dtype=torch.float64, requires_grad=True)
    x = torch.ones(2, 3, dtype=torch.float64)
    value = objectives.bernoulli_rate(PPCA(weight, 1.0), x, rate=1e-12, generator=torch.Generator().manual_seed(0))
    value.backward()
    assert value.item() == 0 and (weight.grad == 0).all()


@pytest.mark.parametrize("name", ["fixed_size", "uniform_size", "every_size"])
def test_rows_with_masks_of_their_own(name, generator, monkeypatch):
    """share_masks=False: a mask for each row, of its own size where sizes are drawn; the value is the rows' mean."""
    draw = torch.Generator().manual_seed(3)
    model = PPCA(torch.randn(NUM_TOKENS, 2, generator=draw, dtype=torch.float64), 0.5)
    rows = model.sample(30, generator=draw)
    call = {"fixed_size": lambda g: objectives.fixed_size(model, rows, 3, share_masks=False, generator=g),
            "uniform_size": lambda g: objectives.uniform_size(model, rows, share_masks=False, generator=g),
            "every_size": lambda g: objectives.every_size(model, rows, share_masks=False, generator=g)}[name]
    (observed, value), = watch(call, generator, 1, monkeypatch)
    sizes = (~observed).sum(-1)
    assert observed.shape == ({"every_size": NUM_TOKENS}.get(name, 1), 30, NUM_TOKENS)
    assert len({tuple(mask) for mask in observed.flatten(0, 1).tolist()}) > 3
    expected = {"fixed_size": {3}, "uniform_size": {1, 2, 3, 4}, "every_size": {1, 2, 3, 4}}[name]
    assert set(sizes.flatten().tolist()) == expected
    looped = [model.conditional_log_prob(rows[n], observed[p, n]).sum().item() / sizes[p, n].item()
              for p in range(len(observed)) for n in range(30)]
    assert value.item() == pytest.approx(NUM_TOKENS * np.mean(looped), abs=1e-11)


def test_exact_lml_is_the_mean_log_prob(problem):
    model, data, rows = problem
    assert objectives.exact_lml(model, data).item() == pytest.approx(model.log_prob(rows).mean().item(), abs=1e-12)
    assert isinstance(summarise(model, rows), SecondMoment if isinstance(model, PPCA) else torch.Tensor)


class Echo:
    """A network in miniature: it answers for every word, and says of each token what it was shown."""

    num_tokens, vocab_size = NUM_TOKENS, 3

    def vocabulary_log_prob(self, x, observed):
        return torch.where(observed[..., None], x[..., None] + torch.arange(3, device=x.device), -1.0)


def test_eighty_ten_ten_is_scored_where_it_is_asked(generator):
    """Tokens 2 of words 0, 1, 2: a masked one echoes -1, another word w echoes w + 2, one left as it is 4."""
    value = objectives.eighty_ten_ten(Echo(), torch.full((20_000, NUM_TOKENS), 2.0), 2, generator=generator)
    expected, spread = 0.8 * -1 + 0.1 * (1 + 2) + 0.1 * 4, 1.7
    assert value.item() / NUM_TOKENS == pytest.approx(expected, abs=4 * spread / math.sqrt(40_000))


# Everything of the theorem that draws at random, as (name, call(model, data, generator)).
DRAWS = {
    "fixed_size": lambda model, data, g: objectives.fixed_size(model, data, 2, num_masks=3, generator=g),
    "uniform_size": lambda model, data, g: objectives.uniform_size(model, data, num_masks=3, generator=g),
    "every_size": lambda model, data, g: objectives.every_size(model, data, generator=g),
    "bernoulli_rate": lambda model, data, g: objectives.bernoulli_rate(model, data, num_masks=9, generator=g),
    "a fixed bernoulli_rate": lambda model, data, g: objectives.bernoulli_rate(model, data, rate=0.5, generator=g),
    "uniform_size, own masks": lambda model, data, g: objectives.uniform_size(
        model, data, share_masks=False, generator=g),
    "stratified_size": lambda model, data, g: objectives.stratified_size(model, data, generator=g),
    "eighty_ten_ten": lambda model, data, g: objectives.eighty_ten_ten(Echo(), data, 2, generator=g),
    "score_curve": lambda model, data, g: score_curve(model, data, generator=g).mean,
    "score_curve, rows kept": lambda model, data, g: score_curve(model, data, keep_rows=True, generator=g).rows,
    "score_curve, own masks": lambda model, data, g: score_curve(model, data, share_masks=False, generator=g).rows,
    "order_spread": lambda model, data, g: order_spread(model, data, num_orders=3, generator=g),
    "exact_curve": lambda model, data, g: exact_curve(model, data).rows,  # draws nothing, but its masks travel too
}
SUMMARISED = ("fixed_size", "uniform_size", "every_size", "bernoulli_rate")


@pytest.mark.parametrize("name", [*DRAWS, *(f"{name} of a summary" for name in SUMMARISED)])
def test_a_draw_happens_at_the_generator_and_goes_to_the_data(name, elsewhere):
    """Data on another device than the generator, or the other way round: the same numbers, on the data's device."""
    weight = torch.randn(NUM_TOKENS, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rows = torch.randint(2, (6, NUM_TOKENS), generator=torch.Generator().manual_seed(4)).double()
    draw = DRAWS[name.removesuffix(" of a summary")]

    def value(weight, rows, generator):
        model = PPCA(weight, 0.5)
        return draw(model, summarise(model, rows) if "summary" in name else rows, generator.manual_seed(3))

    here = value(weight, rows, torch.Generator())
    assert np.array_equal(here, value(weight, rows, torch.Generator()))
    assert here.shape == () or name not in vars(objectives)
    with elsewhere:
        there = value(elsewhere.away(weight), elsewhere.away(rows), torch.Generator())
        back = value(weight, rows, elsewhere.Generator())
        if torch.is_tensor(here):
            assert (there.device, back.device) == (elsewhere.DEVICE, rows.device)
    assert np.array_equal(here, there) and np.array_equal(here, back)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_masks_follow_the_data_to_a_gpu():
    rows = torch.randint(2, (6, NUM_TOKENS), generator=torch.Generator().manual_seed(4)).double()
    for draw in DRAWS.values():
        values = []
        for place in ("cpu", "cuda"):
            model = PPCA(torch.ones(NUM_TOKENS, 1, dtype=torch.float64, device=place), 0.5)
            values.append(torch.as_tensor(draw(model, rows.to(place), torch.Generator().manual_seed(3))).cpu())
        torch.testing.assert_close(*values, rtol=0, atol=1e-12)
