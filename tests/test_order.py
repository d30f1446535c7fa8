"""The order that is chosen: its languages against enumeration, its orders, its statistics, its long run."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import as_frequent, same
from fakes import Says
from scipy import stats
from torch.nn.functional import one_hot

from mptlml import exact_curve
from mptlml.models import HiddenMarkovModel
from mptlml_book import order as study
from mptlml_book import runs as results
from mptlml_book.known_language import Shortfall
from mptlml_book.transformer import MaskedTransformer

HALF, MOVE, SAY, EVEN, RIGHT = (
    torch.tensor(chances, dtype=torch.float64)
    for chances in (
        [0.6, 0.4],
        [[0.8, 0.2], [0.3, 0.7]],
        [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]],
        [0.5, 0.5],
        [[0.95, 0.05], [0.05, 0.95]],  # of the sum of two bits, its parity
    )
)
COPY = 0.8 * torch.eye(3).double() + 0.2 / 3


def chain(num_tokens):
    return HiddenMarkovModel(HALF, MOVE, SAY, num_tokens)


# The probabilities of all rows, by the definition of each language: a sum over all hidden states.
CHAIN = torch.einsum("a,ab,bc,cd,aw,bx,cy,dz->wxyz", HALF, *3 * [MOVE], *4 * [SAY])
BLOCK = torch.stack([RIGHT, RIGHT.flip(0)])
BLOCK = torch.einsum("a,b,c,abcd->abcd", *3 * [HALF], torch.stack([BLOCK, BLOCK.flip(0)]))
SMALL = {
    "moved": (study.Moved(chain(4), torch.tensor([0, 3, 1, 2])), CHAIN.permute(0, 2, 3, 1)),
    "copies": (
        study.Copies(chain(2), 0.8),
        torch.einsum("a,ab,aw,bx,wy,xz->wxyz", HALF, MOVE, SAY, SAY, COPY, COPY),
    ),
    "tree": (
        study.Tree(MOVE, SAY, 2),
        torch.einsum("a,ab,ac,bd,be,cf,cg,dw,ex,fy,gz->wxyz", EVEN, *6 * [MOVE], *4 * [SAY]),
    ),
    "sums": (study.Sums(HALF, 0.9, 2), torch.einsum("abcd,efgh->abcdefgh", BLOCK, BLOCK)),
}


@pytest.mark.parametrize("name", SMALL)
def test_answers_are_those_of_all_rows_together(name):
    """p(x_j = v | x_R) as a share of the probabilities of all rows that agree with x_R."""
    language, table = SMALL[name]
    rows = table.isfinite().nonzero()  # all
    for seen in itertools.product((False, True), repeat=language.num_tokens):
        seen = torch.tensor(seen)
        for x in rows[:: len(rows) // 5 + 1]:
            agree = table.flatten() * ((rows == x) | ~seen).all(-1)
            share = torch.einsum("r,rjv->jv", agree / agree.sum(), one_hot(rows).double())
            same(language.vocabulary_log_prob(x[None], seen)[0].exp(), share)


@pytest.mark.parametrize("name", SMALL)
def test_rows_are_as_frequent_as_they_are_probable(name, generator):
    language, table = SMALL[name]
    drawn, count = language.sample(20_000, generator=generator).unique(dim=0, return_counts=True)
    assert as_frequent(count, 20_000 * table[drawn.unbind(-1)])


ORDERS = {
    "random": study.random,
    "beside": study.beside(torch.tensor([2, 0, 3, 1])),
    "scattered": study.scattered(4),
    "surest": study.surest(SMALL["copies"][0]),
}


@pytest.fixture
def rows(generator):
    """Rows with copies, and ties."""
    x = SMALL["copies"][0].sample(200, generator=generator)
    return x, torch.rand(x.shape, generator=generator)


def test_an_order_looks_at_visible_words_alone(rows):
    """The hidden words of a row may be others: all places, chosen up to there, are the same."""
    x, tie = rows
    other = x.flip(0)
    for order in [*ORDERS.values(), lambda x, seen: x.double()]:
        alike = torch.ones(len(x), dtype=torch.bool)
        paths = (study.follow(order, some, tie) for some in (x, other))
        for mine, yours in zip(*paths, strict=True):
            assert torch.equal(mine[alike], yours[alike])
            alike &= ((x == other) | ~mine).all(-1)


def test_orders_are_what_their_names_say(rows):
    path = {name: torch.stack(study.follow(order, *rows)) for name, order in ORDERS.items()}
    place = {name: masks.int().diff(dim=0).argmax(-1).T for name, masks in path.items()}
    assert torch.equal(place["random"], rows[1].argsort(-1, descending=True))
    assert (place["scattered"] == torch.tensor([0, 2, 1, 3])).all()
    found = torch.tensor([1, 3, 0, 2])[place["beside"]]  # where the tokens are in their language
    assert len(found.unique(dim=0)) == 8  # of 24: those whose visible words are a run
    for step in (1, 2, 3):
        run = found[:, : step + 1]
        assert (run.amax(1) - run.amin(1) == step).all()
    sure = SMALL["copies"][0].vocabulary_log_prob(rows[0], path["surest"][1]).amax(-1)
    assert torch.equal(place["surest"][:, 1], sure.where(sure < 0, -1e9).argmax(-1))


def test_what_is_behind_is_the_shortfall_of_the_area_and_nothing_for_the_truth(generator):
    """Over all orders the mean is the area's."""
    language, wrong = SMALL["copies"][0], study.Copies(chain(2), 0.5)
    x = language.sample(6, generator=generator)
    found = []
    for rank in itertools.permutations(range(4)):
        path = study.follow(study.fixed(torch.tensor(rank)), x, torch.zeros(x.shape))
        assert study.behind(language, language, x, path) == pytest.approx(0, abs=1e-12)
        found.append(study.behind(wrong, language, x, path))
    area = exact_curve(Shortfall(wrong, language), x).area().mean
    assert np.mean(found) == pytest.approx(-area)


def test_networks_are_trained_and_read(monkeypatch):
    monkeypatch.setattr(results, "kept", lambda name, make: make())
    monkeypatch.setattr(study, "NUM_ROWS", 2)
    schemes = study.UNIFORM, study.FIFTEEN, study.THEN
    found = study.table(10, 1, ["tree"], schemes).run(21, "tree")
    lines = pd.DataFrame(found).set_index("scheme")
    assert lines.index.tolist() == list(schemes) and lines["random"].is_unique
    assert lines.loc[study.UNIFORM, "rate"] == study.tuned("tree", study.UNIFORM)
    assert (lines.drop(columns=["language", "distance"]) > 0).all(axis=None)


def test_words_of_one_pass_cost_what_they_tell_each_other(monkeypatch):
    """A network that is the truth loses nothing at any place; all words at once lose their total correlation."""
    language, table = SMALL["copies"]

    def network(of, scheme, seed, num_steps, rate):  # as `train`
        return language

    tiny = dict(network=network, PASSES=(4, 1), NUM_ROWS=4000)
    for name, value in dict(tiny, LANGUAGES={"chain": language}).items():
        monkeypatch.setattr(study, name, value)
    found = pd.DataFrame(study.read_passes(600, 21, "chain"))
    assert found["gap"].to_numpy() == pytest.approx(0, abs=1e-9)
    alone = torch.einsum("a,b,c,d->abcd", *(table.sum([*{*range(4)} - {j}]) for j in range(4)))
    total = (table * (table / alone).log()).sum().item()
    for passes, expected, error in (4, 0, 1e-9), (1, total, 0.05):
        lines = found[found["passes"] == passes]
        assert lines["at once"].to_numpy() == pytest.approx(expected, abs=error)


def test_a_path_of_its_own_is_scored_where_it_leads(generator):
    """Eight masks of 32 places, four fewer hidden each time, spread evenly over the rows; the surest are seen first."""
    net, place = Says(32, lambda x, observed: -1.0), torch.arange(32)
    answer = torch.stack([place / 32, torch.zeros(32)], -1).log_softmax(-1)
    net.vocabulary_log_prob = lambda x, observed: answer.expand(len(x), -1, -1)
    assert study.own_path(net, torch.zeros(16, 32).long(), generator=generator) == -32
    count = net.asked[0].sum(-1, keepdim=True)
    assert count.flatten().sort().values.tolist() == [k for k in range(0, 32, 4) for _ in "ab"]
    assert torch.equal(net.asked[0], place >= 32 - count)


# Statistics -------------------------------------------------------------------------------------------------


def test_fiellers_interval_ends_where_the_test_turns():
    rng = np.random.default_rng(4)
    whole = rng.normal(2, 0.3, 10)
    some = 0.1 * whole + rng.normal(0, 0.15, 10)
    r, *ends = study.ratio(some, whole)
    assert r == pytest.approx(some.mean() / whole.mean())
    for end in ends:
        assert stats.ttest_1samp(some - end * whole, 0).pvalue == pytest.approx(0.05)
    assert study.ratio(whole, some - some.mean())[1:] == (-math.inf, math.inf)


@pytest.mark.parametrize("best", study.RATES[1:-1])
def test_a_chosen_rate_lies_between_two_others(best, monkeypatch):
    loss = lambda language, scheme, rate, seed: abs(math.log(rate / best)) + seed / 1000  # noqa: E731
    monkeypatch.setattr(study, "own_loss", loss)
    tried = [line["rate"] for line in study.tune("chain", study.UNIFORM)]
    assert tried[0] < best < tried[-1]


def test_the_own_loss_is_least_for_the_truth(monkeypatch, generator):
    monkeypatch.setattr(study, "network", lambda *options: study.LANGUAGES["tree"])
    assert study.own_loss("tree", study.UNIFORM, 0.01, 1) == pytest.approx(0, abs=1e-12)
    net = MaskedTransformer(32, 24, generator=generator)
    monkeypatch.setattr(study, "network", lambda *options: net)
    assert study.own_loss("tree", study.UNIFORM, 0.01, 1) > 1
