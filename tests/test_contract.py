"""Every model here is held to the laws of `mptlml.testing`; and each law catches a model that breaks it."""

import copy
import functools
from dataclasses import replace

import pytest
import torch
from conftest import seeded
from fakes import Says
from torch.autograd.gradcheck import GradcheckError

from mptlml import chain_rule, draws, testing
from mptlml.models import PPCA, BernoulliMixture, HiddenMarkovModel
from mptlml.testing import LAWS, Case, check_evaluator, check_model
from mptlml_book.deep_vae import DeepVAE, Importance, Recursive
from mptlml_book.linear_vae import LinearVAE, disc_rule
from mptlml_book.transformer import MaskedTransformer

BITS, WORDS = (0.0, 1.0), (0.0, 1.0, 2.0)


def gaussian(weight, log_noise, mean):
    return PPCA(weight, log_noise.exp(), mean)


def mixture(logits, odds):
    return BernoulliMixture(logits.softmax(0), odds.sigmoid())


def markov(num_tokens):
    return lambda *logits: HiddenMarkovModel(*(part.softmax(-1) for part in logits), num_tokens)


def linear_vae(weight, bias):
    return LinearVAE(weight, bias, disc_rule(0.5, 4.5, weight.shape[1]))


def deep_vae(answer):
    """A model that answers for a DeepVAE, with the decoder as its free parameters."""
    blank = DeepVAE(3, 2, 4, generator=seeded())

    def build(first, first_bias, last, last_bias, log_noise):
        vae = copy.deepcopy(blank).to(first)
        del vae.decoder, vae.log_noise  # so that gradients reach the case's own
        vae.decoder = lambda z: (z @ first.T + first_bias).tanh() @ last.T + last_bias
        vae.log_noise = 0.5 * log_noise
        return answer(vae)

    return build, 3, ((4, 2), (4,), (3, 4), (3,), ())


def transformer(readout):
    net = MaskedTransformer(5, 3, width=8, num_layers=2, num_heads=2, generator=seeded())
    net.to(readout)
    del net.readout.weight
    net.readout.weight = readout
    return net


CASES = {  # what a model has decides which laws concern it
    "Gaussian": Case(gaussian, 5, ((5, 2), (), (5,))),
    "Gaussian of one token": Case(gaussian, 1, ((1, 1), (), (1,))),
    "coins": Case(mixture, 8, ((4,), (4, 8)), BITS),
    "coins of int64": Case(mixture, 4, ((2,), (2, 4)), BITS, words=True),
    "Markov": Case(markov(5), 5, ((3,), (3, 3), (3, 3)), WORDS),
    "Markov of int64": Case(markov(1), 1, ((2,), (2, 2), (2, 3)), WORDS, words=True),
    "linear VAE": Case(linear_vae, 5, ((5, 2), (5,)), BITS),
    "recursive": Case(*deep_vae(lambda vae: Recursive(vae, None, 1, sample=False))),
    "importance": Case(
        *deep_vae(lambda vae: Importance(vae, seeded(), 20, "encoder")), coherent=False
    ),
    "network": Case(transformer, 5, ((3, 8),), WORDS),
    "network of int64": Case(transformer, 5, ((3, 8),), WORDS, words=True),
    "contradictions": Case(testing.Incoherent, 4, values=WORDS, coherent=False),
}
NAMES = [law.__name__ for law in LAWS]
AFRESH = "batched_is_looped", "dtype_follows_the_input"  # what draws at random in each call breaks
HELD = [
    (name, law)
    for name, case in CASES.items()
    for law in case.laws()
    if not (name == "importance" and law.__name__ in AFRESH)
]


@pytest.mark.parametrize("name, law", HELD)
def test_laws(name, law):
    law(CASES[name])


@pytest.mark.parametrize("name", ["Gaussian", "coins", "linear VAE", "Markov"])
def test_laws_on_a_gpu(name, gpu):
    check_model(CASES[name], device=gpu, tolerance=1e-9)


ANSWER, EVERY = "conditional_log_prob", "vocabulary_log_prob"
# {law: one method of a good model, spoilt: (model, method, what it answers instead of right(...))}
FAULTS = {
    "observed_tokens_score_exactly_zero": [
        ("coins", ANSWER, "right(x, seen) - 1e-30 * seen"),
        ("coins", ANSWER, "right(x, seen) - 1e-30 * seen.all(-1, keepdim=True)"),
    ],
    "masked_tokens_predict_nothing": [
        ("coins", ANSWER, "right(x, seen) + 1e-9 * ~seen * x.nan_to_num().sum(-1, keepdim=True)"),
        ("coins", ANSWER, "right(x, seen) + 0 * seen * x.sum(-1, keepdim=True)"),
        ("coins", "log_prob", "right(x, seen) + 1e-9 * x.nan_to_num().sum(-1)"),
        ("coins of int64", ANSWER, "right(x, seen) + 1e-9 * ~seen * x.sum(-1, True)"),
    ],
    "batched_is_looped": [
        ("Gaussian", ANSWER, "right(x, seen) if x.ndim == 1 else right(x, seen).flip(-2)"),
        ("Gaussian", ANSWER, "right(x, seen).flip(0) if seen.ndim == 2 else right(x, seen)"),
    ],
    "conditionals_are_distributions": [
        ("coins", ANSWER, "right(x, seen) + 1e-6 * ~seen"),
        ("Gaussian", ANSWER, "right(x, seen) + 1e-6 * ~seen"),
    ],
    "every_word_is_answered_for": [
        ("Markov", EVERY, "right(x, seen) - 1"),
        ("Markov", EVERY, "right(x, seen).flip(-1)"),
        ("Markov", EVERY, "right(x, seen).where(~seen[..., None], 0)"),
    ],
    "area_and_orders_give_log_prob": [
        ("Gaussian", "log_prob", "right(x, seen) + 1e-6"),
        ("coins", ANSWER, "right(x, seen) * (1 + 1e-6 * (torch.arange(8) == 3))"),
        ("network", ANSWER, "right(x, seen)"),  # said to be coherent
    ],
    "marginals_follow_the_chain_rule": [
        ("Gaussian", "log_prob", "right(x, seen) + 1e-6 * (seen is None)"),
        (
            "Gaussian",
            "log_prob",
            "right(x, seen) + 1e-6 * (seen is not None and seen.sum(-1) == 1)",
        ),
    ],
    "means_over_rows_are_means": [
        ("Gaussian", "mean_conditional_log_prob", "1.000001 * right(x, seen)"),
    ],
    "gradients_are_right": [
        ("Gaussian", ANSWER, "right(x, seen).detach() * 2 - right(x, seen)"),
        ("Gaussian", "log_prob", "right(x, seen).detach() * 2 - right(x, seen)"),
        ("Gaussian", "mean_conditional_log_prob", "right(x, seen).detach()"),
        ("Gaussian", "mean_log_prob", "right(x).detach() * 2 - right(x)"),
    ],
    "dtype_follows_the_input": [
        ("Gaussian", "log_prob", "right(x, seen).double()"),
        ("Gaussian", ANSWER, "right(x, seen) + 1e-2 * (x.dtype == torch.float32)"),
    ],
    "samples_follow_log_prob": [
        ("coins", "sample", "right(x, generator=generator)[:, [*range(7), 6]]"),
        ("Gaussian", "sample", "1.05 * right(x, generator=generator)"),
    ],
}
SPOILT = [(law, *fault) for law, faults in FAULTS.items() for fault in faults]


def spoilt(name, method, fault):
    """The case of a model with one method replaced."""
    answer = eval(f"lambda right, x, seen=None, generator=None: {fault}")

    def build(*parameters):
        model = CASES[name].build(*parameters)
        right = getattr(model, method)
        setattr(model, method, functools.partial(answer, right))
        return model

    return replace(CASES[name], build=build, coherent=True if name == "network" else None)


@pytest.mark.parametrize("law, name, method, fault", SPOILT)
def test_a_law_catches_a_model_that_breaks_it(law, name, method, fault):
    with pytest.raises((AssertionError, GradcheckError)):
        getattr(testing, law)(spoilt(name, method, fault))


def test_a_report_names_every_broken_law():
    laws = "area_and_orders_give_log_prob(.|\n)*marginals_follow_the_chain_rule"
    with pytest.raises(AssertionError, match=laws):
        check_model(spoilt("Markov of int64", "log_prob", "right(x, seen) + 1e-6"))


def test_each_law_has_a_model_that_breaks_it():
    assert [*FAULTS] == NAMES


def test_a_model_with_nothing_else_passes_what_concerns_it():
    """Fair coins, with the one method that a model must have."""
    fair = Says(12, lambda x, observed: torch.full_like(x, 0.5).log() + 0 * x)
    found = check_model(fair, values=BITS)
    assert found == NAMES[:4]
    assert check_model(fair, values=BITS, coherent=True) == [
        *found,
        "area_and_orders_give_log_prob",
    ]


# Evaluators of log p(x)


COIN = BernoulliMixture(torch.ones(1).double(), torch.tensor([[0.3, 0.5, 0.9]]).double())


def shifted(by, noise=1.0, mass=0.5):
    """log p(x) and so much more where it is known; where answers contradict each other, texts of equal scores."""

    def evaluate(model, x, generator):
        if model is not COIN:
            return torch.full((len(x),), mass / 81).log()
        return model.log_prob(x) + by + noise * draws.randn((len(x),), None, generator)

    return evaluate


def test_a_verdict_errs_as_seldom_as_its_level_says(generator, monkeypatch):
    """Of 400 evaluators without bias 90% are not told from log p, as many are above as below, to four errors."""
    monkeypatch.setattr(testing, "LEVEL", 0.9)
    found = [
        check_evaluator(shifted(0), COIN, num_rows=20, margin=9.0, generator=generator).verdict
        for _ in range(400)
    ]
    assert found.count("unbiased") == pytest.approx(360, abs=24)
    assert found.count("impossible") == pytest.approx(20, abs=17)


@pytest.mark.parametrize("by, verdict", [(0.5, "impossible"), (-0.5, "bound")])
def test_a_verdict_says_how_far(by, verdict, generator):
    found = check_evaluator(shifted(by, 2.0), COIN, num_rows=4000, generator=generator)
    assert found.verdict == verdict
    assert found.bias.mean == pytest.approx(by, abs=4 * found.bias.stderr)
    assert found.bias.stderr == pytest.approx(2 / 4000**0.5, rel=0.1)


@pytest.mark.parametrize("margin, verdict", [(0.5, "unbiased"), (0.05, "not told from log p")])
def test_unbiased_is_what_is_known_to_lie_within_the_margin(margin, verdict, generator):
    """The interval reaches some 0.08 nats to either side."""
    draw = generator.manual_seed(2)  # 1 in 100 is told from log p, by chance
    assert check_evaluator(shifted(0), COIN, margin=margin, generator=draw).verdict == verdict


@pytest.mark.parametrize("mass, verdict", [(1.01, "mass above 1"), (1.0, "unbiased")])
def test_scores_that_sum_to_more_than_one_are_no_distribution(mass, verdict, generator):
    found = check_evaluator(shifted(0, 0, mass), COIN, generator=generator)
    assert found.verdict == verdict and found.mass.mean == pytest.approx(mass)


def test_rounding_is_no_bias(generator):
    def evaluate(model, x, generator):
        return chain_rule(model, x, torch.arange(x.shape[-1])[None]).sum(-1)[0].float()

    found = check_evaluator(evaluate, COIN, generator=generator)
    assert found.verdict == "unbiased" and abs(found.bias.mean) < 1e-5
    assert found.mass.mean == pytest.approx(1, abs=1e-6)
    assert check_evaluator(shifted(1e-3, 0), COIN, generator=generator).verdict == "impossible"


@pytest.mark.parametrize("answer", [lambda x: x.sum(), lambda x: -x[:, 0] / 0])
def test_an_evaluator_answers_for_every_row(answer, generator):
    with pytest.raises(ValueError):
        check_evaluator(lambda model, x, g: answer(x), COIN, generator=generator)
