"""Bad input gets a ValueError that states what was given, before any work starts: one table."""

import math
import re
from functools import partial

import numpy as np
import pytest
import torch
from fakes import one_nat_each

from mptlml import Estimate, fit, objectives
from mptlml.masks import all_masks, all_orders, count_masks, random_masks, random_orders, stratified_sizes
from mptlml.models import PPCA, BernoulliMixture, HiddenMarkovModel, LinearVAE, MaskedTransformer, Shortfall
from mptlml.models.deep_vae import DeepVAE
from mptlml.models.importance import Importance
from mptlml.models.quadrature import disc_rule
from mptlml.score import chain_rule, estimate_area, exact_curve, mean_score, order_spread, score_curve
from mptlml_book.data.images import load_images
from mptlml_book.studies import deep_vae, linear_vae
from mptlml_book.studies.masked_diffusion import unmask
from mptlml_book.studies.schedules import best_steps, staircase

NAN, INF = math.nan, math.inf
GENERATOR = torch.Generator().manual_seed(0)


def real(*shape, fill=0.5, dtype=torch.float64):
    return torch.full(shape, fill, dtype=dtype)


def holed(*shape):
    """A tensor with one NaN, in its first place."""
    tensor = real(*shape)
    tensor.view(-1)[0] = NAN
    return tensor


SEEN = torch.tensor([True, True, False])
PCA = PPCA(torch.tensor([[1.0], [0.5], [2.0]]).double(), 0.3)
COINS = BernoulliMixture(real(2), torch.tensor([[0.2, 0.5, 0.9], [0.7, 0.1, 0.3]]).double())


class Untouched:
    """A model that must not be asked: work would have started."""

    num_tokens = 3

    def conditional_log_prob(self, x, observed):
        raise AssertionError("the model was asked before the input was checked")

    log_prob = conditional_log_prob


WORDS = HiddenMarkovModel(real(2), real(2, 2), real(2, 2), 3)
CERTAIN = HiddenMarkovModel(real(2), torch.eye(2).double(), torch.eye(2).double(), 3)  # writes 000 or 111
IMPOSSIBLE = torch.tensor([[0, 1, 0]])
DEEP = DeepVAE(3, 1, 0, generator=GENERATOR).double()
RULE = disc_rule(0.5, num_latents=1)
LINEAR = LinearVAE(PCA.weight, real(3), RULE)
MODEL = Untouched()
ROWS = real(4, 3)
KEPT = score_curve(PCA, ROWS, [1, 3], num_masks=2, generator=torch.Generator().manual_seed(0))


def curve(rows=ROWS, sizes=None, **options):
    return lambda: score_curve(MODEL, rows, sizes, generator=GENERATOR, **options)


def objective(name, *given, rows=ROWS, **options):
    return lambda: getattr(objectives, name)(MODEL, rows, *given, generator=GENERATOR, **options)


def climb(*, trained=True, num_steps=1, **options):
    return lambda: fit(MODEL.log_prob, [torch.zeros((), requires_grad=trained)], num_steps=num_steps, **options)


def masks(sizes):
    return lambda: random_masks(4, sizes, generator=GENERATOR)


def coins(num_components, **options):
    return lambda: BernoulliMixture.fit(real(2, 3, fill=1.0), num_components, generator=GENERATOR, **options)


def markov(**change):
    good = dict(initial=real(2), transition=real(2, 2), emission=real(2, 3, fill=1 / 3), num_tokens=3)
    return lambda: HiddenMarkovModel(**good | change)


def words(*row, observed=SEEN | True):
    return lambda: markov()().conditional_log_prob(torch.tensor(row), observed)


def transformer(**change):
    return MaskedTransformer(**dict(num_tokens=3, vocab_size=2) | change, generator=GENERATOR)


def digits():
    return linear_vae.BinaryImages("digits")


def deep(scheme="elbo", **options):
    return lambda: deep_vae.train(scheme, torch.zeros(9, 6), seed=1, **options)


# (what is wrong, call, what the message must state)
TABLE = [
    # masks
    ("mask size 0", lambda: count_masks(5, 0), "1..5.*from 0 to 0"),
    ("too many masks to list", lambda: all_masks(64, 32), r"C\(64, 32\) = 1.83e\+18"),
    ("random masks above D", masks([1, 5]), "1..4.*from 1 to 5"),
    ("fractional sizes", masks([1.5]), r"whole numbers, got \[1.5\]"),
    ("no sizes", masks([]), r"whole numbers, got \[\]"),
    ("yes for a size", masks(True), "whole numbers, got True"),
    ("sizes of a generator", masks(size for size in [1, 2]), "whole numbers, got <generator"),
    ("a mask of more tokens than its row has",
     lambda: random_masks(5, [[3, 1]], lengths=torch.tensor([2, 5]), generator=GENERATOR), "1 masks of 2 hide more"),
    ("lengths of other rows than masks",
     lambda: random_masks(5, [[4]], lengths=torch.tensor([5, 5]), generator=GENERATOR), r"1 rows, got shape \(2,\)"),
    ("no orders", lambda: random_orders(4, 0, generator=GENERATOR), "at least 1, got 0"),
    ("orders of nothing", lambda: random_orders(0, 3, generator=GENERATOR), "num_tokens.*got 0"),
    ("too many orders", lambda: all_orders(10), "10! orders"),
    # PPCA
    ("a weight vector", lambda: PPCA(real(3), 0.1), r"\[D, K\], got shape \(3,\)"),
    ("a whole-number weight", lambda: PPCA(torch.ones(3, 1, dtype=torch.long), 0.1), "floating"),
    ("K > D", lambda: PPCA(real(2, 3), 0.1), "K = 3.*D = 2"),
    ("K = 0", lambda: PPCA(real(2, 0), 0.1), "K = 0.*D = 2"),
    ("noise variance 0", lambda: PPCA(real(3, 1), 0.0), "positive number, got 0.0"),
    ("infinite noise variance", lambda: PPCA(real(3, 1), INF), "positive number, got inf"),
    ("a noise variance for each token", lambda: PPCA(real(3, 1), real(3)), "one positive number"),
    ("NaN in the weight", lambda: PPCA(holed(3, 1), 0.1), r"weight holds NaN.*1 such.*\(3, 1\)"),
    ("a mean of another size", lambda: PPCA(real(3, 1), 0.1, real(2)), r"mean has shape \(2,\).*\(3, 1\)"),
    ("NaN in the mean", lambda: PPCA(real(3, 1), 0.1, holed(3)), r"mean holds NaN.*\(3,\)"),
    ("fit K = D", lambda: PPCA.fit(real(9, 3), 3), "K = 3.*D = 3"),
    ("fit K = 0", lambda: PPCA.fit(real(9, 3), 0), "K.*at least 1, got 0"),
    ("fit NaN", lambda: PPCA.fit(holed(9, 3), 1), r"rows holds NaN.*\(9, 3\)"),
    ("fit rows without noise", lambda: PPCA.fit(torch.eye(3)[:2].double(), 1), "K = 1.*3 tokens fully"),
    ("fit K > D", lambda: PPCA.fit(real(9, 3), 4, 0.1), "K = 4.*D = 3"),
    ("masks of another D", lambda: PCA.mean_conditional_log_prob(ROWS, SEEN[None, :2]), r"observed has shape \(1, 2\)"),
    # BernoulliMixture
    ("components that do not pair", lambda: BernoulliMixture(real(2), real(3, 4)), r"\(2,\), \(3, 4\)"),
    ("weights that sum to 2", lambda: BernoulliMixture(real(4), real(4, 3)), "weights must .*sum to 1.* from 2 to 2"),
    ("a negative weight", lambda: BernoulliMixture(torch.tensor([1.5, -0.5]), real(2, 3)), "least is -0.5"),
    ("a probability above 1", lambda: BernoulliMixture(real(2), real(2, 3, fill=1.25)), "1.25"),
    ("a probability below 0", lambda: BernoulliMixture(real(2), real(2, 3, fill=-0.125)), "-0.125"),
    ("NaN in probs", lambda: BernoulliMixture(real(2), holed(2, 3)), r"probs holds NaN.*\(2, 3\)"),
    ("no tokens", lambda: BernoulliMixture(real(2), real(2, 0)), r"\(2, 0\)"),
    ("a grey masked token", lambda: COINS.conditional_log_prob(torch.tensor([0, 1, 0.5]).double(), SEEN), "e.g. 0.5"),
    ("fit grey rows", lambda: BernoulliMixture.fit(ROWS, 2, generator=GENERATOR), "0 or 1: 12 are not"),
    ("more components than rows", coins(3), r"3 components, got \(2, 3\)"),
    ("no components", coins(0), "num_components.*got 0"),
    ("no steps", coins(1, num_steps=0), "num_steps.*got 0"),
    ("negative smoothing", coins(1, smoothing=-1.0), "smoothing.*got -1.0"),
    # HiddenMarkovModel
    ("states that differ", markov(initial=real(3)), r"do not fit: \(3,\), \(2, 2\), \(2, 3\)"),
    ("sums of 2", markov(transition=real(2, 2, fill=1.0)), "transition must hold probabilities that sum to 1"),
    ("a negative probability", markov(initial=torch.tensor([1.5, -0.5])), "initial must hold probabilities"),
    ("NaN in the emission", markov(emission=holed(2, 3)), "emission holds NaN"),
    ("no tokens of a hidden Markov model", markov(num_tokens=0), "num_tokens must be a whole number of at least 1"),
    ("a word too many", words(0.0, 1.0, 3.0), r"whole numbers in 0..2: 1 are not in shape \(3,\)"),
    ("a word below", words(0.0, 1.0, -1.0), "whole numbers"),
    ("half a word", words(0.0, 1.0, 0.5), "whole numbers"),
    ("an unknown word", words(0.0, 1.0, NAN), "whole numbers"),
    ("a masked word too many", words(0.0, 1.0, 7.0, observed=SEEN & False), "whole numbers"),
    ("entropy of one row", lambda: WORDS.entropy(1, generator=GENERATOR), "at least 2"),
    # transformer and shortfall
    ("heads that do not share", lambda: transformer(width=9), "width 9 is not a multiple of 4 heads"),
    ("a truth of other words", lambda: Shortfall(transformer(), transformer(vocab_size=4)), "3 tokens of 2 .* 3 of 4"),
    ("a word unknown to the network", lambda: transformer().conditional_log_prob(real(3, fill=2), SEEN), "0 or 1"),
    # linear VAE
    ("nodes of another K", lambda: LinearVAE(PCA.weight, real(3), disc_rule(0.5)), "do not fit"),
    ("NaN in the linear VAE", lambda: LinearVAE(PCA.weight * NAN, real(3), RULE), "NaN"),
    ("no spacing", lambda: disc_rule(0.0), "spacing"),
    ("too many nodes", lambda: disc_rule(0.001), "million"),
    ("adaptive, grey", lambda: LINEAR.adaptive_log_prob(real(3)), "tokens must be 0 or 1"),
    ("another objective", lambda: linear_vae.train("mlm", None, seed=0), "objective"),
    # deep VAE
    ("another proposal", lambda: Importance(DEEP, GENERATOR, 5, "prior"), "proposal"),
    ("another scheme", deep("mlm"), "scheme"),
    # the curve
    ("rows of another D", curve(real(4, 2)), r"\[N, 3\].*\(4, 2\)"),
    ("no rows", curve(real(0, 3)), r"N >= 1, got \(0, 3\)"),
    ("rows of yes and no", curve(torch.ones(4, 3) > 0), "floating tensor or int64 token ids, got torch.bool"),
    ("ids that bfloat16 has rounded", lambda: WORDS.log_prob(torch.ones(3).bfloat16()), "int64, got torch.bfloat16"),
    ("a curve of no elements", curve(max_elements=0), "max_elements.*at least 1, got 0"),
    ("no masks", curve(num_masks=0), "num_masks.*at least 1, got 0"),
    ("too many tokens to enumerate", lambda: exact_curve(PPCA(real(17, 1), 0.1), real(1, 17)), r"2\^17"),
    ("rows in a list", curve([[0.5] * 3]), r"must be a tensor \[N, 3\], got list"),
    ("an area of an impossible row", lambda: exact_curve(CERTAIN, IMPOSSIBLE), "2 of the model's 9 answers are NaN"),
    ("a curve of an impossible row",
     lambda: score_curve(CERTAIN, IMPOSSIBLE, [1], num_masks=50, generator=GENERATOR), "are NaN"),
    ("passes of an impossible row", lambda: estimate_area(CERTAIN, IMPOSSIBLE, 98, generator=GENERATOR), "are NaN"),
    ("an impossible row in order", lambda: chain_rule(CERTAIN, IMPOSSIBLE, torch.tensor([[0, 1, 2]])), "are NaN"),
    ("a summary under masks of each row's own",
     lambda: mean_score(PCA, PCA.summarise(ROWS), SEEN.expand(2, 4, 3)), r"all rows share.*\(2, 4, 3\)"),
    ("exact curve of NaN", lambda: exact_curve(MODEL, holed(4, 3)), "rows holds NaN"),
    ("orders that repeat a token", lambda: chain_rule(MODEL, ROWS, torch.tensor([[0, 1, 1]])), r"\[Q, 3\].*\(1, 3\)"),
    ("chain rule of NaN", lambda: chain_rule(MODEL, holed(4, 3), torch.tensor([[0, 1, 2]])), "rows holds NaN"),
    ("spread of one order", lambda: order_spread(MODEL, ROWS, num_orders=1, generator=GENERATOR), "at least 2, got 1"),
    ("an odd number of passes", lambda: estimate_area(MODEL, ROWS, 5, generator=GENERATOR), "even.*got 5"),
    ("one pass", lambda: estimate_area(MODEL, ROWS, 1, generator=GENERATOR), "num_passes.*at least 2, got 1"),
    ("one order",
     lambda: estimate_area(MODEL, ROWS, 4, by_orders=True, generator=GENERATOR), "num_passes.*at least 6, got 4"),
    ("an area of NaN", lambda: estimate_area(MODEL, holed(4, 3), 2, generator=GENERATOR), "rows holds NaN"),
    ("no strata", lambda: stratified_sizes(3, 0, generator=GENERATOR), "num_strata.*got 0"),
    ("a schedule by unknown scores", lambda: best_steps([NAN, -1.0, -2.0], 2), "must be finite"),
    ("steps that write too little", lambda: staircase([-1.0, -2.0], [1]), r"write 1 tokens.*\(2,\)"),
    ("an unknown choice of places", lambda: unmask(WORDS, [3], places="best", generator=GENERATOR), "'best'"),
    ("passes that leave a hole", lambda: unmask(WORDS, [1, 1], generator=GENERATOR), r"sum to 3 tokens, got \[1, 1\]"),
    ("a mask that masks nothing", lambda: mean_score(MODEL, ROWS, torch.ones(2, 3).bool()), "2 of 2 masks mask no"),
    ("masks of numbers", lambda: mean_score(MODEL, ROWS, torch.zeros(2, 3)), "bool tensor.*torch.float32"),
    ("scored rows of NaN", lambda: mean_score(MODEL, holed(4, 3), SEEN[None]), "rows holds NaN"),
    ("an unknown kind of rows", lambda: KEPT.area(rows="all"), "'all'"),
    ("one row for a population", lambda: exact_curve(PCA, ROWS[:1]).area(rows="sample"), "at least two rows"),
    ("rows that were not kept", lambda: KEPT.area(rows="sample"), "keep_rows=True"),
    ("a level of 1", lambda: Estimate(0.0, 1.0).interval(1.0), "level.*got 1.0"),
    # objectives
    ("a fixed size above D", objective("fixed_size", 4), "from 4 to 4"),
    ("no masks of a fixed size", objective("fixed_size", 1, num_masks=0), "num_masks.*got 0"),
    ("no masks of every size", objective("every_size", num_masks=0), "got 0"),
    ("no masks of any size", objective("uniform_size", num_masks=-1), "got -1"),
    ("rate 0", objective("bernoulli_rate", rate=0.0), r"\(0, 1\], got 0.0"),
    ("rate above 1", objective("bernoulli_rate", rate=1.5), "got 1.5"),
    ("rows to learn from of another D", objective("every_size", rows=real(4, 2)), r"\(4, 2\)"),
    ("lengths of other rows", objective("stratified_size", lengths=torch.ones(3).long()), r"4 rows, got shape \(3,\)"),
    ("a row of no token", objective("stratified_size", lengths=torch.tensor([3, 0, 1, 1])), "from 0 to 3"),
    ("own rates of a summary", objective("bernoulli_rate", rows="a summary"), "share_masks=False"),
    ("own masks of a summary", objective("uniform_size", rows="a summary", share_masks=False), "share_masks=False"),
    # the fit
    ("no steps of a fit", climb(num_steps=0), "num_steps.*got 0"),
    ("tracking every 0 steps", climb(track_every=0), "track_every.*got 0"),
    ("a learning rate of 0", climb(learning_rate=0.0), "learning rate 0.0"),
    ("a NaN learning rate", climb(learning_rate=NAN), "learning rate nan"),
    ("a negative warm-up", climb(warm_up=-1), "warm_up.*at least 0, got -1"),
    ("a decay over no step", climb(decay_steps=0), "decay_steps.*got 0"),
    ("half a step's decay", climb(decay_steps=0.5), "decay_steps.*got 0.5"),
    ("more steps than the decay", climb(num_steps=40, decay_steps=10), "40 steps are more than the 10"),
    ("nothing to train", climb(trained=False), "must require gradients"),
    # data
    ("unknown images", lambda: load_images("cifar"), "'cifar'"),
    ("no images", lambda: load_images("digits", 0), "num_rows.*got 0"),
    ("more digits than there are", lambda: load_images("digits", 2000), "2000 images.*1797"),
]
# What every model answers and refuses alike.
X = real(2, 3, fill=1.0)
for _model in PCA, COINS, LINEAR, Importance(DEEP, GENERATOR, 2):
    _ask = _model.conditional_log_prob
    _calls = {
        "rows of another D": (_model.log_prob, real(2, 4), r"x has shape \(2, 4\).*3 tokens"),
        "a number": (_model.log_prob, real(), r"x has shape \(\)"),
        "rows of other numbers": (_model.log_prob, X.half(), "x is torch.float16 on cpu, but the model's parameters"),
        "NaN observed": (_model.log_prob, holed(2, 3).round(), r"\(2, 3\)"),
        "a mask of another D": (_ask, X, SEEN[:2], r"observed has shape \(2,\).*3 tokens"),
        "a mask of numbers": (_ask, X, SEEN.double(), "observed must be a bool tensor.*torch.float64"),
        "a mask for other rows": (_ask, X, SEEN.expand(5, 3), r"x \(2, 3\) and observed \(5, 3\)"),
        "rows of another precision": (_ask, X.float(), SEEN, "x is torch.float32 on cpu, but the model's parameters"),
        "a mean at another precision": (mean_score, _model, X.float(), SEEN[None], "x is torch.float32"),
    }
    TABLE += [(f"{type(_model).__name__}: {what}", partial(*call), states) for what, (*call, states) in _calls.items()]


@pytest.mark.parametrize(("call", "states"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_bad_input(call, states):
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(states, str(error.value)), f"{str(error.value)!r} does not state {states!r}"


def test_good_input_next_to_the_bad():
    """The edges that are allowed: m = D, rate 1, K = D, one row, numpy's whole numbers, sure coins, rounding."""
    assert exact_curve(one_nat_each(16), torch.zeros(1, 16)).area().mean == pytest.approx(-16)
    assert PPCA(real(2, 2), 1e-3).num_latents == 2
    one = score_curve(PCA, real(1, 3), np.array([1, 3]), num_masks=np.int64(2), generator=GENERATOR)
    assert one.sizes.tolist() == [1, 3]
    assert objectives.bernoulli_rate(PCA, ROWS, rate=1, generator=GENERATOR).isfinite()
    assert BernoulliMixture(torch.tensor([1.0]), torch.tensor([[0.0, 1.0]])).log_prob(torch.tensor([0.0, 1.0])) == 0
    assert COINS.conditional_log_prob(torch.tensor([1.0, 0.0, NAN]).double(), SEEN)[:2].tolist() == [0, 0]
    coins = BernoulliMixture(1.000005 * COINS.weights, COINS.probs)
    words = HiddenMarkovModel(*(1.000005 * p for p in (WORDS.initial, WORDS.transition, WORDS.emission)), 3)
    for rounded, model in ((coins, COINS), (words, WORDS)):  # sums are made to be exactly 1
        torch.testing.assert_close(rounded.log_prob(X[0]), model.log_prob(X[0]), rtol=0, atol=1e-12)
