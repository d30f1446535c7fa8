"""A corpus in one process, in two, and after a kill: the same file, bit by bit; and the command that writes it."""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from fakes import saved_network

from mptlml import __main__ as command
from mptlml import draws, random_orders
from mptlml.models import MaskedLM, corpus_scores
from mptlml.models.corpus_scores import UNIT, mean_curve, read_scores, score_corpus
from mptlml.models.text_curves import spaced_sizes

WORDS = "the cat sat on the mat a dog ran".split()
TEXTS = [" ".join(WORDS[k % 5: k % 5 + 3 + k % 4]) for k in range(2 * UNIT + 3)]
TEXTS[4] = " ".join(WORDS * 2)  # long enough for another to begin alike
FEW = dict(num_sizes=3, num_masks=2, num_orders=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("model")
    saved_network(where, " ".join(WORDS))
    return where


@pytest.fixture(scope="module")
def lm(folder):
    return MaskedLM.from_pretrained(str(folder), local_files_only=True)


@pytest.fixture(scope="module")
def whole(lm, tmp_path_factory):
    return score_corpus(lm, TEXTS, tmp_path_factory.mktemp("whole") / "scores.jsonl", **FEW)


def test_a_line_is_what_the_library_says_of_its_text(lm, whole):
    lines = read_scores(whole)
    assert [line["text"] for line in lines] == [*range(len(TEXTS))]
    for number in (0, UNIT + 2, len(TEXTS) - 1):
        line, text = lines[number], TEXTS[number]
        sizes = spaced_sizes(len(lm.encode(text)), 3)
        curve = lm.curve(text, sizes, num_masks=2, generator=draws.seeded(0))
        area = curve.area()
        assert (line["area"], line["area_error"]) == pytest.approx((area.mean, area.stderr), abs=1e-5)
        assert line["quadrature_error"] == pytest.approx(curve.quadrature_error, abs=1e-5)
        assert line["pseudo_log_likelihood"] == pytest.approx(lm.pseudo_log_likelihood([text]).item(), abs=1e-5)
        orders = random_orders(line["tokens"], 2, generator=draws.seeded(0, number))
        assert line["order_spread"] == pytest.approx(lm.chain_rule(text, orders).sum(-1).std().item(), abs=1e-5)
        np.testing.assert_allclose(mean_curve([line], np.array(line["sizes"]) / line["tokens"]), curve.mean, atol=1e-5)


def test_a_line_that_was_cut_off_is_written_again(lm, whole, tmp_path):
    """All of its unit is, and the units before are kept as they are."""
    path, lines = tmp_path / "scores.jsonl", whole.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: UNIT + 3]) + lines[UNIT + 3][:20])
    score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("what", ["model", "weights"])
def test_another_model_does_not_go_on_with_the_file(lm, whole, what):
    """Nor do other weights under its name, as after another training: half a billionth of one of them is enough."""
    other = copy.deepcopy(lm)
    if what == "model":
        other.model.config._name_or_path = "another"
    else:
        weight = next(other.model.parameters()).data.view(-1)
        weight[7] = weight[7].nextafter(weight[7] + 1)
    with pytest.raises(ValueError, match=f'was written with {{"{what}": .*choose another file'):
        score_corpus(other, TEXTS, whole, resume=True, **FEW)


def test_what_was_finished_before_a_kill_is_kept(lm, whole, tmp_path, monkeypatch):
    """A unit is in the file when the next one begins, and is not scored again."""
    path, score, begun = tmp_path / "scores.jsonl", corpus_scores._score, []

    def score_or_die(lm, texts, unit, *counts):
        begun.append((unit[0], len(read_scores(path))))
        if len(begun) == 2:
            raise KeyboardInterrupt
        return score(lm, texts, unit, *counts)

    monkeypatch.setattr(corpus_scores, "_score", score_or_die)
    with pytest.raises(KeyboardInterrupt):
        score_corpus(lm, TEXTS, path, **FEW)
    score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert begun == [(0, 0), (UNIT, UNIT), (UNIT, UNIT), (2 * UNIT, 2 * UNIT)]
    assert path.read_bytes() == whole.read_bytes()


def test_two_workers_of_torchrun(folder, whole, tmp_path, capsys, monkeypatch):
    """Each writes its units; then the command alone brings them together, and says and draws what they are."""
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n\n", encoding="utf-8")
    path, picture = tmp_path / "scores.jsonl", tmp_path / "curve.svg"
    words = ["score", folder / "texts.txt", "--model", folder, "-o", path, "--sizes", 3, "--masks", 2, "--orders", 2,
             "--device", "cpu", "--resume"]
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "-m", "mptlml"]
    subprocess.run([sys.executable, "-m", *map(str, launch + words)], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert [len(read_scores(tmp_path / f"scores.{k}-of-2.jsonl")) for k in (1, 2)] == [UNIT + 3, UNIT]
    monkeypatch.setattr(corpus_scores, "_score", lambda *_: pytest.fail("nothing is left to be scored"))
    command.main([*map(str, words), "--curve", str(picture)])
    assert path.read_bytes() == whole.read_bytes()
    assert "<svg" in picture.read_text()
    said = capsys.readouterr().out
    area = np.mean([line["area"] for line in read_scores(path)])
    assert f"{len(TEXTS)} texts" in said and f"{area:.2f} +-" in said and "rank correlation" in said


@pytest.mark.parametrize(("change", "message"), [
    (dict(texts=["the cat", "50 %"]), "does not know '50'"),
    (dict(seed=1), "was written with .*\"seed\": 0.*choose another file"),
    (dict(texts=["a dog", *TEXTS[1:]]), "scores of another text number 0"),
    (dict(texts=TEXTS[:2]), "scores of another text number"),
    (dict(texts=[*TEXTS[:4], TEXTS[4] + " cat", *TEXTS[5:]]), "scores of another text number 4"),  # it begins alike
    (dict(part=2, parts=2), r"part 2 of 2 must be one of 0..1"),
    (dict(num_orders=1), "num_orders must be 0 or at least 2"),
    (dict(num_sizes=1), "num_sizes.*at least 2"),
])
def test_bad_input_is_refused_before_work_starts(lm, whole, change, message):
    before = whole.read_bytes()
    with pytest.raises(ValueError, match=message):
        score_corpus(lm, **{**dict(texts=TEXTS, path=whole, resume=True), **FEW, **change})
    assert whole.read_bytes() == before


def test_the_command_leaves_with_a_message(folder, tmp_path):
    for words, message in (([tmp_path / "no.txt"], "No such file"), ([folder / "config.json"], "does not know")):
        with pytest.raises(SystemExit, match=message):
            command.main([str(word) for word in ["score", *words, "--model", folder, "-o", tmp_path / "s.jsonl"]])


def test_scores_without_orders_or_errors_are_valid_json(lm, tmp_path):
    path = score_corpus(lm, TEXTS[:2], tmp_path / "s.jsonl", num_sizes=3, num_masks=1, num_orders=0)
    line = json.loads(path.read_text().splitlines()[1], parse_constant=pytest.fail)
    assert line["area_error"] is line["order_spread"] is None
    assert "2 texts" in command._summary(read_scores(path))
    assert torch.tensor([line["area"]]).isfinite()
