"""PPCA against exact fractions and scikit-learn."""

import itertools
import warnings

import numpy as np
import oracles
import pytest
import torch
from conftest import same, seeded
from scipy import stats
from sklearn.decomposition import PCA
from torch.testing import assert_close

from mptlml import draws, mean_score, memory, random_masks, score_curve
from mptlml.models import PPCA, SecondMoment
from mptlml.protocol import all_observed


def a_model(num_tokens, num_latents, noise_variance=0.3):
    generator = seeded()
    weight = draws.randn((num_tokens, num_latents), None, generator)
    return PPCA(weight, noise_variance, draws.randn((num_tokens,), None, generator))


@pytest.mark.parametrize(
    "noise_variance, digits", [(1e-8, 1e-5), (1e-4, 1e-10), (0.3, 1e-10), (100.0, 1e-10)]
)
def test_conditional_moments_are_schur_complements(noise_variance, digits, generator):
    """Eq. 7 with the minus sign, in exact fractions, for every mask; even where S_RR is nearly singular."""
    model = a_model(5, 3, noise_variance)
    x = model.sample(2, generator=generator)
    covariance = oracles.ppca_covariance(model.weight.numpy(), noise_variance)
    for seen in itertools.product([False, True], repeat=5):
        seen = torch.tensor(seen)
        masked = (~seen).nonzero().flatten().tolist()
        means, variances = model.conditional_moments(x, seen)
        for row, answer in zip(x, means, strict=True):
            mean, variance = oracles.schur(model.mean.numpy(), covariance, row.numpy(), masked)
            same(answer[masked].numpy(), mean, digits)
            same(variances[masked].numpy(), variance, 0, digits)
            assert torch.equal(answer[seen], row[seen])
        assert (variances[seen] == 0).all()


def test_a_curve_of_shared_masks_reads_the_rows_once(generator, monkeypatch):
    """It asks the model about rows to summarise them, and never again."""
    model = a_model(8, 3)
    x = model.sample(50, generator=generator)
    monkeypatch.setattr(PPCA, "conditional_log_prob", None)
    assert score_curve(model, x, generator=generator).rows is None


@pytest.mark.parametrize("num_rows, num_tokens, num_latents", [(40, 6, 2), (9, 15, 3)])
def test_fit_is_scikit_learns(num_rows, num_tokens, num_latents, generator):
    """Same principal axes and noise, once its divisor n - 1 is turned into the maximum-likelihood n."""
    x = a_model(num_tokens, 4).sample(num_rows, generator=generator)
    model = PPCA.fit(x, num_latents)
    reference = PCA(num_latents, svd_solver="full").fit(x.numpy())
    # With N <= D scikit-learn's noise is a mean over the N - K directions that rows can span, not over D - K.
    spanned = (min(num_rows, num_tokens) - num_latents) / (num_tokens - num_latents)
    divisor = (num_rows - 1) / num_rows * min(1, spanned)
    assert model.noise_variance == pytest.approx(reference.noise_variance_ * divisor)
    np.testing.assert_allclose(model.mean, reference.mean_, atol=1e-12)
    signal = reference.components_.T * (reference.explained_variance_ * (num_rows - 1) / num_rows)
    expected = signal @ reference.components_
    gram = (model.weight @ model.weight.T).numpy()
    axes = reference.components_.T @ reference.components_
    same(gram + model.noise_variance.item() * axes, expected, 1e-10)


@pytest.mark.parametrize("num_latents", [1, 2, 6])
@pytest.mark.parametrize("known_mean", [True, False])
def test_fit_with_a_known_noise_is_stationary(num_latents, known_mean, generator):
    """Eq. 15 with sigma^2 given: no slope is left in the weight, from rows or from their summary."""
    x = a_model(6, 3).sample(80, generator=generator)
    mean = torch.linspace(-1, 1, 6, dtype=torch.float64) if known_mean else None
    fitted = PPCA.fit(x, num_latents, 0.3, mean)
    assert fitted.noise_variance == 0.3 and fitted.num_latents == num_latents
    assert torch.equal(fitted.mean, mean if known_mean else x.mean(0))
    again = PPCA.fit(SecondMoment.of(x), num_latents, 0.3, fitted.mean)
    gram = fitted.weight @ fitted.weight.T
    same(again.weight @ again.weight.T, gram, 1e-12)
    weight = fitted.weight.clone().requires_grad_()
    (slope,) = torch.autograd.grad(PPCA(weight, 0.3, fitted.mean).log_prob(x).mean(), weight)
    assert slope.abs().max() < 1e-12


def moments(x):
    """The mean and the covariance of rows."""
    return SecondMoment(x.mean(0), x.T.cov(correction=0))


def whole_rows(model, x):
    """log p(x) of rows [N, D] without a difference of large numbers: x along the axes of W."""
    axes, lengths, _ = np.linalg.svd(model.weight.double().numpy())
    variances = model.noise_variance.item() + np.pad(lengths**2, (0, len(axes) - len(lengths)))
    centred = x.double().numpy() - model.mean.double().numpy()
    return stats.norm(0, np.sqrt(variances)).logpdf(centred @ axes).sum(1)


slower = pytest.mark.filterwarnings("ignore:sigma.2 is so small:RuntimeWarning")


@slower
@pytest.mark.parametrize(
    "dtype, noise_variance",
    [(torch.float32, 0.1), (torch.float32, 1e-5), (torch.float64, 1e-5), (torch.float64, 1e-10)],
)
def test_little_noise_costs_no_digits(dtype, noise_variance, generator):
    """At the size of a picture: rows and their mean, to the last digits of what the rows are held in."""
    model = PPCA(torch.randn(784, 10, generator=generator, dtype=dtype), noise_variance)
    x = model.sample(20, generator=generator)
    truth = whole_rows(model, x)
    digits = 1e-6 if dtype == torch.float32 else 1e-9
    # alone, or beside masks that hide nothing
    answers = model.log_prob(x)[None], model.log_prob(x, all_observed(784).expand(2, 1, 784))
    for answer in torch.cat(answers).double():
        same(answer, truth, 0, digits)
    assert model.mean_log_prob(x) == pytest.approx(truth.mean(), rel=digits)
    masks = random_masks(784, [1, 400, 784], generator=generator)
    mean = model.conditional_log_prob(x, masks[:, None]).double().mean(1)
    assert_close(model.mean_conditional_log_prob(x, masks).double(), mean, rtol=1e-5, atol=1e-5)


@slower
@pytest.mark.parametrize("noise_variance", [0.1, 1e-4, 1e-7])
def test_fewer_directions_than_latents_cost_no_digits(noise_variance, generator):
    """Where W_R spans fewer than K dimensions: one token, and rank 2 of K = 3."""
    model = PPCA(draws.randn((50, 10), None, generator), noise_variance)
    x = model.sample(20, generator=generator)
    scale = np.sqrt(model.weight[0].square().sum().item() + noise_variance)
    answer = model.log_prob(x, torch.arange(50) < 1)
    same(answer, stats.norm(0, scale).logpdf(x[:, 0]), 1e-6)
    wide, narrow = (draws.randn(shape, None, generator) for shape in ((300, 2), (2, 3)))
    model = PPCA(wide @ narrow, noise_variance)
    x = model.sample(20, generator=generator)
    same(model.log_prob(x), whole_rows(model, x), 1e-5)
    few = torch.arange(300)[None] < torch.tensor([[1], [2], [299]])
    means = model.conditional_log_prob(x, few[:, None]).mean(1)
    for data in (x, moments(x)):
        same(model.mean_conditional_log_prob(data, few), means, 1e-4)
        assert model.mean_log_prob(data) == pytest.approx(model.log_prob(x).mean().item(), abs=1e-4)


@slower
def test_the_slower_ways_give_the_same_answers_and_gradients(generator, monkeypatch):
    """Also in blocks, of a few masks at a time."""
    x = a_model(6, 3).sample(4, generator=generator)
    masks, found = random_masks(6, [1, 3, 5, 6], generator=generator), []
    for slow in (False, True):
        if slow:
            monkeypatch.setattr(PPCA, "_keeps_digits", lambda *given: False)
        weight = a_model(6, 3).weight.requires_grad_()
        model = PPCA(weight, 0.3)
        for data in (x, moments(x)):
            answers = [
                model.log_prob(x, masks[:, None]),
                model.mean_log_prob(data),
                model.mean_conditional_log_prob(data, masks),
            ]
            if slow:
                with memory.limit(10):  # one mask at a time
                    answers[2] = model.mean_conditional_log_prob(data, masks)
            every = torch.cat([answer.flatten() for answer in answers])
            value = every @ torch.arange(len(every)).double().cos()
            found.append([*answers, *torch.autograd.grad(value, weight)])
    for other in found[1:]:
        same(other, found[0], 1e-10)


def test_a_slower_way_is_told_once_and_a_fast_one_not(generator):
    masks = random_masks(50, [1, 25], generator=generator)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for noise_variance, count in ((1e-2, 0), (1e-12, 1)):
            model = a_model(50, 3, noise_variance)
            x = model.sample(4, generator=generator)
            for _ in range(2):
                model.mean_conditional_log_prob(x, masks)
                model.mean_log_prob(x)
            assert [each.category for each in told] == count * [RuntimeWarning]
    assert "row by row" in str(told[0].message)


def test_parameters_that_are_changed_later_count_and_are_checked(generator):
    """Steps of an optimiser change them in place."""
    weight, x = (torch.randn(shape, generator=generator) for shape in ((6, 2), (50, 6)))
    model = PPCA(weight, 1.0)
    before = model.log_prob(x)
    weight.mul_(0.5)
    model.noise_variance = 0.5
    assert torch.equal(model.log_prob(x), PPCA(weight, 0.5).log_prob(x))
    assert not torch.equal(model.log_prob(x), before)
    for noise in (-0.5, torch.tensor(float("nan"))):
        model.noise_variance = noise
        with pytest.raises(ValueError, match="is too small"):
            model.log_prob(x)


@pytest.mark.parametrize("name", ["log_prob", "conditional_log_prob"])
def test_half_precision_is_for_holding_numbers(name, generator):
    """Answers are those of the rounded numbers, rounded once."""
    short = PPCA(torch.randn(9, 2, generator=generator).half(), 0.5)
    long = PPCA(short.weight.double(), 0.5)
    x, observed = short.sample(3, generator=generator), random_masks(9, [4], generator=generator)
    answer = getattr(long, name)(x.double(), observed)
    assert torch.equal(getattr(short, name)(x, observed), answer.half())
    assert mean_score(short, x, observed).dtype == torch.float32  # what is to be summed


def test_two_rows_span_no_more_than_two_dimensions():
    fitted = PPCA.fit(torch.tensor([[3, 1, 0], [0, 4, 1]]), 3, 0.01, torch.zeros(3))
    assert fitted.weight.shape == (3, 3) and torch.linalg.matrix_rank(fitted.weight) == 2


def test_a_covariance_lost_to_rounding_is_a_named_error():
    """float64 cannot hold sigma^2 = 1e-18 beside W^T W of order 1: no silent jitter."""
    model, observed = PPCA(torch.ones(4, 2), 1e-18), torch.tensor([[True, True, True, False]])
    named = r"singular to rounding in torch.float64 for 1 masks: sigma\^2 = 1e-18"
    with pytest.raises(ValueError, match=named):
        model.log_prob(torch.zeros(4))
    with pytest.raises(ValueError, match=named):
        mean_score(model, torch.zeros(2, 4), observed)
