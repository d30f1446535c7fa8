"""The deep VAE: with a linear decoder against probabilistic PCA, with one latent against dense quadrature."""

import math

import pytest
import torch

from mptlml.models import PPCA
from mptlml.models.deep_vae import DeepVAE, NodeMixture, Recursive, check_pixels
from mptlml.models.importance import Importance, annealed_log_prob
from mptlml.models.linear_vae import disc_rule
from mptlml.studies.deep_vae import SCHEMES, images, train


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


def test_annealing_matches_dense_quadrature_where_the_posterior_has_two_peaks(generator):
    vae = network()  # sharply bent
    truth = NodeMixture(vae, disc_rule(0.01, 7.0, 1))
    x = rows_and_masks(generator, vae, 6)[0]
    found = annealed_log_prob(vae, x, generator=generator, num_draws=8000, num_moves=8)
    torch.testing.assert_close(found, truth.log_prob(x), rtol=0, atol=0.1)


def test_annealing_matches_probabilistic_pca(generator):
    vae = network(num_tokens=20, num_latents=2, num_hidden=0)
    ppca = PPCA(vae.decoder[0].weight, (2 * vae.log_noise).exp(), vae.decoder[0].bias)
    x = rows_and_masks(generator, vae, 6)[0]
    found = annealed_log_prob(vae, x, generator=generator, num_draws=8000, num_moves=8)
    torch.testing.assert_close(found, ppca.log_prob(x), rtol=0, atol=0.1)


def test_condensed_tokens_have_the_same_likelihood(generator):
    vae = network(num_tokens=40, num_latents=2)
    x = rows_and_masks(generator, vae)[0]
    small, y, rest = vae.condensed(x)
    assert small.num_tokens == 16 and y.shape == (8, 16)
    z = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(small.token_log_prob(y, z).sum(-1) + rest, vae.token_log_prob(x, z).sum(-1),
                               rtol=0, atol=1e-9)
    one, two = (Importance(vae, torch.Generator().manual_seed(0), 2000).log_prob(x, observed)
                for observed in (None, torch.ones_like(x, dtype=torch.bool)))
    torch.testing.assert_close(one, two, rtol=0, atol=0.05)


def test_fitting_the_bell_lifts_the_effective_sample_size():
    vae = network(num_tokens=12, num_latents=2, bend=3.0)
    x = rows_and_masks(torch.Generator().manual_seed(3), vae, 40)[0]
    plain, fitted = (Importance(vae, torch.Generator().manual_seed(0), 400, rounds=rounds)
                     .log_prob(x, with_sizes=True)[1] for rounds in (0, 6))
    assert fitted.quantile(0.1) > 1.5 * plain.quantile(0.1)


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


def test_an_encoder_of_its_own_learns_from_a_bound_and_changes_no_answer(generator):
    vae = network().requires_grad_()
    x, observed = rows_and_masks(generator, vae, 400)
    together, apart = (Importance(vae, torch.Generator().manual_seed(0), 10, "encoder", own_encoder=own)
                       for own in (False, True))
    answers = [model.conditional_log_prob(x, observed) for model in (together, apart)]
    assert torch.equal(*answers)
    slopes = [torch.autograd.grad(answer.sum(), list(vae.parameters())) for answer in answers]
    for (name, _), one, two in zip(vae.named_parameters(), *slopes, strict=True):
        assert torch.allclose(one, two) == (not name.startswith("encoder")), name
    constants = 0.5 - (vae.log_noise + 0.5 * math.log(2 * math.pi)) * observed.sum(-1)
    bound = apart._visible_elbo(x, observed) + constants
    truth = NodeMixture(vae, disc_rule(0.02, 7.0, 1)).log_prob(x, observed)
    assert -20 < (bound - truth).mean() < 0


def test_elbo_is_below_the_lml(generator):
    vae = network()
    x = rows_and_masks(generator, vae, 400)[0]
    assert vae.elbo(x, generator=generator).mean() < NodeMixture(vae, disc_rule(0.02, 7.0, 1)).log_prob(x).mean()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_climbs_and_can_be_left_early(scheme):
    rows = rows_and_masks(torch.Generator().manual_seed(0), network(num_latents=2), 200)[0].float()
    long = train(scheme, rows, seed=1, num_steps=120)[1].objective
    short = train(scheme, rows, seed=1, num_steps=120, stop=5)[1].objective
    assert short == long[:5]
    assert sum(long[-20:]) > sum(long[:20]) + 20


def test_every_fourth_of_the_digits_is_held_out():
    rows, held_out, found = images("digits")
    assert (len(rows), len(held_out), found.side) == (1347, 450, 8) and rows.dtype == torch.float32
    assert torch.equal(held_out[1], found.pixels[4].float()) and torch.equal(rows[0], found.pixels[1].float())


def test_held_noise_stays():
    rows = torch.rand(50, 6, generator=torch.Generator().manual_seed(0))
    vae = train("elbo", rows, seed=1, num_steps=5, noise=0.5)[0]
    assert vae.log_noise.item() == pytest.approx(math.log(0.5))


def test_gradients_flow_through_every_pass_on_request(generator):
    vae = network().requires_grad_()
    x, observed = rows_and_masks(generator, vae)
    answer = Recursive(vae, generator, 3, sample=False, through=True).conditional_log_prob(x, observed).sum()
    weight = vae.encoder[0].weight
    found = torch.autograd.grad(answer, weight)[0]
    step, direction = 1e-5, torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            weight.add_(sign * step * direction)
            values.append(Recursive(vae, generator, 3, sample=False).conditional_log_prob(x, observed).sum())
            weight.sub_(sign * step * direction)
    torch.testing.assert_close((found * direction).sum(), (values[0] - values[1]) / (2 * step), rtol=1e-5, atol=1e-6)


BAD = {
    "no passes": (lambda v, g: Recursive(v, g, 0), "num_passes"),
    "another proposal": (lambda v, g: Importance(v, g, 5, "prior"), "proposal"),
    "less than no rounds": (lambda v, g: Importance(v, g, 5, rounds=-1), "rounds"),
    "one draw to anneal": (lambda v, g: annealed_log_prob(v, torch.zeros(2, 6).double(), generator=g, num_draws=1),
                           "num_draws"),
    "another scheme": (lambda v, g: train("mlm", torch.zeros(9, 6), seed=1), "scheme"),
    "no noise": (lambda v, g: train("elbo", torch.zeros(9, 6), seed=1, noise=0.0), "noise"),
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
