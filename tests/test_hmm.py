"""HiddenMarkovModel against the joint table of all sequences and all state paths, and against hmmlearn."""

import itertools
import math

import numpy as np
import oracles
import pytest
import torch

from mptlml import all_masks, score_curve
from mptlml.models import HiddenMarkovModel
from mptlml.studies.known_language import WORDS, language

try:  # here and not in the tests: its import moves the global random state
    from hmmlearn.hmm import CategoricalHMM
except ImportError:
    CategoricalHMM = None
needs_hmmlearn = pytest.mark.skipif(CategoricalHMM is None, reason="hmmlearn, of requirements.txt, is not installed")


def peer_of(model):
    """hmmlearn's model with the same parameters, for H = 4, V = 6."""
    peer = CategoricalHMM(4, n_features=6, random_state=0)
    peer.startprob_, peer.transmat_, peer.emissionprob_ = (
        p.numpy() for p in (model.initial, model.transition, model.emission))
    return peer


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


@pytest.fixture(scope="module")
def enumerated():
    """H = V = 3, D = 5: a model, its table of 243 sequences, four of these as rows [4, 5]."""
    model = random_hmm(3, 3, 5)
    table = sequence_table(model)
    rows = torch.tensor(list(table), dtype=torch.float64)[[0, 77, 140, 242]]
    return model, table, rows


def test_log_prob_of_every_sequence(enumerated):
    model, table, _ = enumerated
    every = torch.tensor(list(table), dtype=torch.float64)
    expected = torch.tensor(list(table.values()), dtype=torch.float64).log()
    torch.testing.assert_close(model.log_prob(every), expected, rtol=0, atol=1e-12)
    assert model.log_prob(every).exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_marginals_and_conditionals_of_every_mask(enumerated):
    model, table, rows = enumerated
    for size in range(1, 6):
        for observed in all_masks(5, size):
            seen, hidden = observed.nonzero().flatten().tolist(), (~observed).nonzero().flatten().tolist()
            words = model.vocabulary_log_prob(rows, observed)
            conditional, marginal = model.conditional_log_prob(rows, observed), model.log_prob(rows, observed)
            for n, row in enumerate(rows.long().tolist()):
                assert marginal[n].item() == pytest.approx(oracles.table_marginal(table, row, seen), abs=1e-12)
                for token in hidden:
                    expected = oracles.table_conditional(table, row, token, seen)
                    assert conditional[n, token].item() == pytest.approx(expected, abs=1e-12)
                    assert words[n, token, row[token]].item() == pytest.approx(expected, abs=1e-12)
            assert (words[:, seen] == 0).all()
            torch.testing.assert_close(words[:, hidden].exp().sum(-1), torch.ones(4, len(hidden)).double(),
                                       rtol=0, atol=1e-12)


@needs_hmmlearn
@pytest.mark.parametrize("num_tokens", [1, 7, 200])
def test_log_prob_is_that_of_hmmlearn(num_tokens, generator):
    model = random_hmm(4, 6, num_tokens)
    peer = peer_of(model)
    for row in model.sample(5, generator=generator):
        assert model.log_prob(row).item() == pytest.approx(peer.score(row.long().numpy()[:, None]), abs=1e-9)


@needs_hmmlearn
def test_posterior_of_a_masked_end_is_that_of_hmmlearn(generator):
    """p(x_D | the rest) = sum_h p(z_D = h | the rest) emission_h, and hmmlearn smooths the rest, one token shorter."""
    model = random_hmm(4, 6, 9)
    peer = peer_of(model)
    observed = torch.arange(9) < 8
    for row in model.sample(5, generator=generator):
        last = peer.predict_proba(row[:8].long().numpy()[:, None])[-1] @ peer.transmat_
        expected = np.log(last @ peer.emissionprob_)
        np.testing.assert_allclose(model.vocabulary_log_prob(row, observed)[-1], expected, rtol=0, atol=1e-10)


def test_sampled_words_and_pairs_have_the_exact_frequencies(generator):
    model = random_hmm(3, 3, 4)
    x = model.sample(40_000, generator=generator).long()
    table = sequence_table(model)
    counts = torch.bincount(x @ torch.tensor([27, 9, 3, 1]), minlength=81).numpy()
    expected = 40_000 * np.array(list(table.values()))
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < 80 + 4 * math.sqrt(160)  # 80 degrees of freedom, four standard deviations


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
    hidden = torch.tensor([True, True, False, True])
    assert sure.conditional_log_prob(x, hidden)[:2, 2].tolist() == [0.0, -math.inf]
    assert torch.isnan(sure.conditional_log_prob(x, hidden)[2, 2])  # conditioned on what cannot be


def test_long_rows_do_not_underflow(generator):
    model = random_hmm(3, 50, 3000)
    x = model.sample(2, generator=generator)
    assert torch.isfinite(model.log_prob(x)).all() and (model.log_prob(x) < -5000).all()


def test_bad_input_is_refused():
    half = torch.full((2,), 0.5)
    good = dict(initial=half, transition=half.expand(2, 2), emission=half.expand(2, 2), num_tokens=3)
    for change, message in (
        (dict(initial=torch.ones(3) / 3), r"do not fit: \(3,\), \(2, 2\), \(2, 2\)"),
        (dict(emission=torch.ones(2, 0)), "do not fit"),
        (dict(transition=torch.ones(2, 2)), "transition must hold probabilities that sum to 1"),
        (dict(initial=torch.tensor([1.5, -0.5])), "initial must hold probabilities"),
        (dict(emission=torch.tensor([[0.5, 0.5], [0.5, math.nan]])), "emission holds NaN"),
        (dict(num_tokens=0), "num_tokens must be a whole number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            HiddenMarkovModel(**{**good, **change})
    model = HiddenMarkovModel(**good)
    every = torch.ones(3, dtype=torch.bool)
    for bad in (2.0, -1.0, 0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"tokens must be whole numbers in 0..1: 1 are not in shape \(3,\)"):
            model.log_prob(torch.tensor([0.0, 1.0, bad]))
    with pytest.raises(ValueError, match="must be whole numbers"):
        model.conditional_log_prob(torch.tensor([0.0, 1.0, 7.0]), ~every)
    assert torch.isnan(model.conditional_log_prob(torch.tensor([0.0, 1.0, math.nan]), ~every)[2])
    with pytest.raises(ValueError, match="at least 2"):
        model.entropy(1, generator=torch.Generator())


def test_the_language(generator):
    model = language()
    assert len(set(WORDS)) == 24 == model.vocab_size and model.num_tokens == 32
    torch.testing.assert_close(model.initial @ model.transition, model.initial, rtol=0, atol=1e-15)  # stationary
    boat, the = WORDS.index("boat"), WORDS.index("the")
    nouns = model.emission[:, boat]
    assert (nouns > 0.5).nonzero().flatten().tolist() == [1] and nouns[0].item() == pytest.approx(0.02 / 24)
    assert (model.emission[:, the] > 0.5).nonzero().flatten().tolist() == [0, 4, 8]
    assert model.transition[0, 1].item() == pytest.approx(0.97 * (0.85 + 0.05 / 4))
    assert model.transition[0, 4].item() == pytest.approx(0.015 * (0.10 + 0.05 / 4))
    x = model.sample(300, generator=generator)
    curve = score_curve(model, x, num_masks=4, keep_rows=True, share_masks=False, generator=generator)
    paired = curve.rows.sum(0) - model.log_prob(x).numpy()  # unbiased row by row: Proposition 1
    assert abs(paired.mean()) < 4 * paired.std() / math.sqrt(300)
