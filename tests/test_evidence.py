"""Bayesian models with known evidence, and the networks that learn to answer for them."""

import math

import numpy as np
import pytest
import torch
from conftest import as_frequent, same, seeded
from numpy.polynomial.hermite_e import hermegauss
from scipy import special, stats

from mptlml import exact_curve
from mptlml.testing import check_model
from mptlml_book import evidence as study
from mptlml_book.transformer import MaskedTransformer

COUNTS = np.arange(25)  # of heads among 24 coins


@pytest.mark.parametrize("a, b", [(1.0, 1.0), (2.0, 3.0), (20.0, 20.0)])
def test_counts_of_heads_are_beta_binomial(a, b, generator):
    model, known = study.Coins(a, b), stats.betabinom(24, a, b)
    chance = study.coins_by_count(model)
    areas = [study.curve_of_count(chance, count).sum() for count in COUNTS]
    assert areas + np.log(special.comb(24, COUNTS)) == pytest.approx(known.logpmf(COUNTS), abs=1e-9)
    drawn = model.sample(4000, generator=generator).sum(-1).long()
    assert as_frequent(drawn.bincount(minlength=25), 4000 * known.pmf(COUNTS))


def test_a_perceptron_obeys_the_laws(generator):
    net = study.Perceptron(5, generator=generator)
    check_model(net, values=(0.0, 1.0), dtype=torch.float32, tolerance=1e-5)


def test_a_regression_is_the_integral_over_its_coefficients(generator):
    x = study.regression(1).sample(3, generator=generator)
    node, weight = hermegauss(80)
    a, b = study.WIDTH * np.stack(np.meshgrid(node, node))[..., None]
    basis = study.design(1)
    margin = (a * basis[:, 0] + b * basis[:, 1])[..., None, :] * (2 * x.numpy() - 1)
    likelihood = np.exp(special.log_expit(margin).sum(-1))  # [80, 80, rows]
    value = np.einsum("i,j,ijn->n", weight, weight, likelihood) / (2 * np.pi)
    same(study.regression(1).log_prob(x), np.log(value), 0.02)


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
    model = study.regression(1)
    x = model.sample(60, generator=generator)
    left = torch.stack([model.log_prob(x, torch.arange(24) != j) for j in range(24)])
    same(study.leave_one_out(model, x), (model.log_prob(x) - left).sum(0), 1e-12)


def test_laplace_is_near_the_evidence_of_each_degree(generator):
    for degree in study.DEGREES:
        model = study.regression(degree)
        x = model.sample(50, generator=generator)
        away = study.laplace(degree, x) - model.log_prob(x)
        assert away.abs().mean() < 0.15


def test_the_information_criterion_is_that_of_the_best_fit():
    found = study.information_criterion(0, (torch.arange(24) < 18)[None])
    by_hand = 18 * math.log(0.75) + 6 * math.log(0.25) - math.log(24) / 2
    assert found == pytest.approx(by_hand, abs=1e-3)


def test_a_network_that_is_told_reads_what_it_is_told(generator):
    net = MaskedTransformer(1 + study.N, 2 + len(study.WIDTHS), generator=generator)
    x = torch.randint(2, (3, study.N), generator=generator)
    seen = torch.rand(x.shape, generator=generator) < 0.5
    first = torch.ones(3, 1, dtype=torch.long)
    read = net.conditional_log_prob(torch.cat([7 * first, x], -1), torch.cat([first > 0, seen], -1))
    assert torch.equal(study.Told(net, 5).conditional_log_prob(x, seen), read[:, 1:])


def test_a_perceptron_learns_the_posterior_predictive_probabilities():
    model, seen = study.regression(1), torch.arange(24) < 12
    x = model.sample(100, generator=seeded(2)).long()
    options = dict(seed=1, **study.VARIANTS["places known"])
    few, many = (study.train(model, num_steps=count, **options) for count in (1, 60))
    few, many, exact = (
        each.conditional_log_prob(x, seen)[:, 12:].mean().item() for each in (few, many, model)
    )
    assert few + 0.02 < many < exact + 0.02
