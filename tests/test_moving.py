"""Figures that move without a kernel: their numbers and scripts, against other ways to the same."""

import base64
import itertools
import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from conftest import ROOT

from mptlml_book import evidence
from mptlml_book.known_language import WORDS, eight_bits, language
from mptlml_book.real_network import EIGHT
from mptlml_book.transformer import MaskedTransformer

STATIC = ROOT / "book" / "_static"
KINDS = {
    "mask": "notebooks/01_masked_pretraining",
    "orders": "notebooks/02_proposition",
    "contradict": "notebooks/02_proposition",
    "rate": "notebooks/07_fixed_rate",
    "network": "notebooks/11_known_language",
    "coins": "notebooks/14_evidence",
}


@pytest.fixture(scope="module")
def data(page):
    """{kind: the numbers of its figure} from the pages."""
    found = {
        kind: page(name).select_one(f".moving[data-kind={kind}] script")
        for kind, name in KINDS.items()
    }
    return {kind: json.loads(script.string) for kind, script in found.items()}


def run_script(kind, expression, value=None):
    """A JavaScript expression of the figure's functions, `kind`, and our `value`."""
    if shutil.which("node") is None:
        pytest.skip("no node here to run the page's scripts with")
    code = """
    const [, shared, own, name, expression] = process.argv, {runInThisContext: run} = require("vm");
    const read = (file) => require("fs").readFileSync(file, "utf8");
    for (const file of [shared, own]) run(read(file));
    const answer = run(`(kind, value) => ${expression}`);
    console.log(JSON.stringify(answer(run("Moving").kinds[name], JSON.parse(read(0)))));
    """
    files = STATIC / "moving.js", STATIC / f"moving-{kind}.js"
    return json.loads(
        subprocess.check_output(
            ["node", "-e", code, *files, kind, expression], input=json.dumps(value).encode()
        )
    )


def test_the_script_averages_masks_as_the_theorem_says(data):
    answers = data["mask"]["answers"]
    expected = [
        np.mean([np.mean(terms) for terms in answers if len(terms) == size]) for size in range(1, 9)
    ]
    assert run_script("mask", "Moving.curve(value, 8)", answers) == pytest.approx(
        expected, abs=1e-12
    )
    assert sum(expected) == pytest.approx(data["mask"]["joint"][255], abs=1e-4)  # log p(x)


def test_any_order_ends_at_the_log_probability_and_the_mean_of_all_ends_is_the_area(data):
    exact, network = (case["answers"] for case in data["orders"]["cases"])
    assert exact == data["mask"]["answers"]  # the sentence of Chapter 1
    assert data["orders"]["cases"][1]["words"] == list(EIGHT)
    every = [*itertools.permutations(range(8))]
    for answers in (exact, network):
        ends = [sum(falling(answers, order)) for order in every]
        for order in every[::5000]:
            drops = run_script("orders", "Moving.drops(...value)", [answers, order])
            assert drops == pytest.approx(falling(answers, order))
        area = sum(run_script("orders", "Moving.curve(value, 8)", answers))
        assert area == pytest.approx(np.mean(ends), abs=1e-3)
        reach = run_script("orders", "Moving.reach(value)", answers)
        assert reach == pytest.approx([min(ends), max(ends)], abs=1e-3)
        assert (max(ends) - min(ends) < 1e-3) == (answers is exact)


def test_the_area_of_four_guesses_is_the_mean_of_both_ends_and_one_of_them_can_mend_the_gap():
    grid = [list(guesses) for guesses in itertools.product((0.01, 0.2, 0.6, 0.99), repeat=4)]
    code = "value.map((p) => [Moving.sum(kind.stairs(kind.scores(p))), ...[0, 1, 2, 3].map((k) => kind.mended(p, k))])"
    for guesses, (area, *mended) in zip(grid, run_script("contradict", code, grid), strict=True):
        ends = np.log(guesses).reshape(2, 2).sum(1)
        assert area == pytest.approx(ends.mean())
        for k, value in enumerate(mended):
            now = np.log([*guesses[:k], value, *guesses[k + 1 :]]).reshape(2, 2).sum(1)
            assert now[0] == pytest.approx(now[1])


def falling(answers, order):
    """Scores as an order uncovers its tokens; of each mask `answers` has those of its hidden tokens."""
    hidden, scores = sorted(order), []
    for j in order:
        scores.append(answers[sum(2**other for other in hidden)][hidden.index(j)])
        hidden.remove(j)
    return scores


@pytest.fixture
def sentences(generator):
    """Six of the language, each with what is seen of it, from nothing to everything."""
    seen = torch.rand(6, 32, generator=generator) < torch.arange(6)[:, None] / 5
    return [*zip(language().sample(6, generator=generator), seen, strict=True)]


def unpacked(weights, shapes):
    """The network of eight-bit weights, as `eight_bits` describes them."""
    net = MaskedTransformer(32, len(WORDS), generator=torch.Generator())
    left = np.frombuffer(weights, np.int8).astype(np.float32)
    for name, weight in net.named_parameters():
        rows, columns, most = shapes[name]
        assert (rows, columns) == (weight.numel() // columns, weight.shape[-1])
        part, left = np.split(left, [rows * (columns + 1)])
        units, numbers = np.split(part.reshape(rows, columns + 1), [1], axis=1)
        weight.data = torch.tensor(most / 127**2 * units * numbers).reshape(weight.shape)
    assert len(left) == 0
    return net


def test_the_networks_in_the_page_answer_as_in_python(data, sentences):
    for network in data["network"]["networks"]:
        net = unpacked(base64.b64decode(network["weights"]), network["shapes"])
        for row, seen in sentences:
            code = "kind.forward(kind.decode(value[0]), value[1], value[2]).map((v) => [...v])"
            answers = run_script("network", code, [network, row.tolist(), seen.tolist()])
            expected = net.vocabulary_log_prob(row, seen).detach().numpy()
            assert np.array(answers) == pytest.approx(expected, abs=1e-4)


def test_the_language_in_the_page_answers_as_in_python(data, sentences):
    truth, tables = language(), data["network"]["language"]
    for row, seen in sentences:
        found = run_script("network", "kind.exact(...value)", [tables, row.tolist(), seen.tolist()])
        assert found["logProb"] == pytest.approx(truth.log_prob(row, seen).item(), abs=1e-5)
        hidden = truth.vocabulary_log_prob(row, seen)[~seen].numpy()
        assert np.array(found["answers"])[~seen] == pytest.approx(hidden, abs=1e-5)


def test_eight_bits_change_a_weight_by_less_than_half_a_unit_of_its_row():
    net = MaskedTransformer(5, 4, width=8, generator=torch.Generator().manual_seed(1))
    rounded, packed = eight_bits(net)
    assert len(base64.b64decode(packed["weights"])) == sum(
        weight.numel() + weight.numel() // weight.shape[-1] for weight in net.parameters()
    )
    for before, after in zip(net.parameters(), rounded.parameters(), strict=True):
        unit = before.abs().amax(-1, keepdim=True) / 127 + before.abs().max() / 127**2
        assert ((after - before).abs() <= 0.501 * unit).all()


def test_the_rates_have_their_area_bias_and_crossing(data):
    for case in data["rate"]["cases"]:  # all masks of ten tokens are listed
        scores, lml = case["scores"], case["lml"]
        assert sum(scores) == pytest.approx(lml, abs=1e-5 if len(scores) == 10 else 2e-3 * abs(lml))
        bias = len(scores) * np.array(scores) - lml
        assert run_script("rate", "kind.biases(...value)", [scores, lml]) == pytest.approx(bias)
        free = run_script("rate", "kind.crossings(...value)", [scores, lml])
        assert len(free) == np.count_nonzero(np.diff(np.sign(bias)))
        assert np.interp(free, range(1, len(bias) + 1), bias) == pytest.approx(0, abs=1e-9)


def test_the_rate_leaves_out_some_loss_and_adds_other():
    scores = [-1.0, -1.2, -1.1, -2.0]  # at m = 2: above 1.2 nats only the last step, by 0.8
    parts = run_script("rate", "value.map((_, k) => kind.parts(value, k + 1))", scores)
    assert parts[1] == pytest.approx([0.8, 0.2 + 0.1])
    bias = [4 * score - sum(scores) for score in scores]
    assert [left_out - added for left_out, added in parts] == pytest.approx(bias)


def test_the_coins_have_their_evidence_as_area(data):
    """The page's own tables: for the exact model by its formula, for a network as the study computes it."""
    told, heads = data["coins"], range(25)
    for model, pair in zip(told["models"], ((1, 1), (20, 20)), strict=True):
        found = [run_script("coins", "kind.curve(...value)", [model["exact"], k]) for k in heads]
        exact = evidence.coins_by_count(evidence.Coins(*pair))
        expected = [evidence.curve_of_count(exact, k).sum() for k in heads]
        assert np.sum(found, 1) == pytest.approx(expected, abs=1e-3)
        network = np.array(model["network"])
        for k in (0, 17, 24):
            curve = run_script("coins", "kind.curve(...value)", [model["network"], k])
            assert curve == pytest.approx(evidence.curve_of_count(network, k), abs=1e-9)
