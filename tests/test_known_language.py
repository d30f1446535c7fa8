"""The known language: its objectives, the networks trained on it, what is read of them, the stored runs."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from fakes import Says

from mptlml import objectives
from mptlml_book import known_language as study
from mptlml_book import runs as results
from mptlml_book.known_language_run import network


def ten_tokens():
    """-1..-10 for its ten tokens, so that D S(x; m) has the same mean for every size, -55."""
    return Says(10, lambda x, observed: -1.0 - torch.arange(10))


def values_of(draw, model, num_rows=20, count=400):
    """Values of an objective, drawn `count` times, and how many tokens of each row were masked each time."""
    values, asked = [], []
    for _ in range(count):
        values.append(draw(model, torch.zeros(num_rows, 10)))
        asked.append((~model.asked[-1]).sum(-1).flatten())
    return torch.stack(values), torch.stack(asked)


def averages_to_55(values):
    """Within four standard errors, below zero."""
    return abs(values.mean() + 55) < 4 * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize(
    "num_rows, together, times", [(20, 1, 2), (10, 1, 1), (5, 2, 1), (2, 5, 1)]
)
def test_stratified_sizes_are_spread_evenly(num_rows, together, times, generator):
    """Each stratum of `together` sizes is met `times` times; over many draws each row meets every size."""
    draw = partial(objectives.stratified_size, generator=generator)
    values, sizes = values_of(draw, ten_tokens(), num_rows, 100)
    for asked in sizes:
        assert (torch.bincount(asked - 1, minlength=10).view(-1, together).sum(-1) == times).all()
    assert all(len(row.unique()) == 10 for row in sizes.T) and averages_to_55(values)


def test_weighted_sizes_are_drawn_by_their_weights_and_estimate_the_area(generator):
    """Size m has probability in proportion to m^-1/2; S(x; m) is -m here, so the area is -55."""
    model = Says(10, lambda x, observed: -(~observed).sum(-1, keepdim=True).float())
    values, sizes = values_of(partial(study.weighted_size, generator=generator), model)
    assert averages_to_55(values)
    met, expected = torch.bincount(sizes.flatten() - 1, minlength=10), torch.arange(1, 11) ** -0.5
    expected = expected / expected.sum() * met.sum()
    assert (
        (met - expected).square() / expected
    ).sum() < 33.7  # chi-squared, 9 degrees: 1 in 10,000


def test_more_are_hidden_than_scored(generator):
    """All rows hide 7 of 10 tokens; the mean over the 3 scored ones is that over all tokens, times D: -55."""
    values, sizes = values_of(
        partial(study.hide_more, hidden=7, scored=3, generator=generator), ten_tokens()
    )
    assert (sizes == 7).all() and averages_to_55(values)
    # three tokens of ten without replacement: 10 times a mean with variance 8.25 / 3 * 7 / 9, over 20 rows
    assert values.std() == pytest.approx(10 * math.sqrt(8.25 / 3 * 7 / 9 / 20), rel=0.2)


@pytest.mark.parametrize("scheme", study.OBJECTIVES)
def test_every_scheme_trains_and_the_seed_decides(scheme):
    options = dict(num_steps=12, width=8, num_layers=1)
    (net, history), (again, _), (other, _) = (
        study.pretrain(scheme, seed=seed, **options) for seed in (3, 3, 4)
    )
    assert torch.equal(net.readout.weight, again.readout.weight)
    assert not torch.equal(net.readout.weight, other.readout.weight)
    assert len(history.objective) == 12
    assert sum(history.objective[-3:]) > sum(history.objective[:3])  # it learns


def reader(truth):
    """The language as known to one who reads from the left and stops at the first hidden word."""

    def ahead(observed):
        return observed.long().cumprod(-1).bool()

    model = Says(
        truth.num_tokens, lambda x, observed: truth.conditional_log_prob(x, ahead(observed))
    )
    model.vocabulary_log_prob = lambda x, observed: truth.vocabulary_log_prob(x, ahead(observed))
    model.vocab_size = truth.vocab_size
    return model


def test_readings_tell_who_knows_the_language_and_who_reads_from_left_to_right():
    truth, options = study.language(16), dict(seed=1, num_rows=16, num_orders=4)
    found = study.read_network(truth, "uniform sizes", **options)
    assert all(np.abs(found[name]).max() < 1e-9 for name in found)
    found = study.read_network(reader(truth), "uniform sizes", **options)
    assert abs(found["left to right"]) < 1e-9 and abs(found["best order"]) < 1e-9
    assert found["gap"] < -1 and found["15%"] < -1 and found["spread"] > 0.1
    assert (
        found["gap"] == pytest.approx(sum(found["curve"]))
        and 0 < found["mixture"] < found["spread"] * 4
    )
    assert found == study.read_network(reader(truth), "uniform sizes", **options)
    assert "mixture" not in study.read_network(
        reader(truth), "fixed 15%", **options | dict(num_orders=0)
    )


def test_a_network_is_carried_on_in_a_copy():
    net, _ = study.pretrain("fixed 15%", seed=3, num_steps=2, width=8, num_layers=1)
    before, options = net.readout.weight.clone(), dict(seed=3, num_steps=12, learning_rate=1e-2)
    after, stayed = (
        study.carry_on(net, scheme, **options).readout.weight
        for scheme in ("uniform sizes", "fixed 15%")
    )
    assert torch.equal(net.readout.weight, before)
    assert not torch.equal(after, before) and not torch.equal(stayed, after)


def test_a_kept_network_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "NETWORKS", tmp_path / "networks")
    options = dict(seed=3, num_steps=2, learning_rate=1e-2, width=8, num_layers=1)
    net = network("15%, 80/10/10", **options)
    monkeypatch.setattr(study, "pretrain", None)  # nothing is trained again
    assert torch.equal(net.embedding.weight, network("15%, 80/10/10", **options).embedding.weight)
    with pytest.raises(TypeError):
        network("15%, 80/10/10", **options | dict(seed=4))


def test_half_of_the_chosen_tokens_show_another_word_and_none_is_hidden(generator):
    """A model that says 1 / 2 for the word that it sees and 1 / 4 for the others: D times the mean by hand."""

    class Echo:
        num_tokens, vocab_size = 10, 3

        def vocabulary_log_prob(self, x, observed):
            assert observed.all()
            shown.append(x)
            return torch.tensor([0.5, 0.25, 0.25]).log()[(torch.arange(3) != x[..., None]).long()]

    x, shown = torch.zeros(50, 10, dtype=torch.long), []
    values = torch.stack([study.half_random(Echo(), x, 4, generator=generator) for _ in range(200)])
    seen = torch.stack(shown)
    assert seen.dtype == x.dtype and (seen != 0).sum(-1).max() == 4
    same = 1 - (seen != 0).double().mean() * 10 / 4  # of the chosen tokens
    assert same == pytest.approx(0.5 + 0.5 / 3, abs=0.01)
    assert values.mean() == pytest.approx(
        10 * (same * math.log(1 / 2) + (1 - same) * math.log(1 / 4))
    )


def test_smoothed_labels_spread_a_tenth_over_all_words(generator):
    class Fixed:
        num_tokens, vocab_size = 10, 3

        def vocabulary_log_prob(self, x, observed):
            assert ((~observed).sum(-1) == 4).all()
            return torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log().expand(*x.shape, 3)

    found = study.smoothed(Fixed(), torch.ones(6, 10), 4, generator=generator)
    by_hand = 0.9 * math.log(0.3) + 0.1 * (math.log(0.5) + math.log(0.3) + math.log(0.2)) / 3
    assert found == pytest.approx(10 * by_hand)


def test_the_exact_model_gets_at_the_right_end_what_it_expects():
    truth = study.language(8)
    found = study.read_right_end(truth, seed=1, num_rows=4000)
    assert (
        found["gets"] == pytest.approx(found["exact"]) == pytest.approx(found["expects"], abs=0.02)
    )
    truth.emission = truth.emission.roll(1, 1)  # sure of the wrong words
    worse = study.read_right_end(truth, seed=1, num_rows=4000)
    assert worse["gets"] < found["gets"] - 0.1 and worse["exact"] == found["exact"]
