"""Masked diffusion: predicted noise is that of simulated estimators, samplers write what they say; schedules."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from mptlml import all_masks, all_orders, chain_rule, exact_curve, random_masks
from mptlml.models import HiddenMarkovModel
from mptlml_book import masked_diffusion as study
from mptlml_book.masked_diffusion import (
    best_steps,
    chosen_order_terms,
    cosine_steps,
    equal_steps,
    log_prob_surest,
    schedule_cost,
    unmask,
)
from mptlml_book.transformer import MaskedTransformer

D, V, DRAWS = 4, 3, 40_000


def small(num_tokens=D):
    generator = torch.Generator().manual_seed(5)
    draw = [
        torch.rand(*shape, generator=generator, dtype=torch.float64) ** 2
        for shape in [(2,), (2, 2), (2, V)]
    ]
    return HiddenMarkovModel(*(part / part.sum(-1, keepdim=True) for part in draw), num_tokens)


@pytest.fixture(scope="module")
def noise():
    """The model, one text, and the exact moments of its scores, from very many masks."""
    generator, model = torch.Generator().manual_seed(1), small()
    text = model.sample(1, generator=generator)
    return model, text, study.score_moments(model, text, 20_000, generator=generator)


def scores(model, text, observed):
    return model.conditional_log_prob(text[0], observed).sum(-1)


def simulated(name, model, text, generator):
    """DRAWS estimates of the area, 8 passes each, as the public code draws them."""
    u = torch.rand(DRAWS, 8, generator=generator, dtype=torch.float64)
    if "rate" in name:
        t = study.SMALLEST + (1 - study.SMALLEST) * (
            (u + torch.arange(8)) / 8 if "spread" in name else u
        )
        observed = torch.rand(DRAWS, 8, D, generator=generator, dtype=torch.float64) >= t[..., None]
        return (scores(model, text, observed) / t).mean(-1)
    chances = [0.4, 0.3, 0.2, 0.1] if name == "chosen sizes" else [1 / D] * D
    chance = torch.tensor(chances, dtype=torch.float64)
    if name == "llada":
        start = torch.randint(1, D + 1, (DRAWS, 2, 1), generator=generator)
        sizes = ((start + torch.arange(4) * (D / 4)).round().long() - 1).flatten(1) % D + 1
    else:
        place = (torch.arange(8) // 2 + u) / 4 if name == "strata" else u
        sizes = 1 + (place[..., None] >= chance.cumsum(0)[:-1]).sum(-1)
    observed = random_masks(D, sizes, generator=generator)
    return (scores(model, text, observed) / sizes / chance[sizes - 1]).mean(-1)


PREDICTED = {
    "rate": lambda m: study.by_rate(m, 8, spread=False),
    "rate, spread": lambda m: study.by_rate(m, 8, spread=True),
    "sizes": lambda m: study.by_size(m, 8),
    "chosen sizes": lambda m: study.by_size(m, 8, np.array([0.4, 0.3, 0.2, 0.1])),
    "strata": lambda m: study.by_size(m, 8, strata=4),
    "llada": lambda m: study.by_llada(m, 8, batch=4),
}


@pytest.mark.parametrize("name", PREDICTED)
def test_predicted_noise_is_that_of_simulated_estimators(name, noise):
    model, text, moments = noise
    values = simulated(name, model, text, torch.Generator().manual_seed(2))
    predicted = PREDICTED[name](moments).item()
    # 1/t has heavy tails
    assert values.var().item() == pytest.approx(predicted, rel=0.2 if "rate" in name else 0.03)


def test_nested_masks_estimate_the_area(generator):
    model = small()
    text = model.sample(2, generator=generator)
    values = study.nested_areas(model, text, D, 4000, generator=generator)
    error = values.std(0) / math.sqrt(len(values))
    assert ((values.mean(0) - model.log_prob(text)).abs() < 4 * error).all()


# Samplers

NUM = 20_000  # rows written


def test_a_mask_and_what_it_leaves_estimate_the_area(generator, noise):
    """Unbiased; of D = 4 tokens and 2 passes, sizes 1, 2, 3 are met with 3, 2, 1, and 4 with itself."""
    model, text, _ = noise
    found = study.complementary_areas(model, text, 2, DRAWS, generator=generator)[:, 0]
    assert abs(found.mean() - model.log_prob(text)) < 4 * found.std() / math.sqrt(DRAWS)
    curve = exact_curve(model, text).mean
    assert abs(found - D * curve[3]).min() < 1e-9  # both hide all
    pairs = [
        D / 2 * (scores(model, text, ~hidden) / size + scores(model, text, hidden) / (D - size))
        for size in (1, 2, 3)
        for hidden in ~all_masks(D, size)
    ]
    away = (found[:200, None] - torch.stack([*pairs, torch.tensor(D * curve[3])])).abs()
    assert away.min(1).values.max() < 1e-9


RATES = {
    "1/t, five rates": [0.1, 0.3, 0.5, 0.7, 0.9],
    **{f"bound of {steps} steps": np.arange(1, steps + 1) / steps for steps in (8, 64, 512)},
    "weight without its divisor": (np.arange(20_000) + 0.5) / 20_000 * (1 - study.SMALLEST),
}


@pytest.mark.parametrize("name", study.EVALUATORS)
def test_evaluators_measure_what_the_curve_says(name, noise, generator):
    """Their means over 4,000 draws for one text, against the exact scores of each size."""
    model, text, _ = noise
    curve, size = exact_curve(model, text).mean, np.arange(1, D + 1)
    value = study.EVALUATORS[name](model, text.expand(4000, -1), generator)
    if name in RATES:
        rate = np.asarray(RATES[name])
        weight = (1 - study.SMALLEST) / (1 - rate) if "divisor" in name else 1 / rate
        expected = np.mean(binom.pmf(size, D, rate[:, None]) @ (size * curve) * weight)
    else:
        at = {"half of the tokens": 2, "15% of the tokens": 1, "one at a time": 1}.get(name)
        expected = curve.sum() if at is None else D * curve[at - 1]
    assert abs(value.mean() - expected) < 4 * value.std() / math.sqrt(len(value)) + 1e-9


@pytest.fixture
def alike():
    """Two independent tokens of two words, 0.9 and 0.1: the places are alike, so ties decide."""
    uniform = torch.full((1, 1), 1.0, dtype=torch.float64)
    return HiddenMarkovModel(
        uniform[0], uniform, torch.tensor([[0.9, 0.1]], dtype=torch.float64), 2
    )


def every_row(model):
    return torch.cartesian_prod(*[torch.arange(model.vocab_size)] * model.num_tokens)


def shares(model, written):
    """How often each of `every_row` was written."""
    index = (written * model.vocab_size ** torch.arange(model.num_tokens - 1, -1, -1)).sum(-1)
    return torch.bincount(index, minlength=model.vocab_size**model.num_tokens) / len(written)


def agree(share, probs):
    """Within 4.5 standard errors of the share of NUM rows."""
    return ((share - probs).abs() < 4.5 * (probs / NUM).sqrt()).all()


@pytest.mark.parametrize("steps", [[1, 1, 1], [2, 1], [3]])
def test_a_row_is_written_as_often_as_it_says(steps, generator):
    """By the surest places, which no draw decides; all 27 rows are met."""
    model = small(3)
    written, log_q = unmask(model, steps, places="surest place", num_rows=NUM, generator=generator)
    rows, index = written.unique(dim=0, return_inverse=True)
    probs = torch.zeros(27, dtype=torch.float64).index_copy_(0, index, log_q.exp())
    assert torch.equal(rows, every_row(model)) and agree(shares(model, written), probs)
    assert probs.sum().item() == pytest.approx(1, abs=1e-12)
    if steps == [1, 1, 1]:  # one exact word at a time writes the language, wherever
        torch.testing.assert_close(log_q, model.log_prob(written), rtol=1e-12, atol=0)


def test_an_order_chosen_by_what_is_visible_gives_a_distribution(generator):
    """Of a network without a joint distribution, over all its rows; the order depends on the words."""
    net = MaskedTransformer(3, 3, width=4, num_layers=1, num_heads=2, generator=generator)
    rows = every_row(net)

    def policy(x, observed):
        assert (x[~observed] == 0).all()
        return net.vocabulary_log_prob(x, observed).amax(-1)

    with torch.no_grad():
        chosen = chosen_order_terms(net, rows, policy).double()
        fixed = chain_rule(net, rows, all_orders(3)).double()  # [Q, N, t]
    assert chosen.sum(-1).exp().sum() == pytest.approx(1, abs=1e-6)
    least = (chosen - fixed).abs().amax(-1).min(0)
    assert least.values.max() < 1e-6 and len(least.indices.unique()) > 1


def test_the_surest_words_are_written_as_often_as_their_probability_says(generator):
    """Of three steps; `test_ties_are_broken_evenly` has the probabilities of two by hand."""
    model = small(3)
    written, log_q = unmask(
        model, [1, 1, 1], places="surest word", num_rows=NUM, generator=generator
    )
    q = log_prob_surest(model, every_row(model), 4000, generator=generator).exp()
    assert q.sum().item() == pytest.approx(1, abs=0.01) and log_q.isnan().all()
    assert (q - model.log_prob(every_row(model)).exp()).abs().max() > 0.05  # it is not the language
    assert agree(shares(model, written), q)


def test_ties_are_broken_evenly(alike, generator):
    # as in the exercise
    q = torch.tensor([0.99 * 0.9, 0.054, 0.054, 0.01 * 0.1], dtype=torch.float64)
    found = log_prob_surest(alike, every_row(alike), NUM, generator=generator)
    torch.testing.assert_close(found.exp(), q, rtol=0.03, atol=0)
    written, _ = unmask(alike, [1, 1], places="surest word", num_rows=NUM, generator=generator)
    assert agree(shares(alike, written), q)


def test_the_likeliest_words_are_one_row(generator):
    options = dict(likeliest=True, num_rows=5, generator=generator)
    row, _ = unmask(small(), [1] * D, places="surest word", **options)
    assert len(row.unique(dim=0)) == 1
    assert (unmask(small(), [2, 2], **options)[1] == 0).all()


def test_much_noise_hides_which_word_is_surest(alike, generator):
    """Its first of two words then stands anywhere: q comes close to the language's, as in the exercise."""
    options = dict(num_rows=NUM, generator=generator)
    none, some, much = (
        shares(alike, unmask(alike, [1, 1], places="surest word", noise=noise, **options)[0])[0]
        for noise in (0.0, 8.0, 1e4)
    )
    assert abs(much - 0.81) < 0.015 and abs(none - 0.891) < 0.015
    assert much + 0.015 < some < none - 0.015


@pytest.mark.parametrize(("steps", "cost"), [([1, 1, 1], 0), ([1, 2], 1), ([2, 1], 2), ([3], 5)])
def test_the_cost_is_the_area_between_curve_and_staircase(steps, cost):
    """A pass that starts with m hidden earns S(m) for each token that it writes: S is -1, -2, -4."""
    assert schedule_cost([-1, -2, -4], steps) == pytest.approx(cost)


@pytest.mark.parametrize("num_tokens", [1, 2, 7])
def test_the_best_schedule_is_the_best_of_all(num_tokens):
    # no curve need fall for that
    scores = np.random.default_rng(num_tokens).normal(size=num_tokens)
    for num_steps in range(1, num_tokens + 1):
        cuts = itertools.combinations(range(1, num_tokens), num_steps - 1)
        costs = {
            tuple(steps): schedule_cost(scores, steps)
            for steps in (np.diff([0, *cut, num_tokens]).tolist() for cut in cuts)
        }
        assert costs[tuple(best_steps(scores, num_steps))] == pytest.approx(
            min(costs.values()), abs=1e-12
        )


@pytest.mark.parametrize("schedule", [equal_steps, cosine_steps])
@pytest.mark.parametrize("num_tokens", [1, 5, 32, 33])
def test_schedules_write_every_token_and_some_in_each_pass(schedule, num_tokens):
    for num_steps in range(1, num_tokens + 1):
        steps = schedule(num_tokens, num_steps)
        assert len(steps) == num_steps and sum(steps) == num_tokens and min(steps) >= 1


def test_schedules_by_hand():
    assert equal_steps(8, 3) == [3, 3, 2]
    assert cosine_steps(32, 4) == [3, 7, 10, 12]  # 32 cos(pi s / 8) = 29.6, 22.6, 12.2, 0
