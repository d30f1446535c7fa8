"""Results of texts and of pairs in one process, in two, and after a kill: the same file, bit by bit."""

import copy
import dataclasses
import json
import math
import os
import random
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from mptlml import draws, exact_curve, files, random_orders
from mptlml.masked_lm import spaced_sizes
from mptlml.scoring import command
from mptlml.scoring.corpus_scores import compare_corpus, mean_curve, score_corpus
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


@pytest.mark.parametrize("place", [0, 1, UNIT + 3, len(TEXTS) - 1])
def test_a_line_is_what_the_library_says_of_its_text(lm, whole, place):
    """Each text has masks of its own, which follow from the seed and its place; a short one has them all."""
    line, text = read_results(whole)[place], TEXTS[place]
    ids, first = lm.encode(text), place // UNIT * UNIT
    curve = lm.curves(
        [each for each in TEXTS[first:place] if len(lm.encode(each)) > 6] + [text],
        partial(spaced_sizes, count=3),
        num_masks=2,
        generator=draws.seeded(0, first),
    )[-1]
    passes, quadrature = curve.scores.size, curve.quadrature_error
    if len(ids) <= 6:
        curve, passes, quadrature = (
            exact_curve(lm.at_length(len(ids)), ids[None]),
            2 ** len(ids) - 1,
            0,
        )
    area, single = curve.area(), lm.pseudo_log_likelihood([text]).item()
    sums = lm.chain_rule(text, random_orders(len(ids), 2, generator=draws.seeded(0, place))).sum(-1)
    expected = dict(
        line=place + 1, text=text, name=None, cut_tokens=0, passes=passes, error_reached=None
    )
    assert expected.items() <= line.items()
    expected = dict(
        area=area.mean,
        area_error=area.stderr,
        quadrature_error=quadrature,
        pseudo_log_likelihood=single,
        order_spread=sums.std().item(),
    )
    assert {name: line[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert line["order_sums"] == pytest.approx(sums.tolist(), abs=1e-5)
    np.testing.assert_allclose(
        mean_curve([line], np.array(line["sizes"]) / len(ids)), curve.mean, atol=1e-5
    )


def test_an_error_says_whether_it_was_reached(lm, tmp_path):
    texts, path = [TEXTS[4], "a dog ran"], tmp_path / "s.jsonl"
    for error, reached in ((0.5, [True, True]), (1e-4, [False, True])):
        lines = read_results(score(lm, path, texts, error=error, num_passes=300, overwrite=True))
        found = lm.areas(texts, 300, error=error, generator=draws.seeded(0, 0))
        assert [line["area"] for line in lines] == found.mean.tolist() and lines[0]["sizes"] == []
        assert [line["passes"] for line in lines] == found.passes.tolist() and found.passes[1] == 7
        assert lines[0]["quadrature_error"] == 0
        assert [line["error_reached"] for line in lines] == reached == found.reached.tolist()


def test_a_long_text_is_cut_where_that_is_said(lm, tmp_path):
    """Its line tells how much is missing; the rest is scored as a text of its own."""
    small, long = copy.copy(lm), TEXTS[4]
    asked(small, max_tokens=11)
    cut, plain = (
        read_results(score(small, tmp_path / "s.jsonl", [text], truncate=True, overwrite=True))[0]
        for text in (long, " ".join(long.split()[:11]))
    )
    assert (cut["tokens"], cut["cut_tokens"], plain["cut_tokens"]) == (11, 7, 0)
    assert cut["area"] == plain["area"] and cut["text"] == long
    pairs, output = [(Text(1, long), Text(1, long))], Output(tmp_path / "p.jsonl")
    pair = compare_corpus(small, pairs, output, num_passes=208, truncate=True)
    assert read_results(pair)[0]["cut_tokens"] == 14


def test_the_mean_curve_is_a_mean_over_texts():
    lines = [
        dict(sizes=[1, 2], tokens=2, scores=[-1.0, -3.0]),
        dict(sizes=[1, 4], tokens=4, scores=[-2.0, -8.0]),
        dict(sizes=[1], tokens=1, scores=[-16.0]),
    ]
    np.testing.assert_allclose(mean_curve(lines, np.array([0.5, 0.75, 1])), [-7, -8, -9])


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


def asked(net, **how):
    net.network = dataclasses.replace(net.network, **how)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nudge, "was written with other settings .see .*scores.settings.json"),  # another training
        (lambda net: setattr(net.model.config, "hidden_act", "relu"), "other settings"),
        (lambda net: asked(net, batch_tokens=64), "other settings"),  # rounding would differ
        (lambda net: vars(net.network).update(device=torch.device("cuda")), "other settings"),
        (lambda net: asked(net, suffix=[]), "other settings"),
        (
            lambda net: setattr(
                net, "encode", lambda text, **how: type(net).encode(net, text).flip(0)
            ),
            "another text on line 1, in another place, or by another tokenizer",
        ),
        (dict(seed=1), "other settings"),
        (dict(tokens=True), "other settings"),
        (dict(texts=["a dog", *TEXTS[1:]]), "another text on line 1"),
        # it begins alike
        (
            dict(texts=[*TEXTS[:4], TEXTS[4] + " cat", *TEXTS[5:]]),
            "another text on line 5",
        ),
        (dict(texts=TEXTS[:2]), "another text on line 3"),
        (
            dict(texts=[Text(0, "cat"), *(Text(k, text) for k, text in enumerate(TEXTS, 1))]),
            "another text on line 1",
        ),
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


def test_two_sizes_do_not_tell_the_error_of_quadrature(lm, tmp_path):
    path = score(lm, tmp_path / "s.jsonl", ["the cat sat on the mat a dog"], num_sizes=2)
    assert read_results(path)[0]["quadrature_error"] is None


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        ("The cat sat on the mat.\n", 1),
        ("[1, 2]\n", 1),
        ('{"line": [1], "settings": 5}\n', 1),
        ("{line}nonsense\n", 2),
        ("{line}{}\n", 2),
        ("{line}{nan}", 2),
        ("{line}" + "[" * 10**5 + "\n", 2),
    ],
)
def test_what_is_no_file_of_results_is_not_gone_on_with(lm, whole, tmp_path, content, bad):
    path = tmp_path / "notes.txt"
    line, second = whole.read_text().splitlines(keepends=True)[:2]
    nan = re.sub('"area": [-.0-9]+', '"area": NaN', second)
    path.write_text(content.replace("{line}", line).replace("{nan}", nan), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"line {bad} of .*is not from a file of results"):
        score(lm, path, resume=True)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


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
    before, own = path.read_bytes(), path.with_name("scores.2-of-2.jsonl")
    own.write_bytes(before)
    for part, parts in ((0, 1), (1, 2)):
        with pytest.raises(
            ValueError, match="exists: go on with it by resume=True, or replace it by overwr"
        ):
            score(lm, path, part=part, parts=parts)
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(type(lm), "curves", mock.Mock(side_effect=MemoryError))
        score(lm, path, overwrite=True)
    assert path.read_bytes() == own.read_bytes() == before
    path.chmod(0o640)
    score(lm, path, TEXTS[:1], overwrite=True)
    assert [line["line"] for line in read_results(path)] == [
        1
    ] and path.stat().st_mode & 0o777 == 0o640
    assert {file.name for file in path.parent.iterdir()} == {
        path.name,
        own.name,
        "scores.settings.json",
    }
    path.unlink()
    # it is of something else
    with pytest.raises(ValueError, match="scores.settings.json exists: replace it"):
        score(lm, path, resume=True)
    assert {settings_file(Path(f"s.{k}-of-2")).name for k in (1, 2)} == {
        f"s.{k}-of-2.settings.json" for k in (1, 2)
    }


def test_files_beside_the_output_are_let_be(tmp_path, monkeypatch):
    """What is written for the moment has a name that nobody else has, and is gone when writing fails."""
    monkeypatch.setattr(random.SystemRandom, "randbytes", lambda _, count: bytes(count))
    path, mine = tmp_path / "s.jsonl", tmp_path / "s.jsonl.00000000.new"
    mine.write_text("mine")
    with pytest.raises(FileExistsError), files.replacing(path):
        pass
    assert mine.read_text() == "mine"
    mine.unlink()
    with pytest.raises(RuntimeError), files.replacing(path) as new:
        new.write_text("half")
        raise RuntimeError
    assert [*tmp_path.iterdir()] == []


def test_two_workers_of_torchrun(folder, whole, tmp_path, capsys, no_work):
    """Each writes its units; then the command alone brings them together, and says and draws what they are.

    Texts are numbered by their lines, as a mark of the byte order and blank lines change nothing else.
    """
    texts, path, picture = (tmp_path / name for name in ("texts.txt", "scores.jsonl", "curve.svg"))
    texts.write_text("\ufeff\n" + "\n".join(TEXTS) + "\n\n", encoding="utf-8")
    words = [
        *map(str, ["score", texts, "--model", folder, "-o", path]),
        *"--sizes 3 --masks 2 --orders 2 --device cpu --resume".split(),
    ]
    launch = (
        "torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1 -m mptlml".split()
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", *launch, *words], check=True, env=environment)
    assert [len(read_results(tmp_path / f"scores.{k}-of-2.jsonl")) for k in (1, 2)] == [
        UNIT + 3,
        UNIT,
    ]
    command.main([*words, "--curve", str(picture)])
    found = read_results(path)
    assert found == [line | {"line": line["line"] + 1} for line in read_results(whole)]
    drawn = picture.read_text()
    assert "<svg" in drawn and "dc:date" not in drawn and "fill: #ffffff" not in drawn
    said = capsys.readouterr().out
    area = np.mean([line["area"] for line in found])
    assert f"{len(TEXTS)} texts" in said and f"{area:.2f} +-" in said and "rank correlation" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(texts=[]), "no texts"),
        (dict(texts=[Text(2, "a dog"), Text(2, "a cat")]), "the lines of texts must increase"),
        (dict(part=2, parts=2), r"part must be one of 0..1, got 2"),
        (dict(parts=0), "parts must be a whole number"),
        (dict(overwrite=True), "either resume=True or overwrite=True"),
        (dict(num_orders=1), "num_orders must be 0 or at least 2"),
        (dict(num_orders=-1), "num_orders.*at least 0"),
        (dict(num_sizes=1), "num_sizes.*at least 2"),
        (dict(num_masks=0), "num_masks.*at least 1"),
        (dict(error=1, num_passes=64), "num_passes.*at least 65"),
        (dict(error=0), "error must be"),
    ],
)
def test_bad_input_is_refused_before_work_starts(lm, whole, no_work, change, message):
    before = whole.read_bytes()
    with pytest.raises(ValueError, match=message):
        score(lm, whole, **dict(resume=True) | change)
    assert whole.read_bytes() == before


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(lm, tmp_path, value):
    """Of a network whose training went wrong."""
    net = copy.deepcopy(lm)
    net.model.get_output_embeddings().bias.data.fill_(-value)
    with pytest.raises(ValueError, match="line 1: .*(are NaN|no finite score)"):
        score(net, tmp_path / "s.jsonl", TEXTS[:1])


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("how", [{}, dict(error=1.0, num_passes=99), dict(single=True)])
def test_a_text_without_a_finite_answer_names_its_line_and_can_be_left_out(
    lm, tmp_path, value, how
):
    """What was written before it stays, a run goes on past it, and it changes no other line."""
    net, path, told = copy.deepcopy(lm), tmp_path / "s.jsonl", []
    word = net.tokenizer.convert_tokens_to_ids("ran")
    head = net.model.get_output_embeddings()
    head.register_forward_hook(lambda *given: given[2].index_fill(-1, torch.tensor(word), value))
    texts = ["the cat sat on a mat the"] * (UNIT + 4)
    if math.isinf(value):
        texts[UNIT + 1] = "the cat sat on a mat ran"
        with pytest.raises(ValueError, match=f"line {UNIT + 2}: "):
            score(net, path, texts, **how)
        assert len(read_results(path)) == UNIT
        score(net, path, texts, resume=True, left_out=told.append, **how)
        lines = [line["line"] for line in read_results(path)]
        assert lines == [k for k in range(1, UNIT + 5) if k != UNIT + 2] and len(told) == 1
        whole = path.read_bytes()
        score(net, path, texts, resume=True, left_out=told.append, **how)
        assert path.read_bytes() == whole
    else:  # it answers nothing at all
        score(net, path, texts, left_out=told.append, **how)
        assert read_results(path) == [] and len(told) == UNIT + 4


def test_what_comes_with_a_text_is_in_its_line(lm, tmp_path):
    """Names and other columns; one that is called as a field of the results has _ behind its name."""
    text = Text(3, "the cat", "one", "a dog", {"UID": "x", "area": "2.5"})
    path = score(lm, tmp_path / "s.jsonl", [text], about=dict(read=dict(format="csv")))
    [line] = read_results(path)
    known = dict(name="one", given="a dog", UID="x", area_="2.5")
    assert known.items() <= line.items()
    assert line["area"] == pytest.approx(
        lm.given("a dog").exact_curve("the cat").area().mean, abs=1e-5
    )
    assert json.loads(settings_file(path).read_text())["read"] == {"format": "csv"}


def test_results_without_orders_or_errors_are_valid_json(lm, tmp_path):
    """One mask per size has no error; an interval has no end where few rounds decide nothing."""
    path = score(lm, tmp_path / "s.jsonl", [TEXTS[4], TEXTS[4]], num_masks=1, num_orders=0)
    line = json.loads(path.read_text().splitlines()[0], parse_constant=pytest.fail)
    assert line["area_error"] is line["order_spread"] is line["order_sums"] is None
    said, one = (command._summary(None, read_results(path)[:count]) for count in (2, 1))
    areas = np.array([line["area"] for line in read_results(path)])
    assert (
        f"{areas.mean():10.2f} +- {areas.std(ddof=1) / 2**0.5:.2f}\n" in said and "2 texts" in said
    )
    assert (
        f", or {-areas.mean() / 18 / math.log(2):.3f} bits" in said
        and "spread over orders" not in said
    )
    assert one.startswith("1 text, 18 tokens") and "nan" not in one + said and "+-" not in one
    path = compare_corpus(
        lm, PAIRS[4:5], Output(tmp_path / "p.jsonl"), num_passes=208, level=1 - 1e-9
    )
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["high"] is None


def test_exact_where_exact_is_cheaper(lm, tmp_path):
    """Never a sample where all masks are few, nor one of no end where they fit into the passes."""
    texts = [" ".join((WORDS * 2)[:length]) for length in (8, 9, 10, 12)]
    lines = read_results(score(lm, tmp_path / "s.jsonl", texts, error=1e-9, num_passes=2000))
    assert lines[0]["passes"] == 255
    for text, line in zip(texts[:3], lines, strict=False):
        # the other adds up in single precision
        assert line["area"] == pytest.approx(lm.exact_curve(text).area().mean, rel=2**-23)
        assert line["area_error"] == 0 and line["error_reached"]
        assert line["passes"] == 2 ** line["tokens"] - 1
    assert lines[3]["area_error"] > 0 and lines[3]["passes"] <= 2000
