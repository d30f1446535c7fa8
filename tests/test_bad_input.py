"""Bad input gets a ValueError that states what was given, before any work starts: one table of calls."""
# ruff: noqa: F401 (the calls are strings)

import math
import re

import numpy as np
import pytest
import torch
from conftest import same, seeded
from fakes import one_nat_each, random_network

from mptlml import Estimate, MaskedLM, fit, masks, memory, objectives, score
from mptlml.models import PPCA, BernoulliMixture, HiddenMarkovModel, SecondMoment
from mptlml.score import exact_curve, mean_score, score_curve
from mptlml_book import deep_vae
from mptlml_book.data.images import load_images
from mptlml_book.data.text import make_tokenizer
from mptlml_book.deep_vae import DeepVAE, Importance
from mptlml_book.linear_vae import LinearVAE, disc_rule
from mptlml_book.rates import rate_curve
from mptlml_book.transformer import MaskedTransformer

NAN, INF = math.nan, math.inf
G = seeded(0)


def real(*shape, fill=0.5):
    return torch.full(shape, fill, dtype=torch.float64)


def ids(*values):
    return torch.tensor(values)


def holed(*shape):
    """A tensor with one NaN, in its first place."""
    return real(*shape).view(-1).index_fill(0, ids(0), NAN).view(shape)


class Untouched:
    """A model that must not be asked: work would have started."""

    num_tokens = 3

    def conditional_log_prob(self, x, observed):
        raise AssertionError("the model was asked before the input was checked")

    log_prob = conditional_log_prob


MODEL = Untouched()
ROWS = real(4, 3)
SEEN = ids(True, True, False)
RULE = disc_rule(0.5, num_latents=1)
PCA = PPCA(ids([1.0], [0.5], [2.0]).double(), 0.3)
COINS = BernoulliMixture(real(2), ids([0.2, 0.5, 0.9], [0.7, 0.1, 0.3]).double())
WORDS = HiddenMarkovModel(real(2), real(2, 2), real(2, 2), 3)
# writes 000 or 111
CERTAIN = HiddenMarkovModel(real(2), torch.eye(2).double(), torch.eye(2).double(), 3)
NO = ids([0, 1, 0])  # which it never writes
DEEP = DeepVAE(3, 1, 0, generator=G).double()
LINEAR = LinearVAE(PCA.weight, real(3), RULE)
KEPT = score_curve(PCA, ROWS, [1, 3], num_masks=2, generator=seeded(0))
NET = MaskedTransformer(3, 2, generator=G)


def climb(*, trained=True, num_steps=1, **options):
    return fit(
        MODEL.log_prob, [torch.zeros((), requires_grad=trained)], num_steps=num_steps, **options
    )


def markov(**change):
    good = dict(
        initial=real(2), transition=real(2, 2), emission=real(2, 3, fill=1 / 3), num_tokens=3
    )
    return HiddenMarkovModel(**good | change)


def words(*row, observed=SEEN | True):
    return markov().conditional_log_prob(ids(*row), observed)


TABLE = {  # {what is wrong: what the message must state}, by room
    "masks.count_masks(5, 0)": "1..5.*from 0 to 0",
    "masks.all_masks(23, 11)": r"C\(23, 11\) = 1.35e\+06",  # the first above 2^20
    "masks.random_masks(4, [1.5], generator=G)": r"whole numbers, got \[1.5\]",
    "masks.random_masks(4, [], generator=G)": r"whole numbers, got \[\]",
    "masks.random_masks(4, True, generator=G)": "whole numbers, got True",
    "masks.random_masks(5, [[3, 1]], lengths=ids(2, 5), generator=G)": "hide more",
    "masks.random_masks(5, [[4]], lengths=ids(5, 5), generator=G)": r"1 rows, got \(2,\)",
    "masks.random_orders(4, 0, generator=G)": "at least 1, got 0",
    "masks.all_orders(10)": "10! orders",
    "masks.stratified_sizes(3, 0, generator=G)": "num_strata.*got 0",
    # PPCA
    "PPCA(real(3), 0.1)": r"\[D, K\], got shape \(3,\)",
    "PPCA(torch.ones(3, 1).long(), 0.1)": "floating",
    "PPCA(real(2, 3), 0.1)": "K = 3.*D = 2",
    "PPCA(real(2, 0), 0.1)": "K = 0.*D = 2",
    "PPCA(real(3, 1), 0.0)": "positive number, got 0.0",
    "PPCA(real(3, 1), INF)": "positive number, got inf",
    "PPCA(real(3, 1), real(3))": "one positive number",
    "PPCA(holed(3, 1), 0.1)": r"weight holds NaN.*1 such.*\(3, 1\)",
    "PPCA(real(3, 1), 0.1, real(2))": r"mean has shape \(2,\).*\(3, 1\)",
    "PPCA(real(3, 1), 0.1, holed(3))": r"mean holds NaN.*\(3,\)",
    "PPCA.fit(real(9, 3), 3)": "K = 3.*D = 3",
    "PPCA.fit(real(9, 3), 0)": "K.*at least 1, got 0",
    "PPCA.fit(holed(9, 3), 1)": r"rows holds NaN.*\(9, 3\)",
    "PPCA.fit(torch.eye(3)[:2].double(), 1)": "K = 1.*3 tokens fully",
    "PPCA.fit(real(9, 3), 4, 0.1)": "K = 4.*D = 3",
    "PCA.mean_conditional_log_prob(ROWS, SEEN[None, :2])": r"observed .*\(1, 2\)",
    "PCA.mean_log_prob(SecondMoment.of(real(9, 2)))": r"x has shape \(2,\)",
    # BernoulliMixture
    "BernoulliMixture(real(2), real(3, 4))": r"\(2,\), \(3, 4\)",
    "BernoulliMixture(real(4), real(4, 3))": "weights must .*sum to 1.* from 2 to 2",
    "BernoulliMixture(ids(1.5, -0.5), real(2, 3))": "least is -0.5",
    "BernoulliMixture(real(2), real(2, 3, fill=1.25))": "1.25",
    "BernoulliMixture(real(2), real(2, 3, fill=-0.125))": "-0.125",
    "BernoulliMixture(real(2), holed(2, 3))": "got nan to nan",
    "BernoulliMixture(real(2), real(2, 0))": r"\(2, 0\)",
    "COINS.conditional_log_prob(ids(0, 1, 0.5).double(), SEEN)": "e.g. 0.5",
    "BernoulliMixture.fit(ROWS, 2, generator=G)": "0 or 1: 12 are not",
    "BernoulliMixture.fit(X, 3, generator=G)": r"3 components, got \(2, 3\)",
    "BernoulliMixture.fit(X, 0, generator=G)": "0 components",
    "BernoulliMixture.fit(X, 1, smoothing=-1.0, generator=G)": "smoothing.*got -1.0",
    # HiddenMarkovModel
    "markov(initial=real(3))": r"do not fit: \(3,\), \(2, 2\), \(2, 3\)",
    "markov(transition=real(2, 2, fill=1.0))": "transition must hold probabilities that sum to 1",
    "markov(initial=ids(1.5, -0.5))": "initial must hold probabilities",
    "markov(emission=holed(2, 3))": "emission holds NaN",
    "markov(num_tokens=0)": "num_tokens must be a whole number of at least 1",
    "words(0.0, 1.0, 3.0)": r"whole numbers in 0..2: 1 are not in shape \(3,\)",
    "words(0.0, 1.0, -1.0)": "whole numbers",
    "words(0.0, 1.0, 0.5)": "whole numbers",
    "words(0.0, 1.0, NAN)": "whole numbers",
    "words(0.0, 1.0, 7.0, observed=SEEN & False)": "whole numbers",
    "WORDS.log_prob(torch.ones(3).bfloat16())": "int64, got torch.bfloat16",  # which rounds large ids
    "WORDS.entropy(1, generator=G)": "at least 2",
    # networks
    "MaskedTransformer(3, 2, distance='far', generator=G)": "distance must be one of 'near', 'flat', 'none', got 'far'",
    "NET.conditional_log_prob(real(3, fill=2), SEEN)": "0 or 1",
    "LINEAR.log_prob(real(3))": "tokens must be 0 or 1",
    "Importance(DEEP, G, 5, 'prior')": "proposal",
    "deep_vae.train('mlm', torch.zeros(9, 6), seed=1)": "scheme",
    # the curve
    "score_curve(MODEL, real(4, 2), generator=G)": r"\[N, 3\].*\(4, 2\)",
    "score_curve(MODEL, real(0, 3), generator=G)": r"N >= 1, got \(0, 3\)",
    "score.estimate_area(MODEL, ROWS, 100.5, error=0.1, generator=G)": "num_passes must be a whole number",
    "score_curve(MODEL, ROWS > 0, generator=G)": "floating tensor or int64 token ids, got torch.bool",
    "score_curve(MODEL, [[0.5] * 3], generator=G)": "floating tensor or int64 token ids, got .*list",
    "memory.limit(0).__enter__()": "numbers must be a whole number of at least 1, got 0",
    "score_curve(MODEL, ROWS, num_masks=0, generator=G)": "num_masks.*at least 1, got 0",
    "score_curve(CERTAIN, NO, [1], num_masks=50, generator=G)": "are NaN",
    "score_curve(CERTAIN, NO, [1], num_masks=50, share_masks=False, generator=G)": "are NaN",
    "exact_curve(PPCA(real(17, 1), 0.1), real(1, 17))": r"2\^17",
    "exact_curve(CERTAIN, NO)": "2 of the model's 9 answers are NaN",
    "exact_curve(MODEL, holed(4, 3))": "rows holds NaN",
    "score.estimate_area(CERTAIN, NO, 98, generator=G)": "are NaN",
    "score.estimate_area(MODEL, ROWS, 1, generator=G)": "num_passes.*at least 2, got 1",
    "score.estimate_area(MODEL, ROWS, 4, by_orders=True, generator=G)": "num_passes.*at least 6, got 4",
    "score.estimate_area(MODEL, holed(4, 3), 2, generator=G)": "rows holds NaN",
    "score.estimate_area(MODEL, ROWS, 98, error=0, generator=G)": "above 0, got 0",
    "score.estimate_area(MODEL, ROWS, 98, error=NAN, generator=G)": "above 0",
    "score.chain_rule(CERTAIN, NO, ids([0, 1, 2]))": "are NaN",
    "score.chain_rule(MODEL, ROWS, ids([0.0, 1, 2]))": "permutations",
    "score.chain_rule(MODEL, ROWS, ids([0, 1, 1]))": r"\[Q, 3\].*\(1, 3\)",
    "score.chain_rule(MODEL, holed(4, 3), ids([0, 1, 2]))": "rows holds NaN",
    "score.order_spread(MODEL, ROWS, num_orders=1, generator=G)": "at least 2, got 1",
    "mean_score(PCA, PCA.summarise(ROWS), SEEN.expand(2, 4, 3))": r"all rows share.*\(2, 4, 3\)",
    "mean_score(MODEL, ROWS, torch.ones(2, 3).bool())": "2 of 2 masks mask no",
    "mean_score(MODEL, ROWS, torch.zeros(2, 3))": "bool tensor.*torch.float32",
    "mean_score(MODEL, holed(4, 3), SEEN[None])": "rows holds NaN",
    "KEPT.area(rows='all')": "'all'",
    "exact_curve(PCA, ROWS[:1]).area(rows='sample')": "at least two rows",
    "KEPT.area(rows='sample')": "share_masks=False",
    "Estimate(0.0, 1.0).interval(1.0)": "level.*got 1.0",
    # objectives, and the fit
    "objectives.fixed_size(MODEL, ROWS, 4, generator=G)": "from 4 to 4",
    "objectives.fixed_size(MODEL, ROWS, 1, num_masks=0, generator=G)": "num_masks.*got 0",
    "objectives.every_size(MODEL, ROWS, num_masks=0, generator=G)": "got 0",
    "objectives.uniform_size(MODEL, ROWS, num_masks=-1, generator=G)": "got -1",
    "objectives.bernoulli_rate(MODEL, ROWS, rate=0.0, generator=G)": r"\(0, 1\], got 0.0",
    "objectives.bernoulli_rate(MODEL, ROWS, rate=1.5, generator=G)": "got 1.5",
    "objectives.every_size(MODEL, real(4, 2), generator=G)": r"\(4, 2\)",
    "objectives.stratified_size(MODEL, ROWS, lengths=ids(1, 1, 1), generator=G)": r"4 rows, got \(3,\)",
    "objectives.stratified_size(MODEL, ROWS, lengths=ids(3, 0, 1, 1), generator=G)": "from 0 to 3",
    "objectives.bernoulli_rate(MODEL, 'a summary', rate=0.5, generator=G)": "not a summary of them",
    "objectives.uniform_size(MODEL, 'a summary', share_masks=False, generator=G)": "not a summary of them",
    "climb(num_steps=0)": "num_steps.*got 0",
    "climb(track_every=0)": "track_every.*got 0",
    "climb(learning_rate=0.0)": "learning rate 0.0",
    "climb(learning_rate=NAN)": "learning rate nan",
    "climb(warm_up=-1)": "warm_up.*at least 0, got -1",
    "climb(decay_steps=0.5)": "decay_steps.*got 0.5",
    "climb(num_steps=40, decay_steps=10)": "40 steps are more than the 10",
    "climb(trained=False)": "must require gradients",
    # texts
    "LM.encode('  ')": "no tokens",
    "LM.encode('the [MASK] sat')": "special tokens",
    "LM.single_scores(iter([TEXT]))": "list of at least one, got list_iter",
    "LM.curve(TEXT, [99], generator=G)": "sizes must lie in 1..3",
    "LM.curve(TEXT, num_masks=0, generator=G)": "num_masks must be a whole number",
    "LM.blocks(TEXT, 3)": "list of texts, got str 'the cat sat'",
    "LM.blocks([TEXT], 2, 99)": "do not make 99 blocks of 2",
    "LM.blocks([TEXT], 511)": "511 tokens are more than the model's 510",
    "LM.at_length(511)": "511 tokens are more than the model's 510",
    "rate_curve(LM, [TEXT], [0.0], generator=G)": r"must lie in \(0, 1\]",
    "LM.chain_rule(TEXT, [[0, 1]])": "orders must be permutations",
    "LM.pseudo_log_likelihood(torch.tensor([2, -1]))": "e.g. -1",
    "LM.at_length(1).vocabulary_log_prob(ids(99), ~SEEN[:1])": "e.g. 99",
    "random_network(LM.tokenizer, batch_tokens=0)": "batch_tokens must be a whole number",
    # data
    "load_images('cifar')": "'cifar'",
    "load_images('digits', 0)": "num_rows.*got 0",
    "load_images('digits', 2000)": "2000 images.*1797",
}
X = real(2, 3, fill=1.0)
ALIKE = {  # what every model answers and refuses alike
    "model.log_prob(real(2, 4))": r"x has shape \(2, 4\).*3 tokens",
    "model.log_prob(real())": r"x has shape \(\)",
    "model.log_prob(X.half())": "x is torch.float16 on cpu, but the model's parameters",
    "model.log_prob(holed(2, 3).round())": r"\(2, 3\)",
    "model.conditional_log_prob(X, SEEN[:2])": r"observed .*\[..., 3\].*\(2,\)",
    "model.conditional_log_prob(X, SEEN.double())": "observed must be a bool tensor.*torch.float64",
    "model.conditional_log_prob(X, SEEN.expand(5, 3))": r"x \(2, 3\) and observed \(5, 3\)",
    "model.conditional_log_prob(X.float(), SEEN)": "x is torch.float32 on cpu, but the model's parameters",
    "mean_score(model, X.float(), SEEN[None])": "x is torch.float32",
}
MODELS = PCA, COINS, LINEAR, Importance(DEEP, G, 2)
CASES = [(None, *row) for row in TABLE.items()] + [
    (model, *row) for row in ALIKE.items() for model in MODELS
]


@pytest.mark.parametrize(
    "model, call, states", CASES, ids=[f"{type(m).__name__} {call}" for m, call, _ in CASES]
)
def test_bad_input(model, call, states):
    with pytest.raises(ValueError) as error:
        eval(call, globals(), {"model": model})
    assert re.search(states, str(error.value)), f"{str(error.value)!r} does not state {states!r}"


LM, TEXT = random_network(make_tokenizer(["the cat sat on the mat"] * 9, 60)), "the cat sat"
ROW = LM.encode(TEXT)
GIVEN = {  # what a method of a MaskedLM may be given, and what its message says of that
    "a text": (TEXT, "str|text 'the cat|the cat sat"),
    "texts": ([TEXT, "the mat"], "list|got 'the cat sat'|got 2"),
    "no text": ([], "list|0 tokens do not make"),
    "nothing": (None, "NoneType"),
    "texts of nothing": ([None], "list|None"),
    "ids": (ROW, "Tensor|int64"),
    "ids as a list": (ROW.tolist(), "list|got int|got 2"),
    "rows": (ROW[None], "Tensor|int64"),
    "rows as a list": ([ROW], "list|got Tensor"),
    "floats": (real(3), "Tensor|float64"),
    "a number": (3, "int"),
}
ONE = ("a text", "ids", "rows as a list")
ALL = (*ONE, "texts")
TAKES = {  # a call of a method: which of these it takes
    "LM.encode(x)": ["a text"],
    "LM.tokenise(x)": ["a text"],
    "LM.read(x)": ALL,
    "LM.blocks(x, 2)": ["texts"],
    "LM.at_length(x)": ["a number"],
    "LM.curve(x, generator=G)": ONE,
    "rate_curve(LM, x, [0.5], generator=G)": ALL,
    "LM.pseudo_log_likelihood(x)": ALL,
    "LM.single_scores(x)": ALL,
    "LM.exact_curve(x)": ONE,
    "LM.chain_rule(x, ids([2, 1, 0]))": ONE,
    "LM.masked_marginals(x)": ONE,
}


@pytest.mark.parametrize("call", TAKES)
def test_a_masked_lm_says_what_it_was_given_in_place_of_texts(call, monkeypatch):
    """Before any pass; and what it takes, it takes."""
    for name in TAKES[call]:
        eval(call, globals(), {"x": GIVEN[name][0]})
    monkeypatch.setitem(vars(LM.model), "forward", None)  # nothing is asked
    for name in GIVEN.keys() - TAKES[call]:
        with pytest.raises(ValueError) as error:
            eval(call, globals(), {"x": GIVEN[name][0]})
        said = str(error.value)
        assert re.search(f"{GIVEN[name][1]}|must be a whole number", said), (name, said)


def test_good_input_next_to_the_bad():
    """What is allowed: m = D, rate 1, K = D, one row, numpy's whole numbers, sure coins, rounding."""
    assert exact_curve(one_nat_each(16), torch.zeros(1, 16)).area().mean == pytest.approx(-16)
    assert PPCA(real(2, 2), 1e-3).num_latents == 2
    one = score_curve(PCA, real(1, 3), np.array([1, 3]), num_masks=np.int64(2), generator=G)
    assert one.sizes.tolist() == [1, 3]
    assert objectives.bernoulli_rate(PCA, ROWS, rate=1, generator=G).isfinite()
    assert BernoulliMixture(ids(1.0), ids([0.0, 1.0])).log_prob(ids(0.0, 1.0)) == 0
    assert COINS.conditional_log_prob(ids(1.0, 0.0, NAN).double(), SEEN)[:2].tolist() == [0, 0]
    coins = BernoulliMixture(1.000005 * COINS.weights, COINS.probs)
    words = HiddenMarkovModel(
        *(1.000005 * p for p in (WORDS.initial, WORDS.transition, WORDS.emission)), 3
    )
    for rounded, model in ((coins, COINS), (words, WORDS)):  # sums are made to be exactly 1
        same(rounded.log_prob(X[0]), model.log_prob(X[0]), 1e-12)
