"""PPCA against exact fractions and scikit-learn."""

import itertools

import numpy as np
import oracles
import pytest
import torch
from conftest import same, seeded
from scipy import stats
from sklearn.decomposition import PCA

from mptlml import draws, memory, random_masks, score_curve
from mptlml.models import PPCA, SecondMoment


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


@pytest.mark.parametrize("num_latents, known_mean", [(1, True), (2, False), (6, False)])
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


def whole_rows(model, x):
    """log p(x) of rows [N, D] without a difference of large numbers: x along the axes of W."""
    axes, lengths, _ = np.linalg.svd(model.weight.double().numpy())
    variances = model.noise_variance.item() + np.pad(lengths**2, (0, len(axes) - len(lengths)))
    centred = x.double().numpy() - model.mean.double().numpy()
    return stats.norm(0, np.sqrt(variances)).logpdf(centred @ axes).sum(1)


@pytest.mark.parametrize(
    "dtype, noise_variance, digits",
    [(torch.float32, 0.1, 1e-6), (torch.float32, 1e-5, 1e-6), (torch.float64, 1e-10, 1e-9)],
)
def test_little_noise_costs_rows_no_digits(dtype, noise_variance, digits, generator):
    """At the size of a picture, alone or beside masks that hide nothing; and where W spans 2 of K = 3 dimensions."""
    model = PPCA(torch.randn(784, 10, generator=generator, dtype=dtype), noise_variance)
    x = model.sample(20, generator=generator)
    for observed in (None, torch.ones(2, 1, 784, dtype=torch.bool)):
        answer = model.log_prob(x, observed).double()
        same(answer, torch.as_tensor(whole_rows(model, x)).expand_as(answer), 0, digits)
    wide, narrow = (draws.randn(shape, None, generator) for shape in ((300, 2), (2, 3)))
    flat = PPCA(wide @ narrow, max(noise_variance, 1e-7))
    x = flat.sample(20, generator=generator)
    same(flat.log_prob(x), whole_rows(flat, x), 1e-5)


@pytest.mark.parametrize("noise_variance", [0.1, 1e-3, 1e-5, 1e-9])
def test_means_over_rows_keep_their_digits_or_are_refused(noise_variance, generator):
    """From rows and from their summary, also a few masks at a time: never silently wrong."""
    for dtype, digits in ((torch.float32, 1e-5), (torch.float64, 1e-6)):
        model = PPCA(torch.randn(100, 3, generator=generator, dtype=dtype), noise_variance)
        x, masks = (
            model.sample(9, generator=generator),
            random_masks(100, [1, 40, 100], generator=generator),
        )
        mean = model.conditional_log_prob(x, masks[:, None]).mean(1)
        for data in (x, model.summarise(x)):
            try:
                with memory.limit(300):
                    same(model.mean_conditional_log_prob(data, masks), mean, digits, digits)
                same(model.mean_log_prob(data), model.log_prob(x).mean(), digits, digits)
            except ValueError as error:
                assert noise_variance < 1e-4 and "average each row's answer" in str(error)
            else:
                assert noise_variance > 1e-9


def test_two_rows_span_no_more_than_two_dimensions():
    fitted = PPCA.fit(torch.tensor([[3.0, 1, 0], [0, 4, 1]]), 3, 0.01, torch.zeros(3))
    assert fitted.weight.shape == (3, 3) and torch.linalg.matrix_rank(fitted.weight) == 2


def test_a_covariance_lost_to_rounding_is_a_named_error():
    """float64 cannot hold sigma^2 = 1e-18 beside W^T W of order 1: no silent jitter."""
    model, observed = PPCA(torch.ones(4, 2), 1e-18), torch.tensor([[True, True, True, False]])
    for answer in (model.log_prob, model.conditional_log_prob, model.mean_conditional_log_prob):
        with pytest.raises(ValueError, match=r"sigma\^2 = 1e-18 is too small under 1 masks"):
            answer(torch.zeros(2, 4), observed)
