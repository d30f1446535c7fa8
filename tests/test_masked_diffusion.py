"""Masked diffusion: predicted noise is that of simulated estimators, samplers write what they say; schedules."""

import itertools

import numpy as np
import pytest
import torch
from conftest import as_frequent, near, same
from scipy.stats import binom

from mptlml import all_orders, chain_rule, exact_curve, random_masks
from mptlml.models import HiddenMarkovModel
from mptlml.testing import check_evaluator
from mptlml_book import masked_diffusion as study
from mptlml_book import order
from mptlml_book.known_language import language
from mptlml_book.masked_diffusion import best_steps, cosine_steps, equal_steps, schedule_cost
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
    if name == "rate, spread":
        t = study.SMALLEST + (1 - study.SMALLEST) * (u + torch.arange(8)) / 8
        observed = torch.rand(DRAWS, 8, D, generator=generator, dtype=torch.float64) >= t[..., None]
        return (scores(model, text, observed) / t).mean(-1)
    if name == "llada":
        start = torch.randint(1, D + 1, (DRAWS, 2, 1), generator=generator)
        sizes = ((start + torch.arange(4) * (D / 4)).round().long() - 1).flatten(1) % D + 1
    else:
        place = (torch.arange(8) // 2 + u) / 4 if name == "strata" else u
        sizes = 1 + (place * D).long()
    observed = random_masks(D, sizes, generator=generator)
    return (scores(model, text, observed) / sizes * D).mean(-1)


PREDICTED = {
    "rate, spread": lambda m: study.by_rate(m, 8, spread=True),
    "sizes": lambda m: study.by_size(m, 8),
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


EXPECTED = {  # from the exact scores of each size
    "1/t, rates spread evenly": np.sum,
    "bound of 8 steps": lambda curve: at_rates(curve, np.arange(1, 9) / 8),
    "1/t, Gauss's two rates": lambda curve: at_rates(curve, (1 + np.array([-1, 1]) / 3**0.5) / 2),
    # a word that is asked for while h are hidden, in the mean over h..D of them
    "hidden words jointly": lambda curve: sum(np.sum(curve[:m]) / m for m in range(1, D + 1)),
}


def at_rates(curve, rate):
    size = np.arange(1, D + 1)
    return np.mean(binom.pmf(size, D, rate[:, None]) @ (size * curve) / rate)


@pytest.mark.parametrize("name", EXPECTED)
def test_evaluators_measure_what_the_curve_says(name, noise, generator):
    """Their means over 4,000 draws for one text."""
    model, text, _ = noise
    found = study.EVALUATORS[name](model, text.expand(4000, -1), generator)
    assert near(found, EXPECTED[name](exact_curve(model, text).mean))


def surest(model, x, generator):
    path = order.follow(order.surest_by_margin(model), x, torch.zeros(x.shape))
    return order.along(model, x, path)


@pytest.mark.parametrize(
    "evaluate, verdict, least, most",
    [
        (study.EVALUATORS["best of four orders"], "mass above 1", 2, 24),
        (study.EVALUATORS["oracle"], "mass above 1", 2, 24),
        (surest, "unbiased", 1 - 1e-12, 1 + 1e-12),
        (study.EVALUATORS["half of the words"], "impossible", 0, 1),
        (study.EVALUATORS["hidden words jointly"], "impossible", 0, 1),
    ],
)
def test_each_arm_catches_what_the_other_lets_pass(evaluate, verdict, least, most, generator):
    found = check_evaluator(evaluate, language(8), num_rows=4000, generator=generator)
    assert found.verdict == verdict and least <= found.mass.mean <= most


def test_a_recursion_over_hidden_sets_is_the_sum_over_all_orders(generator):
    """All 5,040 orders of seven tokens; the bound from above by its definition."""
    net = MaskedTransformer(7, 3, width=4, num_layers=1, num_heads=2, generator=generator)
    net.readout.weight.data *= 9
    x = torch.randint(3, (2, 7), generator=generator)
    with torch.no_grad():
        each = chain_rule(net, x, all_orders(7)).double().sum(-1)
    area, mixture, best = study.over_orders(net, x)
    same(area, each.mean(0))
    same(mixture.exp(), each.exp().mean(0))
    same(best, each.amax(0))
    same(study.tube(area, mixture), (area + (each - area).exp() - 1).mean(0))
    assert (mixture - area).min() > 0.01


def test_a_block_is_filled_given_what_stands_before_it(noise):
    model, text, _ = noise
    blocks = sum(study.over_orders(model, text, start, 2) for start in (0, 2))
    same(blocks, model.log_prob(text).expand(3, 1))


# Samplers


# Three independent tokens of two words, 0.9 and 0.1: the places are alike, so ties decide
ALIKE = HiddenMarkovModel(
    *(torch.tensor(one, dtype=torch.float64) for one in ([1.0], [[1.0]], [[0.9, 0.1]])), 3
)


def test_the_surest_words_are_written_as_often_as_their_probability_says(generator):
    """A likely word first, if any of three, of two, of one is; ties are broken evenly."""
    written = study.surest_words(ALIKE, 20_000, generator=generator)
    assert near((written.sum(-1) == 0).double(), 0.999 * 0.99 * 0.9)
    rare = written[written.sum(-1) == 1]
    assert as_frequent(rare.sum(0), torch.full((3,), len(rare) / 3))


def test_the_likeliest_words_are_one_text_where_nothing_ties(generator):
    """Of two states that never change: the second says its one word surely."""
    eye = torch.eye(2, dtype=torch.float64)
    start = torch.tensor([0.2, 0.8], dtype=torch.float64)
    model = HiddenMarkovModel(start, eye, eye, 3)
    assert (study.surest_words(model, 9, likeliest=True, generator=generator) == 1).all()


def test_the_cost_is_the_area_between_curve_and_staircase():
    """A pass that starts with m hidden earns S(m) for each token that it writes: S is -1, -2, -4."""
    steps = [1, 1, 1], [1, 2], [2, 1], [3]
    assert [schedule_cost([-1, -2, -4], one) for one in steps] == [0, 1, 2, 5]


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


def test_schedules_by_hand():
    assert equal_steps(8, 3) == [3, 3, 2]
    assert cosine_steps(32, 4) == [3, 7, 10, 12]  # 32 cos(pi s / 8) = 29.6, 22.6, 12.2, 0
    assert cosine_steps(5, 5) == [1, 1, 1, 1, 1]
