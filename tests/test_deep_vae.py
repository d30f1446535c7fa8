"""The deep VAE: with a linear decoder against probabilistic PCA, with one latent against dense quadrature."""

import math

import pytest
import torch

from mptlml import PPCA
from mptlml.deep_importance import Importance, annealed_log_prob
from mptlml.deep_vae import DeepVAE, NodeMixture, Recursive, check_pixels
from mptlml.linear_vae import disc_rule


def network(num_tokens=6, num_latents=1, num_hidden=16, activation="tanh", bend=2.0):
    vae = DeepVAE(num_tokens, num_latents, num_hidden, activation, generator=torch.Generator().manual_seed(2)).double()
    with torch.no_grad():
        for parameter in vae.decoder.parameters():
            parameter.mul_(bend)
    return vae.requires_grad_(False)


def rows_and_masks(generator, vae, num_rows=8):
    """Rows of the model itself, and a mask a row."""
    draw = dict(generator=generator, dtype=torch.float64)
    means = vae.decoder(torch.randn(num_rows, vae.num_latents, **draw)).detach()
    x = means + vae.log_noise.exp().detach() * torch.randn(means.shape, **draw)
    return x, torch.rand(x.shape, generator=generator) < 0.5


@pytest.mark.parametrize("proposal", ["mode", "encoder"])
def test_importance_sampling_matches_dense_quadrature(proposal, generator):
    vae = network(bend=1.0)  # gently bent: one peak a row, as the proposal "mode" supposes
    truth = NodeMixture(vae, disc_rule(0.01, 7.0, 1))
    x, observed = rows_and_masks(generator, vae)
    model = Importance(vae, generator, 40_000, proposal)
    tolerance = dict(rtol=0, atol=0.05)
    torch.testing.assert_close(model.log_prob(x), truth.log_prob(x), **tolerance)
    torch.testing.assert_close(model.conditional_log_prob(x, observed), truth.conditional_log_prob(x, observed),
                               **tolerance)
    torch.testing.assert_close(model.joint_log_prob(x, observed), truth.log_prob(x) - truth.log_prob(x, observed),
                               **tolerance)


def test_a_linear_decoder_is_probabilistic_pca(generator):
    vae = network(num_latents=2, num_hidden=0)
    ppca = PPCA(vae.decoder[0].weight, (2 * vae.log_noise).exp(), vae.decoder[0].bias)
    x, observed = rows_and_masks(generator, vae)
    model = Importance(vae, generator, 20_000)
    torch.testing.assert_close(model.log_prob(x), ppca.log_prob(x), rtol=0, atol=0.03)
    torch.testing.assert_close(model.conditional_log_prob(x, observed), ppca.conditional_log_prob(x, observed),
                               rtol=0, atol=0.05)
    nodes = NodeMixture(vae, disc_rule(0.05, 7.0))
    torch.testing.assert_close(nodes.conditional_log_prob(x, observed), ppca.conditional_log_prob(x, observed),
                               rtol=0, atol=1e-8)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_slopes_are_the_decoders_derivative(activation, generator):
    vae = network(num_latents=3, activation=activation)
    z = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    for row, slope in zip(z, vae.slopes(z), strict=True):
        torch.testing.assert_close(slope, torch.autograd.functional.jacobian(vae.decoder, row), rtol=0, atol=1e-12)


def test_mode_is_a_peak(generator):
    vae = network(num_latents=2, num_tokens=12)
    x, observed = rows_and_masks(generator, vae)
    z = vae.mode(x, observed, torch.zeros(1, len(x), 2).double(), num_steps=200)[0].requires_grad_()
    height = torch.where(observed, vae.token_log_prob(x, z), 0.0).sum() - z.square().sum() / 2
    assert torch.autograd.grad(height, z)[0].abs().max() < 0.05


@pytest.mark.parametrize("make", [
    lambda vae, g: Recursive(vae, g), lambda vae, g: Recursive(vae, g, redraw=True),
    lambda vae, g: Recursive(vae, g, sample=False, fill=0.3), lambda vae, g: Importance(vae, g, 5, "encoder"),
    lambda vae, g: Importance(vae, g, 5), lambda vae, g: NodeMixture(vae, disc_rule(0.5, 4.0, 1)),
], ids=["recursive", "gibbs", "mean", "encoder", "mode", "nodes"])
def test_hidden_tokens_say_nothing_and_seen_ones_score_zero(make, generator):
    vae = network()
    x, observed = rows_and_masks(generator, vae)
    truth = make(vae, torch.Generator().manual_seed(0)).conditional_log_prob(x, observed)
    assert (truth[observed] == 0).all() and torch.isfinite(truth).all()
    for token in range(6):
        wild = torch.where(observed | (torch.arange(6) == token), x, 1e6)
        answer = make(vae, torch.Generator().manual_seed(0)).conditional_log_prob(wild, observed)
        assert torch.equal(answer[:, token], truth[:, token])


def test_gradients_flow_through_the_last_pass_only(generator):
    vae = network().requires_grad_()
    x, observed = rows_and_masks(generator, vae)
    one = Recursive(vae, torch.Generator().manual_seed(0), 1, sample=False)
    many = Recursive(vae, torch.Generator().manual_seed(0), 4, sample=False)
    with torch.no_grad():
        three = Recursive(vae, torch.Generator().manual_seed(0), 3, sample=False).latent(x, observed)
        guess = torch.where(observed, x, vae.decoder(three))
    expected = torch.autograd.grad(vae.token_log_prob(x, vae.encode(guess)[0])[~observed].sum(), list(vae.parameters()),
                                   allow_unused=True)
    found = torch.autograd.grad(many.conditional_log_prob(x, observed).sum(), list(vae.parameters()), allow_unused=True)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(one.latent(x, observed), many.latent(x, observed))


def test_elbo_is_below_the_lml(generator):
    vae = network()
    x = rows_and_masks(generator, vae, 400)[0]
    assert vae.elbo(x, generator=generator).mean() < NodeMixture(vae, disc_rule(0.02, 7.0, 1)).log_prob(x).mean()


BAD = {
    "no passes": (lambda v, g: Recursive(v, g, 0), "num_passes"),
    "another proposal": (lambda v, g: Importance(v, g, 5, "prior"), "proposal"),
    "no draws": (lambda v, g: Importance(v, g, 0), "num_samples"),
    "another activation": (lambda v, g: DeepVAE(4, activation="gelu", generator=g), "activation"),
    "no tokens": (lambda v, g: DeepVAE(0, generator=g), "num_tokens"),
    "wrong size": (lambda v, g: Importance(v, g, 5).log_prob(torch.zeros(2, 4).double()), "6 tokens"),
    "NaN": (lambda v, g: Importance(v, g, 5).log_prob(torch.full((2, 6), math.nan).double()), "NaN"),
    "bright pixels": (lambda v, g: check_pixels(torch.full((2, 6), 1.5)), r"\[0, 1\]"),
    "no rows": (lambda v, g: check_pixels(torch.zeros(0, 6)), r"\[N, D\]"),
}


@pytest.mark.parametrize("call, message", BAD.values(), ids=BAD.keys())
def test_bad_input(call, message, generator):
    with pytest.raises(ValueError, match=message):
        call(network(), generator)
