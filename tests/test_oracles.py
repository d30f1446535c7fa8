"""Closed forms against scipy's densities and integrals, and tables of all outcomes."""

import functools
import math

import numpy as np
import oracles
import pytest
import torch
from scipy import integrate

from mptlml import all_masks, exact_curve, models
from mptlml.models import PPCA, BernoulliMixture, HiddenMarkovModel
from mptlml_book.linear_vae import LinearVAE, disc_rule

DRAW = dict(generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def gaussian(num_tokens, num_latents):
    weight, mean = torch.randn(num_tokens, num_latents, **DRAW), torch.randn(num_tokens, **DRAW)
    return (
        PPCA(weight, 0.3, mean),
        torch.randn(3, num_tokens, **DRAW),
        functools.partial(
            oracles.gaussian_marginal, mean.numpy(), oracles.ppca_covariance(weight.numpy(), 0.3)
        ),
    )


def mixture(*probs):
    weights = [0.5, 0.3, 0.2]
    table = oracles.bernoulli_table(weights, probs)
    model = BernoulliMixture(
        *(torch.tensor(values, dtype=torch.float64) for values in (weights, probs))
    )
    return (
        model,
        torch.tensor(list(table)).double(),
        functools.partial(oracles.table_marginal, table),
    )


def hidden_markov(num_states, vocab_size, num_tokens):
    shapes = (num_states,), (num_states, num_states), (num_states, vocab_size)
    chances = [torch.randn(shape, **DRAW).softmax(-1) for shape in shapes]
    table = oracles.sequence_table(*(chance.numpy() for chance in chances), num_tokens)
    model = HiddenMarkovModel(*chances, num_tokens)
    return (
        model,
        torch.tensor(list(table)).double()[[0, 77, 140, 242]],
        functools.partial(oracles.table_marginal, table),
    )


def density(z, weight, bias, row, tokens):
    """p(z) p(x_tokens | z) of a linear VAE, but for a factor."""
    chance = 1 / (1 + np.exp(-weight * z - bias))
    return np.where(row == 1, chance, 1 - chance)[tokens].prod() * math.exp(-z * z / 2)


def linear_vae(num_tokens):
    weight, bias = 2 * torch.randn(num_tokens, 1, **DRAW), torch.randn(num_tokens, **DRAW)

    def marginal(*given):
        given = weight.numpy()[:, 0], bias.numpy(), *given
        whole, _ = integrate.quad(density, -10, 10, given, epsabs=1e-13, limit=200)
        return math.log(whole / math.sqrt(2 * math.pi))

    return (
        LinearVAE(weight, bias, disc_rule(0.05, 8.0, 1)),
        torch.tensor([[1.0, 0, 1, 1, 0]]).double(),
        marginal,
    )


MODELS = {  # a model, some rows, and log p(x_tokens) of a row by other means
    "PPCA K=D": gaussian(2, 2),
    "PPCA": gaussian(6, 3),
    "BernoulliMixture": mixture(
        [0.9, 0.2, 0.6, 0.5], [0.1, 0.3, 0.7, 0.25], [0.5, 0.8, 0.05, 0.99]
    ),
    "HiddenMarkovModel": hidden_markov(3, 3, 5),
    "LinearVAE": linear_vae(5),
}


def test_each_model_of_the_library_has_an_oracle():
    named = {name for name in models.__all__ if hasattr(getattr(models, name), "log_prob")}
    assert named <= {type(model).__name__ for model, *_ in MODELS.values()}


@pytest.mark.parametrize("name", MODELS)
def test_marginals_conditionals_and_curves_are_those_of_an_oracle(name):
    """Every mask of every row: a conditional is the ratio of two marginals, S(x; m) a mean of them."""
    model, rows, marginal = MODELS[name]
    masks = torch.cat(
        [all_masks(model.num_tokens, size) for size in range(1, model.num_tokens + 1)]
    )
    for row in rows:
        known = functools.cache(lambda tokens, row=row: marginal(row.numpy(), list(tokens)))

        def conditional(token, seen, known=known):
            return known(tuple(sorted([*seen, token]))) - known(tuple(seen))

        assert model.log_prob(row).item() == pytest.approx(known(tuple(range(len(row)))), abs=1e-10)
        for observed in masks:
            seen, masked = (part.nonzero().flatten().tolist() for part in (observed, ~observed))
            assert model.log_prob(row, observed).item() == pytest.approx(
                known(tuple(seen)), abs=1e-10
            )
            expected = [conditional(token, seen) for token in masked]
            assert model.conditional_log_prob(row, observed)[masked].tolist() == pytest.approx(
                expected, abs=1e-10
            )
        curve = [oracles.score(conditional, len(row), size) for size in range(1, len(row) + 1)]
        assert exact_curve(model, row[None]).mean.tolist() == pytest.approx(curve, abs=1e-10)
