"""A corpus in one process, in two, and after a kill: the same file, bit by bit; and the command that writes it."""

import copy
import gzip
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from fakes import saved_network

from mptlml import draws, files, random_orders
from mptlml.text import MaskedLM, command, compare, corpus_scores
from mptlml.text.corpus_scores import UNIT, mean_curve, read_scores, score_corpus, settings_file
from mptlml.text.inputs import Text, read_columns, read_texts
from mptlml.text.text_curves import spaced_sizes

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
    """Each text has masks of its own, which follow from the seed and its place."""
    lines = read_scores(whole)
    assert [(line["line"], line["text"], line["name"]) for line in lines] == [(k, text, None) for k, text in
                                                                             enumerate(TEXTS, 1)]
    for number in (0, UNIT + 2, len(TEXTS) - 1):
        line, text = lines[number], TEXTS[number]
        first = number // UNIT * UNIT
        curve = lm.curves(TEXTS[first: number + 1], partial(spaced_sizes, count=3), num_masks=2,
                          generator=draws.seeded(0, first))[-1]
        area = curve.area()
        assert (line["area"], line["area_error"]) == pytest.approx((area.mean, area.stderr), abs=1e-5)
        assert line["quadrature_error"] == pytest.approx(curve.quadrature_error, abs=1e-5)
        assert line["pseudo_log_likelihood"] == pytest.approx(lm.pseudo_log_likelihood([text]).item(), abs=1e-5)
        orders = random_orders(line["tokens"], 2, generator=draws.seeded(0, number))
        sums = lm.chain_rule(text, orders).sum(-1)
        assert line["order_sums"] == pytest.approx(sums.tolist(), abs=1e-5)
        assert line["order_spread"] == pytest.approx(sums.std().item(), abs=1e-5)
        np.testing.assert_allclose(mean_curve([line], np.array(line["sizes"]) / line["tokens"]), curve.mean, atol=1e-5)


def test_the_mean_curve_is_a_mean_over_texts():
    lines = [dict(sizes=[1, 2], tokens=2, scores=[-1.0, -3.0]), dict(sizes=[1, 4], tokens=4, scores=[-2.0, -8.0]),
             dict(sizes=[1], tokens=1, scores=[-16.0])]
    np.testing.assert_allclose(mean_curve(lines, np.array([0.5, 0.75, 1])), [-7, -8, -9])


def test_the_error_of_a_mean_area_is_that_of_its_scatter(lm, tmp_path):
    """One text 24 times, so that the masks are the only noise: the error over texts is what seeds scatter by.

    With masks in common the texts would score alike, and the error would be 0.
    """
    means, errors = [], []
    for seed in range(30):
        path = score_corpus(lm, [TEXTS[4]] * 24, tmp_path / f"{seed}.jsonl", num_sizes=3, num_masks=1, num_orders=0,
                            seed=seed)
        areas = np.array([line["area"] for line in read_scores(path)])
        means.append(areas.mean())
        errors.append(areas.std(ddof=1) / 24**0.5)
    assert np.std(means, ddof=1) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.35)  # 2.7 of its errors


def test_a_line_that_was_cut_off_is_written_again(lm, whole, tmp_path):
    """All of its unit is, and the units before are kept as they are."""
    path, lines = tmp_path / "scores.jsonl", whole.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: UNIT + 2]) + lines[UNIT + 2][:20])
    score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert path.read_bytes() == whole.read_bytes()


def test_other_weights_do_not_go_on_with_the_file(lm, whole):
    """As after another training under the same name: half a billionth of one of them is enough."""
    other = copy.deepcopy(lm)
    weight = next(other.model.parameters()).data.view(-1)
    weight[7] = weight[7].nextafter(weight[7] + 1)
    with pytest.raises(ValueError, match='was written with {"weights": .*choose another file'):
        score_corpus(other, TEXTS, whole, resume=True, **FEW)


def test_a_line_knows_its_settings_where_their_file_is_lost_or_another_runs(lm, whole, tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(whole.read_bytes())
    for settings in (None, "[]", "{", settings_file(whole).read_text().replace('"seed": 0', '"seed": 1')):
        if settings is not None:
            settings_file(path).write_text(settings)
        with pytest.raises(ValueError, match="was written with other settings: choose another file"):
            score_corpus(lm, TEXTS, path, resume=True, **FEW, seed=1)
    score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert all(of(path).read_bytes() == of(whole).read_bytes() for of in (Path, settings_file))


@pytest.mark.parametrize("change", ["words", "frame"])
def test_another_tokenizer_does_not_go_on_with_the_file(lm, whole, change):
    """The same texts and weights, and other token ids, or other special tokens around them."""
    other = copy.deepcopy(lm)
    if change == "frame":
        other.suffix = []
    else:
        other.encode = lambda text: lm.encode(text).flip(0)
    with pytest.raises(ValueError, match="another text on line 1, or by another tokenizer"):
        score_corpus(other, TEXTS, whole, resume=True, **FEW)


def test_the_same_model_in_another_place_goes_on(lm, whole, tmp_path):
    """Its weights tell it, not its name; and brackets in the name of a file are letters like others."""
    other = copy.deepcopy(lm)
    other.model.config._name_or_path = "/elsewhere/net"
    path = tmp_path / "s[1].jsonl"
    for part in (0, 1):
        score_corpus(other, TEXTS, path, part=part, parts=2, **FEW)
    begun = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_scores, "_score", lambda *given: begun.append(given))
        score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert not begun and path.read_bytes() == whole.read_bytes()


def test_parts_of_another_run_are_let_be(lm, whole, tmp_path):
    (tmp_path / "scores.large.1-of-2.jsonl").write_text("of another run\n", encoding="utf-8")
    path = score_corpus(lm, TEXTS, tmp_path / "scores.jsonl", resume=True, **FEW)
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(("content", "bad"), [
    ("The cat sat on the mat.\n", 1), ("[1, 2]\n", 1), ('{"line": [1], "digest": 5}\n', 1), ("{line}nonsense\n", 2),
    ('{line}{"line": 0, "digest": "{digest}"}\n', 2), ("{line}{true}", 2), ("{line}{nan}", 2),
    ("{line}" + "[" * 10**5 + "\n", 2),
])
def test_what_is_no_file_of_scores_is_not_gone_on_with(lm, whole, tmp_path, content, bad):
    path = tmp_path / "notes.txt"
    line, other = whole.read_text().splitlines(keepends=True)[:2]
    for name, by in {"line": line, "digest": json.loads(line)["digest"], "true": other.replace(": 2,", ": true,", 1),
                     "nan": re.sub('"area": [-.0-9]+', '"area": NaN', other)}.items():
        content = content.replace(f"{{{name}}}", by)
    path.write_text(content, encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(ValueError, match=f"line {bad} of .*is not from a file of scores"):
        score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_a_file_that_exists_is_replaced_only_where_that_is_said(lm, whole, tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(whole.read_bytes())
    for part, parts in ((0, 1), (1, 2)):
        own = path if parts == 1 else tmp_path / "scores.2-of-2.jsonl"
        own.write_bytes(whole.read_bytes())
        with pytest.raises(ValueError, match="exists: go on with it by resume=True, or replace it by overwrite=True"):
            score_corpus(lm, TEXTS[:1], path, part=part, parts=parts, **FEW)
        assert own.read_bytes() == whole.read_bytes()
    score_corpus(lm, TEXTS[:1], path, overwrite=True, **FEW)
    assert [line["line"] for line in read_scores(path)] == [1]


def test_what_is_to_be_replaced_stays_until_there_are_new_scores(lm, whole, tmp_path, monkeypatch):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(whole.read_bytes())
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(corpus_scores, "_score", lambda *given: (_ for _ in ()).throw(MemoryError))
        score_corpus(lm, TEXTS, path, overwrite=True, **FEW)
    assert path.read_bytes() == whole.read_bytes()


def test_a_file_that_is_being_written_can_be_read(whole, tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_bytes(whole.read_bytes()[:-30])
    assert read_scores(path) == read_scores(whole)[:-1]


def test_what_was_finished_before_a_kill_is_kept(lm, whole, tmp_path, monkeypatch):
    """A unit is in the file when the next one begins, and is not scored again."""
    path, score, begun = tmp_path / "scores.jsonl", corpus_scores._score, []

    def score_or_die(lm, texts, heads, unit, *counts):
        begun.append((unit[0], len(read_scores(path)) if path.exists() else 0))
        if len(begun) == 2:
            raise KeyboardInterrupt
        return score(lm, texts, heads, unit, *counts)

    monkeypatch.setattr(corpus_scores, "_score", score_or_die)
    with pytest.raises(KeyboardInterrupt):
        score_corpus(lm, TEXTS, path, **FEW)
    score_corpus(lm, TEXTS, path, resume=True, **FEW)
    assert begun == [(0, 0), (UNIT, UNIT), (UNIT, UNIT), (2 * UNIT, 2 * UNIT)]
    assert path.read_bytes() == whole.read_bytes()


def test_two_workers_of_torchrun(folder, whole, tmp_path, capsys, monkeypatch):
    """Each writes its units; then the command alone brings them together, and says and draws what they are.

    Texts are numbered by their lines, as a mark of the byte order and blank lines change nothing else.
    """
    texts = tmp_path / "texts.txt"
    texts.write_text("\ufeff\n" + "\n".join(TEXTS) + "\n\n", encoding="utf-8")
    path, picture = tmp_path / "scores.jsonl", tmp_path / "curve.svg"
    words = ["score", texts, "--model", folder, "-o", path, "--sizes", 3, "--masks", 2, "--orders", 2,
             "--device", "cpu", "--resume"]
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "-m", "mptlml"]
    subprocess.run([sys.executable, "-m", *map(str, launch + words)], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert [len(read_scores(tmp_path / f"scores.{k}-of-2.jsonl")) for k in (1, 2)] == [UNIT + 3, UNIT]
    monkeypatch.setattr(corpus_scores, "_score", lambda *_: pytest.fail("nothing is left to be scored"))
    command.main([*map(str, words), "--curve", str(picture)])
    found = read_scores(path)
    assert [line.pop("line") for line in found] == [*range(2, len(TEXTS) + 2)]
    assert found == [{key: line[key] for key in line if key != "line"} for line in read_scores(whole)]
    assert "<svg" in picture.read_text()
    said = capsys.readouterr().out
    area = np.mean([line["area"] for line in found])
    assert f"{len(TEXTS)} texts" in said and f"{area:.2f} +-" in said and "rank correlation" in said


@pytest.mark.parametrize(("change", "message"), [
    (dict(texts=["the cat", "50 %"]), "does not know '50'"),
    (dict(seed=1), "was written with .*\"seed\": 0.*choose another file"),
    (dict(texts=["a dog", *TEXTS[1:]]), "scores of another text on line 1"),
    (dict(texts=TEXTS[:2]), "scores of another text on line 3"),
    (dict(texts=[*TEXTS[:4], TEXTS[4] + " cat", *TEXTS[5:]]), "scores of another text on line 5"),  # it begins alike
    (dict(texts=["the cat", "50 %", "%", "a dog"]), "line 2: .*does not know '50'.* .1 more of 4 cannot be scored"),
    (dict(texts=[]), "no texts"),
    (dict(texts=[Text(2, "a dog"), Text(2, "a cat")]), "the lines of texts must increase"),
    (dict(tokens=True), "was written with .*false.*choose another file"),
    (dict(part=2, parts=2), r"part must be one of 0..1, got 2"),
    (dict(overwrite=True), "either resume=True or overwrite=True"),
    (dict(num_orders=1), "num_orders must be 0 or at least 2"),
    (dict(num_sizes=1), "num_sizes.*at least 2"),
])
def test_bad_input_is_refused_before_work_starts(lm, whole, change, message):
    before = whole.read_bytes()
    with pytest.raises(ValueError, match=message):
        score_corpus(lm, **{**dict(texts=TEXTS, path=whole, resume=True), **FEW, **change})
    assert whole.read_bytes() == before


@pytest.mark.parametrize(("name", "value", "was"), [("batch_tokens", 64, 1024), ("device", "cuda", "cpu")])
def test_other_passes_do_not_go_on_with_the_file(lm, whole, name, value, was):
    """Rounding would differ."""
    other = copy.deepcopy(lm)
    setattr(other, name, torch.device(value) if name == "device" else value)
    there, here = (json.dumps({name: one}) for one in (was, value))
    with pytest.raises(ValueError, match=f"was written with {there}, not with {here}: choose another file"):
        score_corpus(other, TEXTS, whole, resume=True, **FEW)


LATIN, SHORT = "latin.txt", "short.txt"


@pytest.mark.parametrize(("words", "message"), [
    (["no.txt"], "no.txt: No such file"),
    (["wrong.txt"], "line 3: the tokenizer does not know '%'.*or say --allow-unknown .1 more of 3 cannot be scored"),
    (["long.txt"], "line 1: 600 tokens are more than the model's 510 .*: shorten the text$"),
    (["empty.txt"], "empty.txt holds no text"),
    ([LATIN], "latin.txt is not a text file in UTF-8"),
    (["all.csv"], "all.csv has the columns id, text: say which is meant"),
    (["all.csv", "--column", "tekst"], "all.csv has the columns id, text: say which is meant"),
    (["all.csv", "--column", "3"], "line 1 of all.csv has 2 columns, of which .'3'. was asked for"),
    (["open.tsv", "--column", "1"], "open.tsv is no table: line 2"),
    (["no.fa"], "line 1 is no FASTA"),
    (["torn.gz"], "torn.gz is a damaged archive"),
    (["bad.txt", "--skip"], "no text is left that can be scored"),
    ([SHORT, "-o", "known.jsonl"], "known.settings.json exists"),
    ([SHORT, "--given", "cat " * 510], "what is given has 510 tokens of the 510"),
    ([SHORT, "-o", SHORT, "--overwrite"], "--output short.txt is the file of texts too"),
    ([SHORT, "-o", "./" + SHORT, "--resume"], "--output short.txt is the file of texts too"),
    ([SHORT, "-o", "hard.txt", "--overwrite"], "--output hard.txt is the file of texts too"),
    ([SHORT, "-o", "linked.txt", "--overwrite"], "linked.txt is no ordinary file"),
    ([SHORT, "-o", "dangling", "--overwrite"], "dangling is no ordinary file"),
    ([SHORT, "-o", "/dev/null"], "/dev/null is no ordinary file"),
    (["s.1-of-2.txt", "-o", "s.txt", "--overwrite"], "--output s.1-of-2.txt is the file of texts too"),
    ([SHORT, "-o", LATIN], "latin.txt exists: go on with it by --resume, or replace it by --overwrite"),
    ([SHORT, "-o", LATIN, "--resume"], "line 1 of latin.txt is not from a file of scores"),
    ([SHORT, "-o", ".", "--overwrite"], ". is no ordinary file"),
    ([SHORT, "-o", "no/such/s.jsonl"], "--output no/such/s.jsonl: no/such is no folder that can be written to"),
    ([SHORT, "-o", LATIN + "/s.jsonl"], "latin.txt is no folder that can be written to"),
    ([SHORT, "--curve", "no/such/c.svg"], "--curve no/such/c.svg: no/such is no folder that can be written to"),
    ([SHORT, "--curve", "c.xyz"], "--curve c.xyz must end in one of .svg, .png, .pdf"),
    ([SHORT, "--curve", "s.jsonl"], "--curve s.jsonl is --output too"),
    ([SHORT, "--curve", "drawn.svg", "--resume"], "drawn.svg exists: choose another name for the picture"),
    ([SHORT, "--curve", "hard.svg", "--overwrite"], "--curve hard.svg is the file of texts too"),
    ([SHORT, "--device", "meta"], "--device meta is not on this machine"),
    ([SHORT, "--device", "cuda:99"], "--device cuda:99 is not on this machine, which has cpu"),
    ([SHORT, "--device", "gpu"], "--device gpu is not on this machine"),
    ([SHORT, "--model", "nowhere/at/all"], "--model nowhere/at/all cannot be used: it is no folder here"),
    ([SHORT, "--model", "mute"], "--model mute cannot be used: the tokenizer has no words"),
    ([SHORT, "--model", "headless"], "--model headless cannot be used: .*lacks .* weights of BertForMaskedLM"),
    ([SHORT, "--model", "gpt"], "--model gpt cannot be used: gpt is a gpt2 model, and not one of the masked"),
    ([SHORT, "--model", "torn"], "--model torn cannot be used"),
    ([SHORT, "--model", "torn/config.json"], "--model torn/config.json is a file: give the folder"),
])
def test_the_command_leaves_with_a_message_and_touches_no_file(folder, tmp_path, monkeypatch, words, message):
    """What a user can do wrong, in the command's words; and before the model is asked anything."""
    monkeypatch.chdir(tmp_path)
    for name, content in ((LATIN, "\xe9t\xe9".encode("latin-1")), (SHORT, b"the cat\na dog\n"), ("empty.txt", b"\n \n"),
                          ("wrong.txt", b"the cat\n\n%\n%\n"), ("long.txt", b"cat " * 600),
                          ("drawn.svg", b"<svg/>"), ("all.csv", b"id,text\n1,the cat\n"), ("no.fa", b"AC\n>x\n"),
                          ("open.tsv", b'the cat\n"a dog\n'), ("torn.gz", gzip.compress(b"the cat", mtime=0)[:-9]),
                          ("bad.txt", b"%"), ("known.settings.json", b"{}")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "linked.txt").symlink_to(SHORT)
    (tmp_path / "dangling").symlink_to("nothing")
    for name in ("hard.txt", "hard.svg", "s.1-of-2.txt"):
        (tmp_path / name).hardlink_to(SHORT)
    if words[0].startswith("s."):
        monkeypatch.setenv("WORLD_SIZE", "2")
    bad_model(folder, *{Path(word).parts[0] for word in words if word != "."} & {"headless", "gpt", "torn", "mute"})
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    monkeypatch.setattr(corpus_scores, "_score", lambda *_: pytest.fail("work has begun"))
    usual = [] if "--model" in words else ["--model", str(folder)]
    with pytest.raises(SystemExit, match=f"^mptlml: .*({message})"):
        command.main(["score", *words, *usual, *([] if "-o" in words else ["-o", "s.jsonl"])])
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def bad_model(folder, kind=None):
    """In the working folder: a network without a head, a causal one, or one whose weights were cut short."""
    if kind is not None:
        shutil.copytree(folder, kind)
    if kind == "headless":
        shutil.rmtree(kind)
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(kind)
        with torch.random.fork_rng(devices=[]):  # it has a pooler that the folder lacks
            transformers.BertModel.from_pretrained(folder).save_pretrained(kind)
    elif kind == "mute":
        for path in Path(kind).glob("*token*"):
            path.unlink()
    elif kind == "gpt":
        transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2).save_pretrained(kind)
    elif kind == "torn":
        weights = Path(kind, "model.safetensors")
        weights.write_bytes(weights.read_bytes()[:1000])


@pytest.mark.parametrize(("words", "message"), [
    (["--orders", "1"], "argument --orders: must be 0 or at least 2, got 1"),
    (["--sizes", "1"], "argument --sizes: must be at least 2, got 1"),
    (["--masks", "0"], "argument --masks: must be at least 1, got 0"),
    (["--batch-tokens", "-5"], "argument --batch-tokens: must be at least 1, got -5"),
    (["--seed", "x"], "argument --seed: invalid whole number value: 'x'"),
    (["--resume", "--overwrite"], "not allowed with argument"),
])
def test_counts_are_read_in_the_commands_words(words, message, capsys):
    with pytest.raises(SystemExit):
        command.main(["score", "texts.txt", "--model", "m", "-o", "s.jsonl", *words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("rank", "world"), [("a", "2"), ("", "2"), ("2", "2"), ("1", "1"), ("0", "0"),
                                             ("\u00b2", "9")])
def test_a_launcher_must_say_which_process_this_is(rank, world, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(SystemExit, match=f"RANK={rank} and WORLD_SIZE={world} .*: 0 <= RANK < WORLD_SIZE"):
        command.main(["score", "t.txt", "--model", "m", "-o", "s.jsonl"])


def test_files_beside_the_output_are_let_be(lm, tmp_path, monkeypatch):
    """What is written for the moment has a name that nobody else has, and is gone when writing fails."""
    names = iter(["a", *"abcdefghijk"])
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: next(names))
    path = tmp_path / "s.jsonl"
    for name in ("s.jsonl.new", "s.settings.json.a.new"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError):
        score_corpus(lm, TEXTS[:1], path, **FEW)
    assert {file.read_text() for file in tmp_path.iterdir()} == {"mine"}
    (tmp_path / "s.settings.json.a.new").unlink()
    score_corpus(lm, TEXTS[:1], path, **FEW)
    path.chmod(0o640)
    with pytest.raises(RuntimeError), files.replacing(path) as new:
        new.write_text("half")
        raise RuntimeError
    score_corpus(lm, TEXTS[:1], path, overwrite=True, **FEW)
    assert {file.name for file in tmp_path.iterdir()} == {"s.jsonl", "s.settings.json", "s.jsonl.new"}
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_refused(lm, tmp_path, value):
    """Of a network whose training went wrong."""
    other = copy.deepcopy(lm)
    other.model.get_output_embeddings().bias.data.fill_(-value)
    with pytest.raises(ValueError, match="are NaN|no finite score for line 1"):
        score_corpus(other, TEXTS[:1], tmp_path / "s.jsonl", **FEW)


def test_another_configuration_does_not_go_on_with_the_file(lm, whole):
    """The same weights may make another network."""
    other = copy.deepcopy(lm)
    other.model.config.hidden_act = "relu"
    with pytest.raises(ValueError, match='was written with {"weights": .*choose another file'):
        score_corpus(other, TEXTS, whole, resume=True, **FEW)


@pytest.mark.parametrize(("error", "message"), [
    (OSError(28, "No space left on device"), "s.jsonl: No space left on device"),
    (KeyboardInterrupt(), "with --resume in place of --overwrite and another name for --curve goes on"),
])
def test_what_goes_wrong_on_the_way_says_what_to_do(folder, tmp_path, monkeypatch, error, message):
    for name, content in (("t.txt", "the cat"), ("c.svg", "<svg/>")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(corpus_scores, "_score", lambda *given: (_ for _ in ()).throw(error))
    with pytest.raises(SystemExit, match=message):
        command.main(["score", str(tmp_path / "t.txt"), "--model", str(folder), "-o", str(tmp_path / "s.jsonl"),
                      "--curve", str(tmp_path / "c.svg"), "--overwrite"])


TABLE = b'id;,"te""xt",more\n1,"the cat\nsat",x\n\n2,a dog,y\n3, ,z\n'


@pytest.mark.parametrize(("name", "content", "column", "found"), [
    ("t.txt", b"\xef\xbb\xbfthe cat\r\n\n a dog ", None, [(1, "the cat", None), (3, "a dog", None)]),
    ("t.csv.gz", gzip.compress(TABLE, mtime=0), 'te"xt', [(2, "the cat\nsat", None), (5, "a dog", None)]),
    ("t.tsv", b"the cat\t1\na dog\t2\n", "1", [(1, "the cat", None), (2, "a dog", None)]),
    ("t.txt", b"x\ta dog\n4\t\n", "2", [(1, "a dog", None)]),
    ("t.fa", b"\n>one of two\nEV\nQL\n\n>\nK\n>none\n", None, [(2, "E V Q L", "one"), (6, "K", "")]),
    ("-", b"the cat\n", None, [(1, "the cat", None)])])
def test_texts_are_read_from_files_of_several_kinds(tmp_path, monkeypatch, name, content, column, found):
    monkeypatch.chdir(tmp_path)
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    else:
        Path(name).write_bytes(content)
    assert read_texts(Path(name), column) == found


def test_two_columns_of_a_table_are_pairs(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TABLE)
    assert [*read_columns(path, ["more", "id;"])] == [(2, ["x", "1"]), (5, ["y", "2"]), (6, ["z", "3"])]
    assert next(read_columns(path, ["3", "1"])) == (1, ["more", "id;"])


def test_what_cannot_be_scored_is_left_out_where_that_is_said(folder, lm, tmp_path, monkeypatch, capsys, caplog):
    """Token scores beside the rest; and where no bar is drawn, the log says how far a run is."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("id,text\n1,the cat\n2,50\n3,a dog sat\n")
    monkeypatch.setattr(corpus_scores, "LOG_SECONDS", 0)
    command.main(["score", "t.csv", "--column", "text", "--model", str(folder), "-o", "s.jsonl", "--skip", "--tokens",
                  "--orders", "0"])
    assert re.search("left out: line 3: .* does not know '50'.*say --allow-unknown", capsys.readouterr().err)
    assert "2 of 2 texts" in caplog.text
    first, second = read_scores(Path("s.jsonl"))
    assert (first["line"], second["line"], second["text"]) == (2, 4, "a dog sat")
    for key, later in (("token_scores", "none"), ("left_to_right", "all")):
        found = lm.token_scores("a dog sat", later)
        assert second["spellings"] == found.tokens and second[key] == pytest.approx(found.scores.tolist(), abs=1e-6)
    assert json.loads(Path("s.settings.json").read_text())["tokens"] is True


def test_the_command_compares_pairs(folder, lm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = ["the cat sat on the mat", "50", "a cat ran on"], ["a dog ran", "the cat", "a dog ran"]
    Path("a.txt").write_text("\n".join(first))
    Path("b.txt").write_text("\n".join(second))
    Path("p.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in zip(first, second, strict=True)))
    usual = ["--model", str(folder), "--passes", "300", "--skip", "--given", "the cat"]
    command.main(["compare", "a.txt", "b.txt", "-o", "c.jsonl", *usual])
    said = capsys.readouterr()
    command.main(["compare", "p.tsv", "-o", "d.jsonl", "--columns", "2", "1", *usual])
    there, back = (read_scores(Path(name)) for name in ("c.jsonl", "d.jsonl"))
    assert [line["line"] for line in there] == [1, 3] and there[0]["first"] == back[0]["second"] == first[0]
    found = compare(lm.given("the cat"), [(first[k], second[k]) for k in (0, 2)], num_passes=300,
                    generator=draws.seeded(0, 0))
    assert [line["difference"] for line in there] == [pair.difference for pair in found]
    assert "left out: a.txt, line 2: " in said.err and "2 pairs, " in said.out
    assert f"{found[0].difference:.2f} +-" in said.out
    signs = np.sign([[pair.difference, pair.pseudo_log_likelihood, pair.left_to_right] for pair in found])
    alike = np.mean(signs[:, 0] == signs[:, 1])
    assert re.search(rf"alike by area and pseudo-log-likelihood +{alike:.1%}", said.out)
    assert re.search(rf"first likelier by left to right +{(signs[:, 2] > 0).mean():.1%}", said.out)
    for words, message in ((["a.txt", "b.txt", "-o", "c.jsonl"], "c.jsonl exists.*--overwrite"),
                           (["a.txt", "a.txt", "-o", "a.txt"], "is the file of texts too"),
                           (["a.txt", "p2.txt"], "a.txt holds 3 texts, p2.txt 1"), (["e.tsv"], "holds no pair"),
                           (["a.txt", "gap.txt"], "line 2 of a.txt would be compared with line 3 of gap.txt"),
                           (["p.tsv", "--level", "2"], "level must lie in"), (["p.tsv", "-o", "b"], "is no ordinary")):
        Path("p2.txt").write_text("a dog")
        Path("gap.txt").write_text("\n\n".join(second))
        Path("e.tsv").touch()
        Path("b").mkdir(exist_ok=True)
        with pytest.raises(SystemExit, match=message):
            command.main(["compare", *words, *usual])
    for words, where in ((["p.tsv"], "p.tsv, line 2"), (["b.txt", "a.txt"], "a.txt, line 2")):
        with pytest.raises(SystemExit, match=f"{where}: the tokenizer does not know '50'"):
            command.main(["compare", *words, "--model", str(folder)])


def test_a_missing_drawing_library_is_told_before_work_starts(folder, tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("the cat")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match=r'not installed: in a copy .*pip install "\.\[text\]"'):
        command.main(["score", str(tmp_path / "t.txt"), "--model", str(folder), "-o", str(tmp_path / "s.jsonl"),
                      "--curve", str(tmp_path / "c.svg")])
    assert len([*tmp_path.iterdir()]) == 1


def test_scores_without_orders_or_errors_are_valid_json(lm, tmp_path):
    path = score_corpus(lm, TEXTS[:2], tmp_path / "s.jsonl", num_sizes=3, num_masks=1, num_orders=0)
    line = json.loads(path.read_text().splitlines()[0], parse_constant=pytest.fail)
    assert line["area_error"] is line["order_spread"] is line["order_sums"] is None
    said = command._summary(read_scores(path))
    assert "2 texts" in said and "spread over orders" not in said and "nan" not in said
    one = command._summary(read_scores(path)[:1])
    assert one.startswith("1 text, 3 tokens") and " bits" in one and "nan" not in one and "+-" not in one
    assert torch.tensor([line["area"]]).isfinite()


@pytest.mark.parametrize(("gpus", "rank", "device"), [
    (0, "1", "cpu"), (1, None, "cuda"), (4, None, "cuda"), (4, "3", "cuda:3"), (2, "3", "cuda:1")])
def test_each_process_of_a_launcher_takes_a_gpu_of_its_own(gpus, rank, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    given = command._parser().parse_args(["score", "t.txt", "--model", "m", "-o", "s.jsonl"])
    assert given.device == device
