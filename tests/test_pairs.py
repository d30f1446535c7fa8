"""Pairs of texts: differences under shared masks by enumeration, the error of a sure sign, and single mutants."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from conftest import same, seeded
from scipy import stats

from mptlml import draws
from mptlml.scoring import compare, single_mutants
from mptlml.scoring.pairs import EFFECT, FIRST, STRATA, half_width, hide, shared_keys, shares

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


def test_shared_masks_save_passes(lm, generator):
    """Their variance, over that of masks of each text's own: how many times more passes those would take."""
    ids = [lm.encode(text) for text in (WILD, WILD + " a")]
    one, other = shared_keys(*(part.tolist() for part in ids))
    share, values = draws.rand((400,), None, generator), []
    for keys in ((one, other), (one, [key + 20 for key in other])):
        key = draws.rand((400, 40), None, generator)
        hidden = [hide(key[:, own], 1 - share) for own in keys]
        first, second = (score(lm, *each) for each in zip(ids, hidden, strict=True))
        values.append(first - second)
    assert values[1].var() / values[0].var() > 3


def test_a_pair_is_compared_until_the_sign_is_sure(lm, generator):
    other, close = "a dog ran", WILD.replace("mat", "cat")
    pairs = [(WILD, other), (other, WILD), (WILD, WILD), ("cat", "dog"), (WILD, close)]
    found = compare(lm, iter(pairs), num_passes=3000, generator=generator)
    for (one, other), pair in zip(pairs, found, strict=True):
        truth = exact_area(lm, one) - exact_area(lm, other)
        assert pair.low - 1e-6 <= truth <= pair.high + 1e-6
        assert abs(pair.difference - truth) <= 4 * pair.error + 1e-6
        for value, later in ((pair.pseudo_log_likelihood, "none"), (pair.left_to_right, "all")):
            first, second = lm.pseudo_log_likelihood([one, other], later).tolist()
            assert value == pytest.approx(first - second, abs=1e-6)
        assert pair.sure == (pair.low > 0 or pair.high < 0)
    assert found[0].sure and found[0].difference < 0 < found[1].difference
    assert found[0].passes < 400 and found[3].passes == 2  # all masks
    assert not found[2].sure and found[2].difference == found[2].passes == 0 == found[3].error
    again = compare(lm, pairs[:1], num_passes=3000, generator=seeded(1))
    assert again[0] == found[0]  # other pairs change nothing
    few = dict(num_passes=2 * STRATA * FIRST + 1, level=1 - 1e-9, generator=generator)
    [least] = compare(lm, [(f"{WILD} {WILD}", f"{WILD} a cat")], **few)
    assert least.passes == 2 * STRATA * FIRST and not least.sure and least.high == math.inf


def test_no_mask_is_asked_twice_of_texts_whose_masks_fit(lm, monkeypatch):
    """Neither of a pair that is sure early nor of one that is not; areas to an error alike; sums are as before."""
    asked, forward = [], type(lm.network)._forward

    def heard(network, parts, vocabulary):
        for part in parts:
            rows = zip(part.ids.tolist(), part.asked.tolist(), strict=True)
            asked.extend((tuple(ids), tuple(places)) for ids, places in rows)
        return forward(network, parts, vocabulary)

    monkeypatch.setattr(type(lm.network), "_forward", heard)
    long, masks = "the cat sat on the mat a dog ran", 2**9 - 1
    for other, sure in (("mat mat mat a a a a a a", True), (long.replace("mat", "cat"), False)):
        asked.clear()
        if not sure:  # never
            monkeypatch.setattr("mptlml.scoring.pairs.half_width", lambda *_: math.inf)
        options = dict(level=0.5 if sure else 0.95, others=False, generator=seeded())
        [pair] = compare(lm, [(long, other)], **options)
        assert len({*asked}) == len(asked) == pair.passes <= 2 * masks
        assert (pair.passes < 2 * masks) == (pair.error > 0) == sure
        truth = exact_area(lm, long) - exact_area(lm, other)
        assert pair.difference == pytest.approx(truth, abs=5 * pair.error if sure else 1e-9)
    for error in (1e-9, 0.5):
        asked.clear()
        found = lm.areas([long], 600, error=error, generator=seeded())
        assert len({*asked}) == len(asked) == found.passes[0] <= masks and found.reached[0]
        away = found.mean[0] - exact_area(lm, long)
        assert abs(away) <= 1e-9 + 5 * found.stderr[0]


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


def test_single_mutants_are_those_of_a_loop(lm):
    """Each mutant by itself, under the masks that all share; masked marginals are differences of one hole."""
    words, passes = ["cat", "dog", "mat"], 8
    found = single_mutants(lm, WILD, words, num_passes=passes, generator=seeded(3))
    assert single_mutants(lm, "the cat", words, generator=seeded()).areas.shape == (2, 3)
    generator, ids, holes = seeded(3), lm.encode(WILD), torch.eye(6).bool()
    share, weight = shares(2, passes // 2, len(ids), generator)
    hidden = hide(draws.rand((passes, len(ids)), None, generator), share.flatten())
    for j in range(len(ids)):
        for v, word in enumerate(words):
            mutant = ids.clone()
            mutant[j] = lm.encode(word)[0]
            value = (score(lm, mutant, hidden) - score(lm, ids, hidden)) * weight.flatten()
            error = value.view(2, -1).diff(dim=0).square().sum().sqrt() / passes
            single = (score(lm, mutant, holes) - score(lm, ids, holes))[j] / 6
            known = torch.stack([value.mean(), error, single])
            tables = found.areas, found.errors, found.masked_marginals
            same(torch.stack([table[j, v] for table in tables]), known, 1e-9)
