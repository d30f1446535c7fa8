"""Results of texts and of pairs in one process, in two, and after a kill: the same file, bit by bit."""

import copy
import dataclasses
import json
import math
import re
from functools import partial
from unittest import mock

import numpy as np
import pytest
import torch

from mptlml import draws, random_orders
from mptlml.masked_lm import spaced_sizes
from mptlml.scoring import files, given
from mptlml.scoring.corpus_scores import compare_corpus, mean_curve, quadrature_error, score_corpus
from mptlml.scoring.inputs import Text
from mptlml.scoring.results import UNIT, Output, read_results, settings_file

WORDS = "the cat sat on the mat a dog ran".split()
TEXTS = [" ".join(WORDS[k % 5 : k % 5 + 3 + k % 4] * (1 + k % 3)) for k in range(2 * UNIT + 3)]
TEXTS[4] = " ".join(WORDS * 2)  # long enough for another to begin alike
PAIRS = [(Text(k, one), Text(k, "a dog ran")) for k, one in enumerate(TEXTS, 1)]
FEW = dict(num_sizes=3, num_masks=2, num_orders=2)


def score(lm, path, texts=TEXTS, *, part=0, parts=1, resume=False, overwrite=False, **options):
    return score_corpus(lm, texts, Output(path, part, parts, resume, overwrite), **FEW | options)


@pytest.fixture(scope="module")
def whole(lm, tmp_path_factory):
    return score(lm, tmp_path_factory.mktemp("whole") / "scores.jsonl")


@pytest.fixture
def path(whole, tmp_path):
    """A copy of the whole file, to be changed."""
    there = tmp_path / "scores.jsonl"
    there.write_bytes(whole.read_bytes())
    return there


@pytest.fixture
def no_work(monkeypatch, lm):
    begun = partial(pytest.fail, "work has begun")
    monkeypatch.setitem(vars(lm.model), "forward", lambda *_, **__: begun())


@pytest.mark.parametrize("place", [0, UNIT + 3, len(TEXTS) - 1])
def test_a_line_is_what_the_library_says_of_its_text(lm, whole, place):
    """Each text has masks of its own, which follow from the seed and its place; a short one has them all."""
    line, text = read_results(whole)[place], TEXTS[place]
    ids, first = lm.encode(text), place // UNIT * UNIT
    before = [each for each in TEXTS[first:place] if len(lm.encode(each)) > 6]
    own, sizes = draws.seeded(0, first), partial(spaced_sizes, count=3)
    curve = lm.curves([*before, text], sizes, num_masks=2, generator=own)[-1]
    passes, quadrature = curve.scores.size, quadrature_error(curve)
    if len(ids) <= 6:
        curve, passes, quadrature = lm.exact_curve(ids), 2 ** len(ids) - 1, 0
    sums = lm.chain_rule(text, random_orders(len(ids), 2, generator=draws.seeded(0, place))).sum(-1)
    said = dict(line=place + 1, text=text, name=None, cut_tokens=0, passes=passes)
    assert said.items() <= line.items()
    expected = dict(
        area=curve.area().mean,
        area_error=curve.area().stderr,
        quadrature_error=quadrature,
        pseudo_log_likelihood=lm.pseudo_log_likelihood(text).item(),
        order_spread=sums.std().item(),
    )
    assert {name: line[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert line["order_sums"] == pytest.approx(sums.tolist(), abs=1e-5)
    rates = np.array(line["sizes"]) / len(ids)
    np.testing.assert_allclose(mean_curve([line], rates), curve.mean, atol=1e-5)


@pytest.mark.parametrize("error, reached", [(0.5, True), (1e-4, False)])
def test_an_area_is_measured_to_an_error(lm, tmp_path, error, reached):
    """Where that is reached within the passes; where all masks are few they are asked, and it has none."""
    texts = ["the cat sat on the mat a dog ran", "a dog ran"]
    path = score(lm, tmp_path / "s.jsonl", texts, error=error, num_passes=2000)
    long, short = read_results(path)
    truths = [lm.exact_curve(text).area().mean for text in texts]
    assert abs(long["area"] - truths[0]) < 4 * long["area_error"] and long["passes"] <= 2000
    assert long["error_reached"] is reached and long["sizes"] == []
    assert (short["area_error"], short["passes"], short["error_reached"]) == (0, 7, True)
    assert short["area"] == pytest.approx(truths[1], abs=1e-6)


def test_quadrature_error_bounds_that_of_a_convex_curve(lm, generator):
    few = lm.curve(TEXTS[4], spaced_sizes(18, 5), generator=generator)
    exact = -((np.arange(1, 19) / 18) ** 2)
    bent = dataclasses.replace(few, mean=exact[few.sizes - 1])
    coarse = np.interp(np.arange(1, 19), few.sizes[::2], bent.mean[::2]).sum()
    assert quadrature_error(bent) == pytest.approx(abs(coarse - bent.area().mean))
    assert 0 < abs(bent.area().mean - exact.sum()) < quadrature_error(bent)


def test_a_long_text_is_cut_where_that_is_said(lm, tmp_path):
    """Its line tells how much is missing; the rest is scored as a text of its own."""
    small, long = copy.copy(lm), TEXTS[4]
    small.max_tokens = 11
    cut, plain = (
        read_results(score(small, tmp_path / "s.jsonl", [text], truncate=True, overwrite=True))[0]
        for text in (long, " ".join(long.split()[:11]))
    )
    assert (cut["tokens"], cut["cut_tokens"], plain["cut_tokens"]) == (11, 7, 0)
    assert cut["area"] == plain["area"] and cut["text"] == long


def compare_all(lm, path, **how):
    return compare_corpus(lm, PAIRS, Output(path, **how), num_passes=208)


@pytest.mark.parametrize("run", [score, compare_all])
def test_what_was_finished_before_a_kill_is_kept(lm, tmp_path, run):
    """A unit is in the file when the next begins, and is not asked again; one whose lines were cut off is."""
    whole, path, there = run(lm, tmp_path / "whole.jsonl").read_bytes(), tmp_path / "s.jsonl", []

    def note_or_kill(*_):
        there.append(len(read_results(path)) if path.exists() else 0)
        if there[-1] == UNIT and None not in there:
            raise KeyboardInterrupt

    with lm.model.register_forward_pre_hook(note_or_kill):
        with pytest.raises(KeyboardInterrupt):
            run(lm, path)
        assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:UNIT])
        with path.open("ab") as file:
            file.write(whole[path.stat().st_size :][:30])
        assert len(read_results(path)) == UNIT  # of a file that is being written
        there.append(None)
        run(lm, path, resume=True)
    assert [*dict.fromkeys(there)] == [0, UNIT, None, 2 * UNIT] and there[-1] == 2 * UNIT
    after = there[there.index(None) + 1 :]
    assert {*after} == {UNIT, 2 * UNIT} and path.read_bytes() == whole


def nudge(net):
    weight = next(net.model.parameters()).data.view(-1)
    weight[7] = weight[7].nextafter(weight[7] + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nudge, "was written with other settings .see .*scores.settings.json"),  # another training
        (lambda net: setattr(net.model.config, "hidden_act", "relu"), "other settings"),
        (lambda net: setattr(net, "batch_tokens", 64), "other settings"),  # rounding would differ
        (lambda net: setattr(net, "frame", (net.frame[0], [])), "other settings"),
        (dict(seed=1), "other settings"),
        (dict(texts=[*TEXTS[:4], TEXTS[4] + " cat", *TEXTS[5:]]), "another text on line 5"),
        (dict(texts=TEXTS[:2]), "another text on line 3"),
    ],
)
def test_lines_of_another_run_are_not_gone_on_with(lm, whole, change, message):
    before, net, options = whole.read_bytes(), copy.deepcopy(lm), {}
    if isinstance(change, dict):
        options = change
    else:
        change(net)
    with pytest.raises(ValueError, match=f"{message}.*: choose another file"):
        score(net, whole, resume=True, **options)
    assert whole.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "bad"),
    [("The cat sat on the mat.\n", 1), ("{line}{nan}", 2), ("{line}" + "[" * 10**5 + "\n", 2)],
)
def test_what_is_no_file_of_results_is_not_gone_on_with(lm, whole, tmp_path, content, bad):
    path = tmp_path / "notes.txt"
    line, second = whole.read_text().splitlines(keepends=True)[:2]
    nan = re.sub('"area": [-.0-9]+', '"area": NaN', second)
    path.write_text(content.replace("{line}", line).replace("{nan}", nan))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"line {bad} of .*is not from a file of results"):
        score(lm, path, resume=True)
    assert path.read_bytes() == before


def test_parts_are_brought_together_and_the_model_may_have_moved(lm, whole, tmp_path, request):
    """Its weights tell it, not its name; brackets in a file's name are letters; other files are let be."""
    moved, path = copy.deepcopy(lm), tmp_path / "s[1].jsonl"
    moved.model.config._name_or_path = "/elsewhere/net"
    (tmp_path / "s[1].large.1-of-2.jsonl").write_text("of another run\n", encoding="utf-8")
    for part in (0, 1):
        score(moved, path, part=part, parts=2)
    request.getfixturevalue("no_work")
    score(lm, path, resume=True, num_passes=99)  # which counts with `error` alone
    assert path.read_bytes() == whole.read_bytes()
    assert settings_file(path).read_text() == settings_file(whole).read_text()


def test_a_file_that_exists_is_replaced_only_where_that_is_said(lm, path, monkeypatch):
    """And only when there is something to take its place."""
    before = path.read_bytes()
    with pytest.raises(ValueError, match="exists: go on with it by resume=True, or replace it"):
        score(lm, path)
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(type(lm), "curves", mock.Mock(side_effect=MemoryError))
        score(lm, path, overwrite=True)
    assert path.read_bytes() == before
    path.chmod(0o640)
    score(lm, path, TEXTS[:1], overwrite=True)
    assert [line["line"] for line in read_results(path)] == [1]
    assert path.stat().st_mode & 0o777 == 0o640
    path.unlink()
    with pytest.raises(ValueError, match="scores.settings.json exists"):  # of something else
        score(lm, path, resume=True)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "s.jsonl"
    with pytest.raises(RuntimeError), files.replacing(path) as new:
        new.write_text("half")
        raise RuntimeError
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(texts=[]), "no texts"),
        (dict(texts=[Text(2, "a dog"), Text(2, "a cat")]), "the lines of texts must increase"),
        (dict(parts=0), "parts must be a whole number"),
        (dict(num_orders=1), "num_orders must be 0 or at least 2"),
        (dict(num_sizes=1), "num_sizes.*at least 2"),
        (dict(error=1, num_passes=64), "num_passes.*at least 255"),
        (dict(error=0), "error must be"),
    ],
)
def test_bad_input_is_refused_before_work_starts(lm, whole, no_work, change, message):
    before = whole.read_bytes()
    with pytest.raises(ValueError, match=message):
        score(lm, whole, **dict(resume=True) | change)
    assert whole.read_bytes() == before


@pytest.mark.parametrize("how", [{}, dict(error=1.0, num_passes=300), dict(single=True)])
def test_a_text_without_a_finite_answer_names_its_line_and_can_be_left_out(lm, tmp_path, how):
    """What was written before it stays, a run goes on past it, and it changes no other line."""
    net, path, told = copy.deepcopy(lm), tmp_path / "s.jsonl", []
    word = torch.tensor(net.tokenizer.convert_tokens_to_ids("ran"))
    head = net.model.get_output_embeddings()
    head.register_forward_hook(lambda *given: given[2].index_fill(-1, word, -math.inf))
    texts = ["the cat sat on a mat the"] * (UNIT + 4)
    texts[UNIT + 1] = "the cat sat on a mat ran"
    with pytest.raises(ValueError, match=f"line {UNIT + 2}: "):
        score(net, path, texts, **how)
    assert len(read_results(path)) == UNIT
    score(net, path, texts, resume=True, left_out=told.append, **how)
    lines = [line["line"] for line in read_results(path)]
    assert lines == [k for k in range(1, UNIT + 5) if k != UNIT + 2] and len(told) == 1


def test_what_comes_with_a_text_is_in_its_line(lm, tmp_path):
    """Names and other columns; one that is called as a field of the results has _ behind its name."""
    text = Text(3, "the cat", "one", "a dog", {"UID": "x", "area": "2.5"})
    [line] = read_results(score(lm, tmp_path / "s.jsonl", [text]))
    assert dict(name="one", given="a dog", UID="x", area_="2.5").items() <= line.items()
    area = given(lm, "a dog").exact_curve("the cat").area().mean
    assert line["area"] == pytest.approx(area, abs=1e-5)


def test_results_without_orders_or_errors_are_valid_json(lm, tmp_path):
    """One mask per size has no error; an interval has no end where few rounds decide nothing."""
    path = score(lm, tmp_path / "s.jsonl", [TEXTS[4]], num_masks=1, num_orders=0)
    line = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert line["area_error"] is line["order_spread"] is line["order_sums"] is None
    output, level = Output(tmp_path / "p.jsonl"), 1 - 1e-9
    path = compare_corpus(lm, PAIRS[4:5], output, num_passes=208, level=level)
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["high"] is None
