"""How the linear VAE is trained: pixels that are never white, unbiased objectives, the optimum, bad input."""

import copy

import pytest
import torch
from scipy.optimize import minimize
from torch.distributions import Bernoulli, Normal, kl_divergence
from torch.nn.functional import softplus

from mptlml import mean_score, score_curve
from mptlml_book import linear_vae as study
from mptlml_book.data.images import train_and_held_out
from mptlml_book.linear_vae_model import LinearVAE
from mptlml_book.quadrature import disc_rule


@pytest.fixture(scope="module", autouse=True)
def digits():
    """Every fourth of the digits, 337 to train on and 113 held out; BinaryImages finds no others."""

    def few(name):
        *parts, images = train_and_held_out(name)
        return *(part.at(slice(None, None, 4)) for part in parts), images

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "train_and_held_out", few)
        yield study.BinaryImages("digits")


@pytest.fixture(scope="module")
def weights(digits):
    run = study.train("exact", digits, seed=0, passes=5)
    return run.weight, run.bias


def test_pixels_never_white_count_like_the_others(digits, weights):
    """The model of all pixels, its rows whole, against the model of the pixels in use and the constant."""
    assert digits.num_never == (~digits.train.any(0)).sum() > 0 and digits.rows.any(0).all()
    whole, rule = digits.model(*weights, disc_rule(0.5)), disc_rule(0.5)
    used = LinearVAE(weights[0].double(), weights[1].double(), rule).log_prob(digits.rows.double())
    torch.testing.assert_close(whole.log_prob(digits.train.double()), used + digits.constant)
    chance = (whole.logits[0].sigmoid())[~digits.used]
    assert chance.sum().item() == pytest.approx(digits.num_never * 0.5 / (len(digits.train) + 1))


def test_weights_make_up_for_the_odds_of_the_sizes(generator):
    total, calls = torch.zeros(12), 4000
    for _ in range(calls):
        sizes, weights = study.sizes_and_weights(12, 3, generator)
        total.index_add_(0, sizes - 1, weights.float() / (calls * 3))
    torch.testing.assert_close(total, torch.full((12,), 1 / 12), rtol=0.1, atol=0)


def test_masked_objective_is_the_mean_score_of_the_model_of_all_pixels(digits, weights):
    """One mask of each size, the same for all rows."""
    used, x = LinearVAE(*weights, disc_rule(0.4, 4.0)), digits.rows[:6]
    observed = study.random_masks(64, [1, 9, 64], generator=torch.Generator().manual_seed(5))
    found = study.masked_objective(used, x.unflatten(0, (3, 2)), digits, observed)
    whole, rows = (
        digits.model(*weights, disc_rule(0.4, 4.0)),
        digits.train[:6].double().unflatten(0, (3, 2)),
    )
    expected = [
        mean_score(whole, part, mask[None])[0] for part, mask in zip(rows, observed, strict=True)
    ]
    assert found.item() == pytest.approx(64 * torch.stack(expected).mean().item(), rel=1e-5)


@pytest.mark.parametrize("objective", study.OBJECTIVES)
def test_every_objective_climbs_and_can_be_left_early(digits, objective):
    before = digits.model(
        *(
            p.detach()
            for p in study.initial_parameters(
                digits.rows, 2, generator=torch.Generator().manual_seed(1)
            )
        )
    )
    run = study.train(objective, digits, seed=1, passes=10, track={"bias": lambda w, b: b.sum()})
    short = study.train(objective, digits, seed=1, passes=10, stop=2)
    assert short.history.objective == run.history.objective[: len(short.history.objective)]
    assert (run.encoder is not None) == (objective == "elbo") and not run.weight.requires_grad
    assert run.history.at == [0, len(run.history.objective) // 2, len(run.history.objective)]
    score = study.mean_lml(digits, digits.model(run.weight, run.bias))
    assert (score - study.mean_lml(digits, before) > 2).all()
    onward = study.train(objective, digits, seed=3, passes=40, stop=1, begin=(run.weight, run.bias))
    assert abs(study.mean_lml(digits, digits.model(onward.weight, onward.bias)) - score).max() < 1
    heavier = copy.copy(digits)  # objectives of whole rows count the pixels that are never white
    heavier.constant -= 100
    change = (
        short.history.objective[0]
        - study.train(objective, heavier, seed=1, passes=1).history.objective[0]
    )
    assert change == pytest.approx(100 if objective in ("exact", "elbo") else 0, abs=1e-4)


def test_training_on_a_gpu_gives_the_same_weights(digits, gpu):
    """Rows and weights on the GPU, draws on the CPU; what is tracked or returned lies on the CPU."""
    runs = []
    for device in ("cpu", gpu):
        run = study.train(
            "uniform", digits, seed=1, passes=1, device=device, track={"W": lambda w, b: 2 * w}
        )
        assert run.weight.device == run.history.tracked["W"][0].device == torch.device("cpu")
        runs.append(run)
    torch.testing.assert_close(runs[0].weight, runs[1].weight, rtol=0, atol=1e-4)


def test_the_exact_objective_ends_where_its_slope_vanishes(digits, weights):
    *optimum, steps = study.maximise(digits, *weights, spacing=0.4, num_steps=60)
    assert 10 < steps <= 60
    theta = [p.clone().requires_grad_() for p in optimum]
    LinearVAE(*theta, disc_rule(0.4, 4.5)).log_prob(digits.rows.double()).mean().backward()
    assert max(p.grad.abs().max() for p in theta) < 2e-3
    lml = [study.mean_lml(digits, digits.model(*pair))[0] for pair in (weights, optimum)]
    assert lml[1] > lml[0] + 0.05


def minus_elbo(q, row, model, rule):
    """Of a row and q, [mean, log deviation] of z, as a sum over a grid around q."""
    z = torch.tensor(q[:2]) + torch.tensor(q[2:]).exp() * rule.nodes
    logits = z @ model.weight.T + model.bias
    log_joint = (row * logits - softplus(logits)).sum(-1) - 0.5 * z.square().sum(-1)
    log_q = -0.5 * rule.nodes.square().sum(-1) - q[2:].sum()
    return -(rule.log_weights.exp() * (log_joint - log_q)).sum().item()


def test_the_best_diagonal_posterior_is_that_of_a_search(digits, weights):
    """One row at a time, by Nelder and Mead."""
    model, rule = digits.model(*weights), disc_rule(0.2, 5.0)
    found = study.best_diagonal_elbo(model, digits.train[:60].double())
    assert (found < model.log_prob(digits.train[:60].double())).all()
    for row, value in zip(digits.train[:2].double(), found, strict=False):
        best = minimize(
            minus_elbo,
            [0.0, 0.0, -1.0, -1.0],
            (row, model, rule),
            "Nelder-Mead",
            options=dict(fatol=1e-9, maxiter=2000),
        )
        assert value.item() == pytest.approx(-best.fun, abs=1e-5)


def test_the_15_per_cent_score_is_the_point_of_the_curve(digits, weights):
    """D S(x; 10) by common masks, against masks of its own for the model of all pixels."""
    found, again, other = (study.score_at_15(digits, *weights, seed=seed) for seed in (3, 3, 4))
    assert found == again != other
    curve = score_curve(
        digits.model(*weights, disc_rule(0.3)),
        digits.train[:320].double(),
        sizes=[10],
        num_masks=50,
        generator=torch.Generator().manual_seed(0),
    )
    assert found == pytest.approx(64 * curve.mean[0].item(), abs=0.6)


@pytest.mark.parametrize("objective", study.SCRIPTS)
def test_the_scripts_objectives_are_what_their_names_say(digits, objective, monkeypatch):
    """Held against sums over the sixteen nodes with torch's distributions; the first 9 of 64 pixels are hidden."""
    told = {}
    monkeypatch.setattr(
        study, "fit", lambda value, parameters, **_: told.update(value=value, parameters=parameters)
    )
    study.train_as_scripts(objective, digits, seed=4)
    monkeypatch.setattr(study, "randperm", lambda size, *_: torch.arange(size))
    monkeypatch.setattr(study, "randn", lambda shape, *_: torch.full(shape, 0.5))
    weight, bias, *encoder = told["parameters"]
    rule, x = study.scripts_rule(), digits.train
    # [N, 16, 64]
    each = Bernoulli(logits=rule.nodes.float() @ weight.T + bias).log_prob(x[:, None])
    prior, hidden, visible = rule.log_weights.float(), each[..., :9], each[..., 9:].sum(-1)
    if objective == "exact":
        expected = (prior + each.sum(-1)).logsumexp(-1)
    elif objective == "joint":
        expected = 64 / 9 * (prior + hidden.sum(-1)).logsumexp(-1)
    elif objective == "conditional":
        shares = (prior + visible).log_softmax(-1)
        expected = 64 / 9 * (shares[..., None] + hidden).logsumexp(1).sum(-1)
    else:
        q = Normal((x - bias) @ encoder[0].T, (0.5 * encoder[1]).exp().expand(len(x), 2))
        fit = Bernoulli(logits=(q.mean + 0.5 * q.stddev) @ weight.T + bias).log_prob(x).sum(-1)
        expected = fit - kl_divergence(q, Normal(0.0, 1.0)).sum(-1)
    assert told["value"]().item() == pytest.approx(expected.mean().item(), rel=1e-5)
