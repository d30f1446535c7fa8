"""The linear Bernoulli VAE: its sums, its rules, its peaks, how it is trained."""

import itertools
import math
from functools import partial

import pytest
import torch
from conftest import same, seeded

from mptlml import draws, fit, memory
from mptlml_book import linear_vae as study
from mptlml_book.linear_vae import Encoder, NaturalGradient
from mptlml_book.linear_vae_model import LinearVAE
from mptlml_book.numerics import climb
from mptlml_book.quadrature import disc_rule, hermite_rule


def small(num_tokens=5, num_latents=1, rule=None):
    generator = seeded(3)
    weight = 2 * draws.randn((num_tokens, num_latents), None, generator)
    bias = draws.randn((num_tokens,), None, generator)
    return LinearVAE(weight, bias, rule or disc_rule(0.05, 8.0, num_latents))


def complete_log_likelihood(z, flat):
    """The mean over z [S, 2] of log p(x | z) for a row 1, 0, 1 and parameters [9]."""
    theta = flat.view(3, 3)
    logits = z @ theta[:, :2].T + theta[:, 2]
    return (logits[:, [0, 2]].sum(-1) - torch.nn.functional.softplus(logits).sum(-1)).mean()


def test_information_is_the_expected_curvature_of_the_complete_log_likelihood(generator):
    """Against second derivatives of log p(x | z) at draws of z; x drops out of them."""
    model = small(num_tokens=3, num_latents=2, rule=disc_rule(0.1, 6.0))
    z = draws.randn((40_000, 2), None, generator)
    flat = torch.cat([model.weight, model.bias[:, None]], 1).flatten()
    height = partial(complete_log_likelihood, z)
    hessian = -torch.autograd.functional.hessian(height, flat).view(3, 3, 3, 3)
    blocks = torch.stack([hessian[j, :, j] for j in range(3)])
    same(study.information(model), blocks, 0.01)


def test_natural_gradient_is_newtons_step_where_pixels_are_independent(generator):
    """With W = 0 it stays 0, and each bias finds the log odds of its pixel in a few steps, rare or not."""
    x = (torch.rand(400, 3, generator=generator) < torch.tensor([0.02, 0.4, 0.9])).double()
    weight = torch.zeros(3, 2).double().requires_grad_()
    bias = x.mean(0).mul(0.8).logit().requires_grad_()
    likelihood = lambda: LinearVAE(weight, bias, disc_rule(0.5)).log_prob(x).mean()  # noqa: E731
    newton = dict(learning_rate=1.0, optimiser=partial(NaturalGradient, damping=0.0))
    fit(likelihood, [weight, bias], num_steps=8, **newton)
    same(bias.detach(), x.mean(0).logit(), 1e-9)
    before = bias.detach().clone()
    weight.grad, bias.grad = torch.zeros_like(weight), 1e6 * torch.ones_like(bias)
    NaturalGradient([weight, bias], lr=0.1, maximize=True).step()  # no pixel further than 1
    same(bias.detach(), before + 1)
    assert weight.abs().max() < 1e-9


def test_an_observed_token_of_no_probability_leaves_gradients_of_the_others(generator):
    bias = torch.tensor([-800, 0.3, 0]).double().requires_grad_()
    model = LinearVAE(draws.randn((3, 1), None, generator), bias, disc_rule(0.5, 4.0, 1))
    x, observed = torch.tensor([0, 1, 0]).double(), torch.tensor([True, True, False])
    model.conditional_log_prob(x, observed).sum().backward()
    assert bias.grad.isfinite().all() and bias.grad[2] != 0


def test_certain_tokens_keep_their_digits():
    """p(x_j = 0) of about e^-40, where 1 - p would be rounded to zero."""
    zeros = torch.zeros(2).double()
    model = LinearVAE(zeros[:, None], zeros + 40, disc_rule(0.5, 4.0, 1))
    answer = model.conditional_log_prob(zeros, torch.tensor([False, False]))
    same(answer, zeros - 40, 0, 1e-12)


@pytest.mark.parametrize("rule", [disc_rule(0.2, 5.0), hermite_rule(9), hermite_rule(400, 1)])
def test_rules_integrate_the_moments_of_the_prior(rule):
    """Also hundreds of nodes per axis, where simpler ways overflow."""
    weights = rule.log_weights.exp()
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    second = (weights[:, None] * rule.nodes).T @ rule.nodes
    same(second, torch.eye(len(second)).double(), 2e-4)


def test_a_shifted_grid_moves_within_a_cell_and_still_sums_to_one(generator):
    rules = [disc_rule(0.5, generator=generator) for _ in range(20)]
    centres = torch.stack([rule.nodes.norm(dim=-1).min() for rule in rules])
    assert centres.max() <= 0.5 / math.sqrt(2) and centres.std() > 0.05
    for _ in range(20):
        low, high = disc_rule(0.5, 2.0, 1, generator=generator).nodes.aminmax()
        # within the ball, up to a cell from its ends
        assert -2 <= low < -1.5 + 1e-9 and 1.5 - 1e-9 < high <= 2
    assert rules[0].log_weights.exp().sum() == pytest.approx(1, abs=1e-12)
    assert study.scripts_rule().log_weights.exp().sum() == pytest.approx(0.2474, abs=5e-5)


def test_a_climb_goes_up_or_stays():
    """-log cosh z, where Newton's own steps diverge from |z| > 1.09; and slopes of the wrong sign."""

    def height(z):
        return -z.cosh().log().sum(-1)

    def slope_and_precision(z, sign=1):
        return -sign * z.tanh(), z.cosh().pow(-2)[..., None]

    start = torch.tensor([[0.5], [1.5], [-3.0]]).double()
    ways = partial(climb, height, slope_and_precision, start, tolerance=1e-9)
    same(ways(num_steps=30), torch.zeros_like(start), 1e-8)
    heights = [height(ways(num_steps=n)) for n in range(8)]
    assert all((later >= sooner).all() for sooner, later in itertools.pairwise(heights))
    options = dict(num_steps=9, tolerance=1e-9)
    down = partial(slope_and_precision, sign=-1)
    assert torch.equal(climb(height, down, start, **options), start)
    holed = lambda z: height(z).where(z[:, 0] > 0.2, math.nan)  # noqa: E731
    cut = climb(holed, slope_and_precision, start, **options)
    # it stays where the height is a number
    assert (cut[:2] > 0.2).all() and torch.equal(cut[2], start[2])
    assert climb(height, slope_and_precision, start[:0], **options).shape == (0, 1)


def test_around_each_rows_peak_few_nodes_or_many_draws_do(generator):
    """Against the fine grid: whole rows and parts, masks of one, each and every row, in short blocks."""
    model = small(num_tokens=60, num_latents=2, rule=disc_rule(0.05, 6.0))
    x = model.sample(9, generator=generator)
    observed = torch.rand(9, 60, generator=generator) < 0.7
    every, one = (x, observed[0]), (x[0], observed[0])
    for rows, masks in ((x, None), (x, observed), every, (x, observed[:2, None]), one):
        with memory.limit(7 * 9**2 * 60):  # seven rows at a time
            found = model.adaptive_log_prob(rows, masks, per_axis=9)
        same(found, model.log_prob(rows, masks), 5e-3)
    z = draws.randn((9, 20_000, 2), None, generator)
    weights = torch.full((20_000,), -math.log(20_000)).double()
    sampled = model.around_mode(x, observed, z, weights).log_weights.logsumexp(-1)
    same(sampled, model.log_prob(x, observed), 0.02)


def test_the_mode_is_a_peak_in_single_precision_too(generator):
    """The slope of log p(z | x_R) vanishes there."""
    model = small(num_tokens=200, num_latents=2, rule=disc_rule(0.3))
    x = model.sample(50, generator=generator)
    observed = torch.rand(50, 200, generator=generator) < 0.6
    single = LinearVAE(model.weight.float(), model.bias.float(), model.rule)
    z = model.mode(x, observed)[0]
    same(single.mode(x.float(), observed)[0].double(), z, 1e-4)
    z.requires_grad_()
    logits = z @ model.weight.T + model.bias
    seen = (x * logits - torch.nn.functional.softplus(logits))[observed].sum()
    height = seen - z.square().sum() / 2
    assert torch.autograd.grad(height, z)[0].abs().max() < 1e-5


def test_elbo_is_a_bound_and_tight_for_a_flat_decoder(generator):
    model = small(num_tokens=8, num_latents=2, rule=disc_rule(0.1, 6.0))
    x = model.sample(2000, generator=generator)
    encoder = Encoder.initial(x, 2, generator=generator)
    with torch.no_grad():
        bound = encoder.elbo(model.weight, model.bias, x, generator=generator).mean()
        assert bound < model.log_prob(x).mean()
        encoder.weight.zero_()  # the prior, whatever the row: with W = 0 it is the posterior
        flat = encoder.elbo(0 * model.weight, model.bias, x, generator=generator)
    exact = LinearVAE(0 * model.weight, model.bias, disc_rule(0.5)).log_prob(x)
    same(flat, exact, 1e-10)
