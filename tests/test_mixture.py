"""BernoulliMixture: sure tokens and many of them; its fit against slopes and a closed form."""

import math

import numpy as np
import oracles
import pytest
import torch

from mptlml.models import BernoulliMixture


def a_mixture(weights=(0.5, 0.3, 0.2), probs=((0.9, 0.2, 0.6, 0.5), (0.1, 0.3, 0.7, 0.25), (0.5, 0.8, 0.05, 0.99))):
    return BernoulliMixture(*(torch.tensor(values, dtype=torch.float64) for values in (weights, probs)))


def test_sure_tokens_and_many_of_them_are_exact():
    """Probabilities of 0 and 1: an impossible row has log p = -inf; and p(x) far below the least float64."""
    weights, probs = [0.25, 0.75], [[1.0, 0.0, 0.5], [0.0, 0.0, 0.25]]
    model, table = a_mixture(weights, probs), oracles.bernoulli_table(weights, probs)
    expected = [math.log(p) if p else -math.inf for p in table.values()]
    np.testing.assert_allclose(model.log_prob(torch.tensor(list(table)).double()), expected, atol=1e-12)
    model = BernoulliMixture(model.weights, torch.tensor([[0.02], [0.01]]).double().expand(2, 800))
    answer = model.conditional_log_prob(torch.ones(800).double(), torch.arange(800) < 799)
    np.testing.assert_allclose(answer, [0] * 799 + [math.log(0.02)], atol=1e-12)
    assert model.log_prob(torch.ones(800).double()).item() == pytest.approx(800 * math.log(0.02) + math.log(0.25))


def test_em_never_falls_and_finds_a_stationary_point(generator):
    """With smoothing = 0 each step is one of expectation maximisation: the log-likelihood rises, its gradient ends."""
    x = a_mixture().sample(300, generator=generator)
    model, history = BernoulliMixture.fit(x, 2, num_steps=3000, tolerance=1e-15, smoothing=0.0, generator=generator)
    assert (np.diff(history) > -1e-12).all() and history[-1] - history[0] > 0.005
    assert history[-1] == pytest.approx(model.log_prob(x).mean().item(), abs=1e-12)
    logits = model.weights.log().requires_grad_()
    odds = torch.logit(model.probs.clamp(1e-9, 1 - 1e-9)).requires_grad_()
    total = BernoulliMixture(logits.softmax(0), odds.sigmoid()).log_prob(x).mean()
    for gradient in torch.autograd.grad(total, (logits, odds)):
        assert gradient.abs().max() < 1e-5


def test_fits_with_closed_forms(generator):
    """C = 1 is the smoothed frequencies, in the dtype of the rows; without smoothing a sure token stays sure."""
    x = a_mixture().sample(50, generator=generator).float()
    model, history = BernoulliMixture.fit(x, 1, smoothing=2.0, generator=generator)
    torch.testing.assert_close(model.probs[0], (x.sum(0) + 1) / 52, rtol=0, atol=1e-6)
    assert model.weights.tolist() == [1.0] and len(history) <= 3 and model.probs.dtype == torch.float32
    ones = torch.ones(20, 3, dtype=torch.float64)
    assert (BernoulliMixture.fit(ones, 1, smoothing=0.0, generator=generator)[0].probs == 1).all()


def test_a_fit_goes_on_from_where_another_ended(generator, elsewhere):
    x = a_mixture().sample(100, generator=generator)
    first, climb = BernoulliMixture.fit(x, 2, num_steps=5, tolerance=0, smoothing=0.0, generator=generator)
    more = BernoulliMixture.fit(x, 2, num_steps=8, tolerance=0, smoothing=0.0, start=first, generator=generator)[1]
    assert more[0] == pytest.approx(first.log_prob(x).mean().item(), abs=1e-12) and more[0] >= climb[-1]
    with elsewhere:
        assert BernoulliMixture.fit(elsewhere.away(x), 2, generator=generator)[0].probs.device == elsewhere.DEVICE
    with pytest.raises(ValueError, match="a start must have 3 components of 4 tokens"):
        BernoulliMixture.fit(x, 3, start=first, generator=generator)


def test_a_fit_without_smoothing_survives_rounding_and_a_component_without_rows(generator):
    x = torch.zeros(30, 3, dtype=torch.float64)
    start = BernoulliMixture(torch.tensor([0.5, 0.5]).double(), torch.tensor([[0.5] * 3, [1.0] * 3]).double())
    model, _ = BernoulliMixture.fit(x, 2, smoothing=0.0, start=start, generator=generator)
    assert model.weights.tolist() == [1, 0] and model.log_prob(x[0]).item() == 0
    start = BernoulliMixture(torch.full((7,), 1 / 7).double(), torch.linspace(0.1, 0.7, 7).double()[:, None])
    for count in range(10, 50):  # sums of shares, rounded, of rows that are all ones: some exceed the count
        ones = torch.ones(count, 1, dtype=torch.float64)
        sure, _ = BernoulliMixture.fit(ones, 7, smoothing=0.0, start=start, generator=generator)
        assert sure.probs == pytest.approx(1, abs=1e-14)
