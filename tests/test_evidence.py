"""Bayesian models with known evidence, and the networks that learn to answer for them."""

import numpy as np
import pytest
import torch
from conftest import as_frequent, same
from numpy.polynomial.hermite_e import hermegauss
from scipy import special, stats

from mptlml import exact_curve
from mptlml.testing import check_model
from mptlml_book import evidence as study
from mptlml_book.transformer import MaskedTransformer


def test_counts_of_heads_are_beta_binomial():
    chance, counts = study.coins_by_count(study.Coins(2, 3)), range(25)
    areas = [study.curve_of_count(chance, count).sum() for count in counts]
    known = stats.betabinom.logpmf(counts, 24, 2, 3) - np.log(special.comb(24, counts))
    assert areas == pytest.approx(known)


def test_a_perceptron_obeys_the_laws(generator):
    net = study.Perceptron(5, generator=generator)
    check_model(net, values=(0.0, 1.0), dtype=torch.float32, tolerance=1e-5)


def test_a_regression_is_the_integral_over_its_coefficients():
    """Of a line through the middle, and a constant, where the right half says yes."""
    node, weight = hermegauss(80)
    line = 2 * (node[:, None, None] + node[:, None] * np.linspace(-1, 1, 24))
    chance = special.expit(line * np.repeat([-1, 1], 12)).prod(-1)
    found = study.regression(1).log_prob(torch.arange(24) >= 12).exp()
    assert found == pytest.approx(weight @ chance @ weight / (2 * np.pi), rel=0.02)


def test_the_table_by_count_says_the_whole_curve(generator):
    net = MaskedTransformer(6, 2, distance="none", generator=generator)
    chance = study.by_count(net)
    for heads in range(7):
        x = (torch.arange(6) >= 6 - heads).long()[None]  # the order of flips changes nothing
        expected = exact_curve(net, x).mean
        assert study.curve_of_count(chance, heads) == pytest.approx(expected, abs=1e-5)


def test_areas_and_left_ends_of_a_model_are_exact(generator):
    model = study.regression(1)
    x = model.sample(60, generator=generator)
    left = model.conditional_log_prob(x[:, None], torch.eye(24) == 0)
    same(study.leave_one_out(model, x), left.sum((1, 2)), 1e-12)
    same(study.along_own_order(model, x, 0, 1), model.log_prob(x), 1e-12)


def test_a_listed_model_of_independent_tokens_leaves_none_out():
    rows = study.every_row()
    chance = torch.arange(1, 17) / 20
    model = study.Enumerated(torch.where(rows == 1, chance, 1 - chance).log().sum(-1), rows)
    same(model.leave_one_out(rows[::99]), model.log_prob(rows[::99]), 1e-4)


def test_spins_have_the_energy_of_their_bonds():
    """Of equal spins and of a checkerboard, by hand: 24 neighbours, 12 of them in rows, 120 pairs."""
    board = (torch.arange(16) // 4 + torch.arange(16)) % 2
    row = study.numbered(torch.stack([board**0, board]))
    by_hand = [[24, -24], [15, -1], [12, -12], [-24, 24]]
    assert [model.summary[row].tolist() for model in study.spins().values()] == by_hand


@pytest.mark.parametrize("name", ["sir", "sis"])
def test_epidemics_are_as_frequent_as_simulated_ones(name):
    """By the sum of the days, counted from 0, on which cases are reported."""
    rng, count = np.random.default_rng(1), 20_000
    rate, recovery, report = (rng.integers(6, size=(3, count)) + 0.5) / 6
    healthy, ill, total = np.full(count, 18), np.full(count, 2), 0
    for day in range(16):
        fall = rng.binomial(healthy, 1 - np.exp(-(0.2 + rate) * ill / 20))
        heal = rng.binomial(ill, 0.1 + 0.4 * recovery)
        healthy, ill = healthy - fall + heal * (name == "sis"), ill + fall - heal
        total += day * (rng.binomial(fall, 0.2 + 0.6 * report) > 0)
    chance = study.epidemics()[name].log_probs.exp()
    share = torch.bincount(study.every_row() @ torch.arange(16), chance)
    assert as_frequent(np.bincount(total, minlength=121), count * share)


@pytest.mark.parametrize("loss", study.LOSSES)
def test_an_evidence_network_learns_the_log_bayes_factor(loss):
    """Of a flip that is a head with probability 3/4 in one model and 1/4 in the other."""
    rows = torch.tensor([[1, 1]] * 3 + [[1, 0], [0, 1]] + [[0, 0]] * 3).repeat(200, 1)
    net = study.evidence_network(rows, loss, 300, 0.0, 1).net
    found = study.odds(net, torch.tensor([[0], [1]]), loss)
    assert found.tolist() == pytest.approx(np.log([1 / 3, 3]), abs=0.05)


def test_a_training_ends_with_the_network_that_was_best():
    """On held-out rows that the others contradict, it is the first."""
    rows = (torch.arange(100) >= 10).long()[:, None]
    net = study.masked(rows, 40, 0.0, 3).net
    first = study.Perceptron(1, width=study.HIDDEN, generator=study.seeded(3, 14))
    assert all(map(torch.equal, net.parameters(), first.parameters()))
