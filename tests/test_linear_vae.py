"""The linear Bernoulli VAE: its sums and rules, its training, the optimum, the scripts' way."""

from dataclasses import replace

import pytest
import torch
from conftest import same, seeded
from torch.distributions import Bernoulli
from torch.nn.functional import softplus

from mptlml import draws, fit, mean_score, random_masks, score_curve
from mptlml_book import linear_vae as study
from mptlml_book.data.images import train_and_held_out
from mptlml_book.linear_vae import LinearVAE, NaturalGradient, disc_rule


def small(num_tokens=5, num_latents=1, rule=None):
    weight = 2 * draws.randn((num_tokens, num_latents), None, seeded(3))
    bias = draws.randn((num_tokens,), None, seeded(4))
    return LinearVAE(weight, bias, rule or disc_rule(0.05, 8.0, num_latents))


def bits(*shape):
    return torch.randint(2, shape, generator=seeded(5)).double()


def test_information_is_the_expected_curvature_of_the_complete_log_likelihood(generator):
    """Against second derivatives of log p(x | z) at draws of z; x drops out of them."""
    model = small(num_tokens=3, num_latents=2)
    z = draws.randn((20_000, 2), None, generator)

    def complete(flat):
        logits = z @ flat.view(3, 3)[:, :2].T + flat.view(3, 3)[:, 2]
        return (logits[:, [0, 2]].sum(-1) - softplus(logits).sum(-1)).mean()

    flat = torch.cat([model.weight, model.bias[:, None]], 1).flatten()
    hessian = -torch.autograd.functional.hessian(complete, flat).view(3, 3, 3, 3)
    blocks = torch.stack([hessian[j, :, j] for j in range(3)])
    same(study.information(model.weight, model.bias), blocks, 0.01)


def test_natural_gradient_is_newtons_step_where_pixels_are_independent(generator):
    """With W = 0 it stays 0, and each bias finds the log odds of its pixel in some steps, rare or not."""
    x = (torch.rand(400, 3, generator=generator) < torch.tensor([0.02, 0.4, 0.9])).double()
    weight = torch.zeros(3, 2).double().requires_grad_()
    bias = x.mean(0).mul(0.8).logit().requires_grad_()
    likelihood = lambda: LinearVAE(weight, bias, disc_rule(0.5)).log_prob(x).mean()  # noqa: E731
    fit(likelihood, [weight, bias], num_steps=30, learning_rate=1.0, optimiser=NaturalGradient)
    same(bias.detach(), x.mean(0).logit(), 1e-9)
    assert weight.abs().max() < 1e-9


def test_certain_tokens_keep_their_digits():
    """p(x_j = 0) of about e^-40, where 1 - p would be rounded to zero."""
    zeros = torch.zeros(2).double()
    model = LinearVAE(zeros[:, None], zeros + 40, disc_rule(0.5, 4.0, 1))
    answer = model.conditional_log_prob(zeros, torch.tensor([False, False]))
    same(answer, zeros - 40, 0, 1e-12)


def test_a_shifted_grid_moves_within_a_cell_and_still_sums_to_one(generator):
    rules = [disc_rule(0.5, 2.0, 1, generator=generator) for _ in range(20)]
    lows = torch.stack([rule.nodes.min() for rule in rules])
    assert -2 <= lows.min() < lows.max() < -1.5 and lows.std() > 0.05
    assert rules[0].log_weights.exp().sum() == pytest.approx(1, abs=1e-12)


def test_elbo_is_a_bound_and_tight_for_a_flat_decoder(generator):
    model, x = small(num_tokens=8, num_latents=2, rule=disc_rule(0.2)), bits(2000, 8)
    prior = lambda x: (torch.zeros(2000, 2).double(),) * 2  # noqa: E731
    bound = study.elbo(prior, model.weight, model.bias, x, generator).mean()
    assert bound < model.log_prob(x).mean()
    flat = study.elbo(prior, 0 * model.weight, model.bias, x, generator)
    exact = LinearVAE(0 * model.weight, model.bias, disc_rule(0.5)).log_prob(x)
    same(flat, exact, 1e-10)


@pytest.fixture(scope="module", autouse=True)
def digits():
    """Every fourth of the digits, 337 to train on and 113 held out; BinaryImages finds no others."""

    def few(name):
        return tuple(replace(part, pixels=part.pixels[::4]) for part in train_and_held_out(name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "train_and_held_out", few)
        patch.setattr(study, "MASKS", 16)
        yield study.BinaryImages("digits")


@pytest.fixture(scope="module")
def weights(digits):
    run = study.train("exact", digits, seed=0, passes=5)
    return run.weight, run.bias


def test_pixels_never_white_count_like_the_others(digits, weights):
    """The model of all pixels, its rows whole, against the model of the pixels in use and the constant."""
    never = ~digits.train.any(0)
    assert never.sum() > 0 and digits.rows.any(0).all()
    whole, rule = digits.model(*weights, disc_rule(0.5)), disc_rule(0.5)
    used = LinearVAE(*(part.double() for part in weights), rule).log_prob(digits.rows.double())
    same(whole.log_prob(digits.train.double()), used + digits.constant)
    chance = whole.logits[0].sigmoid()[never].mean().item()
    assert chance == pytest.approx(0.5 / (len(digits.train) + 1))


def test_weights_make_up_for_the_odds_of_the_sizes(generator):
    total, calls = torch.zeros(12), 4000
    for _ in range(calls):
        sizes, weights = study.sizes_and_weights(12, 3, generator)
        total.index_add_(0, sizes - 1, weights.float() / (calls * 3))
    same(total, torch.full((12,), 1 / 12), 0, 0.1)


def test_masked_objective_is_the_mean_score_of_the_model_of_all_pixels(digits, weights):
    """One mask of each size, the same for all rows; and the score at 15%, a point of the curve."""
    used, whole = LinearVAE(*weights, disc_rule(0.4)), digits.model(*weights, disc_rule(0.4))
    observed, rows = random_masks(64, [1, 9, 64], generator=seeded(5)), digits.train.double()
    found = study.masked_objective(used, digits.rows[:6], digits, observed)
    pairs = zip(rows[:6].split(2), observed, strict=True)
    scores = torch.cat([mean_score(whole, part, mask[None]) for part, mask in pairs])
    assert found.item() == pytest.approx(64 * scores.mean().item(), rel=1e-5)
    curve = score_curve(whole, rows, sizes=[10], num_masks=50, generator=seeded())
    at_15 = study.score_at_15(digits, *weights, seed=3)
    assert at_15 == pytest.approx(64 * curve.mean[0].item(), abs=0.6)


@pytest.mark.parametrize("objective", study.OBJECTIVES)
def test_every_objective_climbs_and_can_be_left_early(digits, objective):
    short, run = (study.train(objective, digits, seed=1, passes=10, stop=k) for k in (2, 10))
    first, last = (study.parts(digits, digits.model(*each[:2]).log_prob) for each in (short, run))
    assert last["train"] > first["train"] + 0.3
    assert short.history.objective == run.history.objective[: len(short.history.objective)]


def test_an_encoder_is_made_of_linear_layers_with_relu_between(digits):
    """Held against torch's own, scaled by the root of the number of inputs."""
    layers = study.initial_layers(digits.rows, (5, 7), seeded())
    y = digits.rows - 0.5
    for k, weight in enumerate(layers[0]):
        y = torch.nn.functional.linear(y.relu() if k else y, weight / weight.shape[1] ** 0.5)
    same(torch.cat(study.layered(*layers, torch.tensor(0.5), digits.rows), 1), y, 1e-5)


def test_the_exact_objective_ends_where_its_slope_vanishes(digits, weights):
    *optimum, steps = study.maximise(digits, *weights, spacing=0.4, num_steps=60)
    assert 10 < steps <= 60
    theta = [p.clone().requires_grad_() for p in optimum]
    LinearVAE(*theta, disc_rule(0.4)).log_prob(digits.rows.double()).mean().backward()
    assert max(p.grad.abs().max() for p in theta) < 2e-3


@pytest.mark.parametrize("objective", ["exact", "joint", "conditional"])
def test_the_scripts_objectives_are_what_their_names_say(digits, objective, monkeypatch):
    """Held against sums over the sixteen nodes with torch's Bernoulli; the first 9 of 64 pixels are hidden."""
    told = []
    monkeypatch.setattr(study, "fit", lambda *given, **_: told.extend(given))
    next(study.scripts_runs("digits", "4 × 4", objective, 4))
    value, (weight, bias) = told
    monkeypatch.setattr(study, "randperm", lambda size, **_: torch.arange(size))
    rule = study.scripts_rule()
    # [N, 16, 64]
    each = Bernoulli(logits=rule.nodes.float() @ weight.T + bias).log_prob(digits.train[:, None])
    shares, hidden = rule.log_weights.float(), each[..., :9].sum(-1)
    if objective == "exact":
        expected = (shares + each.sum(-1)).logsumexp(-1)
    elif objective == "joint":
        expected = 64 / 9 * (shares + hidden).logsumexp(-1)
    else:
        shares = (shares + each[..., 9:].sum(-1)).log_softmax(-1)[..., None]
        expected = 64 / 9 * (shares + each[..., :9]).logsumexp(1).sum(-1)
    assert value().item() == pytest.approx(expected.mean().item(), rel=1e-5)
