"""The deep VAE: with one latent against dense quadrature."""

import math
from functools import partial

import pytest
import torch
from conftest import same, seeded
from scipy import stats
from torch.testing import assert_close

from mptlml import draws
from mptlml_book import deep_vae as study
from mptlml_book.deep_vae import DeepVAE, Importance, Recursive


def network(num_tokens=6, num_latents=1, num_hidden=16, bend=2.0):
    vae = DeepVAE(num_tokens, num_latents, num_hidden, generator=seeded(2)).double()
    with torch.no_grad():
        for parameter in vae.decoder.parameters():
            parameter.mul_(bend)
    return vae.requires_grad_(False)


def rows_and_masks(generator, vae, num_rows=8):
    """Rows drawn from the model, and one mask per row."""
    z = draws.randn((num_rows, vae.num_latents), None, generator)
    noise = draws.randn((num_rows, vae.num_tokens), None, generator)
    x = (vae.decoder(z) + vae.log_noise.exp() * noise).detach()
    return x, torch.rand(x.shape, generator=generator) < 0.5


class Grid:
    """The same model with its one latent on a dense grid: exact, by torch's own densities."""

    def __init__(self, vae, spacing):
        nodes = torch.arange(-7, 7, spacing, dtype=torch.float64)[:, None]
        self.tokens = torch.distributions.Normal(vae.decoder(nodes), vae.log_noise.exp())
        self.log_weights = (-0.5 * nodes[:, 0].square()).log_softmax(0)

    def log_prob(self, x, observed=None):
        tokens = self.tokens.log_prob(x[..., None, :])
        seen = tokens if observed is None else torch.where(observed[..., None, :], tokens, 0.0)
        return (self.log_weights + seen.sum(-1)).logsumexp(-1)

    def conditional_log_prob(self, x, observed):
        """Each masked token's as a difference of two marginals."""
        joint = [
            self.log_prob(x, observed | token) for token in torch.eye(x.shape[-1], dtype=torch.bool)
        ]
        return torch.stack(joint, -1) - self.log_prob(x, observed)[..., None]


def slopes(vae, answer):
    """The gradient of an answer, by parameter."""
    return torch.autograd.grad(
        answer.sum(), list(vae.parameters()), retain_graph=True, materialize_grads=True
    )


@pytest.mark.parametrize("proposal", ["mode", "encoder"])
def test_importance_sampling_matches_dense_quadrature(proposal, generator):
    vae = network(bend=1.0)  # gently bent: one peak a row, as the proposal "mode" supposes
    truth = Grid(vae, 0.01)
    x, observed = rows_and_masks(generator, vae)
    model = Importance(vae, generator, 40_000, proposal)
    same(model.log_prob(x), truth.log_prob(x), 0.05)
    answer = model.conditional_log_prob(x, observed)
    same(answer, truth.conditional_log_prob(x, observed), 0.05)


def test_students_t_is_that_of_its_density(generator):
    root = torch.tensor([[1.5, 0], [-0.7, 0.4]], dtype=torch.float64)
    proposal = study.StudentT(torch.ones(1, 2).double(), root[None])
    z, log_density = proposal.draw(20_000, generator)
    truth = stats.multivariate_t([1, 1], root @ root.T, study.TAILS)
    assert log_density[:, 0].numpy() == pytest.approx(truth.logpdf(z[:, 0]), abs=1e-9)
    far = torch.linalg.solve(root, (z[:, 0] - 1).T).square().sum(0) / 2
    assert stats.kstest(far, stats.f(2, study.TAILS).cdf).pvalue > 0.001


def test_fitting_the_proposal_lifts_the_effective_sample_size(monkeypatch):
    vae, sizes = network(num_tokens=12, num_latents=3, bend=3.0), []
    x = rows_and_masks(seeded(3), vae, 40)[0]
    for rounds in (0, 6):
        monkeypatch.setattr(study, "ROUNDS", rounds)
        sizes.append(Importance(vae, seeded(), 400).log_prob_and_size(x)[1].quantile(0.1))
    assert sizes[1] > 1.5 * sizes[0]


def test_a_climb_goes_up_or_stays():
    """-log cosh z, where Newton's own steps diverge from |z| > 1.09; and cos z near its lowest, where they fall."""
    start = torch.tensor([[0.5], [1.5], [-3.0]]).double()
    options = dict(num_steps=30, tolerance=1e-9)
    top = study.climb(lambda z: -z.cosh().log().sum(-1), start, **options)
    same(top, torch.zeros_like(start), 1e-8)
    assert torch.equal(study.climb(lambda z: z.cos().sum(-1), start[2:], **options), start[2:])


def test_the_mode_of_a_linear_decoder_is_the_peak_and_knows_its_width(generator):
    vae = network(num_latents=2, num_hidden=0)
    x, observed = rows_and_masks(generator, vae)
    peaks = zip(x, observed, *vae.mode(x, observed, torch.zeros(1, 8, 2).double()), strict=True)
    for *row, place, root in peaks:
        height = lambda z, row=row: vae.log_joint(*row, z)[1]  # noqa: E731
        assert torch.autograd.functional.jacobian(height, place).abs().max() < 1e-9
        hessian = torch.autograd.functional.hessian(height, place)
        same(root @ root.T @ hessian, -torch.eye(2).double(), 1e-9)


def test_gradients_flow_through_the_last_pass_only(generator):
    vae = network().requires_grad_()
    x, observed = rows_and_masks(generator, vae)
    with torch.no_grad():
        guess = torch.where(observed, x, 0.3)
        for _ in range(3):  # encode and decode, written out
            guess = torch.where(observed, x, vae.decoder(vae.encode(guess)[0]))
    by_hand = vae.token_log_prob(x, vae.encode(guess)[0])[~observed]
    model = Recursive(vae, seeded(), 4, sample=False, fill=0.3)
    answer = model.conditional_log_prob(x, observed)
    same(answer[~observed], by_hand)
    assert_close(slopes(vae, answer), slopes(vae, by_hand))


def test_the_elbo_is_the_fit_minus_the_divergence_of_what_the_encoder_is_shown(generator):
    vae = network(num_latents=2)
    x, observed = rows_and_masks(generator, vae)
    mean, deviation = vae.encode(observed * x)
    z = mean + deviation * draws.randn(mean.shape, None, seeded())
    q = torch.distributions.Normal(mean, deviation)
    away = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum(-1)
    same(
        vae.elbo(x, seen=observed * x, generator=seeded()),
        vae.token_log_prob(x, z).sum(-1) - away,
    )


def test_hiding_shows_the_encoder_a_third_less_and_scores_the_whole_image(monkeypatch):
    rows, told = rows_and_masks(seeded(), network(), 200)[0].float(), {}
    monkeypatch.setattr(DeepVAE, "elbo", lambda _, x, **given: told.update(given, x=x) or x.sum(1))
    monkeypatch.setattr(study, "fit", lambda value, *_, **__: value())
    study.train(study.HIDING, rows, seed=1)
    hidden = told["seen"] != told["x"]
    assert (hidden.sum(1) == 2).all() and len(hidden.unique(dim=0)) == 15
    assert (told["seen"] == rows.mean(0))[hidden].all() and torch.isin(told["x"], rows).all()


@pytest.mark.parametrize(
    "model, num_draws",
    [(partial(Importance, num_samples=10, proposal="encoder"), 10), (Recursive, 3)],
)
def test_an_encoder_of_its_own_learns_from_a_bound_and_changes_no_answer(
    model, num_draws, generator
):
    vae = network().requires_grad_()
    x, observed = rows_and_masks(generator, vae, 400)
    answers = [
        model(vae, seeded(), own_encoder=own).conditional_log_prob(x, observed)
        for own in (False, True)
    ]
    assert torch.equal(*answers)
    used = seeded()
    draws.randn((num_draws, 400, 1), None, used)  # as many as the answers took
    mean, deviation = vae.encode(torch.where(observed, x, 0.0))
    z = mean + deviation * draws.randn(mean.shape, None, used)
    q = torch.distributions.Normal(mean, deviation)
    divergence = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0))
    seen = torch.where(observed, vae.token_log_prob(x, z), 0.0).sum(-1)
    bound = seen - divergence.sum(-1)
    each = (~observed).sum(-1) * bound  # each hidden token brings it along
    found = [slopes(vae, answer) for answer in (*answers, each)]
    for (name, _), joint, own, bounds in zip(vae.named_parameters(), *found, strict=True):
        same(own, bounds if name.startswith("encoder") else joint)


@pytest.mark.parametrize("scheme", ["elbo", study.HIDING, *study.HELD])
def test_every_scheme_climbs_and_can_be_left_early(scheme):
    rows = rows_and_masks(seeded(), network(num_latents=2), 200)[0].float()
    long = study.train(scheme, rows, seed=1, num_steps=120)[1].objective
    assert sum(long[-20:]) > sum(long[:20]) + 20
    vae, left = study.train(scheme, rows, seed=1, num_steps=120, stop=5)
    assert left.objective == long[:5] and vae.log_noise != -1
    held = study.train(scheme, rows, seed=1, num_steps=5, noise=0.5)[0].log_noise
    assert held == pytest.approx(math.log(0.5))
