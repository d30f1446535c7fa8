"""BernoulliMixture: sure tokens and many of them; its fit against slopes and a closed form."""

import math

import numpy as np
import oracles
import pytest
import torch

from mptlml.models import BernoulliMixture


def a_mixture(weights, probs):
    return BernoulliMixture(
        *(torch.tensor(values, dtype=torch.float64) for values in (weights, probs))
    )


@pytest.fixture
def x(generator):
    probs = (0.9, 0.2, 0.6, 0.5), (0.1, 0.3, 0.7, 0.25), (0.5, 0.8, 0.05, 0.99)
    return a_mixture((0.5, 0.3, 0.2), probs).sample(300, generator=generator)


def test_sure_tokens_and_many_of_them_are_exact():
    """Probabilities of 0 and 1: an impossible row has log p = -inf; and p(x) far below the least float64."""
    weights, probs = [0.25, 0.75], [[1.0, 0.0, 0.5], [0.0, 0.0, 0.25]]
    model, table = a_mixture(weights, probs), oracles.bernoulli_table(weights, probs)
    expected = [math.log(p) if p else -math.inf for p in table.values()]
    np.testing.assert_allclose(
        model.log_prob(torch.tensor(list(table)).double()), expected, atol=1e-12
    )
    model = BernoulliMixture(model.weights, torch.tensor([[0.02], [0.01]]).double().expand(2, 800))
    answer = model.conditional_log_prob(torch.ones(800).double(), torch.arange(800) < 799)
    np.testing.assert_allclose(answer, [0] * 799 + [math.log(0.02)], atol=1e-12)
    assert model.log_prob(torch.ones(800).double()).item() == pytest.approx(
        800 * math.log(0.02) + math.log(0.25)
    )


def test_em_never_falls_and_finds_a_stationary_point(x, generator):
    """With smoothing = 0 the log-likelihood rises with each step, until its gradient ends."""
    options = dict(num_steps=3000, tolerance=1e-15, smoothing=0.0, generator=generator)
    model, history = BernoulliMixture.fit(x, 2, **options)
    assert (np.diff(history) > -1e-12).all() and history[-1] - history[0] > 0.005
    assert history[-1] == pytest.approx(model.log_prob(x).mean().item(), abs=1e-12)
    logits = model.weights.log().requires_grad_()
    odds = torch.logit(model.probs.clamp(1e-9, 1 - 1e-9)).requires_grad_()
    total = BernoulliMixture(logits.softmax(0), odds.sigmoid()).log_prob(x).mean()
    for gradient in torch.autograd.grad(total, (logits, odds)):
        assert gradient.abs().max() < 1e-5
    more = BernoulliMixture.fit(
        x, 2, start=model, **options
    ).log_likelihood  # goes on where the other ended
    assert more[0] == pytest.approx(history[-1], abs=1e-12)


def test_fits_with_closed_forms(x, generator):
    """C = 1 is the smoothed frequencies, in the dtype of the rows."""
    model, history = BernoulliMixture.fit(x.float(), 1, smoothing=2.0, generator=generator)
    torch.testing.assert_close(model.probs[0], ((x.sum(0) + 1) / 302).float(), rtol=0, atol=1e-6)
    assert model.weights.tolist() == [1.0] and len(history) <= 3


def test_a_fit_without_smoothing_survives_rounding_and_a_component_without_rows(generator):
    options = dict(smoothing=0.0, generator=generator)
    start = a_mixture([0.5, 0.5], [[0.5] * 3, [1.0] * 3])
    model, _ = BernoulliMixture.fit(torch.zeros(30, 3).double(), 2, start=start, **options)
    assert model.weights.tolist() == [1, 0] and model.log_prob(torch.zeros(3).double()).item() == 0
    start = a_mixture([1 / 7] * 7, torch.linspace(0.1, 0.7, 7).double()[:, None].tolist())
    # sums of shares, rounded, of rows that are all ones: some exceed the count
    for count in range(10, 50):
        sure, _ = BernoulliMixture.fit(torch.ones(count, 1).double(), 7, start=start, **options)
        assert sure.probs == pytest.approx(1, abs=1e-14)
