"""Bayesian models with known evidence, and the networks that learn to answer for them."""

import math

import numpy as np
import pytest
import torch
from conftest import as_frequent, same, seeded
from scipy import integrate, special, stats

from mptlml import exact_curve
from mptlml.testing import check_model
from mptlml_book import evidence as study
from mptlml_book.transformer import MaskedTransformer

COUNTS = np.arange(25)  # of heads among 24 coins
HEADS = (torch.arange(24) < torch.arange(25)[:, None]).double()


@pytest.mark.parametrize("a, b", [(1.0, 1.0), (2.0, 3.0), (20.0, 20.0)])
def test_counts_of_heads_are_beta_binomial_and_the_exact_table_has_their_area(a, b, generator):
    model, known = study.Coins(a, b), stats.betabinom(24, a, b)
    found = model.log_prob(HEADS).numpy()
    assert found + study.log_binomial(24) == pytest.approx(known.logpmf(COUNTS), abs=1e-9)
    chance = study.coins_by_count(model)
    for count in (0, 7, 24):
        area = study.curve_of_count(chance, count).sum()
        assert area == pytest.approx(found[count], abs=1e-9)
    drawn = model.sample(4000, generator=generator).sum(-1).long()
    assert as_frequent(drawn.bincount(minlength=25), 4000 * known.pmf(COUNTS))


def test_coins_and_a_perceptron_obey_the_laws(generator):
    """Those of any network, and for coins those of a joint distribution as well."""
    net = study.Perceptron(5, width=8, generator=generator)
    check_model(net, values=(0.0, 1.0), dtype=torch.float32, tolerance=1e-5)
    check_model(study.Coins(2.0, 3.0, num_tokens=5), values=(0.0, 1.0))


def test_a_regression_is_the_integral_over_its_coefficients(generator):
    x = study.regression(1).sample(3, generator=generator)
    basis = study.design(1)

    def integrand(a, b, row):
        margin = np.where(row > 0, 1, -1) * (basis @ [a, b])
        prior = stats.norm(0, study.WIDTH).pdf([a, b]).prod()
        return prior * np.exp(special.log_expit(margin).sum())

    for row, found in zip(x.numpy(), study.regression(1).log_prob(x), strict=True):
        precision = dict(epsabs=1e-12, epsrel=1e-3)
        value, _ = integrate.dblquad(integrand, -12, 12, -12, 12, args=(row,), **precision)
        assert found == pytest.approx(math.log(value), abs=0.02)


@pytest.mark.parametrize("degree", [0, 4, None])
def test_more_points_of_the_prior_change_little(degree, generator):
    about = (4, None) if degree is None else (degree, study.WIDTH)
    x = study.regression(*about).sample(50, generator=generator)
    error = study.regression(*about).log_prob(x) - study.regression(*about, 15).log_prob(x)
    assert error.square().mean().sqrt() < 0.05


def test_the_table_by_count_says_the_whole_curve(generator):
    net = MaskedTransformer(6, 2, distance="none", generator=generator)
    chance = study.by_count(net)
    for heads in range(7):
        x = (torch.arange(6) < heads).long()[None]
        expected = exact_curve(net, x.flip(-1)).mean  # the order of flips changes nothing
        assert study.curve_of_count(chance, heads) == pytest.approx(expected, abs=1e-5)


def test_leave_one_out_is_the_left_end(generator):
    model = study.Coins(2.0, 3.0, num_tokens=5)
    x = model.sample(4, generator=generator)
    left = torch.stack([model.log_prob(x, torch.arange(5) != j) for j in range(5)])
    same(study.leave_one_out(model, x), (model.log_prob(x) - left).sum(0), 1e-12)


def test_laplace_is_near_the_evidence_of_each_degree(generator):
    for degree in study.DEGREES:
        model = study.regression(degree)
        x = model.sample(50, generator=generator)
        away = study.laplace(degree, x) - model.log_prob(x)
        assert away.abs().mean() < 0.15


def test_the_information_criterion_is_that_of_the_best_fit():
    found = study.information_criterion(0, HEADS[18:19])
    by_hand = 18 * math.log(0.75) + 6 * math.log(0.25) - math.log(24) / 2
    assert found == pytest.approx(by_hand, abs=1e-3)


def test_a_network_that_is_told_reads_what_it_is_told(generator):
    net = MaskedTransformer(1 + study.NUM_OBSERVATIONS, 2 + len(study.WIDTHS), generator=generator)
    x = torch.randint(2, (3, study.NUM_OBSERVATIONS), generator=generator)
    seen = torch.rand(x.shape, generator=generator) < 0.5
    one, other = (study.Told(net, which).conditional_log_prob(x, seen) for which in (0, 5))
    with_word = torch.cat([torch.full((3, 1), 7), x], -1)
    all_seen = torch.cat([torch.ones(3, 1, dtype=torch.bool), seen], -1)
    assert torch.equal(other, net.conditional_log_prob(with_word, all_seen)[:, 1:])
    assert (one != other).any() and (one[seen] == 0).all()


def test_a_perceptron_learns_the_posterior_predictive_probabilities():
    model, seen = study.regression(1), torch.arange(24) < 12
    x = model.sample(100, generator=seeded(2))
    few, many = (
        study.train_perceptron(model, seed=1, num_steps=n).conditional_log_prob(x.float(), seen)
        for n in (1, 60)
    )
    few, many, exact = (
        answer[:, 12:].mean().item() for answer in (few, many, model.conditional_log_prob(x, seen))
    )
    assert few + 0.02 < many < exact + 0.02


def test_a_short_training_comes_nearer_to_the_evidence():
    model = study.Coins(20.0, 20.0)
    few, many = (
        study.train(model, seed=1, num_steps=steps, distance="none")[0] for steps in (1, 60)
    )
    areas = [study.curve_of_count(study.by_count(net), 12).sum() for net in (few, many)]
    few, many = np.abs(areas - model.log_prob(HEADS[12]).numpy())
    assert many < few
