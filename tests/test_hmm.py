"""HiddenMarkovModel: every word's answer, long rows against sums in log space, entropy, impossible rows."""

import math

import numpy as np
import oracles
import pytest
import torch
from scipy.special import logsumexp

from mptlml.models import HiddenMarkovModel


def random_hmm(num_states, vocab_size, num_tokens, seed=3):
    generator = torch.Generator().manual_seed(seed)
    initial, transition, emission = (
        torch.randn(shape, generator=generator, dtype=torch.float64).softmax(-1)
        for shape in ((num_states,), (num_states, num_states), (num_states, vocab_size)))
    return HiddenMarkovModel(initial, transition, emission, num_tokens)


def in_log_space(model, row, observed):
    """log p(x_R) of one row by sums over states in log space, from the last token to the first."""
    initial, transition, emission = (p.log().numpy() for p in (model.initial, model.transition, model.emission))
    after = np.zeros(len(initial))
    for t in reversed(range(model.num_tokens)):
        here = after + (emission[:, int(row[t])] if observed[t] else 0)
        after = logsumexp(transition + here, axis=1)
    return logsumexp(initial + here)


def test_every_word_is_answered_for(generator):
    """The answer for the word that stands at a token is the token's own, which is 0 where it is observed."""
    model = random_hmm(3, 4, 5)
    x, observed = model.sample(3, generator=generator), torch.rand(50, 1, 5, generator=generator) < 0.5
    picked = model.vocabulary_log_prob(x, observed).gather(-1, x.expand(50, 3, 5)[..., None]).squeeze(-1)
    torch.testing.assert_close(picked, model.conditional_log_prob(x, observed))


def test_long_rows_do_not_underflow(generator):
    """700 tokens, a third of them hidden: the products that log space replaces would be below 10^-800, both ways."""
    model = random_hmm(3, 50, 700)
    row, observed = model.sample(1, generator=generator)[0], torch.rand(700, generator=generator) < 2 / 3
    whole = in_log_space(model, row, observed)
    assert whole < -1500 and model.log_prob(row, observed).item() == pytest.approx(whole, abs=1e-9)
    answer = model.conditional_log_prob(row, observed)
    for token in (~observed).nonzero().flatten()[::29].tolist():
        asked = observed | (torch.arange(700) == token)
        assert answer[token].item() == pytest.approx(in_log_space(model, row, asked) - whole, abs=1e-9)


def test_entropy_is_the_mean_cost_of_a_row(generator):
    model = random_hmm(3, 3, 5)
    table = oracles.sequence_table(*(p.numpy() for p in (model.initial, model.transition, model.emission)), 5)
    exact = -sum(p * math.log(p) for p in table.values())
    estimate = model.entropy(4000, generator=generator)
    assert estimate.stderr < 0.05 and estimate.dof == 3999
    assert abs(estimate.mean - exact) < 4 * estimate.stderr


def test_impossible_rows_have_probability_zero():
    sure = HiddenMarkovModel(torch.tensor([1.0, 0]), torch.tensor([[0.0, 1], [1, 0]]), torch.eye(2), 4)
    x = torch.tensor([[0.0, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 0]])
    assert sure.log_prob(x).tolist() == [0.0, -math.inf, -math.inf]
    answer = sure.conditional_log_prob(x, torch.tensor([True, True, False, True]))
    assert answer[:2, 2].tolist() == [0.0, -math.inf] and torch.isnan(answer[2, 2])  # given what cannot be
