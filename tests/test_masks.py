"""Masks and orders: exact counts, uniform draws, Eq. 2's nesting."""

import itertools
import math

import pytest
import torch
from scipy import stats

from mptlml import all_masks, all_orders, count_masks, nested_masks, random_masks, random_orders


def uniform(counts):
    """Whether the counts of equally likely outcomes pass a chi-square test; the seed is fixed, so is the verdict."""
    return stats.chisquare(counts).pvalue > 0.01


def test_the_papers_count():
    """Sec. 2: for D = 512 tokens and M = 76 masked ones, C_M is about 1.21e92."""
    count = count_masks(512, 76)
    assert count == math.comb(512, 76) and isinstance(count, int)
    assert f"{count:.4e}" == "1.2111e+92"


@pytest.mark.parametrize("num_tokens", [1, 2, 5, 9])
def test_all_masks_are_all_the_masks(num_tokens):
    for size in range(1, num_tokens + 1):
        masks = all_masks(num_tokens, size)
        assert masks.dtype == torch.bool
        assert len(masks) == count_masks(num_tokens, size) == math.comb(num_tokens, size)
        assert ((~masks).sum(-1) == size).all()
        masked = [tuple((~mask).nonzero().flatten().tolist()) for mask in masks]
        assert masked == list(itertools.combinations(range(num_tokens), size))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_random_masks_are_uniform(size, generator):
    drawn = random_masks(5, torch.full((10_000,), size), generator=generator)
    every = all_masks(5, size)
    counts = (drawn[:, None] == every).all(-1).sum(0)
    assert counts.sum() == 10_000
    assert uniform(counts)


def test_random_masks_honour_each_size(generator):
    sizes = torch.randint(1, 8, (4, 50), generator=generator)
    masks = random_masks(7, sizes, generator=generator)
    assert masks.shape == (4, 50, 7) and masks.dtype == torch.bool
    assert torch.equal((~masks).sum(-1), sizes)
    assert random_masks(3, [3, 3], generator=generator).any().item() is False  # m = D leaves nothing to see


def test_each_row_has_a_mask_of_its_own(generator):
    """Two rows' masks are independent: all pairs of masked tokens are equally frequent."""
    masks = random_masks(3, torch.ones(9000, 2, dtype=torch.long), generator=generator)
    first, second = (~masks).int().argmax(-1).unbind(-1)
    assert uniform(torch.bincount(first * 3 + second, minlength=9))


def test_random_orders_are_uniform(generator):
    drawn = random_orders(4, 24_000, generator=generator)
    every = all_orders(4)
    assert uniform((drawn[:, None] == every).all(-1).sum(0))
    assert random_orders(4, (2, 3), generator=generator).shape == (2, 3, 4)


def test_all_orders():
    assert all_orders(4).tolist() == [list(order) for order in itertools.permutations(range(4))]


def test_the_generator_advances(generator):
    first, second = (random_masks(30, [10] * 5, generator=generator) for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("num_tokens", [1, 2, 6])
def test_nested_masks_are_those_of_equation_2(num_tokens, generator):
    """Term t of Eq. 2 is log p(x_{M(t)} | x_{M(t+1:D)}): exactly the tokens after M(t) are observed."""
    orders = random_orders(num_tokens, (2, 3), generator=generator)
    masks = nested_masks(orders)
    assert masks.shape == (2, 3, num_tokens, num_tokens)
    for i, j, t in itertools.product(range(2), range(3), range(num_tokens)):
        order = orders[i, j].tolist()
        assert set(masks[i, j, t].nonzero().flatten().tolist()) == set(order[t + 1:])
