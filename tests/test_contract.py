"""Every model here is held to the laws of `mptlml.testing`; and each law catches a model that breaks it."""

import copy
import functools
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from conftest import seeded
from fakes import Says

from mptlml import chain_rule, draws
from mptlml.curve import Estimate
from mptlml.models import PPCA, BernoulliMixture, HiddenMarkovModel
from mptlml.testing import LAWS, Case, Verdict, check_evaluator, check_model
from mptlml_book.deep_vae import DeepVAE, Importance, Recursive
from mptlml_book.linear_vae import LinearVAE, disc_rule
from mptlml_book.transformer import MaskedTransformer

BITS = (0.0, 1.0)


def words(vocab_size):
    return tuple(map(float, range(vocab_size)))


def ppca(num_tokens, num_latents):
    return Case(
        lambda weight, log_noise, mean: PPCA(weight, log_noise.exp(), mean),
        num_tokens,
        ((num_tokens, num_latents), (), (num_tokens,)),
    )


def mixture(num_tokens, num_components):
    return Case(
        lambda logits, odds: BernoulliMixture(logits.softmax(0), odds.sigmoid()),
        num_tokens,
        ((num_components,), (num_components, num_tokens)),
        BITS,
    )


def hmm(num_tokens, num_states, vocab_size):
    return Case(
        lambda *logits: HiddenMarkovModel(*(logit.softmax(-1) for logit in logits), num_tokens),
        num_tokens,
        ((num_states,), (num_states, num_states), (num_states, vocab_size)),
        words(vocab_size),
    )


def linear_vae(num_tokens, num_latents, spacing):
    rule = disc_rule(spacing, 4.5, num_latents)
    return Case(
        lambda weight, bias: LinearVAE(weight, bias, rule),
        num_tokens,
        ((num_tokens, num_latents), (num_tokens,)),
        BITS,
    )


def deep_vae(answer, **options):
    """`answer(vae)` with the decoder as its free parameters."""
    blank = DeepVAE(3, 2, 4, generator=seeded())

    def build(first, first_bias, last, last_bias, log_noise):
        vae = copy.deepcopy(blank).to(first)
        del vae.decoder, vae.log_noise  # so that gradients reach the case's own
        vae.decoder = lambda z: (z @ first.T + first_bias).tanh() @ last.T + last_bias
        vae.log_noise = 0.5 * log_noise
        return answer(vae)

    return Case(build, 3, ((4, 2), (4,), (3, 4), (3,), ()), **options)


def transformer(readout):
    net = MaskedTransformer(5, 3, width=8, num_layers=2, num_heads=2, generator=seeded())
    net.to(readout)
    del net.readout.weight
    net.readout.weight = readout
    return net


COINS, INTEGERS, GAUSSIAN = "BernoulliMixture D=8 C=4", "BernoulliMixture of int64", "PPCA D=2 K=2"
MARKOV = "HiddenMarkovModel D=5 H=3 V=3"
NETWORK, WORDS = "MaskedTransformer D=5 V=3", "MaskedTransformer of int64"
AFRESH = dict.fromkeys(("batched_is_looped", "dtype_follows_the_input"), "it draws afresh")
# Every model, and which laws do not hold for it. What a model has decides which laws concern it.
CASES = {
    "PPCA D=1 K=1": ppca(1, 1),
    GAUSSIAN: ppca(2, 2),
    "PPCA D=5 K=2": ppca(5, 2),
    "PPCA D=9 K=3": ppca(9, 3),  # more than twice as many tokens as rows: a summary by a root
    "BernoulliMixture D=1 C=2": mixture(1, 2),
    "BernoulliMixture D=5 C=1": mixture(5, 1),
    COINS: mixture(8, 4),
    "HiddenMarkovModel D=1 H=2 V=2": hmm(1, 2, 2),
    MARKOV: hmm(5, 3, 3),
    "HiddenMarkovModel D=8 H=2 V=4": hmm(8, 2, 4),
    "HiddenMarkovModel of int64": replace(hmm(3, 2, 3), words=True),
    INTEGERS: replace(mixture(4, 2), words=True),
    "LinearVAE D=1 K=1": linear_vae(1, 1, 0.2),
    "LinearVAE D=5 K=2": linear_vae(5, 2, 0.5),
    "Recursive D=3 K=2": deep_vae(lambda vae: Recursive(vae, None, sample=False, through=True)),
    "Importance D=3 K=2": deep_vae(
        lambda vae: Importance(vae, seeded(), 20, "encoder"), coherent=False, without=AFRESH
    ),
    NETWORK: Case(transformer, 5, ((3, 8),), (0.0, 1.0, 2.0)),
    WORDS: Case(transformer, 5, ((3, 8),), (0.0, 1.0, 2.0), words=True),
}


HELD = [
    (name, law)
    for name, case in CASES.items()
    for law in LAWS
    if law in case.without or not case.lacks(law)
]


@pytest.mark.parametrize("name, law", HELD)
def test_laws(name, law):
    case = CASES[name]
    # it does not hold
    with pytest.raises(AssertionError) if law in case.without else nullcontext():
        LAWS[law](case)


FAR = """dtype_follows_the_input means_are_means_over_rows batched_is_looped
area_and_orders_give_log_prob marginals_follow_the_chain_rule"""


@pytest.mark.parametrize("law", FAR.split())
def test_laws_with_many_tokens_and_little_noise(law):
    """Rows far from the model, sigma^2 = 0.0024: differences of numbers near 10^5."""
    build = ppca(200, 5).build
    quiet = lambda weight, log_noise, mean: build(weight, log_noise - 5.3, mean)  # noqa: E731
    LAWS[law](replace(ppca(200, 5), build=quiet, tolerance=1e-7))


@pytest.mark.parametrize("name", [GAUSSIAN, COINS, "LinearVAE D=5 K=2", MARKOV])
def test_laws_on_a_gpu(name, gpu):
    check_model(CASES[name], device=gpu, tolerance=1e-9)


ANSWER, EVERY = "conditional_log_prob", "vocabulary_log_prob"
# {law: one method of a good model, spoilt: (model, method, what it answers instead of right(...))}
FAULTS = {
    "observed_tokens_score_exactly_zero": [
        (COINS, ANSWER, "right(x, seen) - 1e-30 * seen"),
        (COINS, ANSWER, "right(x, seen) - 1e-30 * seen.all(-1, keepdim=True)"),
    ],
    "masked_tokens_predict_nothing": [
        (COINS, ANSWER, "right(x, seen) + 1e-9 * ~seen * x.nan_to_num().sum(-1, keepdim=True)"),
        (COINS, ANSWER, "right(x, seen) + 0 * seen * x.sum(-1, keepdim=True)"),
        (COINS, "log_prob", "right(x, seen) + 1e-9 * x.nan_to_num().sum(-1)"),
        (INTEGERS, ANSWER, "right(x, seen) + 1e-9 * ~seen * x.sum(-1, True)"),
    ],
    "batched_is_looped": [
        (GAUSSIAN, ANSWER, "right(x, seen) if x.ndim == 1 else right(x, seen).flip(-2)"),
        (GAUSSIAN, ANSWER, "right(x, seen).flip(0) if seen.ndim == 2 else right(x, seen)"),
    ],
    "conditionals_are_distributions": [
        (COINS, ANSWER, "right(x, seen) + 1e-6 * ~seen"),
        (GAUSSIAN, ANSWER, "right(x, seen) + 1e-6 * ~seen"),
    ],
    "every_word_is_answered_for": [
        (MARKOV, EVERY, "right(x, seen) - 1"),
        (MARKOV, EVERY, "right(x, seen).flip(-1)"),
        (MARKOV, EVERY, "right(x, seen).where(~seen[..., None], 0)"),
        (MARKOV, EVERY, "right(x, ~seen).where(seen[..., None], right(x, seen))"),
        (WORDS, EVERY, "right(x, seen) - 1"),
        (WORDS, EVERY, "right(x, seen).where(~seen[..., None], 0)"),
    ],
    "inputs_are_left_alone": [
        (GAUSSIAN, ANSWER, "(right(x, seen), x.mul_(2))[0]"),
        (GAUSSIAN, ANSWER, "(right(x, seen), right.__self__.weight.mul_(2))[0]"),
        (NETWORK, ANSWER, "(right(x, seen), right.__self__.readout.bias.data.add_(1))[0]"),
    ],
    "area_and_orders_give_log_prob": [
        (GAUSSIAN, "log_prob", "right(x, seen) + 1e-6"),
        (COINS, ANSWER, "right(x, seen) * (1 + 1e-6 * (torch.arange(8) == 3))"),
        (NETWORK, ANSWER, "right(x, seen)"),  # a network, said to be coherent
    ],
    "marginals_follow_the_chain_rule": [
        (GAUSSIAN, "log_prob", "right(x, seen) + 1e-6"),
        (GAUSSIAN, "log_prob", "right(x, seen) + 1e-6 * (seen is None)"),
        (GAUSSIAN, "log_prob", "right(x, seen) + 1e-6 * (seen is not None and seen.sum(-1) == 1)"),
    ],
    "means_are_means_over_rows": [
        (GAUSSIAN, "mean_conditional_log_prob", "right(x, seen) * (1 + 1e-6)"),
        (GAUSSIAN, "mean_log_prob", "right(x) + 1e-6"),
        (GAUSSIAN, "summarise", "right(x[1:])"),
    ],
    "gradients_are_right": [
        (GAUSSIAN, ANSWER, "right(x, seen).detach() * 2 - right(x, seen)"),
        (GAUSSIAN, "log_prob", "right(x, seen).detach() * 2 - right(x, seen)"),
        (GAUSSIAN, "log_prob", "right(x) if seen is None else right(x, seen).detach()"),
        (GAUSSIAN, "mean_conditional_log_prob", "right(x, seen).detach()"),
        (GAUSSIAN, "mean_log_prob", "right(x).detach() * 2 - right(x)"),
    ],
    "dtype_follows_the_input": [
        (GAUSSIAN, "log_prob", "right(x, seen).double()"),
        (GAUSSIAN, ANSWER, "right(x, seen) + 1e-2 * (x.dtype == torch.float32)"),
    ],
    "samples_follow_the_generator": [
        (COINS, "sample", "right(x, generator=seeded())"),
        (COINS, "sample", "right(x + 1, generator=generator)"),
    ],
    "samples_follow_log_prob": [
        (COINS, "sample", "right(x, generator=generator)[:, [*range(7), 6]]"),
        (GAUSSIAN, "sample", "1.05 * right(x, generator=generator)"),
    ],
}


def spoilt(name, method, fault):
    """The case of a model with one method replaced."""
    answer = eval(f"lambda right, x, seen=None, generator=None: {fault}")

    def build(*parameters):
        model = CASES[name].build(*parameters)
        right = getattr(model, method)
        setattr(model, method, functools.wraps(right)(functools.partial(answer, right)))
        return model

    return replace(CASES[name], build=build, coherent=True if name == NETWORK else None)


@pytest.mark.parametrize("law", LAWS)
def test_a_law_catches_a_model_that_breaks_it(law):
    for name, method, fault in FAULTS[law]:
        with pytest.raises(AssertionError, match=r"\w"):
            LAWS[law](spoilt(name, method, fault))


@pytest.mark.parametrize(
    "scale, grid", [(0.1, (-40, 40, 4001)), (0.05, (-40, 40, 4001)), (20.0, (-800, 800, 801))]
)
def test_a_density_is_integrated_over_a_grid_that_resolves_it(scale, grid):
    """PPCA in other units: rows and model are right, and where the grid is not, the report says where to look."""
    build = lambda weight, _, mean: PPCA(scale * weight, 0.2 * scale**2, scale * mean)  # noqa: E731
    case = replace(ppca(3, 2), build=build)
    coarse = r"grid \(-40.0, 40.0, 801\), which may be too coarse or too short"
    with pytest.raises(AssertionError, match=coarse):
        LAWS["conditionals_are_distributions"](case)
    LAWS["conditionals_are_distributions"](replace(case, grid=grid))


def test_a_model_with_nothing_else_passes_what_concerns_it():
    """Fair coins, with the one method that a model must have."""
    fair = Says(12, lambda x, observed: torch.full_like(x, 0.5).log() + 0 * x)
    found = check_model(fair, values=BITS)
    obeyed = [law for law, what in found.items() if what == "obeyed"]
    assert len(obeyed) == 5 and set(found) == set(LAWS)
    assert all(what.startswith("it needs") for law, what in found.items() if law not in obeyed)
    found = check_model(fair, values=BITS, coherent=True)
    assert found["area_and_orders_give_log_prob"] == "obeyed"


def test_a_report_names_every_broken_law():
    case = spoilt("HiddenMarkovModel D=1 H=2 V=2", "log_prob", "right(x, seen) + 1e-6")
    named = "(?s)broken laws: 2.*area_and_orders.*orders disagree.*no token is not 0"
    with pytest.raises(AssertionError, match=named):
        check_model(case)
    laws = "area_and_orders_give_log_prob", "marginals_follow_the_chain_rule"
    found = check_model(case, without=dict.fromkeys(laws, "off by a millionth"))
    assert [found[law] for law in laws] == ["off by a millionth"] * 2


# Evaluators of log p(x)


COIN = BernoulliMixture(torch.ones(1).double(), torch.tensor([[0.3, 0.5, 0.9]]).double())


def shifted(by, noise=1.0):
    def evaluate(model, x, generator):
        return model.log_prob(x) + by + noise * draws.randn((len(x),), None, generator)

    return evaluate


def test_a_verdict_errs_as_seldom_as_its_level_says(generator):
    """Of 400 evaluators without bias 90% are called unbiased, as many are above as below, to four errors."""
    found = [
        check_evaluator(shifted(0), COIN, num_rows=20, level=0.9, generator=generator).verdict
        for _ in range(400)
    ]
    assert found.count("unbiased") == pytest.approx(360, abs=24)
    assert found.count("impossible") == pytest.approx(20, abs=17)


@pytest.mark.parametrize("by, verdict", [(0.5, "impossible"), (-0.5, "bound")])
def test_a_verdict_says_how_far_and_how_noisy(by, verdict, generator):
    found = check_evaluator(shifted(by, 2.0), COIN, num_rows=4000, draws=3, generator=generator)
    assert found.verdict == verdict and found.noise == pytest.approx(2, rel=0.05)
    assert found.bias.mean == pytest.approx(by, abs=4 * found.bias.stderr)
    assert found.bias.stderr == pytest.approx(2 / (3 * 4000) ** 0.5, rel=0.1)
    found = Verdict(verdict, Estimate(by, 0.021), 2.0)
    assert str(found) == f"{verdict}: {by:.2f} ± 0.02 nats per row above log p(x), noise 2.00"


def test_rounding_is_no_bias(generator):
    def evaluate(model, x, generator):
        return chain_rule(model, x, torch.tensor([[2, 0, 1]])).sum(-1)[0].float()

    found = check_evaluator(evaluate, COIN, generator=generator)
    assert found.verdict == "unbiased" and found.noise == 0 and abs(found.bias.mean) < 1e-5
    assert check_evaluator(shifted(1e-3, 0), COIN, generator=generator).verdict == "impossible"


@pytest.mark.parametrize("answer", [lambda x: x.sum(), lambda x: -x[:, 0] / 0])
def test_an_evaluator_answers_for_every_row(answer, generator):
    with pytest.raises(ValueError, match=r"finite nats of shape \(512,\)"):
        check_evaluator(lambda model, x, g: answer(x), COIN, generator=generator)
