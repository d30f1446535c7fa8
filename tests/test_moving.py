"""Figures that move without a kernel: what the pages hold, against other ways to the same numbers; their scripts."""

import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from mptlml import exact_curve, report, score_curve
from mptlml.models import PPCA
from mptlml.studies.scripts_data import scripts_rows

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_execute  # noqa: E402

STATIC = ROOT / "book" / "_static"
CHAPTER = {"mask": "01_masked_pretraining", "theorem": "02_proposition", "convergence": "04_convergence",
           "training": "06_area", "rate": "07_fixed_rate"}
MOST_BYTES = 200_000  # a figure with its numbers, its still and its scripts
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node here to run the page's scripts with")


@pytest.fixture(scope="module")
def figures():
    """{kind: the HTML of its figure} from the executed chapters."""
    found = {}
    for kind, stem in CHAPTER.items():
        notebook = book_execute.executed_chapter(ROOT / "notebooks" / f"{stem}.md")
        if notebook is None:
            if os.environ.get("BOOK_EXECUTED") == "1":
                pytest.fail(f"{stem} was not executed")
            pytest.skip("chapters not executed for these sources: `make execute`, or `make test`")
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        texts = [output.data.get("text/html", "") for output in outputs if "data" in output]
        found[kind], = [text for text in texts if f'<figure class="moving" data-kind="{kind}"' in text]
    return found


@pytest.fixture(scope="module")
def data(figures):
    """{kind: the numbers of its figure}."""
    pattern = re.compile(r'<script type="application/json">(.*)</script>', re.DOTALL)
    return {kind: json.loads(pattern.search(text)[1]) for kind, text in figures.items()}


def run_script(kind, expression, value=None):
    """What `expression` is in JavaScript, with `kind` for the figure's functions and `value` for a value of ours."""
    code = """
    const [, shared, own, expression, value] = process.argv, read = require("fs").readFileSync, vm = require("vm");
    for (const file of [shared, own]) vm.runInThisContext(read(file, "utf8"));
    const answer = vm.runInThisContext(`(kind, value) => ${expression}`);
    const Shared = vm.runInThisContext("Moving");
    console.log(JSON.stringify(answer(Shared.kinds[process.env.KIND], JSON.parse(value))));
    """
    files = [str(STATIC / "moving.js"), str(STATIC / f"moving-{kind}.js")]
    done = subprocess.run([NODE, "-e", code, *files, expression, json.dumps(value)], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "KIND": kind})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_kind_has_a_script_and_is_light_with_it(figures):
    assert {path.name for path in STATIC.glob("moving-*.js")} == {f"moving-{kind}.js" for kind in report.MOVING}
    assert set(figures) == set(report.MOVING)
    shared = sum((STATIC / name).stat().st_size for name in ("moving.js", "moving.css"))
    for kind, text in figures.items():
        weight = shared + (STATIC / f"moving-{kind}.js").stat().st_size + len(text.encode())
        assert weight < MOST_BYTES, (kind, weight)


def test_pages_load_the_scripts_of_their_figures_and_no_others(built_site):
    for page in [*(built_site / "notebooks").glob("*.html"), *(built_site / "book").glob("*.html")]:
        text = page.read_text(encoding="utf-8")
        kinds = set(re.findall(r'<figure class="moving" data-kind="([a-z]+)"', text))
        loaded = re.findall(r'<script defer="defer" src="\.\./_static/(moving[a-z-]*\.js)', text)
        assert loaded == ["moving.js"] * bool(kinds) + [f"moving-{kind}.js" for kind in sorted(kinds)], page
        assert text.count("_static/moving.css") == bool(kinds)


def test_the_answers_of_the_grammar_keep_to_the_chain_rule(data):
    """log p(x_M | x_R) = log p(x_j | x_R) + log p(x_M\\j | x_R, x_j), a toy grammar, for all masks and words."""
    mask = data["mask"]
    assert len(mask["answers"]) == len(mask["guesses"]) == len(mask["joint"]) == 256 and mask["joint"][0] == 0
    for code in range(256):
        hidden = [j for j in range(8) if code >> j & 1]
        for j, answer, guess in zip(hidden, mask["answers"][code], mask["guesses"][code], strict=True):
            assert answer == pytest.approx(mask["joint"][code] - mask["joint"][code ^ 1 << j], abs=3e-5)
            assert answer < math.log(0.5) or mask["vocabulary"][guess] == mask["words"][j]  # the likeliest


@needs_node
def test_the_script_averages_masks_as_the_theorem_says(data):
    mask = data["mask"]
    curve = run_script("mask", "kind.curve(value, 8)", mask["answers"])
    expected = [np.mean([np.mean(terms) for terms in mask["answers"] if len(terms) == size]) for size in range(1, 9)]
    assert curve == pytest.approx(expected, abs=1e-12)
    assert sum(curve) == pytest.approx(mask["joint"][255], abs=1e-4)  # log p(x)


def gaussian(correlations):
    r12, r13, r23 = correlations
    return np.array([[1.0, r12, r13], [r12, 1.0, r23], [r13, r23, 1.0]])


def scores(correlations, x):
    """S(1), S(2), S(3) by the package: PPCA with three latent dimensions is any Gaussian."""
    values, axes = torch.linalg.eigh(torch.tensor(gaussian(correlations)))
    noise = values[0] / 2
    return exact_curve(PPCA(axes * (values - noise).sqrt(), noise), torch.tensor([x], dtype=torch.float64)).mean


CASES = [([0, 0, 0], [0.1, 0.2, 0.3]), ([0.9, -0.85, -0.65], [3, 3, -3]), ([-0.45, -0.45, -0.45], [-3, 0, 2.5])]


@needs_node
def test_the_script_computes_what_the_package_computes(data):
    theorem = data["theorem"]
    for correlations, x in [(theorem["correlations"], theorem["x"]), *CASES]:
        sizes = run_script("theorem", "kind.masks(...value)", [correlations, x])
        by_script = [size["score"] for size in sizes]
        assert by_script == pytest.approx(scores(correlations, x), abs=1e-11)
        hidden = [mask["hidden"] for size in sizes for mask in size["masks"]]
        assert hidden == [list(some) for size in (1, 2, 3) for some in itertools.combinations(range(3), size)]
        density = run_script("theorem", "kind.logProb(...value)", [correlations, x])
        assert density == pytest.approx(stats.multivariate_normal(cov=gaussian(correlations)).logpdf(x), abs=1e-11)
    assert theorem["check"]["scores"] == pytest.approx(scores(theorem["correlations"], theorem["x"]), abs=1e-13)
    assert theorem["check"]["log_prob"] == pytest.approx(sum(theorem["check"]["scores"]), abs=1e-12)


@needs_node
def test_the_script_meets_the_theorem_wherever_its_sliders_go():
    """All reachable correlations, a few extreme values: area and log p(x) differ by rounding, and print alike."""
    steps = (np.arange(-18, 19) / 20).tolist()
    expression = """{
      let [worst, accepted, wrong, fewest] = [0, 0, 0, value.length];
      for (const a of value) for (const b of value) {
        const [low, high] = kind.reach(a, b), inside = value.filter((c) => c >= low && c <= high);
        const possible = value.filter((c) => 1 + 2 * a * b * c - a * a - b * b - c * c > 0.005); // the determinant
        if (JSON.stringify(inside) !== JSON.stringify(possible) || inside[0] !== low) wrong += 1;
        [accepted, fewest] = [accepted + inside.length, Math.min(fewest, inside.length)];
        for (const c of inside) for (const x of [[3, 3, 3], [3, -3, 3], [-3, 3, 3], [1.3, -0.7, 2.1]]) {
          const scores = kind.masks([a, b, c], x).map((size) => size.score), total = kind.logProb([a, b, c], x);
          worst = Math.max(worst, kind.error(scores, total));
          if (Moving.number(Moving.sum(scores), 6) !== Moving.number(total, 6)) wrong += 1;
        }
      }
      return [worst, accepted, wrong, fewest];
    }"""
    worst, accepted, wrong, fewest = run_script("theorem", expression, steps)
    assert wrong == 0 and accepted > 30_000
    assert fewest >= 5  # also at 0.9 and -0.9
    assert worst < 1e-13


def test_the_area_reaches_the_lml_in_training(data):
    training = data["training"]
    assert np.sum(training["curves"], 1) == pytest.approx(training["areas"], abs=1e-3)
    away = np.subtract(training["areas"], training["lmls"]) / training["errors"]
    assert np.abs(away).max() < 4
    assert 0 < training["lmls"][-1] - training["truth"] < 0.1


@needs_node
def test_the_area_under_the_steps_is_the_sum_of_the_scores(data):
    scores = data["training"]["curves"][-1]
    x, y = np.transpose([(0.5, 0), *run_script("training", "Moving.steps(value)", scores), (len(scores) + 0.5, 0)])
    assert np.trapezoid(y, x) == pytest.approx(sum(scores))


def test_the_estimates_close_in_on_the_lml(data):
    counts = np.array(data["convergence"]["counts"])
    for case in data["convergence"]["cases"]:
        deviation = case["spread"] / np.sqrt(counts)
        assert np.all(np.abs(np.array(case["paths"]) - case["lml"]) < 4.5 * deviation)
        errors = np.array(case["errors"], dtype=float)  # none with one mask, that is NaN
        assert np.isnan(errors[:, 0]).all()
        assert errors[:, counts >= 10] == pytest.approx(np.tile(deviation[counts >= 10], (len(errors), 1)), rel=1 / 3)


def test_a_path_of_the_convergence_is_that_of_score_curve(data):
    """Five tokens, against the package's own estimate and error over as many masks, and the area over all masks."""
    convergence = data["convergence"]
    case = convergence["cases"][0]
    _, weight, noise = scripts_rows(100, case["tokens"], 2, seed=1991)
    model = PPCA(weight, noise)
    x = model.sample(100, generator=torch.Generator().manual_seed(1991))
    assert case["lml"] == pytest.approx(exact_curve(model, x).area().mean, abs=1e-5)
    for k, seed in enumerate(convergence["seeds"]):  # the same masks, in the same order
        area = score_curve(model, x, num_masks=200, generator=torch.Generator().manual_seed(seed)).area()
        assert area.mean == pytest.approx(case["paths"][k][-1], abs=1e-5)
        assert area.stderr == pytest.approx(case["errors"][k][-1], abs=0.002)


def test_the_curves_of_the_rates(data):
    for case in data["rate"]["cases"]:  # ten tokens, all masks listed: the area is the LML; else it is estimated
        tolerance = dict(abs=1e-5) if len(case["scores"]) == 10 else dict(rel=2e-3)
        assert sum(case["scores"]) == pytest.approx(case["lml"], **tolerance)
        if case["name"].startswith("the model's own rows"):
            assert np.all(np.diff(case["scores"]) < 0.01)


def test_the_first_curve_of_the_rates_by_conditional_entropies(data):
    """S(m) on the model's own rows is minus the mean conditional entropy: dense inverses, no mask code of ours."""
    scores = data["rate"]["cases"][0]["scores"]
    _, weight, noise = scripts_rows(1, 10, 2, seed=1991)
    covariance = (weight @ weight.T).numpy() + float(noise) * np.eye(10)
    for m in (1, 2, 5, 9, 10):
        entropies = []
        for hidden in itertools.combinations(range(10), m):
            precision = np.linalg.inv(np.delete(np.delete(covariance, hidden, 0), hidden, 1))
            seen = np.delete(np.arange(10), hidden)
            for j in hidden:
                variance = covariance[j, j] - covariance[j, seen] @ precision @ covariance[seen, j]
                entropies.append(0.5 * math.log(2 * math.pi * math.e * variance))
        assert scores[m - 1] == pytest.approx(-np.mean(entropies), abs=2e-6)


@needs_node
def test_the_script_finds_bias_and_crossing(data):
    for case in data["rate"]["cases"]:
        scores, lml = np.array(case["scores"]), case["lml"]
        bias = len(scores) * scores - lml
        assert run_script("rate", "kind.biases(...value)", [scores.tolist(), lml]) == pytest.approx(bias)
        free = run_script("rate", "kind.crossings(...value)", [scores.tolist(), lml])
        assert len(free) == np.count_nonzero(np.diff(np.sign(bias)))
        for place in free:
            at = int(place)
            assert bias[at - 1] + (place - at) * (bias[at] - bias[at - 1]) == pytest.approx(0, abs=1e-9)


@needs_node
def test_crossings_and_the_funnel_by_hand():
    assert run_script("rate", "kind.crossings([3, 2, 1], 6)") == [2]
    assert run_script("rate", "kind.crossings([1, 1, 1], 9)") == []
    assert [run_script("rate", f"kind.nearest({rate}, 50)") for rate in (0.14, 0.15, 0.25, 0.001)] == [7, 8, 13, 1]
    assert run_script("convergence", "kind.predicted(0.4, 16)") == pytest.approx(0.1)
