"""The known language: its objectives, the networks trained on it, what is read of them, the stored runs."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from conftest import as_frequent, near
from fakes import Says

from mptlml_book import known_language as study


def ten_tokens():
    """-1..-10 for its ten tokens, so that D S(x; m) has the same mean for every size, -55."""
    return Says(10, lambda x, observed: -1.0 - torch.arange(10))


def values_of(draw, model):
    """400 values of an objective, and how many tokens of each row were masked each time."""
    values, asked = [], []
    for _ in range(400):
        values.append(draw(model, torch.zeros(20, 10)))
        asked.append((~model.asked[-1]).sum(-1).flatten())
    return torch.stack(values), torch.stack(asked)


def test_weighted_sizes_are_drawn_by_their_weights_and_estimate_the_area(generator):
    """Size m has probability in proportion to m^-1/2; S(x; m) is -m here, so the area is -55."""
    model = Says(10, lambda x, observed: -(~observed).sum(-1, keepdim=True).float())
    values, sizes = values_of(partial(study.weighted_size, generator=generator), model)
    weight = torch.arange(1, 11) ** -0.5
    expected = weight / weight.sum() * sizes.numel()
    assert near(values, -55) and as_frequent(torch.bincount(sizes.flatten() - 1), expected)


def test_more_are_hidden_than_scored(generator):
    """All rows hide 7 of 10 tokens; the mean over the 3 scored ones is that over all tokens, times D: -55."""
    values, sizes = values_of(
        partial(study.hide_more, hidden=7, scored=3, generator=generator), ten_tokens()
    )
    assert (sizes == 7).all() and near(values, -55)


@pytest.mark.parametrize("scheme", study.OBJECTIVES)
def test_every_scheme_trains_and_the_seed_decides(scheme):
    options = dict(num_steps=12, width=8, num_layers=1)
    (net, history), (again, _) = (study.pretrain(scheme, seed=3, **options) for _ in range(2))
    assert torch.equal(net.readout.weight, again.readout.weight)
    assert sum(history.objective[-3:]) > sum(history.objective[:3])  # it learns


def reader(truth):
    """The language as known to one who reads from the left and stops at the first hidden word."""
    model = copy.copy(truth)
    for name in ("conditional_log_prob", "vocabulary_log_prob"):
        ask = getattr(truth, name)
        setattr(model, name, lambda x, seen, ask=ask: ask(x, seen.long().cumprod(-1).bool()))
    return model


def test_readings_tell_who_knows_the_language_and_who_reads_from_left_to_right():
    truth, options = study.language(16), dict(seed=1, num_rows=16)
    found = study.read_network(truth, "uniform sizes", **options)
    assert all(np.abs(found[name]).max() < 1e-9 for name in found)
    found = study.read_network(reader(truth), "uniform sizes", **options)
    assert abs(found["left to right"]) < 1e-9 and found["gap"] < -1 and found["15%"] < -1
    assert found["gap"] == pytest.approx(sum(found["curve"]))


@pytest.mark.parametrize("warmth", [2, 0])
@torch.no_grad()
def test_calibration_repairs_who_is_too_sure_and_tells_the_frequencies_to_who_knows_nothing(
    warmth, generator
):
    """Half the warmth makes exact answers, squared, exact again; flat answers can only give way."""
    truth = study.language(6)
    net, exact = copy.copy(truth), truth.vocabulary_log_prob
    net.vocabulary_log_prob = lambda x, seen: (warmth * exact(x, seen).clip(-50)).log_softmax(-1)
    with torch.enable_grad():
        after = study.Calibrated(net, truth, generator=generator)
    x, seen = truth.sample(100, generator=generator), torch.arange(6) < 3
    best = exact(x, seen if warmth else torch.zeros(6, dtype=torch.bool))
    far = best.exp() * (best - after.vocabulary_log_prob(x, seen))
    assert 0 < far[:, 3:].sum(-1).mean() < 0.03


def test_a_network_is_carried_on_in_a_copy():
    net, _ = study.pretrain("fixed 15%", seed=3, num_steps=2, width=8, num_layers=1)
    before = net.readout.weight.clone()
    after = study.carry_on(net, "uniform sizes", seed=3, num_steps=12, learning_rate=1e-2)
    assert torch.equal(net.readout.weight, before)
    assert not torch.equal(after.readout.weight, before)


class Fixed:
    """Says `answer` of each word, whatever it is shown, and keeps what that was."""

    num_tokens, vocab_size = 10, 3
    answer = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()

    def vocabulary_log_prob(self, x, observed):
        self.x, self.observed = x, observed
        return self.answer.expand(*x.shape, 3)


def test_half_of_the_chosen_tokens_show_another_word_and_none_is_hidden(generator):
    model, x = Fixed(), torch.zeros(4000, 10, dtype=torch.long)
    found = study.half_random(model, x, 4, generator=generator)
    assert found == pytest.approx(10 * math.log(0.5)) and model.observed.all()
    other = (model.x != 0).sum(-1)  # of four chosen tokens, half of them any of three words
    assert other.max() == 4
    assert other.double().mean() / 4 == pytest.approx(0.5 * 2 / 3, abs=0.02)


def test_smoothed_labels_spread_a_tenth_over_all_words(generator):
    model = Fixed()
    found = study.smoothed(model, torch.ones(6, 10), 4, generator=generator)
    by_hand = 0.9 * model.answer[1] + 0.1 * model.answer.mean()
    assert found == pytest.approx(10 * by_hand.item()) and ((~model.observed).sum(-1) == 4).all()


def test_the_exact_model_gets_at_the_right_end_what_it_expects():
    truth = study.language(8)
    found = study.read_right_end(truth, seed=1, num_rows=4000)
    assert (
        found["gets"] == pytest.approx(found["exact"]) == pytest.approx(found["expects"], abs=0.02)
    )


class Echo:
    """A network in miniature: it answers for every word, and says of each token what it was shown."""

    num_tokens, vocab_size = 4, 3

    def vocabulary_log_prob(self, x, observed):
        return (x[..., None] + torch.arange(3)).where(observed[..., None], -1.0)


def test_eighty_ten_ten_is_scored_where_it_is_asked(generator):
    """Tokens 2 of words 0, 1, 2: a masked one echoes -1, another word w echoes w + 2, one left as it is 4."""
    value = study.eighty_ten_ten(Echo(), torch.full((20_000, 4), 2.0), 2, generator=generator)
    expected, spread = 0.8 * -1 + 0.1 * (1 + 2) + 0.1 * 4, 1.7
    assert value.item() / 4 == pytest.approx(expected, abs=4 * spread / math.sqrt(40_000))


def test_holm_by_hand():
    assert study.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
