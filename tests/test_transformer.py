"""MaskedTransformer: what is built into its weights and answers; Shortfall against sums written out."""

import pytest
import torch
from conftest import same, seeded

from mptlml import random_masks
from mptlml.models import HiddenMarkovModel
from mptlml.training import fit
from mptlml_book.shortfall import Shortfall
from mptlml_book.transformer import MaskedTransformer

D, V = 5, 3


@pytest.fixture
def net(generator):
    net = MaskedTransformer(D, V, width=8, num_layers=2, num_heads=2, generator=generator)
    net.readout.weight.data *= 3  # far from uniform answers
    return net


def rows_and_masks(generator, count=6):
    x = torch.randint(V, (count, D), generator=generator).double()
    return x, random_masks(
        D, torch.randint(1, D, (count,), generator=generator), generator=generator
    )


def test_it_answers_with_the_words_that_stand_there_in_blocks_too(net, generator):
    """Without gradients rows go through in blocks: more than two of them here."""
    x, observed = rows_and_masks(generator, 600)
    every = net.vocabulary_log_prob(x, observed)
    picked = every.gather(-1, x.long()[..., None]).squeeze(-1)
    assert torch.equal(net.conditional_log_prob(x, observed), torch.where(observed, 0.0, picked))
    with torch.no_grad():
        same(net.vocabulary_log_prob(x, observed), every.detach(), 1e-5)
    changed = torch.where(observed, (x + 1) % V, x)  # what is visible counts
    assert not torch.allclose(net.vocabulary_log_prob(changed, observed), every, atol=1e-3)


def test_only_distance_counts(generator):
    """Far from both ends of a row, moving what is visible moves the answer along."""
    net = MaskedTransformer(9, V, width=8, num_layers=1, num_heads=4, generator=generator)
    layer = net.layers[0]
    nearest = layer.distance[:, layer.offset][:, 4].argmax(-1) - 4  # of [heads, from, to]
    assert nearest.tolist() == [-1, 1, -2, 2]  # at first each head looks at one place nearby
    layer.distance.data = (
        torch.where((torch.arange(-8, 9)).abs() <= 1, 0.0, -torch.inf).expand(4, -1).clone()
    )
    x, observed = torch.tensor([0.0, 1, 2, 0, 0, 0, 0, 0, 0]), torch.arange(9).sub(2).abs() <= 1
    moved = net.vocabulary_log_prob(x.roll(3), observed.roll(3))
    same(moved[4:8], net.vocabulary_log_prob(x, observed)[1:5], 1e-6)


def test_a_set_has_no_order(generator):
    """Without distances the answers move along with the tokens, whatever their order, and stay so in training."""
    net = MaskedTransformer(D, V, width=8, distance="none", generator=generator)
    x, observed = rows_and_masks(generator, 30)
    fit(
        lambda: net.conditional_log_prob(x, observed).sum(-1).mean(),
        [weight for weight in net.parameters() if weight.requires_grad],
        num_steps=3,
    )
    order = torch.randperm(D, generator=generator)
    moved = net.vocabulary_log_prob(x[:, order], observed[:, order])
    same(moved, net.vocabulary_log_prob(x, observed)[:, order], 1e-5)


def test_flat_distances_start_alike_and_are_learnt(generator):
    net = MaskedTransformer(D, V, width=8, distance="flat", generator=generator)
    x, observed = rows_and_masks(generator, 30)
    assert all((layer.distance == 0).all() for layer in net.layers)
    fit(lambda: net.conditional_log_prob(x, observed).sum(-1).mean(), net.parameters(), num_steps=1)
    assert all((layer.distance != 0).any() for layer in net.layers)


def test_the_seed_decides_the_weights():
    """Normal ones with a variance of 1 / inputs, no biases; and every one of them is used."""
    first, again, other = (
        MaskedTransformer(D, V, width=40, generator=seeded(seed)) for seed in (1, 1, 2)
    )
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert not torch.equal(first.readout.weight, other.readout.weight)
    up = first.layers[0].up
    assert up.weight.std().item() == pytest.approx(40**-0.5, rel=0.05) and (up.bias == 0).all()
    assert first.embedding.weight.std().item() == pytest.approx(1, rel=0.2)
    first.conditional_log_prob(*rows_and_masks(seeded(0), 30)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in first.parameters())


def test_shortfall_is_minus_the_divergence_written_out(net, generator):
    shapes, draw = ((2,), (2, 2), (2, V)), dict(generator=generator, dtype=torch.float64)
    truth = HiddenMarkovModel(*(torch.randn(shape, **draw).softmax(-1) for shape in shapes), D)
    x, observed = rows_and_masks(generator)
    answer = Shortfall(net, truth).conditional_log_prob(x, observed)
    # the same word at every masked token
    values = torch.arange(V).double()[:, None, None].expand(-1, *x.shape)
    p, q = (
        model.conditional_log_prob(torch.where(observed, x, values), observed)
        for model in (truth, net)
    )
    same(answer, (p.exp() * (q - p)).sum(0), 1e-6)
    assert (answer[~observed] < 0).all() and (answer[observed] == 0).all()
    cycle = torch.eye(V, dtype=torch.float64)  # 0, 1, 2, 0, 1: words of probability 0 cost nothing
    sure = HiddenMarkovModel(cycle[0], cycle.roll(1, 1), cycle, D)
    row = torch.tensor([0.0, 1, 2, 0, 1]).double()
    answer = Shortfall(net, sure).conditional_log_prob(row, observed[0])
    same(answer, net.conditional_log_prob(row, observed[0]).double(), 1e-6)
