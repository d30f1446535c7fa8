"""The laws that every model obeys. A new model is one more line in MODELS."""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from conftest import DEVICES, global_states

from mptlml import (
    all_masks,
    all_orders,
    chain_rule,
    exact_curve,
    objectives,
    order_spread,
    random_masks,
    random_orders,
    score_curve,
)
from mptlml.models import PPCA, BernoulliMixture, HiddenMarkovModel, LinearVAE
from mptlml.models.deep_vae import DeepVAE, NodeMixture
from mptlml.models.linear_vae import disc_rule

GRID = torch.linspace(-40, 40, 801, dtype=torch.float64)  # a real token's values, for integrals by the trapezoid rule


@dataclass(frozen=True)
class Case:
    """A model under test: `build(*parameters)` from free real parameters of the given shapes."""

    build: Callable
    shapes: tuple  # of the parameters
    num_tokens: int
    values: tuple | None = None  # what a token can be; None for a real number

    def parameters(self, dtype=torch.float64, device="cpu"):
        """The parameters, the same at every call, requiring gradients."""
        generator = torch.Generator().manual_seed(11)
        drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in self.shapes]
        return [value.to(device, dtype).requires_grad_() for value in drawn]

    def model(self, dtype=torch.float64, device="cpu"):
        return self.build(*(value.detach() for value in self.parameters(dtype, device)))

    def rows(self, num_rows, seed=5, dtype=torch.float64, device="cpu"):
        generator = torch.Generator().manual_seed(seed)
        shape = (num_rows, self.num_tokens)
        if self.values is None:
            return (1.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(device, dtype)
        drawn = torch.randint(len(self.values), shape, generator=generator)
        return torch.tensor(self.values, dtype=dtype, device=device)[drawn.to(device)]


def _ppca(num_tokens, num_latents):
    return Case(lambda weight, log_noise, mean: PPCA(weight, log_noise.exp(), mean),
                ((num_tokens, num_latents), (), (num_tokens,)), num_tokens)


def _mixture(num_tokens, num_components):
    return Case(lambda logits, odds: BernoulliMixture(logits.softmax(0), odds.sigmoid()),
                ((num_components,), (num_components, num_tokens)), num_tokens, values=(0.0, 1.0))


def _hmm(num_tokens, num_states, vocab_size):
    return Case(lambda *logits: HiddenMarkovModel(*(logit.softmax(-1) for logit in logits), num_tokens),
                ((num_states,), (num_states, num_states), (num_states, vocab_size)), num_tokens,
                values=tuple(map(float, range(vocab_size))))


def _linear_vae(num_tokens, num_latents, spacing):
    rule = disc_rule(spacing, 4.5, num_latents)
    return Case(lambda weight, bias: LinearVAE(weight, bias, rule), ((num_tokens, num_latents), (num_tokens,)),
                num_tokens, values=(0.0, 1.0))


def _deep_vae(num_tokens, num_latents, num_hidden, spacing):
    """The decoder of a DeepVAE with z on a grid: its encoder answers nothing here."""
    def build(first, first_bias, last, last_bias, log_noise):
        vae = DeepVAE(num_tokens, num_latents, num_hidden, "tanh", generator=torch.Generator().manual_seed(0))
        for layer, weight, bias in ((vae.decoder[0], first, first_bias), (vae.decoder[-1], last, last_bias)):
            del layer.weight, layer.bias  # plain tensors in place of parameters, so that gradients reach the case's own
            layer.weight, layer.bias = weight, bias
        del vae.log_noise
        vae.log_noise = 0.5 * log_noise
        return NodeMixture(vae, disc_rule(spacing, 4.5, num_latents))

    shapes = (num_hidden, num_latents), (num_hidden,), (num_tokens, num_hidden), (num_tokens,), ()
    return Case(build, shapes, num_tokens)


MODELS = {
    "PPCA D=1 K=1": _ppca(1, 1),
    "PPCA D=2 K=2": _ppca(2, 2),
    "PPCA D=5 K=2": _ppca(5, 2),
    "PPCA D=8 K=3": _ppca(8, 3),
    "BernoulliMixture D=1 C=2": _mixture(1, 2),
    "BernoulliMixture D=4 C=1": _mixture(4, 1),
    "BernoulliMixture D=5 C=3": _mixture(5, 3),
    "BernoulliMixture D=8 C=4": _mixture(8, 4),
    "HiddenMarkovModel D=1 H=2 V=2": _hmm(1, 2, 2),
    "HiddenMarkovModel D=5 H=3 V=3": _hmm(5, 3, 3),
    "HiddenMarkovModel D=8 H=2 V=4": _hmm(8, 2, 4),
    "LinearVAE D=1 K=1": _linear_vae(1, 1, 0.2),
    "LinearVAE D=5 K=2": _linear_vae(5, 2, 0.5),
    "DeepVAE D=1 K=1": _deep_vae(1, 1, 3, 0.1),
    "DeepVAE D=4 K=2": _deep_vae(4, 2, 3, 0.3),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def case(request):
    return request.param


def every_mask(num_tokens):
    """All 2^D - 1 masks of 1..D tokens: observed [2^D - 1, D]."""
    return torch.cat([all_masks(num_tokens, size) for size in range(1, num_tokens + 1)])


def garbage(case, x, observed):
    """Rows that agree with x at observed tokens, and hold anything at all at masked ones."""
    if case.values is None:
        wild = [torch.full_like(x, 1e30), torch.full_like(x, -torch.inf), torch.full_like(x, torch.nan)]
    else:
        others = torch.tensor(case.values, dtype=x.dtype)
        shifted = others[(torch.searchsorted(others, x.contiguous()) + 1) % len(others)]
        wild = [shifted, torch.full_like(x, torch.nan)]
    return [torch.where(observed, x, values) for values in wild]


def test_area_over_all_masks_is_the_lml(case):
    model, x = case.model(), case.rows(4)
    curve = exact_curve(model, x)
    per_row = torch.from_numpy(curve.rows.sum(0))
    torch.testing.assert_close(per_row, model.log_prob(x), rtol=0, atol=1e-10)
    assert curve.area().mean == pytest.approx(model.log_prob(x).mean().item(), abs=1e-10)
    assert curve.area().stderr == 0


def test_every_order_gives_the_lml(case, generator):
    num_tokens, model, x = case.num_tokens, case.model(), case.rows(3)
    orders = all_orders(num_tokens) if num_tokens <= 5 else random_orders(num_tokens, 60, generator=generator)
    terms = chain_rule(model, x, orders)
    assert terms.shape == (len(orders), 3, num_tokens)
    torch.testing.assert_close(terms.sum(-1), model.log_prob(x).expand(len(orders), -1), rtol=0, atol=1e-10)


def test_marginals_obey_the_chain_rule_on_the_observed_tokens(case):
    """log p(x_R) = log p(x_{R minus j}) + log p(x_j | x_{R minus j}), and log p of no token is 0."""
    model, x = case.model(), case.rows(3)
    observed = ~every_mask(case.num_tokens)[:, None]  # read as observed sets of 1..D tokens [masks, 1, D]
    first = torch.nn.functional.one_hot(observed.int().argmax(-1), case.num_tokens).bool()
    fewer = observed & ~first
    step = torch.where(first, model.conditional_log_prob(x, fewer), 0.0).sum(-1)
    torch.testing.assert_close(model.log_prob(x, observed), model.log_prob(x, fewer) + step, rtol=0, atol=1e-10)
    nothing = torch.zeros(case.num_tokens, dtype=torch.bool)
    torch.testing.assert_close(model.log_prob(x, nothing), torch.zeros(3, dtype=x.dtype), rtol=0, atol=1e-12)
    torch.testing.assert_close(model.log_prob(x, ~nothing), model.log_prob(x), rtol=0, atol=1e-12)


def test_conditionals_are_distributions(case):
    """Each masked token's conditional sums (or integrates) to 1 over its own values, for every mask."""
    model, x = case.model(), case.rows(2)
    observed = every_mask(case.num_tokens)[:, None]
    values = GRID if case.values is None else torch.tensor(case.values, dtype=x.dtype)
    probabilities = torch.stack([
        model.conditional_log_prob(torch.where(observed, x, value), observed).exp() for value in values])
    total = torch.trapezoid(probabilities, values, dim=0) if case.values is None else probabilities.sum(0)
    masked = ~observed.expand(total.shape)
    torch.testing.assert_close(total[masked], torch.ones_like(total[masked]), rtol=0, atol=1e-10)


def test_observed_tokens_score_exactly_zero(case):
    model, x = case.model(), case.rows(3)
    observed = every_mask(case.num_tokens)[:, None]
    answer = model.conditional_log_prob(x, observed)
    assert (answer[observed.expand(answer.shape)] == 0).all()
    assert (model.conditional_log_prob(x, torch.ones_like(observed[0])) == 0).all()


def test_garbage_at_masked_tokens_predicts_nothing(case):
    """One masked token keeps its value, the others hold garbage: its log-probability stays, bit for bit."""
    model, x = case.model(), case.rows(3)
    observed = every_mask(case.num_tokens)[:, None]
    truth = model.conditional_log_prob(x, observed)
    for token in range(case.num_tokens):
        asked = torch.arange(case.num_tokens) == token
        for wild in garbage(case, x, observed | asked):
            answer = model.conditional_log_prob(wild, observed)
            assert torch.equal(answer[..., token], truth[..., token])
            torch.testing.assert_close(model.log_prob(wild, observed | asked), model.log_prob(x, observed | asked),
                                       rtol=0, atol=0)
            assert (answer[observed.expand(answer.shape)] == 0).all()


def test_batched_is_looped(case, generator):
    """Masks [P, 1, D] against rows [N, D], a mask a row [N, D], and one row with one mask all agree."""
    model, x = case.model(), case.rows(4)
    sizes = torch.randint(1, case.num_tokens + 1, (4,), generator=generator)
    observed = random_masks(case.num_tokens, sizes, generator=generator)
    table = model.conditional_log_prob(x, observed[:, None])
    assert table.shape == (4, 4, case.num_tokens)
    for p, n in itertools.product(range(4), range(4)):
        single = model.conditional_log_prob(x[n], observed[p])
        assert single.shape == (case.num_tokens,)
        torch.testing.assert_close(table[p, n], single, rtol=0, atol=1e-12)
    own = model.conditional_log_prob(x, observed)
    torch.testing.assert_close(own, table[range(4), range(4)], rtol=0, atol=1e-12)
    marginal = model.log_prob(x, observed[:, None])
    torch.testing.assert_close(marginal.diagonal(), model.log_prob(x, observed), rtol=0, atol=1e-12)
    if hasattr(model, "mean_conditional_log_prob"):
        torch.testing.assert_close(model.mean_conditional_log_prob(x, observed), table.mean(1), rtol=0, atol=1e-12)
        torch.testing.assert_close(model.mean_log_prob(x), model.log_prob(x).mean(), rtol=0, atol=1e-12)


def test_all_tokens_masked_gives_the_univariate_marginals(case):
    """m = D: with nothing observed, each token's score is its own marginal; m = 1 is the other end."""
    model, x = case.model(), case.rows(3)
    alone = torch.eye(case.num_tokens, dtype=torch.bool)
    every = model.conditional_log_prob(x, torch.zeros(case.num_tokens, dtype=torch.bool))
    torch.testing.assert_close(every, model.log_prob(x[:, None], alone), rtol=0, atol=1e-12)
    one = model.conditional_log_prob(x[:, None], ~alone).sum(-1)
    torch.testing.assert_close(one, model.log_prob(x)[:, None] - model.log_prob(x[:, None], ~alone), rtol=0, atol=1e-10)


ANSWERS = {
    "conditional_log_prob": lambda model, x, observed: model.conditional_log_prob(x, observed[:, None]),
    "log_prob": lambda model, x, observed: model.log_prob(x),
    "log_prob of R": lambda model, x, observed: model.log_prob(x, observed[:, None]),
    "mean_conditional_log_prob": lambda model, x, observed: model.mean_conditional_log_prob(x, observed),
    "mean_log_prob": lambda model, x, observed: model.mean_log_prob(x),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_gradients(case, name):
    """Gradients with respect to every parameter, against finite differences."""
    if not hasattr(case.model(), name.split()[0]):
        return  # the mean over rows at once is an extra that a model may have
    x = case.rows(2)
    observed = every_mask(case.num_tokens)[:: 2**max(0, case.num_tokens - 4)]  # up to 16 masks of all sizes
    assert torch.autograd.gradcheck(lambda *parameters: ANSWERS[name](case.build(*parameters), x, observed),
                                    case.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_dtype_and_device_follow_the_input(case, device):
    """float32 in, float32 out, close to float64, on the device where the input lies."""
    x, observed = case.rows(3), every_mask(case.num_tokens)[:, None]
    exact, single = case.model(), case.model(torch.float32, device)
    x32 = case.rows(3, dtype=torch.float32, device=device)
    pairs = [
        (single.conditional_log_prob(x32, observed.to(device)), exact.conditional_log_prob(x, observed)),
        (single.log_prob(x32), exact.log_prob(x)),
        (single.log_prob(x32, observed.to(device)), exact.log_prob(x, observed)),
    ]
    if hasattr(exact, "mean_conditional_log_prob"):
        pairs += [
            (single.mean_conditional_log_prob(x32, observed[:, 0].to(device)),
             exact.mean_conditional_log_prob(x, observed[:, 0])),
            (single.mean_log_prob(x32), exact.mean_log_prob(x)),
        ]
    for answer, truth in pairs:
        assert answer.dtype == torch.float32 and truth.dtype == torch.float64
        assert answer.device.type == device
        torch.testing.assert_close(answer.cpu().double(), truth, rtol=1e-4, atol=1e-4)


def test_inputs_are_left_alone(case):
    model, x = case.model(), case.rows(3)
    observed = every_mask(case.num_tokens)[:, None]
    before = x.clone(), observed.clone()
    parameters = {name: copy.deepcopy(value) for name, value in vars(model).items() if torch.is_tensor(value)}
    model.conditional_log_prob(x, observed)
    model.log_prob(x, observed)
    assert torch.equal(x, before[0]) and torch.equal(observed, before[1])
    assert all(torch.equal(getattr(model, name), value) for name, value in parameters.items())


# Everything public that draws at random, as (name, call(model, rows, generator)).
DRAWS = {
    "random_masks": lambda model, x, g: random_masks(model.num_tokens, [1], generator=g),
    "random_orders": lambda model, x, g: random_orders(model.num_tokens, 3, generator=g),
    "score_curve shared": lambda model, x, g: score_curve(model, x, num_masks=2, generator=g).mean,
    "score_curve rows": lambda model, x, g: score_curve(
        model, x, num_masks=2, keep_rows=True, generator=g).rows,
    "score_curve own": lambda model, x, g: score_curve(
        model, x, num_masks=2, share_masks=False, generator=g).rows,
    "order_spread": lambda model, x, g: order_spread(model, x, num_orders=2, generator=g),
    "sample": lambda model, x, g: model.sample(5, generator=g),
    "fixed_size": lambda model, x, g: objectives.fixed_size(model, x, 1, num_masks=2, generator=g),
    "uniform_size": lambda model, x, g: objectives.uniform_size(model, x, num_masks=3, generator=g),
    "uniform_size own": lambda model, x, g: objectives.uniform_size(
        model, x, share_masks=False, generator=g),
    "every_size": lambda model, x, g: objectives.every_size(model, x, generator=g),
    "bernoulli_rate": lambda model, x, g: objectives.bernoulli_rate(model, x, num_masks=9, generator=g),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_same_seed_same_result(case, draw):
    """The generator passed in decides everything; the global generators of torch, numpy and python stay as they are."""
    model, x = case.model(), case.rows(4)
    before = global_states()
    first, second = (torch.as_tensor(draw(model, x, torch.Generator().manual_seed(3))) for _ in range(2))
    assert torch.equal(first, second)
    assert global_states() == before


@pytest.mark.parametrize("num_rows", [1, 7])
def test_the_estimated_curve_is_exact_where_one_mask_exists(case, num_rows, generator):
    """m = D has a single mask, so even one draw gives S(x; D) exactly; D = 1 has nothing else."""
    model, x = case.model(), case.rows(num_rows)
    for options in ({}, {"keep_rows": True}, {"share_masks": False}):
        curve = score_curve(model, x, [case.num_tokens], num_masks=3, generator=generator, **options)
        assert curve.mean[0] == pytest.approx(exact_curve(model, x).mean[-1], abs=1e-12)
        assert curve.variance[0] == pytest.approx(0, abs=1e-24)


def test_samples_follow_the_models_own_density(case, generator):
    """E[q(x) / p(x)] = 1 over samples of p, for any other density q: here the same model, parameters shrunk."""
    model = case.model()
    x = model.sample(20_000, generator=generator)
    assert x.shape == (20_000, case.num_tokens) and x.dtype == torch.float64
    other = case.build(*(value.detach() * 0.9 for value in case.parameters()))
    ratio = (other.log_prob(x) - model.log_prob(x)).exp()
    assert ratio.mean().item() == pytest.approx(1, abs=4 * ratio.std().item() / math.sqrt(len(ratio)))
