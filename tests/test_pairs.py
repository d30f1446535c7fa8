"""Pairs of texts: differences under shared masks by enumeration, the error of a sure sign; and what else is asked."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from conftest import same, seeded
from fakes import random_network
from scipy import stats
from transformers import BertTokenizer

from mptlml.scoring import by_word, compare, given
from mptlml.scoring.pairs import EFFECT, FIRST, STRATA, half_width, hide, shared_keys, shares
from mptlml.scoring.texts import encode
from mptlml_book.data.text import make_tokenizer

WILD = "the cat sat on the mat"


@pytest.fixture(scope="module")
def lm(lm):
    """In double precision."""
    made = copy.deepcopy(lm)
    made.model.double()
    return made


def exact_area(lm, text):
    return lm.exact_curve(lm.encode(text)).area().mean


def score(lm, ids, hidden):
    """D times the mean log-probability of what is hidden [n, D], nats [n], mask by mask."""
    model = lm.at_length(len(ids))
    with torch.no_grad():
        each = [
            model.conditional_log_prob(ids.double(), ~mask).sum() / mask.sum() for mask in hidden
        ]
    return torch.stack(each) * len(ids)


@pytest.mark.parametrize(
    "one, other, keys",
    [
        ("the cat sat", "the dog sat", [0, 1, 2]),
        ("the cat sat on", "a cat sat", [0, 1, 2]),
        ("a dog ran", "ran", [2]),
        ("the cat", "on the mat", [2, 0, 1]),
        ("cat", "a dog", [0, 2]),
    ],
)
def test_the_difference_of_areas_is_the_mean_over_shared_keys_and_shares(lm, one, other, keys):
    """Every order of the keys, at the middle of every step of the share: the mean is that of all masks."""
    ids = [lm.encode(text) for text in (one, other)]
    both = shared_keys(*(part.tolist() for part in ids))
    assert both[1] == keys
    orders = torch.tensor([*itertools.permutations(range(max(map(max, both)) + 1))]).double()
    steps = math.lcm(*map(len, ids))
    share = ((torch.arange(steps) + 0.5) / steps).repeat(len(orders))
    for text, part, key in zip((one, other), ids, both, strict=True):
        found = score(lm, part, hide(orders[:, key].repeat_interleave(steps, 0), share)).mean()
        assert found == pytest.approx(exact_area(lm, text), abs=1e-9)


def test_weighted_shares_give_every_size_its_part(generator):
    share, weight = shares(1, 40_000, 7, generator)
    size = (share * 7).ceil()
    assert share.min() > 0 and share.max() <= 1 + 1e-12 and (share < 0.01).float().mean() > 0.015
    for m in range(1, 8):
        assert ((size == m) * weight).mean() == pytest.approx(1 / 7, rel=2e-3)


def test_a_pair_is_compared_until_the_sign_is_sure(lm, generator):
    other, close = "a dog ran", WILD.replace("mat", "cat")
    pairs = [(WILD, other), (other, WILD), (WILD, WILD), ("cat", "dog"), (WILD, close)]
    found = compare(lm, iter(pairs), num_passes=3000, generator=generator)
    for (one, other), pair in zip(pairs, found, strict=True):
        truth = exact_area(lm, one) - exact_area(lm, other)
        assert pair.low - 1e-6 <= truth <= pair.high + 1e-6
        assert abs(pair.difference - truth) <= 4 * pair.error + 1e-6
        backwards = [torch.arange(len(lm.encode(text)) - 1, -1, -1)[None] for text in (one, other)]
        left = [lm.chain_rule(*each).sum() for each in zip((one, other), backwards, strict=True)]
        single = lm.pseudo_log_likelihood([one, other])
        known = torch.stack([single[0] - single[1], left[0] - left[1]])
        same(torch.tensor([pair.pseudo_log_likelihood, pair.left_to_right]).double(), known, 1e-6)
        assert pair.sure == (pair.low > 0 or pair.high < 0)
    assert found[0].sure and found[0].difference < 0 < found[1].difference
    assert found[0].passes < 400 and found[3].passes == 2  # all masks
    assert not found[2].sure and found[2].difference == found[2].passes == 0 == found[3].error
    [again] = compare(lm, pairs[:1], num_passes=3000, generator=seeded(1))
    assert again == found[0]  # other pairs change nothing


def test_all_masks_are_asked_where_they_fit_and_the_sign_is_not_sure(lm, monkeypatch):
    monkeypatch.setattr("mptlml.scoring.pairs.half_width", lambda *_: math.inf)  # never
    long = f"{WILD} a dog ran"
    [pair] = compare(lm, [(long, long.replace("mat", "cat"))], others=False, generator=seeded())
    truth = exact_area(lm, long) - exact_area(lm, long.replace("mat", "cat"))
    assert pair.difference == pytest.approx(truth, abs=1e-9) and pair.error == 0 and pair.sure


def test_the_interval_is_that_of_a_mixture_of_effects():
    """The Bayes factor by integration over the effect, given the t of n values, is 1 / 0.05 at its end."""
    for count in (13, 30, 90):
        t = half_width(count, 1.0, 0.95)
        effect = np.linspace(-8, 8, 4001) * EFFECT
        density = stats.nct.pdf(t, count - 1, effect * count**0.5)
        density *= stats.norm.pdf(effect, scale=EFFECT)
        factor = np.trapezoid(density, effect) / stats.t.pdf(t, count - 1)
        assert factor == pytest.approx(20, rel=1e-4)
    assert half_width(12, 1.0, 0.95) == math.inf
    assert half_width(9, 1.0, 0.5) < half_width(9, 1.0, 0.8)


@pytest.mark.parametrize("noisy, most", [(STRATA, 0.05), (1, 0.06)])
def test_a_sure_sign_is_seldom_wrong_though_one_looks_often(noisy, most):
    """Of 3000 pairs without a difference, looked at after each of 200 rounds; the noise is skewed.

    noisy: how many of a round's shares have any. Where few have, rounds are far from normal: then a little more.
    """
    rng, rounds = np.random.default_rng(1), np.arange(1, 201)
    value = (rng.gamma(noisy, size=(3000, 200)) - noisy) / noisy  # the mean of as many exponentials
    mean = (value.cumsum(1) / rounds)[:, FIRST - 1 :]
    square = ((value**2).cumsum(1) / rounds)[:, FIRST - 1 :] - mean**2
    error = np.sqrt(square / (rounds - 1)[FIRST - 1 :])
    width = [half_width(int(count), 1.0, 0.95) for count in rounds[FIRST - 1 :]]
    assert 0.005 < (abs(mean) > error * width).any(1).mean() < most


def test_what_is_given_is_seen_and_not_scored(lm):
    """Before and after: the scores are those of the whole text under masks that hide nothing of what is given."""
    ids, there = lm.encode(WILD), given(lm, "the cat", "mat")
    assert there.max_tokens == lm.max_tokens - 3
    observed = torch.tensor([True, False, False])
    whole = torch.cat([torch.ones(2).bool(), observed, torch.ones(1).bool()])
    truth = lm.at_length(6).conditional_log_prob(ids, whole)[2:5]
    same(there.at_length(3).conditional_log_prob(there.encode("sat on the"), observed), truth)
    with pytest.raises(ValueError, match="has 510 tokens of the 510"):
        given(lm, "cat " * 510)


def test_the_later_pieces_of_a_word_are_hidden_with_a_piece():
    """Kauf and Ivanova's rule, against a loop."""
    lm, text = (
        random_network(make_tokenizer(["the cat sat on the mats a dog"] * 9, 34)),
        "dog cats mats",
    )
    ids = lm.encode(text)
    spelt = lm.tokenizer.convert_ids_to_tokens(ids.tolist())
    starts = [k for k, piece in enumerate(spelt) if not piece.startswith("##")]
    assert 1 < len(starts) < len(ids)
    for j, found in enumerate(by_word(lm, text)):
        end = min([start for start in starts if start > j], default=len(ids))
        observed = torch.tensor([k < j or k >= end for k in range(len(ids))])
        truth = lm.at_length(len(ids)).conditional_log_prob(ids.double(), observed)[j]
        assert found.item() == pytest.approx(truth.item(), abs=1e-5)


@pytest.mark.parametrize(
    "text, advice",
    [
        ("e", "'e': .* has 'E'"),
        ("EVQLXVE", "has no X; .*single letters"),
        ("yx", "was trained with"),
    ],
)
def test_an_unknown_word_is_named_with_a_way_out(text, advice):
    words = {
        word: k for k, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"EVQL"])
    }
    with pytest.raises(ValueError, match=f"does not know token 1.*{advice}"):
        encode(random_network(BertTokenizer(words, do_lower_case=False)), text)
