"""The order that is chosen: its languages against enumeration, its orders, its statistics, its long run."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import as_frequent, near, same
from scipy import stats

from mptlml import exact_curve
from mptlml.masks import random_orders
from mptlml.models.hmm import HiddenMarkovModel
from mptlml_book import known_language as known
from mptlml_book import order as study
from mptlml_book import order_run as run
from mptlml_book import runs as results
from mptlml_book.shortfall import Shortfall
from mptlml_book.transformer import MaskedTransformer

HALF = torch.tensor([0.6, 0.4], dtype=torch.float64)
MOVE = torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=torch.float64)
SAY = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], dtype=torch.float64)
half, move, say = (probs.tolist() for probs in (HALF, MOVE, SAY))


def chain(num_tokens):
    return HiddenMarkovModel(HALF, MOVE, SAY, num_tokens)


def chain_prob(row):
    """p(row) of a chain, over all paths of its states."""
    return sum(
        half[path[0]]
        * math.prod(move[a][b] for a, b in itertools.pairwise(path))
        * math.prod(say[state][word] for state, word in zip(path, row, strict=True))
        for path in itertools.product(range(2), repeat=len(row))
    )


def copies_prob(row):
    half = len(row) // 2
    pairs = zip(row[:half], row[half:], strict=True)
    return chain_prob(row[:half]) * math.prod(0.8 * (a == b) + 0.2 / 3 for a, b in pairs)


def tree_prob(row):
    """Four words under the states of the root, 0, of its children, 1 and 2, and of theirs, 3 to 6."""
    return sum(
        half[state[0]]
        * math.prod(move[state[(node - 1) // 2]][state[node]] for node in range(1, 7))
        * math.prod(say[state[3 + place]][word] for place, word in enumerate(row))
        for state in itertools.product(range(2), repeat=7)
    )


def sums_prob(row):
    return math.prod(
        math.prod(half[word] for word in block) * (0.05 + 0.9 * (sum(block) % 2 == last))
        for *block, last in (row[:4], row[4:])
    )


def moved_prob(row):
    return chain_prob([row[0], row[3], row[1], row[2]])


SMALL = {
    "moved": (study.Moved(chain(4), torch.tensor([0, 3, 1, 2])), moved_prob),
    "copies": (study.Copies(chain(2), 0.8), copies_prob),
    "tree": (study.Tree(HALF, MOVE, SAY, 2), tree_prob),
    "sums": (study.Sums(HALF, 0.9, 2), sums_prob),
}


@pytest.mark.parametrize("name", SMALL)
def test_answers_are_those_of_all_rows_together(name):
    """p(x_j = v | x_R) as a share of the probabilities of all rows that agree with x_R."""
    language, prob = SMALL[name]
    rows = list(itertools.product(range(language.vocab_size), repeat=language.num_tokens))
    table = torch.tensor([prob(row) for row in rows], dtype=torch.float64)
    rows = torch.tensor(rows)
    assert table.sum() == pytest.approx(1)
    for seen in itertools.product((False, True), repeat=language.num_tokens):
        seen = torch.tensor(seen)
        for x in rows[:: len(rows) // 5 + 1]:
            agree = table * ((rows == x) | ~seen).all(-1)
            found = language.vocabulary_log_prob(x[None], seen)[0].exp()
            for place in range(language.num_tokens):
                share = torch.bincount(rows[:, place], agree, language.vocab_size) / agree.sum()
                same(found[place], share)


@pytest.mark.parametrize("name", SMALL)
def test_rows_are_as_frequent_as_they_are_probable(name, generator):
    language, prob = SMALL[name]
    drawn, count = language.sample(20_000, generator=generator).unique(dim=0, return_counts=True)
    assert as_frequent(count, [20_000 * prob(row) for row in drawn.tolist()])


@pytest.mark.parametrize("name", study.LANGUAGES)
def test_each_language_has_32_tokens_and_expects_what_it_writes(name, generator):
    language = study.LANGUAGES[name]()
    x = language.sample(200, generator=generator)
    assert x.shape == (200, 32) and 0 <= x.min() and x.max() < language.vocab_size
    seen = torch.rand(x.shape, generator=generator) < 0.5
    answer = language.vocabulary_log_prob(x, seen).where(~seen[..., None], 0.0)
    surprise = -answer.gather(-1, x[..., None])[..., 0].sum(-1)
    entropy = -(answer.exp() * answer).sum((-1, -2))
    assert near(surprise - entropy, 0)


def orders(model):
    return {
        "random": study.random,
        "beside": study.beside,
        "scattered": study.scattered(model.num_tokens),
        "surest": study.surest(model),
        "least entropy": study.least_entropy(model),
    }


def places(order, language, x, tie):
    """The places of rows [N, D], in the order in which they become visible."""
    return torch.cat([place for place, _ in study.follow(order, language, x, tie)[1]], -1)


def test_an_order_looks_at_visible_words_alone(generator):
    """The hidden words of a row may be others: all places, chosen up to there, are the same."""
    language = SMALL["tree"][0]
    x, other = (language.sample(300, generator=generator) for _ in range(2))
    tie = torch.rand(x.shape, generator=generator)
    for order in [*orders(language).values(), lambda x, seen: x.double()]:
        place, place_of_other = (places(order, language, rows, tie) for rows in (x, other))
        same = torch.ones(len(x), dtype=torch.bool)  # so far the visible words are the same
        for step in range(4):
            assert torch.equal(place[same, step], place_of_other[same, step])
            at = place[:, step, None]
            same &= (x.gather(-1, at) == other.gather(-1, at))[:, 0]


def test_orders_are_what_their_names_say(generator):
    language = SMALL["copies"][0]
    x = language.sample(200, generator=generator)
    tie = torch.rand(x.shape, generator=generator)
    path = {name: places(order, language, x, tie) for name, order in orders(language).items()}
    assert all((place.sort(-1).values == torch.arange(4)).all() for place in path.values())
    assert torch.equal(path["random"], tie.argsort(-1, descending=True))
    assert (path["scattered"] == torch.tensor([0, 2, 1, 3])).all()
    assert len(path["beside"].unique(dim=0)) == 8  # of 24: those that grow from one place
    for row in path["beside"].tolist():
        assert all(min(abs(b - a) for a in row[:step]) == 1 for step, b in enumerate(row) if step)
    seen = torch.zeros_like(x, dtype=torch.bool).scatter(-1, path["surest"][:, :1], True)
    sure = language.vocabulary_log_prob(x, seen).amax(-1).where(~seen, -math.inf)
    assert torch.equal(path["surest"][:, 1], sure.argmax(-1))


def test_beside_where_a_moved_language_has_its_neighbours(generator):
    language = study.Moved(SMALL["copies"][0], torch.tensor([2, 0, 3, 1]))
    x = language.sample(200, generator=generator)
    tie = torch.rand(x.shape, generator=generator)
    path = language.back[places(study.beside_in(language), language, x, tie)]
    assert len(path.unique(dim=0)) == 8  # each set that is visible is a run, in the language
    for row in path.tolist():
        assert all(min(abs(b - a) for a in row[:step]) == 1 for step, b in enumerate(row) if step)


def test_what_is_below_is_the_shortfall_of_the_area_and_nothing_for_the_truth(generator):
    """Over all orders the mean is the area's; four places at a time cost what is not known of each other."""
    language, wrong = SMALL["copies"][0], study.Copies(chain(2), 0.5)
    x = language.sample(6, generator=generator)
    every = [study.fixed(torch.tensor(rank)) for rank in itertools.permutations(range(4))]
    tie = torch.zeros(x.shape)
    found = []
    for order in every:
        path = study.follow(order, language, x, tie)[1]
        assert study.below(language, x, path).abs().max() < 1e-12
        found.append(study.below(wrong, x, path).sum())
    area = exact_curve(Shortfall(wrong, language), x).area().mean
    assert torch.stack(found).mean() == pytest.approx(-area)
    at_once = study.follow(study.random, language, x, tie, passes=1)[1]
    assert study.below(wrong, x, at_once).shape == (1,)


def test_written_rows_are_the_writers(generator):
    """Rows that the language writes along its surest places are as frequent as its own."""
    language, prob = SMALL["copies"]
    blank = torch.zeros(20_000, 4, dtype=torch.long)
    order = study.surest(language)
    rows, _ = study.follow(order, language, blank, torch.zeros(blank.shape), generator=generator)
    drawn, count = rows.unique(dim=0, return_counts=True)
    assert as_frequent(count, [20_000 * prob(row) for row in drawn.tolist()])


def test_the_best_of_orders_is_no_distribution_and_their_mixture_is(generator):
    """Summed over all rows; of a network whose answers contradict each other."""
    language = chain(4)
    net = MaskedTransformer(4, 3, **known.SMALL, generator=generator)
    net.readout.weight.data *= 20
    every = torch.cartesian_prod(*4 * [torch.arange(3)])
    orders = random_orders(4, 8, generator=generator)
    total = {2: np.zeros(2), 8: np.zeros(2)}
    for x in every[:, None]:
        prob = language.log_prob(x).exp().item()
        for count, found in study.best_of(net, language, x, orders, list(total)).items():
            total[count] += prob * np.exp(found)
    assert total[8][1] == pytest.approx(1)
    assert total[8][0] > 1.05
    assert study.best_of(language, language, every, orders, [8])[8] == pytest.approx((0, 0))


def test_networks_are_trained_and_read():
    first, second, again = (
        study.train("tree", scheme, seed=3, num_steps=10, learning_rate=1e-2)
        for scheme in (study.UNIFORM, study.THEN, study.THEN)
    )
    assert torch.equal(again.readout.weight, second.readout.weight)
    assert study.own_loss(again, study.tree(), study.SURE, seed=1) < 0
    nets = {study.UNIFORM: first, study.FIFTEEN: second}
    found = study.read_networks(nets, study.tree(), seed=3, num_rows=2)
    assert found[study.UNIFORM] != found[study.FIFTEEN]
    for reading in found.values():
        assert len(reading) == 22 and min(reading.values()) > 0
        assert reading["own surest, first"] < reading["own surest"]


# Statistics -------------------------------------------------------------------------------------------------


@pytest.fixture
def pairs():
    """A lead along an order and along random ones, by seed."""
    rng = np.random.default_rng(4)
    whole = rng.normal(2, 0.3, 10)
    return 0.1 * whole + rng.normal(0, 0.15, 10), whole


def test_fiellers_interval_ends_where_the_test_turns(pairs):
    some, whole = pairs
    r, low, high = study.ratio(some, whole)
    assert low < r < high and r == pytest.approx(some.mean() / whole.mean())
    for end in (low, high):
        assert stats.ttest_1samp(some - end * whole, 0).pvalue == pytest.approx(0.05)
    assert study.ratio(whole - 1, some - some.mean() + 0.01)[1:] == (-math.inf, math.inf)


def test_gone_is_an_interval_of_90_percent_within_the_margin(pairs):
    some, whole = pairs
    _, low, high = study.ratio(some, whole, 0.9)
    for margin in (0.01, max(abs(low), abs(high)) - 1e-6, max(abs(low), abs(high)) + 1e-6, 1):
        within = -margin < low and high < margin
        assert (study.gone(some, whole, margin) < 0.05) == within


def test_what_the_choice_by_area_loses():
    plan = itertools.product(("tree",), (600,), (1, 2, 3), "ab")
    lines = pd.DataFrame(plan, columns=["language", "num_steps", "seed", "scheme"])
    lines["random"] = [1.0, 1.5, 1.5, 1.0, 1.0, 1.5]  # the choice by area: a, b, a
    lines["own surest"] = [2.5, 2.0, 2.0, 1.0, 1.0, 3.0]  # the best of the other seeds: a, a, b
    assert study.lost(lines, "tree", 600).to_dict() == {1: 0, 2: -1, 3: -2}


def test_holm_by_hand():
    assert known.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_predictions_are_answered_by_number():
    foretold = pd.read_csv(results.FOLDER / "order_predictions.csv", comment="#")
    plan = itertools.product(study.LANGUAGES, (600, 2400, 9600), (21, 22, 23), study.SCHEMES)
    lines = pd.DataFrame(plan, columns=["language", "num_steps", "seed", "scheme"])
    fifteen = 1.0 * (lines["scheme"] == study.FIFTEEN)
    lines["random"] = 1 + 2 * fifteen + lines["seed"] / 100
    lines["beside"] = lines["random"] - fifteen
    long = 0.1 * (lines["num_steps"] == 9600)
    lines["own surest"] = lines["random"] - (1.5 + long) * fifteen
    lines["rival surest"] = lines["random"] - 1.3 * fifteen
    found = study.outcomes(lines)
    assert list(found) == foretold["number"].tolist()
    assert list(found.values()) == pytest.approx([0.25, 0.25, 0, 0.25, 0, -0.05, 5, 0.2])
    found = study.outcomes(lines.query("language == 'chain' and num_steps == 2400"))
    assert found[1] == pytest.approx(0.25) and math.isnan(found[3]) and math.isnan(found[6])


# The run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", run.RATES[1:-1])
def test_a_chosen_rate_lies_between_two_others(best, monkeypatch):
    loss = lambda language, scheme, rate, seed: abs(math.log(rate / best)) + seed / 1000  # noqa: E731
    monkeypatch.setattr(run, "own", loss)
    tried = sorted({line["rate"] for line in run.tune("chain", study.UNIFORM)})
    assert tried[0] < best < tried[-1]


def test_the_plan_is_as_long_as_it_says(monkeypatch):
    units = {name: list(table.units()) for name, table in run.TABLES.items()}
    assert [len(some) for some in units.values()] == [10, 25, 18, 50, 40, 10, 50, 4, 8]
    first = [(name, 600, 21) for name in study.LANGUAGES]
    assert units["order_600"][:6] == [*first, ("chain", 600, 22)]
    rates = {(name, scheme): 0.01 for name in study.LANGUAGES for scheme in study.SCHEMES}
    monkeypatch.setattr(run, "tuned", lambda: rates)
    monkeypatch.setattr(run, "network", lambda *named: named)
    seen = lambda nets, *_, seed: {name: dict(seen=seed) for name in nets}  # noqa: E731
    monkeypatch.setattr(study, "read_networks", seen)
    lines = list(run.read("near", "chain", 600, 21))
    assert [line["scheme"] for line in lines] == [study.UNIFORM, study.FORTY, study.FIFTEEN]
    assert {line["distance"] for line in lines} == {"near"}
