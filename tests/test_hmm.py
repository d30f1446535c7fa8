"""HiddenMarkovModel: long rows against sums in log space, entropy, impossible rows."""

import math

import oracles
import pytest
import torch
from conftest import seeded

from mptlml.models import HiddenMarkovModel


def random_hmm(num_states, vocab_size, num_tokens):
    draw = dict(generator=seeded(3), dtype=torch.float64)
    shapes = (num_states,), (num_states, num_states), (num_states, vocab_size)
    return HiddenMarkovModel(
        *(torch.randn(shape, **draw).softmax(-1) for shape in shapes), num_tokens
    )


def in_log_space(model, row, seen):
    """log p(x_R) by sums over states, from the last token to the first."""
    here = after = torch.zeros(3).double()
    for token, is_seen in zip(row.flip(0), seen.flip(0), strict=True):
        here = after + model.emission[:, token].log() * is_seen
        after = (model.transition.log() + here).logsumexp(1)
    return (model.initial.log() + here).logsumexp(0).item()


def test_long_rows_do_not_underflow(generator):
    """700 tokens, a third of them hidden: products that log space replaces would be below 10^-800."""
    model = random_hmm(3, 50, 700)
    row = model.sample(1, generator=generator)[0]
    observed = torch.rand(700, generator=generator) < 2 / 3
    whole, answer = in_log_space(model, row, observed), model.conditional_log_prob(row, observed)
    assert whole < -1500 and model.log_prob(row, observed) == pytest.approx(whole, abs=1e-9)
    for token in (~observed).nonzero().flatten()[::60].tolist():
        both = in_log_space(model, row, observed | (torch.arange(700) == token))
        assert answer[token] == pytest.approx(both - whole, abs=1e-9)


def test_entropy_is_the_mean_cost_of_a_row(generator):
    model = random_hmm(3, 3, 5)
    chances = model.initial, model.transition, model.emission
    table = oracles.sequence_table(*(chance.numpy() for chance in chances), 5)
    exact = -sum(p * math.log(p) for p in table.values())
    estimate = model.entropy(4000, generator=generator)
    assert estimate.stderr < 0.05
    assert estimate.dof == 3999
    assert abs(estimate.mean - exact) < 4 * estimate.stderr


def test_impossible_rows_have_probability_zero():
    words = torch.eye(2)
    sure = HiddenMarkovModel(words[0], words.flip(0), words, 4)
    x = torch.tensor([[0.0, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 0]])
    assert sure.log_prob(x).tolist() == [0.0, -math.inf, -math.inf]
    answer = sure.conditional_log_prob(x, torch.tensor([True, True, False, True]))
    # given what cannot be
    assert answer[:2, 2].tolist() == [0.0, -math.inf] and torch.isnan(answer[2, 2])
