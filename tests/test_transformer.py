"""MaskedTransformer: what is built into its weights and answers; Shortfall against sums written out."""

import pytest
import torch
from conftest import same, seeded

from mptlml import random_masks
from mptlml.models import HiddenMarkovModel
from mptlml.training import fit
from mptlml_book.known_language import Shortfall
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
    """More than two blocks of rows here."""
    x, observed = rows_and_masks(generator, 600)
    every = net.vocabulary_log_prob(x, observed)
    same(every, net(x.long(), observed), 1e-5)
    picked = every.gather(-1, x.long()[..., None]).squeeze(-1)
    assert torch.equal(net.conditional_log_prob(x, observed), torch.where(observed, 0.0, picked))


def test_only_distance_counts(generator):
    """Far from both ends of a row, moving what is visible moves the answer along."""
    net = MaskedTransformer(9, V, width=8, num_layers=1, num_heads=4, generator=generator)
    layer = net.layers[0]
    nearest = layer.distance[:, layer.offset][:, 4].argmax(-1) - 4  # of [heads, from, to]
    assert nearest.tolist() == [-1, 1, -2, 2]  # at first each head looks at one place nearby
    layer.distance.data[:, (torch.arange(-8, 9)).abs() > 1] = -torch.inf
    x, observed = torch.tensor([0.0, 1, 2, 0, 0, 0, 0, 0, 0]), torch.arange(9).sub(2).abs() <= 1
    moved = net.vocabulary_log_prob(x.roll(3), observed.roll(3))
    same(moved[4:8], net.vocabulary_log_prob(x, observed)[1:5], 1e-6)


def trained(distance, generator):
    """Three steps of a network, which may change its distances."""
    net = MaskedTransformer(D, V, width=8, distance=distance, generator=generator)
    x, observed = rows_and_masks(generator, 30)
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    fit(lambda: net.conditional_log_prob(x, observed).sum(-1).mean(), weights, num_steps=3)
    return net


def test_a_set_has_no_order(generator):
    """Without distances the answers move along with the tokens, whatever their order, after training too."""
    net, (x, observed) = trained("none", generator), rows_and_masks(generator, 30)
    order = torch.randperm(D, generator=generator)
    moved = net.vocabulary_log_prob(x[:, order], observed[:, order])
    same(moved, net.vocabulary_log_prob(x, observed)[:, order], 1e-5)


def test_flat_distances_start_alike_and_are_learnt(generator):
    net = MaskedTransformer(D, V, distance="flat", generator=generator)
    assert not net.layers[0].distance.any()
    assert trained("flat", generator).layers[0].distance.all()


def test_the_seed_decides_the_weights_and_every_one_is_used():
    """Normal ones with a variance of 1 / inputs, no biases."""
    first, again = (MaskedTransformer(D, V, width=40, generator=seeded()) for _ in range(2))
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    up = first.layers[0].up
    assert up.weight.std().item() == pytest.approx(40**-0.5, rel=0.05) and not up.bias.any()
    first.conditional_log_prob(*rows_and_masks(seeded(), 30)).sum().backward()
    assert all(p.grad.any() for p in first.parameters())


def test_shortfall_is_minus_the_divergence_written_out(net, generator):
    """The last word is impossible, and costs nothing."""
    tables = [0.3, 0.7], [[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4, 0.0], [0.1, 0.9, 0.0]]
    truth = HiddenMarkovModel(*(torch.tensor(one, dtype=torch.float64) for one in tables), D)
    x, observed = rows_and_masks(generator)
    x %= 2
    p, q = (model.vocabulary_log_prob(x, observed) for model in (truth, net))
    kl = (p.exp() * (p - q)).nansum(-1)
    answer = Shortfall(net, truth).conditional_log_prob(x, observed)
    same(answer, torch.where(observed, 0.0, -kl), 1e-6)
    assert (answer[~observed] < 0).all()
