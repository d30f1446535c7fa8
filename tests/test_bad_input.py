"""Bad input gets a ValueError that states what was given, before any work starts: one table."""

import math
import re

import pytest
import torch

from mptlml import (
    Estimate,
    all_masks,
    all_orders,
    chain_rule,
    count_masks,
    exact_curve,
    fit,
    mean_score,
    objectives,
    order_spread,
    random_masks,
    random_orders,
    score_curve,
)
from mptlml.data.images import load_images
from mptlml.models import PPCA, BernoulliMixture, LinearVAE, SecondMoment
from mptlml.models.deep_vae import DeepVAE, NodeMixture
from mptlml.models.importance import Importance
from mptlml.models.linear_vae import disc_rule
from mptlml.studies.scripts_data import scripts_rows

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


MODEL = Untouched()
ROWS = real(4, 3)


def curve(model=MODEL, rows=ROWS, sizes=None, **options):
    return lambda: score_curve(model, rows, sizes, generator=GENERATOR, **options)


def untouched_objective():
    raise AssertionError("the objective was asked before the input was checked")


PARAMETER = torch.zeros((), requires_grad=True)
KEPT = score_curve(PCA, ROWS, [1, 3], num_masks=2, generator=torch.Generator().manual_seed(0))

# (what is wrong, call, what the message must state)
TABLE = [
    # masks
    ("mask size 0", lambda: count_masks(5, 0), "1..5.*from 0 to 0"),
    ("mask size above D", lambda: count_masks(5, 6), "1..5.*from 6 to 6"),
    ("no token at all", lambda: count_masks(0, 1), "num_tokens.*at least 1, got 0"),
    ("all masks of size 0", lambda: all_masks(4, 0), "1..4.*from 0 to 0"),
    ("too many masks to list", lambda: all_masks(64, 32), r"C\(64, 32\) = 1.83e\+18"),
    ("random masks above D", lambda: random_masks(4, [1, 5], generator=GENERATOR), "1..4.*from 1 to 5"),
    ("random masks of size 0", lambda: random_masks(4, torch.tensor([[0, 2]]), generator=GENERATOR), "from 0 to 2"),
    ("fractional sizes", lambda: random_masks(4, [1.5], generator=GENERATOR), r"whole numbers, got \[1.5\]"),
    ("no sizes", lambda: random_masks(4, [], generator=GENERATOR), r"whole numbers, got \[\]"),
    ("yes for a size", lambda: random_masks(4, True, generator=GENERATOR), "whole numbers, got True"),
    ("no orders", lambda: random_orders(4, 0, generator=GENERATOR), "at least 1, got 0"),
    ("orders of nothing", lambda: random_orders(0, 3, generator=GENERATOR), "num_tokens.*got 0"),
    ("all orders of nothing", lambda: all_orders(0), "num_tokens.*got 0"),
    ("too many orders", lambda: all_orders(10), "10! orders"),
    # PPCA
    ("a weight vector", lambda: PPCA(real(3), 0.1), r"\[D, K\], got shape \(3,\)"),
    ("a whole-number weight", lambda: PPCA(torch.ones(3, 1, dtype=torch.long), 0.1), "floating"),
    ("K > D", lambda: PPCA(real(2, 3), 0.1), "K = 3.*D = 2"),
    ("K = 0", lambda: PPCA(real(2, 0), 0.1), "K = 0.*D = 2"),
    ("noise variance 0", lambda: PPCA(real(3, 1), 0.0), "positive number, got 0.0"),
    ("negative noise variance", lambda: PPCA(real(3, 1), -0.25), "positive number, got -0.25"),
    ("NaN noise variance", lambda: PPCA(real(3, 1), NAN), "positive number, got nan"),
    ("infinite noise variance", lambda: PPCA(real(3, 1), INF), "positive number, got inf"),
    ("a noise variance for each token", lambda: PPCA(real(3, 1), real(3)), "one positive number"),
    ("NaN in the weight", lambda: PPCA(holed(3, 1), 0.1), r"weight holds NaN.*1 such.*\(3, 1\)"),
    ("a mean of another size", lambda: PPCA(real(3, 1), 0.1, real(2)), r"mean has shape \(2,\).*\(3, 1\)"),
    ("NaN in the mean", lambda: PPCA(real(3, 1), 0.1, holed(3)), r"mean holds NaN.*\(3,\)"),
    ("fit K = D", lambda: PPCA.fit(real(9, 3), 3), "K = 3.*D = 3"),
    ("fit K = 0", lambda: PPCA.fit(real(9, 3), 0), "K.*at least 1, got 0"),
    ("fit a vector", lambda: PPCA.fit(real(9), 1), r"\(9,\)"),
    ("fit NaN", lambda: PPCA.fit(holed(9, 3), 1), r"rows holds NaN.*\(9, 3\)"),
    ("fit rows without noise", lambda: PPCA.fit(torch.eye(3)[:2].double(), 1), "K = 1.*3 tokens fully"),
    ("fit K > D", lambda: PPCA.fit(real(9, 3), 4, 0.1), "K = 4.*D = 3"),
    ("fit a known noise of 0", lambda: PPCA.fit(real(9, 3), 1, 0.0), "positive number, got 0.0"),
    ("fit a mean of another size", lambda: PPCA.fit(real(9, 3), 1, mean=real(2)), r"mean has shape \(2,\).*\(3, 1\)"),
    ("no samples", lambda: PCA.sample(0, generator=GENERATOR), "num_rows.*got 0"),
    ("a moment of NaN", lambda: SecondMoment.of(holed(4, 3)), r"rows holds NaN.*\(4, 3\)"),
    ("a moment of no rows", lambda: SecondMoment.of(real(0, 3)), r"\(0, 3\)"),
    ("rows of another D to summarise", lambda: PCA.summarise(real(4, 2)), r"\[N, 3\].*\(4, 2\)"),
    ("masks of another D", lambda: PCA.mean_conditional_log_prob(ROWS, SEEN[None, :2]), r"observed has shape \(1, 2\)"),
    ("no rows for a mean", lambda: PCA.mean_log_prob(real(0, 3)), r"\(0, 3\)"),
    # BernoulliMixture
    ("components that do not pair", lambda: BernoulliMixture(real(2), real(3, 4)), r"\(2,\), \(3, 4\)"),
    ("weights that sum to 2", lambda: BernoulliMixture(real(4), real(4, 3)), "sum to 1, they sum to 2"),
    ("a negative weight", lambda: BernoulliMixture(torch.tensor([1.5, -0.5]), real(2, 3)), "least is -0.5"),
    ("a probability above 1", lambda: BernoulliMixture(real(2), real(2, 3, fill=1.25)), "1.25"),
    ("a probability below 0", lambda: BernoulliMixture(real(2), real(2, 3, fill=-0.125)), "-0.125"),
    ("NaN in probs", lambda: BernoulliMixture(real(2), holed(2, 3)), r"probs holds NaN.*\(2, 3\)"),
    ("NaN in weights", lambda: BernoulliMixture(holed(2), real(2, 3)), r"weights holds NaN.*\(2,\)"),
    ("no tokens", lambda: BernoulliMixture(real(2), real(2, 0)), r"\(2, 0\)"),
    ("grey pixels", lambda: COINS.log_prob(real(2, 3)), r"0 or 1: 6 are not in shape \(2, 3\), e.g. 0.5"),
    ("a grey observed token", lambda: COINS.conditional_log_prob(real(3), SEEN), "0 or 1.*e.g. 0.5"),
    ("a grey masked token", lambda: COINS.conditional_log_prob(torch.tensor([0, 1, 0.5]).double(), SEEN), "e.g. 0.5"),
    ("NaN observed", lambda: COINS.conditional_log_prob(torch.tensor([NAN, 1, 1]).double(), SEEN), "e.g. nan"),
    ("fit grey rows", lambda: BernoulliMixture.fit(ROWS, 2, generator=GENERATOR), "0 or 1: 12 are not"),
    ("more components than rows", lambda: BernoulliMixture.fit(real(2, 3, fill=1.0), 3, generator=GENERATOR),
     r"3 components, got \(2, 3\)"),
    ("no components", lambda: BernoulliMixture.fit(real(2, 3, fill=1.0), 0, generator=GENERATOR),
     "num_components.*got 0"),
    ("no steps", lambda: BernoulliMixture.fit(real(2, 3, fill=1.0), 1, num_steps=0, generator=GENERATOR),
     "num_steps.*got 0"),
    ("negative smoothing", lambda: BernoulliMixture.fit(real(2, 3, fill=1.0), 1, smoothing=-1.0, generator=GENERATOR),
     "smoothing.*got -1.0"),
    ("no samples of a mixture", lambda: COINS.sample(0, generator=GENERATOR), "num_rows.*got 0"),
    # the curve
    ("a vector for rows", curve(rows=real(3)), r"\[N, 3\].*\(3,\)"),
    ("rows of another D", curve(rows=real(4, 2)), r"\[N, 3\].*\(4, 2\)"),
    ("no rows", curve(rows=real(0, 3)), r"N >= 1, got \(0, 3\)"),
    ("whole-number rows", curve(rows=torch.ones(4, 3, dtype=torch.long)), "floating tensor, got torch.int64"),
    ("NaN rows", curve(rows=holed(4, 3)), r"rows holds NaN.*1 such.*\(4, 3\)"),
    ("infinite rows", curve(rows=real(4, 3, fill=INF)), "rows holds NaN or infinity: 12 such"),
    ("a curve at size 0", curve(sizes=[0, 1]), "1..3.*from 0 to 1"),
    ("a curve above D", curve(sizes=[4]), "1..3.*from 4 to 4"),
    ("a curve at no size", curve(sizes=[]), "whole numbers"),
    ("a curve of no elements", curve(max_elements=0), "max_elements.*at least 1, got 0"),
    ("no masks", curve(num_masks=0), "num_masks.*at least 1, got 0"),
    ("half a mask", curve(num_masks=0.5), "num_masks.*got 0.5"),
    ("too many tokens to enumerate", lambda: exact_curve(PPCA(real(17, 1), 0.1), real(1, 17)), r"2\^17"),
    ("exact curve of NaN", lambda: exact_curve(MODEL, holed(4, 3)), "rows holds NaN"),
    ("exact curve of another D", lambda: exact_curve(MODEL, real(4, 2)), r"\(4, 2\)"),
    ("orders that repeat a token", lambda: chain_rule(MODEL, ROWS, torch.tensor([[0, 1, 1]])), r"\[Q, 3\].*\(1, 3\)"),
    ("orders of another D", lambda: chain_rule(MODEL, ROWS, torch.tensor([[0, 1]])), r"\(1, 2\)"),
    ("one order, no list", lambda: chain_rule(MODEL, ROWS, torch.tensor([0, 1, 2])), r"\(3,\)"),
    ("chain rule of NaN", lambda: chain_rule(MODEL, holed(4, 3), torch.tensor([[0, 1, 2]])), "rows holds NaN"),
    ("spread of one order", lambda: order_spread(MODEL, ROWS, num_orders=1, generator=GENERATOR), "at least 2, got 1"),
    ("a mask that masks nothing", lambda: mean_score(MODEL, ROWS, torch.ones(2, 3).bool()), "2 of 2 masks mask no"),
    ("masks of another D to score", lambda: mean_score(MODEL, ROWS, torch.zeros(2, 4).bool()), r"\(2, 4\)"),
    ("masks of numbers", lambda: mean_score(MODEL, ROWS, torch.zeros(2, 3)), "bool tensor.*torch.float32"),
    ("scored rows of NaN", lambda: mean_score(MODEL, holed(4, 3), SEEN[None]), "rows holds NaN"),
    ("an unknown kind of rows", lambda: KEPT.area(rows="all"), "'all'"),
    ("one row for a population", lambda: exact_curve(PCA, ROWS[:1]).area(rows="sample"), "at least two rows"),
    ("rows that were not kept", lambda: KEPT.area(rows="sample"), "keep_rows=True"),
    ("a truncated sum over a gap", lambda: KEPT.truncated(3), "1..3.*1 3"),
    ("a truncated sum of nothing", lambda: KEPT.truncated(0), "1..3.*from 0 to 0"),
    ("a truncated sum above D", lambda: KEPT.truncated(4), "1..3.*from 4 to 4"),
    ("a level of 1", lambda: Estimate(0.0, 1.0).interval(1.0), "level.*got 1.0"),
    ("a level in percent", lambda: Estimate(0.0, 1.0).interval(95), "level.*got 95"),
    # objectives
    ("a fixed size 0", lambda: objectives.fixed_size(MODEL, ROWS, 0, generator=GENERATOR), "1..3.*from 0 to 0"),
    ("a fixed size above D", lambda: objectives.fixed_size(MODEL, ROWS, 4, generator=GENERATOR), "from 4 to 4"),
    ("no masks of a fixed size", lambda: objectives.fixed_size(MODEL, ROWS, 1, num_masks=0, generator=GENERATOR),
     "num_masks.*got 0"),
    ("no masks of every size", lambda: objectives.every_size(MODEL, ROWS, num_masks=0, generator=GENERATOR), "got 0"),
    ("no masks of any size", lambda: objectives.uniform_size(MODEL, ROWS, num_masks=-1, generator=GENERATOR), "got -1"),
    ("rate 0", lambda: objectives.bernoulli_rate(MODEL, ROWS, rate=0.0, generator=GENERATOR), r"\(0, 1\], got 0.0"),
    ("rate above 1", lambda: objectives.bernoulli_rate(MODEL, ROWS, rate=1.5, generator=GENERATOR), "got 1.5"),
    ("rate in percent", lambda: objectives.bernoulli_rate(MODEL, ROWS, rate=15, generator=GENERATOR), "got 15"),
    ("NaN rate", lambda: objectives.bernoulli_rate(MODEL, ROWS, rate=NAN, generator=GENERATOR), "got nan"),
    ("NaN to learn from", lambda: objectives.fixed_size(MODEL, holed(4, 3), 1, generator=GENERATOR), "rows holds NaN"),
    ("rows to learn from of another D", lambda: objectives.every_size(MODEL, real(4, 2), generator=GENERATOR),
     r"\(4, 2\)"),
    ("own masks of a summary", lambda: objectives.uniform_size(
        PCA, SecondMoment.of(ROWS), share_masks=False, generator=GENERATOR), "share_masks=False"),
    # the fit
    ("no steps of a fit", lambda: fit(untouched_objective, [PARAMETER], num_steps=0), "num_steps.*got 0"),
    ("tracking every 0 steps", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, track_every=0),
     "track_every.*got 0"),
    ("a learning rate of 0", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, learning_rate=0.0),
     "learning rate 0.0"),
    ("a NaN learning rate", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, learning_rate=NAN),
     "learning rate nan"),
    ("a negative warm-up", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, warm_up=-1),
     "warm_up.*at least 0, got -1"),
    ("a decay over no step", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, decay=0), "decay.*got 0"),
    ("a negative decay", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, decay=-5), "decay.*got -5"),
    ("half a step's decay", lambda: fit(untouched_objective, [PARAMETER], num_steps=1, decay=0.5), "decay.*got 0.5"),
    ("more steps than the decay", lambda: fit(untouched_objective, [PARAMETER], num_steps=40, decay=10),
     "40 steps are more than the 10"),
    ("nothing to train", lambda: fit(untouched_objective, [PARAMETER.detach()], num_steps=1), "must require gradients"),
    ("no parameters", lambda: fit(untouched_objective, [], num_steps=1), "must require gradients"),
    # data
    ("unknown images", lambda: load_images("cifar"), "'cifar'"),
    ("no images", lambda: load_images("digits", 0), "num_rows.*got 0"),
    ("more digits than there are", lambda: load_images("digits", 2000), "2000 images.*1797"),
    ("no rows of the scripts", lambda: scripts_rows(0, 4, 2, seed=1), "num_rows.*got 0"),
]
# What every model answers and refuses alike.
VAE = LinearVAE(PCA.weight, real(3), disc_rule(0.5, num_latents=1))
DEEP = DeepVAE(3, 1, 0, generator=GENERATOR).double()
NODES = NodeMixture(DEEP, disc_rule(0.5, num_latents=1))
for _name, _model in (("PPCA", PCA), ("BernoulliMixture", COINS), ("LinearVAE", VAE), ("NodeMixture", NODES),
                      ("Importance", Importance(DEEP, GENERATOR, 2))):
    _ok = real(2, 3, fill=1.0)
    TABLE += [
        (f"{_name}: rows of another D", lambda m=_model: m.log_prob(real(2, 4)), r"x has shape \(2, 4\).*3 tokens"),
        (f"{_name}: a number", lambda m=_model: m.log_prob(real()), r"x has shape \(\)"),
        (f"{_name}: a mask of another D", lambda m=_model, x=_ok: m.conditional_log_prob(x, SEEN[:2]),
         r"observed has shape \(2,\).*3 tokens"),
        (f"{_name}: a mask of numbers", lambda m=_model, x=_ok: m.conditional_log_prob(x, SEEN.double()),
         "observed must be a bool tensor.*torch.float64"),
        (f"{_name}: a mask for other rows", lambda m=_model, x=_ok: m.conditional_log_prob(x, SEEN.expand(5, 3)),
         r"x \(2, 3\) and observed \(5, 3\)"),
        (f"{_name}: whole-number rows", lambda m=_model, x=_ok: m.log_prob(x.long()),
         "floating tensor, got torch.int64"),
        (f"{_name}: rows of another precision", lambda m=_model, x=_ok: m.conditional_log_prob(x.float(), SEEN),
         "x is torch.float32 on cpu, the model's parameters are torch.float64"),
        (f"{_name}: a mean of rows of another precision", lambda m=_model, x=_ok: mean_score(m, x.float(), SEEN[None]),
         "x is torch.float32"),
        (f"{_name}: NaN observed", lambda m=_model: m.log_prob(holed(2, 3).round()), r"\(2, 3\)"),
    ]


@pytest.mark.parametrize(("call", "states"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_bad_input(call, states):
    with pytest.raises(ValueError) as error:
        call()
    assert re.search(states, str(error.value)), f"{str(error.value)!r} does not state {states!r}"


def test_good_input_next_to_the_bad():
    """The edges that are allowed: m = 1, m = D, rate 1, K = D, one row, numpy's whole numbers, sure coins."""
    assert count_masks(5, 5) == 1 and count_masks(5, 1) == 5
    assert PPCA(real(2, 2), 1e-3).num_latents == 2
    one = score_curve(PCA, real(1, 3), torch.tensor([1, 3]).numpy(), num_masks=torch.tensor([2]).numpy()[0],
                      generator=GENERATOR)
    assert one.sizes.tolist() == [1, 3]
    assert objectives.bernoulli_rate(PCA, ROWS, rate=1, generator=GENERATOR).isfinite()
    assert BernoulliMixture(torch.tensor([1.0]), torch.tensor([[0.0, 1.0]])).log_prob(torch.tensor([0.0, 1.0])) == 0
    assert COINS.conditional_log_prob(torch.tensor([1.0, 0.0, NAN]).double(), SEEN)[:2].tolist() == [0, 0]
