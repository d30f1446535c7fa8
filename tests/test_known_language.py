"""The known language: its objectives, the networks trained on it, what is read of them, the stored runs."""

import math

import numpy as np
import pytest
import torch
from fakes import Says

from mptlml import chain_rule, objectives, random_orders
from mptlml.models import MaskedTransformer, Shortfall
from mptlml_book.studies import known_language as study


def ten_tokens():
    """-1..-10 for its ten tokens, so that D S(x; m) has the same mean for every size, -55."""
    return Says(10, lambda x, observed: -1.0 - torch.arange(10))


def sizes(model):
    """How many tokens of each row were masked when the model was last asked."""
    return (~model.asked[-1]).sum(-1).flatten()


def averages_to_55(values):
    """Within four standard errors, below zero."""
    values = torch.stack(values)
    return abs(values.mean() + 55) < 4 * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("num_rows, together, times", [(20, 1, 2), (10, 1, 1), (5, 2, 1), (2, 5, 1)])
def test_stratified_sizes_are_spread_evenly(num_rows, together, times, generator):
    """Each stratum of `together` neighbouring sizes is met `times` times; over many draws each row meets every size."""
    met, values = torch.zeros(num_rows, 10), []
    for _ in range(100):
        model = ten_tokens()
        values.append(objectives.stratified_size(model, torch.zeros(num_rows, 10), generator=generator))
        count = torch.bincount(sizes(model) - 1, minlength=10)
        assert (count.view(-1, together).sum(-1) == times).all()
        met[torch.arange(num_rows), sizes(model) - 1] += 1
    assert (met > 0).all() and averages_to_55(values)


def test_weighted_sizes_are_drawn_by_their_weights_and_estimate_the_area(generator):
    """Size m has probability in proportion to m^-1/2; S(x; m) is -m here, so the area is -55."""
    model, values, met = Says(10, lambda x, observed: -(~observed).sum(-1, keepdim=True).float()), [], torch.zeros(10)
    for _ in range(400):
        values.append(study.weighted_size(model, torch.zeros(20, 10), generator=generator))
        met += torch.bincount(sizes(model) - 1, minlength=10)
    assert averages_to_55(values)
    expected = torch.arange(1, 11) ** -0.5
    expected = expected / expected.sum() * met.sum()
    assert ((met - expected).square() / expected).sum() < 33.7  # chi-squared, 9 degrees: 1 in 10,000; strata do better


def test_more_are_hidden_than_scored(generator):
    """All rows hide 7 of 10 tokens; the mean over the 3 scored ones is that over all tokens, times D: -55."""
    model, values = ten_tokens(), []
    for _ in range(400):
        values.append(study.hide_more(model, torch.zeros(20, 10), 7, 3, generator=generator))
        assert (sizes(model) == 7).all()
    assert averages_to_55(values)
    # three tokens of ten without replacement: 10 times a mean with variance 8.25 / 3 * 7 / 9, over 20 rows
    assert torch.stack(values).std() == pytest.approx(10 * math.sqrt(8.25 / 3 * 7 / 9 / 20), rel=0.2)


@pytest.mark.parametrize("scheme", study.OBJECTIVES)
def test_every_scheme_trains_and_the_seed_decides(scheme):
    options = dict(num_steps=12, width=8, num_layers=1, track={"rows": lambda net: net.num_tokens}, track_every=6)
    net, history = study.pretrain(scheme, seed=3, **options)
    again, other = study.pretrain(scheme, seed=3, **options)[0], study.pretrain(scheme, seed=4, **options)[0]
    assert torch.equal(net.readout.weight, again.readout.weight)
    assert not torch.equal(net.readout.weight, other.readout.weight)
    assert history.at == [0, 6, 12] and history.tracked["rows"] == [32] * 3
    assert sum(history.objective[-3:]) > sum(history.objective[:3])  # it learns


def test_the_readings_of_the_language_itself_are_all_zero():
    found = study.read_network(study.language(), "uniform sizes", seed=1, num_rows=16, num_orders=4)
    assert all(np.abs(found[name]).max() < 1e-9 for name in found)


def test_the_readings_are_those_of_the_general_functions(generator):
    """log q and its divergence along an order are the chain rule's; the gap is the sum of the curve."""
    truth = study.language(16)
    net = MaskedTransformer(16, truth.vocab_size, width=8, num_layers=1, generator=generator)
    x, orders = truth.sample(5, generator=generator), random_orders(16, 3, generator=generator)
    log_prob, below = (torch.stack(part) for part in zip(*study.log_prob_along(net, truth, x, orders), strict=True))
    with torch.no_grad():
        assert torch.allclose(log_prob, chain_rule(net, x, orders).sum(-1).double(), atol=1e-4)
        assert torch.allclose(below, chain_rule(Shortfall(net, truth), x, orders).sum(-1), atol=1e-4)
    found = study.read_network(net, "uniform sizes", seed=1, num_rows=16, num_orders=4)
    assert found["gap"] == pytest.approx(sum(found["curve"]))
    assert found["gap"] + found["mixture"] < 0 < found["mixture"] < found["spread"] * 4
    assert found == study.read_network(net, "uniform sizes", seed=1, num_rows=16, num_orders=4)
    alone = study.read_network(net, "fixed 15%", seed=1, num_rows=32, num_orders=0)
    assert "mixture" not in alone
    assert alone["left to right"] == pytest.approx(alone["gap"], rel=0.1)  # all orders cost an untrained network alike


class Reader:
    """The language as known to one who reads from the left and stops at the first hidden word."""

    def __init__(self, truth):
        self.truth, self.num_tokens, self.vocab_size = truth, truth.num_tokens, truth.vocab_size

    def vocabulary_log_prob(self, x, observed):
        return self.truth.vocabulary_log_prob(x, observed.long().cumprod(-1).bool())


def test_left_to_right_is_the_order_in_which_one_reads():
    found = study.read_network(Reader(study.language(16)), "uniform sizes", seed=1, num_rows=16, num_orders=4)
    assert abs(found["left to right"]) < 1e-9 and abs(found["best order"]) < 1e-9
    assert found["gap"] < -1 and found["15%"] < -1 and found["spread"] > 0.1


def test_a_network_is_carried_on_in_a_copy():
    net, _ = study.pretrain("fixed 15%", seed=3, num_steps=2, width=8, num_layers=1)
    before = net.readout.weight.clone()
    after = study.carry_on(net, seed=3, num_steps=12, learning_rate=1e-2)
    assert torch.equal(net.readout.weight, before) and not torch.equal(after.readout.weight, before)
    stayed = study.carry_on(net, "fixed 15%", seed=3, num_steps=12, learning_rate=1e-2)
    assert not torch.equal(stayed.readout.weight, after.readout.weight)


def test_a_kept_network_comes_back(tmp_path, monkeypatch):
    options = dict(seed=3, num_steps=2, learning_rate=1e-2, width=8, num_layers=1)
    net = study.train_or_load(tmp_path / "networks", "15%, 80/10/10", **options)
    monkeypatch.setattr("mptlml_book.studies.known_language.pretrain", None)  # nothing is trained again
    again = study.train_or_load(tmp_path / "networks", "15%, 80/10/10", **options)
    assert torch.equal(net.embedding.weight, again.embedding.weight)
    with pytest.raises(TypeError):
        study.train_or_load(tmp_path / "networks", "15%, 80/10/10", **options | dict(seed=4))
