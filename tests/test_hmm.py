"""HiddenMarkovModel against the joint table of all sequences and state paths, and sums in log space."""

import itertools
import math

import numpy as np
import oracles
import pytest
import torch
from scipy.special import logsumexp

from mptlml import all_masks
from mptlml.models import HiddenMarkovModel


def random_hmm(num_states, vocab_size, num_tokens, seed=3):
    generator = torch.Generator().manual_seed(seed)
    initial, transition, emission = (
        torch.randn(shape, generator=generator, dtype=torch.float64).softmax(-1)
        for shape in ((num_states,), (num_states, num_states), (num_states, vocab_size)))
    return HiddenMarkovModel(initial, transition, emission, num_tokens)


def sequence_table(model):
    """{sequence: probability}, summed over every path of hidden states one product at a time."""
    initial, transition, emission = (p.numpy() for p in (model.initial, model.transition, model.emission))
    states, words = range(len(initial)), range(emission.shape[1])
    paths = []
    for path in itertools.product(states, repeat=model.num_tokens):
        steps = itertools.pairwise(path)
        paths.append((path, initial[path[0]] * math.prod(transition[a, b] for a, b in steps)))
    return {
        sequence: sum(p * math.prod(emission[z, v] for z, v in zip(path, sequence, strict=True)) for path, p in paths)
        for sequence in itertools.product(words, repeat=model.num_tokens)
    }


def in_log_space(model, row, observed):
    """log p(x_R) of one row by sums over states in log space, from the last token to the first."""
    initial, transition, emission = (p.log().numpy() for p in (model.initial, model.transition, model.emission))
    after = np.zeros(len(initial))
    for t in reversed(range(model.num_tokens)):
        here = after + (emission[:, int(row[t])] if observed[t] else 0)
        after = logsumexp(transition + here, axis=1)
    return logsumexp(initial + here)


@pytest.fixture(scope="module")
def enumerated():
    """H = V = 3, D = 5: a model, its table of 243 sequences, four of these as rows [4, 5]."""
    model = random_hmm(3, 3, 5)
    table = sequence_table(model)
    rows = torch.tensor(list(table), dtype=torch.float64)[[0, 77, 140, 242]]
    return model, table, rows


def test_marginals_and_conditionals_of_every_mask(enumerated):
    model, table, rows = enumerated
    every = torch.tensor(list(table), dtype=torch.float64)
    expected = torch.tensor(list(table.values()), dtype=torch.float64).log()
    torch.testing.assert_close(model.log_prob(every), expected, rtol=0, atol=1e-12)
    rounded = (1.000005 * p for p in (model.initial, model.transition, model.emission))  # sums are made exactly 1
    torch.testing.assert_close(HiddenMarkovModel(*rounded, 5).log_prob(every), expected, rtol=0, atol=1e-12)
    for observed in torch.cat([all_masks(5, size) for size in range(1, 6)]):
        seen, hidden = (part.nonzero().flatten().tolist() for part in (observed, ~observed))
        words = model.vocabulary_log_prob(rows, observed)
        conditional, marginal = model.conditional_log_prob(rows, observed), model.log_prob(rows, observed)
        for n, row in enumerate(rows.long().tolist()):
            assert marginal[n].item() == pytest.approx(oracles.table_marginal(table, row, seen), abs=1e-12)
            for token in hidden:
                expected = oracles.table_conditional(table, row, token, seen)
                assert conditional[n, token].item() == pytest.approx(expected, abs=1e-12)
                assert words[n, token, row[token]].item() == pytest.approx(expected, abs=1e-12)
        assert (words[:, seen] == 0).all()
        total = words[:, hidden].exp().sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)


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
    exact = -sum(p * math.log(p) for p in sequence_table(model).values())
    estimate = model.entropy(4000, generator=generator)
    assert estimate.stderr < 0.05 and estimate.dof == 3999
    assert abs(estimate.mean - exact) < 4 * estimate.stderr


def test_impossible_rows_have_probability_zero():
    sure = HiddenMarkovModel(torch.tensor([1.0, 0]), torch.tensor([[0.0, 1], [1, 0]]), torch.eye(2), 4)
    x = torch.tensor([[0.0, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 0]])
    assert sure.log_prob(x).tolist() == [0.0, -math.inf, -math.inf]
    answer = sure.conditional_log_prob(x, torch.tensor([True, True, False, True]))
    assert answer[:2, 2].tolist() == [0.0, -math.inf] and torch.isnan(answer[2, 2])  # given what cannot be


THIRD, HALF = torch.full((2, 3), 1 / 3), torch.full((2,), 0.5)
EVERY = torch.ones(3, dtype=torch.bool)


def asked(*row, observed=EVERY):
    return lambda build: build().conditional_log_prob(torch.tensor(row), observed)


BAD = {
    "states that differ": (lambda build: build(initial=THIRD[0]), r"do not fit: \(3,\), \(2, 2\), \(2, 3\)"),
    "no words": (lambda build: build(emission=torch.ones(2, 0)), "do not fit"),
    "sums of 2": (lambda build: build(transition=torch.ones(2, 2)), "transition must hold probabilities that sum to 1"),
    "a negative one": (lambda build: build(initial=torch.tensor([1.5, -0.5])), "initial must hold probabilities"),
    "NaN": (lambda build: build(emission=THIRD * math.nan), "emission holds NaN"),
    "no tokens": (lambda build: build(num_tokens=0), "num_tokens must be a whole number of at least 1"),
    "a word too many": (asked(0.0, 1.0, 3.0), r"whole numbers in 0..2: 1 are not in shape \(3,\)"),
    "a word below": (asked(0.0, 1.0, -1.0), "whole numbers"),
    "half a word": (asked(0.0, 1.0, 0.5), "whole numbers"),
    "an unknown word": (asked(0.0, 1.0, math.nan), "whole numbers"),
    "a masked word too many": (asked(0.0, 1.0, 7.0, observed=~EVERY), "whole numbers"),
    "entropy of one row": (lambda build: build().entropy(1, generator=torch.Generator()), "at least 2"),
}


@pytest.mark.parametrize("call, message", BAD.values(), ids=BAD.keys())
def test_bad_input(call, message):
    good = dict(initial=HALF, transition=HALF.expand(2, 2), emission=THIRD, num_tokens=3)
    with pytest.raises(ValueError, match=message):
        call(lambda **change: HiddenMarkovModel(**{**good, **change}))
