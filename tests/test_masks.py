"""Masks, orders and draws: exact counts, uniform draws, Eq. 2's nesting, and where a draw happens."""

import itertools
import math

import pytest
import torch
from conftest import seeded
from scipy import stats

from mptlml import draws
from mptlml.masks import (
    all_masks,
    all_orders,
    count_masks,
    nested_masks,
    random_masks,
    random_orders,
    spread_places,
    stratified_sizes,
)


def uniform(drawn, every):
    """Whether all of `every` come up equally often, by a chi-square test."""
    counts = (drawn[:, None] == every).all(-1).sum(0)
    return counts.sum() == len(drawn) and stats.chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize("num_tokens", [1, 2, 5, 9])
def test_all_masks_are_all_the_masks(num_tokens):
    for size in range(1, num_tokens + 1):
        masks = all_masks(num_tokens, size)
        assert masks.dtype == torch.bool
        assert len(masks) == count_masks(num_tokens, size) == math.comb(num_tokens, size)
        masked = [tuple((~mask).nonzero().flatten().tolist()) for mask in masks]
        assert masked == list(itertools.combinations(range(num_tokens), size))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_random_masks_are_uniform(size, generator):
    drawn = random_masks(5, torch.full((100, 100), size), generator=generator)
    assert uniform(drawn.flatten(0, 1), all_masks(5, size))


def test_no_mask_reaches_into_padding(generator):
    """Rows of 5, 2 and 1 tokens, whole and in part: what lies behind a row's end stays observed."""
    lengths, sizes = torch.tensor([5, 2, 1]), torch.tensor([[5, 2, 1]] * 40 + [[2, 1, 1]] * 40)
    masks = random_masks(5, sizes, lengths=lengths, generator=generator)
    assert torch.equal((~masks).sum(-1), sizes)
    assert masks[:, torch.arange(5) >= lengths[:, None]].all()


@pytest.mark.parametrize("num_strata", [1, 3, 8, 24])
def test_strata_cover_the_sizes_evenly(num_strata, generator):
    """One size in each part of 1..8, and over all parts each size equally often."""
    sizes = stratified_sizes(8, num_strata, (4000,), generator=generator)
    part = torch.arange(num_strata)[:, None]
    assert ((sizes > part * 8 // num_strata) & (sizes <= -(-(part + 1) * 8 // num_strata))).all()
    assert stats.chisquare(torch.bincount(sizes.flatten(), minlength=9)[1:]).pvalue > 0.01


def test_places_are_spread_and_uniform(generator):
    """One in each of three parts, in any order, and anywhere within its part."""
    place = 3 * torch.stack([spread_places(3, generator=generator) for _ in range(6000)])
    assert uniform(place.long(), all_orders(3))
    assert stats.kstest(place.frac().flatten(), "uniform").pvalue > 0.01


def test_random_orders_are_uniform(generator):
    assert all_orders(4).tolist() == [list(order) for order in itertools.permutations(range(4))]
    assert uniform(random_orders(4, 24_000, generator=generator), all_orders(4))


@pytest.mark.parametrize("num_tokens", [1, 2, 6])
def test_nested_masks_are_those_of_equation_2(num_tokens, generator):
    """Term t of Eq. 2 is log p(x_{pi(t)} | x_{pi(t+1:D)}): exactly the tokens after pi(t) are observed."""
    orders = random_orders(num_tokens, (2, 3), generator=generator)
    masks = nested_masks(orders)
    assert masks.shape == (2, 3, num_tokens, num_tokens)
    for order, nested in zip(orders.flatten(0, 1).tolist(), masks.flatten(0, 1), strict=True):
        assert [set(mask.nonzero().flatten().tolist()) for mask in nested] == [
            set(order[t + 1 :]) for t in range(num_tokens)
        ]


LIKE = torch.zeros(2, dtype=torch.float32)
CHANCES = torch.tensor([[0.25, 0.5, 0.25], [0.0, 0.0, 1.0]])
DRAWS = [
    lambda like, g: draws.rand((3, 4), like, g),
    lambda like, g: draws.randn((3, 4), like, g),
    lambda like, g: draws.randint(5, (9,), like, g),
    lambda like, g: draws.multinomial(CHANCES.to(like), 9, g),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_is_repeated_by_its_seed_and_goes_to_the_data(draw, gpu):
    here, there = draw(LIKE, seeded(5)), draw(LIKE.to(gpu), seeded(5))
    assert there.device.type == gpu.type and torch.equal(there.cpu(), here)
