"""HiddenMarkovModel against the joint table of all sequences and state paths, sums in log space, and hmmlearn."""

import itertools
import math

import numpy as np
import oracles
import pytest
import torch
from scipy.special import logsumexp

from mptlml import all_masks
from mptlml.models import HiddenMarkovModel

try:  # here and not in the tests: its import moves the global random state
    from hmmlearn.hmm import CategoricalHMM
except ImportError:
    CategoricalHMM = None


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


@pytest.mark.skipif(CategoricalHMM is None, reason="hmmlearn, of requirements.txt, is not installed")
@pytest.mark.parametrize("num_tokens", [1, 7, 200])
def test_log_prob_is_that_of_hmmlearn(num_tokens, generator):
    model, peer = random_hmm(4, 6, num_tokens), CategoricalHMM(4, n_features=6, random_state=0)
    peer.startprob_, peer.transmat_, peer.emissionprob_ = (
        p.numpy() for p in (model.initial, model.transition, model.emission))
    for row in model.sample(5, generator=generator):
        assert model.log_prob(row).item() == pytest.approx(peer.score(row.long().numpy()[:, None]), abs=1e-9)


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


def test_bad_input_is_refused():
    half = torch.full((2,), 0.5)
    good = dict(initial=half, transition=half.expand(2, 2), emission=torch.full((2, 3), 1 / 3), num_tokens=3)
    for change, message in (
        (dict(initial=torch.ones(3) / 3), r"do not fit: \(3,\), \(2, 2\), \(2, 3\)"),
        (dict(emission=torch.ones(2, 0)), "do not fit"),
        (dict(transition=torch.ones(2, 2)), "transition must hold probabilities that sum to 1"),
        (dict(initial=torch.tensor([1.5, -0.5])), "initial must hold probabilities"),
        (dict(emission=torch.tensor([[0.5, 0.5], [0.5, math.nan]])), "emission holds NaN"),
        (dict(num_tokens=0), "num_tokens must be a whole number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            HiddenMarkovModel(**{**good, **change})
    model, every = HiddenMarkovModel(**good), torch.ones(3, dtype=torch.bool)
    for bad in (3.0, -1.0, 0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"tokens must be whole numbers in 0..2: 1 are not in shape \(3,\)"):
            model.log_prob(torch.tensor([0.0, 1.0, bad]))
    with pytest.raises(ValueError, match="must be whole numbers"):
        model.conditional_log_prob(torch.tensor([0.0, 1.0, 7.0]), ~every)
    assert torch.isnan(model.conditional_log_prob(torch.tensor([0.0, 1.0, math.nan]), ~every)[2])
    with pytest.raises(ValueError, match="at least 2"):
        model.entropy(1, generator=torch.Generator())
