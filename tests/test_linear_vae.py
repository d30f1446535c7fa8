"""The linear Bernoulli VAE: its integrals against dense quadrature by hand, its rules, its bad input."""

import math

import pytest
import torch
from scipy import integrate

from mptlml import exact_curve, linear_vae
from mptlml.linear_vae import Encoder, LinearVAE, disc_rule, hermite_rule


def small(num_tokens=5, num_latents=1, rule=None):
    generator = torch.Generator().manual_seed(3)
    draw = dict(generator=generator, dtype=torch.float64)
    return LinearVAE(2 * torch.randn(num_tokens, num_latents, **draw), torch.randn(num_tokens, **draw),
                     rule or disc_rule(0.05, 8.0, num_latents))


def by_scipy(model, row, tokens):
    """log of the integral of p(x_R | z) N(z; 0, 1) over the line, K = 1."""
    def integrand(z):
        chance = (model.weight[:, 0] * z + model.bias).sigmoid()
        terms = torch.where(row == 1, chance, 1 - chance)[tokens]
        return float(terms.prod()) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return math.log(integrate.quad(integrand, -10, 10, epsabs=1e-13, limit=200)[0])


def test_marginals_and_conditionals_match_scipys_integral():
    model = small()
    row, observed = torch.tensor([1.0, 0, 1, 1, 0]).double(), torch.tensor([True, False, True, False, False])
    seen = observed.nonzero()[:, 0].tolist()
    assert model.log_prob(row).item() == pytest.approx(by_scipy(model, row, range(5)), abs=1e-10)
    assert model.log_prob(row, observed).item() == pytest.approx(by_scipy(model, row, seen), abs=1e-10)
    answer = model.conditional_log_prob(row, observed)
    for token in (1, 3, 4):
        truth = by_scipy(model, row, [*seen, token]) - by_scipy(model, row, seen)
        assert answer[token].item() == pytest.approx(truth, abs=1e-10)


def test_certain_tokens_keep_their_digits():
    """p(x_j = 0) of about e^-40, where 1 - p would be rounded to zero."""
    model = LinearVAE(torch.zeros(2, 1).double(), torch.full((2,), 40.0).double(), disc_rule(0.5, 4.0, 1))
    x = torch.zeros(2).double()
    answer = model.conditional_log_prob(x, torch.tensor([False, False]))
    torch.testing.assert_close(answer, torch.full((2,), -40.0).double(), rtol=1e-12, atol=0)


def test_even_a_coarse_rule_is_one_joint_distribution():
    model = small(rule=disc_rule(1.5, 4.0, 1))
    x = torch.tensor([[1.0, 0, 0, 1, 1], [0.0, 0, 1, 1, 0]]).double()
    assert exact_curve(model, x).area().mean == pytest.approx(model.log_prob(x).mean().item(), abs=1e-12)


@pytest.mark.parametrize("rule", [disc_rule(0.2, 5.0), hermite_rule(9)], ids=["disc", "hermite"])
def test_rules_integrate_the_moments_of_the_prior(rule):
    weights = rule.log_weights.exp()
    assert weights.sum().item() == pytest.approx(1, abs=1e-12)
    second = (weights[:, None] * rule.nodes).T @ rule.nodes
    torch.testing.assert_close(second, torch.eye(2).double(), rtol=0, atol=2e-4)


def test_a_shifted_grid_moves_and_still_sums_to_one(generator):
    first, second = (disc_rule(0.5, generator=generator) for _ in range(2))
    assert not torch.equal(first.nodes[:5], second.nodes[:5])
    assert second.log_weights.exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_scripts_rule_has_a_quarter_of_the_mass():
    assert linear_vae.scripts_rule().log_weights.exp().sum().item() == pytest.approx(0.2474, abs=5e-5)


def test_adaptive_rule_and_importance_sampling_match_the_fine_grid(generator):
    model = small(num_tokens=60, num_latents=2, rule=disc_rule(0.05, 6.0))
    x = model.sample(10, generator=generator)
    truth = model.log_prob(x)
    torch.testing.assert_close(model.adaptive_log_prob(x, per_axis=9), truth, rtol=0, atol=2e-3)
    draws = torch.randn(10, 20_000, 2, generator=generator, dtype=torch.float64)
    weights = torch.full((20_000,), -math.log(20_000)).double()
    sampled = model.around_mode(x, torch.ones_like(x, dtype=torch.bool), draws, weights)[1].logsumexp(-1)
    torch.testing.assert_close(sampled, truth, rtol=0, atol=0.02)


def test_mode_is_where_the_slope_of_the_posterior_vanishes(generator):
    model = small(num_tokens=30, num_latents=2, rule=disc_rule(0.3))
    x, observed = model.sample(6, generator=generator), torch.rand(6, 30, generator=generator) < 0.6
    z = model.mode(x, observed)[0].requires_grad_()
    logits = z @ model.weight.T + model.bias
    height = torch.where(observed, x * logits - torch.nn.functional.softplus(logits), 0.0).sum() - z.square().sum() / 2
    assert torch.autograd.grad(height, z)[0].abs().max() < 1e-5


def test_elbo_is_a_bound_and_tight_for_a_flat_decoder(generator):
    model = small(num_tokens=8, num_latents=2, rule=disc_rule(0.1, 6.0))
    x = model.sample(2000, generator=generator)
    encoder = Encoder.start(x, 2, generator=generator)
    with torch.no_grad():
        bound = encoder.elbo(model.weight, model.bias, x, generator=generator).mean()
        assert bound < model.log_prob(x).mean()
        encoder.weight.zero_()  # the prior, whatever the row: with W = 0 it is the posterior
        flat = encoder.elbo(0 * model.weight, model.bias, x, generator=generator)
    exact = LinearVAE(0 * model.weight, model.bias, disc_rule(0.5)).log_prob(x)
    torch.testing.assert_close(flat, exact, rtol=0, atol=1e-10)


BAD = {
    "grey pixels": (lambda m: m.log_prob(torch.full((5,), 0.5).double()), "tokens must be 0 or 1"),
    "wrong size": (lambda m: m.log_prob(torch.zeros(4).double()), "5 tokens"),
    "whole numbers": (lambda m: m.log_prob(torch.zeros(5, dtype=torch.long)), "floating"),
    "nodes of another K": (lambda m: LinearVAE(m.weight, m.bias, disc_rule(0.5)), "do not fit"),
    "NaN": (lambda m: LinearVAE(m.weight * math.nan, m.bias, m.rule), "NaN"),
    "no spacing": (lambda m: disc_rule(0.0), "spacing"),
    "too many nodes": (lambda m: disc_rule(0.001), "million"),
    "no nodes": (lambda m: hermite_rule(0), "per_axis"),
    "grey start": (lambda m: linear_vae.start(torch.full((3, 5), 0.5), 2, generator=torch.Generator()), "0 or 1"),
}


@pytest.mark.parametrize("call, message", BAD.values(), ids=BAD.keys())
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(small())
