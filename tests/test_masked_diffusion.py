"""Masked diffusion: predicted noise is that of simulated estimators, samplers write what they say; schedules."""

import itertools

import numpy as np
import pytest
import torch
from conftest import near
from scipy.stats import binom

from mptlml import all_orders, chain_rule, exact_curve, random_masks
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
    if name == "rate, spread":
        t = study.SMALLEST + (1 - study.SMALLEST) * (u + torch.arange(8)) / 8
        observed = torch.rand(DRAWS, 8, D, generator=generator, dtype=torch.float64) >= t[..., None]
        return (scores(model, text, observed) / t).mean(-1)
    chance = torch.tensor(CHOSEN if name == "chosen sizes" else [1 / D] * D, dtype=torch.float64)
    if name == "llada":
        start = torch.randint(1, D + 1, (DRAWS, 2, 1), generator=generator)
        sizes = ((start + torch.arange(4) * (D / 4)).round().long() - 1).flatten(1) % D + 1
    else:
        place = (torch.arange(8) // 2 + u) / 4 if name == "strata" else u
        sizes = 1 + (place[..., None] >= chance.cumsum(0)[:-1]).sum(-1)
    observed = random_masks(D, sizes, generator=generator)
    return (scores(model, text, observed) / sizes / chance[sizes - 1]).mean(-1)


CHOSEN = [0.4, 0.3, 0.2, 0.1]
PREDICTED = {
    "rate, spread": lambda m: study.by_rate(m, 8, spread=True),
    "chosen sizes": lambda m: study.by_size(m, 8, np.array(CHOSEN)),
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


@pytest.mark.parametrize("way", [study.nested_areas, study.complementary_areas])
def test_masks_that_belong_together_estimate_the_area(way, generator):
    model = small()
    text = model.sample(2, generator=generator)
    values = way(model, text, D, 4000, generator=generator)
    assert all(map(near, values.T, model.log_prob(text)))


@pytest.mark.parametrize(
    "name", ["1/t, rates spread evenly", "15% of the tokens", "bound of 8 steps"]
)
def test_evaluators_measure_what_the_curve_says(name, noise, generator):
    """Their means over 4,000 draws for one text, against the exact scores of each size."""
    model, text, _ = noise
    curve, rate = exact_curve(model, text).mean, np.arange(1, 9)[:, None] / 8
    size = np.arange(1, D + 1)
    expected = {
        "1/t, rates spread evenly": curve.sum(),
        "15% of the tokens": D * curve[0],
        "bound of 8 steps": np.sum(binom.pmf(size, D, rate) * size * curve / rate) / 8,
    }
    assert near(study.EVALUATORS[name](model, text.expand(4000, -1), generator), expected[name])


# Samplers

NUM = 20_000  # rows written


# Three independent tokens of two words, 0.9 and 0.1: the places are alike, so ties decide
ALIKE = HiddenMarkovModel(
    *(torch.tensor(one, dtype=torch.float64) for one in ([1.0], [[1.0]], [[0.9, 0.1]])), 3
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


@pytest.mark.parametrize("steps", [[1, 1, 1], [2, 1]])
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

    with torch.no_grad():
        chosen = chosen_order_terms(
            net, rows, lambda x, seen: net.vocabulary_log_prob(x, seen).amax(-1)
        ).double()
        fixed = chain_rule(net, rows, all_orders(3)).double()  # [Q, N, t]
    assert chosen.sum(-1).exp().sum() == pytest.approx(1, abs=1e-6)
    least = (chosen - fixed).abs().amax(-1).min(0)
    assert least.values.max() < 1e-6 and len(least.indices.unique()) > 1


@pytest.mark.parametrize("model", [small(3), ALIKE], ids=["small", "alike"])
def test_the_surest_words_are_written_as_often_as_their_probability_says(model, generator):
    written, log_q = unmask(
        model, [1, 1, 1], places="surest word", num_rows=NUM, generator=generator
    )
    q = log_prob_surest(model, every_row(model), 4000, generator=generator).exp()
    assert q.sum().item() == pytest.approx(1, abs=0.01) and log_q.isnan().all()
    assert agree(shares(model, written), q)
    if (
        model is ALIKE
    ):  # a likely word first, if any of three, of two, of one is; ties are broken evenly
        assert q[0] == pytest.approx(0.999 * 0.99 * 0.9, rel=0.01)
        assert q[[1, 2]].numpy() == pytest.approx(q[4].item(), rel=0.05)


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
