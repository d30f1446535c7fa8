"""The command `mptlml`: what it reads and says, and what can go wrong is told before work starts."""

import gzip
import io
import json
import re
import shutil
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import transformers

from mptlml import __version__, draws
from mptlml.text import MaskedLM, command, compare
from mptlml.text.inputs import read_columns, read_texts
from mptlml.text.results import read_results

LATIN, SHORT = "latin.txt", "short.txt"
FILES = {
    LATIN: "\xe9t\xe9".encode("latin-1"),
    SHORT: b"the cat\na dog\n",
    "empty.txt": b"\n \n",
    "wrong.txt": b"the cat\n\n%\n%\n",
    "long.txt": b"cat " * 600,
    "drawn.svg": b"<svg/>",
    "all.csv": b"id,text\n1,the cat\n",
    "no.fa": b"AC\n>x\n",
    "open.tsv": b'the cat\n"a dog\n',
    "torn.gz": gzip.compress(b"the cat", mtime=0)[:-9],
    "bad.txt": b"%",
    "known.settings.json": b"{}",
    "b.txt": b"the mat\n50\na dog\n",
    "c.txt": b"the cat\na dog\nthe mat\n",
    "gap.txt": b"the cat\n\na dog\n\na\n",
    "e.tsv": b"",
    "p.tsv": b"the mat\tthe cat\n50\ta dog\na dog\tthe mat\n",
}


def bad_model(folder, kind):
    """In the working folder: a network without a head, a causal one, or one whose files are not whole."""
    if kind in ("headless", "gpt"):
        with torch.random.fork_rng(devices=[]):  # it has a pooler that the folder lacks
            transformers.BertModel.from_pretrained(folder).save_pretrained(kind)
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(kind)
    if kind == "gpt":
        transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2).save_pretrained(kind)
    if kind in ("mute", "torn"):
        shutil.copytree(folder, kind)
    for path in Path(kind).glob(
        "*token*" if kind == "mute" else "*.safetensors" if kind == "torn" else "-"
    ):
        path.write_bytes(path.read_bytes()[:1000]) if kind == "torn" else path.unlink()


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """A working folder with FILES; its `run` calls the command, with the tiny model if no other is named."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_bytes(content)

    def run(*words):
        usual = ["--model", str(folder)] * ("--model" not in words)
        usual += ["-o", "s.jsonl"] * ("-o" not in words and words[0] == "score")
        command.main([*words, *usual])

    return run


SAME, NO_FOLDER = "is the file of texts too", "is no folder that can be written to"
EARLY = [  # told before a model is loaded
    (["no.txt"], "no.txt: No such file"),
    (["empty.txt"], "empty.txt holds no text"),
    ([LATIN], "latin.txt is not a text file in UTF-8"),
    (["all.csv"], "all.csv has the columns id, text: say which is meant, by --column or --columns"),
    (["all.csv", "--column", "tekst"], "all.csv has the columns id, text: say which is meant"),
    (["all.csv", "--column", "0"], "all.csv has the columns id, text: say which is meant"),
    (["all.csv", "--column", "3"], "line 2 of all.csv has 2 columns, too few for 3"),
    (["p.tsv", "--columns", "1", "3"], "line 2 of p.tsv has 2 columns, too few for 1 and 3"),
    (["open.tsv", "--column", "1"], "open.tsv is no table: line 2"),
    (["no.fa"], "line 1 is no FASTA"),
    (["torn.gz"], "torn.gz is a damaged archive"),
    ([SHORT, "-o", "known.jsonl"], "known.settings.json exists"),
    ([SHORT, "-o", "./" + SHORT, "--resume"], f"--output short.txt {SAME}"),
    ([SHORT, "-o", "hard.txt", "--overwrite"], f"--output hard.txt {SAME}"),
    ([SHORT, "-o", "linked.txt", "--overwrite"], "linked.txt is no ordinary file"),
    ([SHORT, "-o", "dangling", "--overwrite"], "dangling is no ordinary file"),
    ([SHORT, "-o", "/dev/null"], "/dev/null is no ordinary file"),
    ([SHORT, "-o", "/proc/s.jsonl"], f"/proc {NO_FOLDER}"),
    (["s.1-of-2.txt", "-o", "s.txt", "--overwrite"], f"--output s.1-of-2.txt {SAME}"),
    (["-", "-o", "s.jsonl", "--seed", "2"], "several processes share files alone"),
    (
        [SHORT, "-o", LATIN],
        "latin.txt exists: go on with it by --resume, or replace it by --overwrite",
    ),
    ([SHORT, "-o", "no/such/s.jsonl"], f"no/such/s.jsonl: no/such {NO_FOLDER}"),
    ([SHORT, "-o", LATIN + "/s.jsonl"], f"latin.txt {NO_FOLDER}"),
    ([SHORT, "--curve", "no/such/c.svg"], f"no/such/c.svg: no/such {NO_FOLDER}"),
    ([SHORT, "--curve", "c.xyz"], "--curve c.xyz must end in one of .svg, .png, .pdf"),
    ([SHORT, "--curve", "s.jsonl"], "--curve s.jsonl is --output too"),
    (
        [SHORT, "--curve", "drawn.svg", "--resume"],
        "drawn.svg exists: choose another name for the picture",
    ),
    ([SHORT, "--curve", "hard.svg", "--overwrite"], f"--curve hard.svg {SAME}"),
    ([SHORT, "--curve", "c.svg", "--error", "1"], "leave out --curve"),
    ([SHORT, "--passes", "99"], "--passes bounds what --error takes"),
    ([SHORT, "--error", "1", "--sizes", "2"], "--error takes the place of --sizes and --masks"),
    (["a.txt", "c.txt", "--columns", "1", "2"], "--columns names those of one table"),
    ([SHORT, "--device", "meta"], "--device meta is not on this machine"),
    ([SHORT, "--device", "cuda:99"], "--device cuda:99 is not on this machine, which has cpu"),
    ([SHORT, "--device", "gpu"], "--device gpu is not on this machine"),
    (["a.txt", "c.txt", "-o", "a.txt"], SAME),
    (["c.txt", SHORT], "c.txt holds 3 texts, short.txt 2"),
    (["e.tsv"], "e.tsv holds no pair"),
    (["c.txt", "gap.txt"], "line 2 of c.txt would be compared with line 3 of gap.txt"),
]
LATE = [  # told before the model is asked
    (
        ["wrong.txt"],
        "line 3: the tokenizer does not know '%'.*say --allow-unknown .of 3, 2 cannot be scored",
    ),
    (
        ["long.txt"],
        "line 1: 600 tokens are more than the model's 510 .*: shorten the text, or say --truncate",
    ),
    (["bad.txt", "--skip"], "no text is left that can be scored"),
    ([SHORT, "--given", "cat " * 510], "--given: what is given has 510 tokens of the 510"),
    ([SHORT, "--given", "50"], "--given: the tokenizer does not know '50'"),
    ([SHORT, "-o", LATIN, "--resume"], "line 1 of latin.txt is not from a file of results"),
    (
        [SHORT, "--model", "nowhere/at/all"],
        "--model nowhere/at/all cannot be used: it is no folder here",
    ),
    ([SHORT, "--model", "mute"], "--model mute cannot be used: the tokenizer has no words"),
    (
        [SHORT, "--model", "headless"],
        "--model headless cannot be used: .*lacks .* weights of BertForMaskedLM",
    ),
    (
        [SHORT, "--model", "gpt"],
        "--model gpt cannot be used: gpt is a gpt2 model, and not one of the masked",
    ),
    (
        [SHORT, "--trust-remote-code", "--model", "gpt"],
        "--model gpt cannot be used: gpt is a gpt2 model, and not one of the masked",
    ),
    ([SHORT, "--model", "torn"], "--model torn cannot be used"),
    ([SHORT, "--model", "torn/config.json"], "--model torn/config.json is a file: give the folder"),
    (["p.tsv"], "line 2, first text: the tokenizer does not know '50'"),
    (["c.txt", "b.txt"], "line 2, second text: the tokenizer does not know '50'"),
]


@pytest.mark.parametrize(
    ("words", "message", "late"), [(*case, case in LATE) for case in EARLY + LATE]
)
def test_the_command_leaves_with_a_message_and_touches_no_file(
    here, folder, tmp_path, monkeypatch, words, message, late
):
    """What a user can do wrong, in the command's words."""
    Path("linked.txt").symlink_to(SHORT)
    Path("dangling").symlink_to("nothing")
    for name in ("hard.txt", "hard.svg", "s.1-of-2.txt"):
        Path(name).hardlink_to(SHORT)
    if words[0] in ("s.1-of-2.txt", "-"):
        monkeypatch.setenv("WORLD_SIZE", "2")
    if "--model" in words:
        bad_model(folder, Path(words[-1]).parts[0])
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    step = "answers" if late else "from_pretrained"
    monkeypatch.setattr(
        f"mptlml.text.MaskedLM.{step}", lambda *_, **__: pytest.fail("work has begun")
    )
    one = "compare" if {*words} & {"c.txt", "e.tsv", "p.tsv"} else "score"
    with pytest.raises(SystemExit, match=f"^mptlml: .*({message})"):
        here(one, *words)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("one", "words", "message"),
    [
        ("score", ["--orders", "1"], "argument --orders: must be 0 or at least 2, got 1"),
        ("score", ["--sizes", "1"], "argument --sizes: must be at least 2, got 1"),
        ("score", ["--masks", "0"], "argument --masks: must be at least 1, got 0"),
        ("score", ["--passes", "64"], "argument --passes: must be at least 65, got 64"),
        ("score", ["--error", "nan"], "argument --error: must be above 0, got nan"),
        ("score", ["--batch-tokens", "-5"], "argument --batch-tokens: must be at least 1, got -5"),
        ("score", ["--seed", "x"], "argument --seed: invalid number value: 'x'"),
        ("score", ["--seed", "-1"], "argument --seed: must be at least 0, got -1"),
        ("score", ["--resume", "--overwrite"], "not allowed with argument"),
        ("compare", ["--passes", "207"], "argument --passes: must be at least 208, got 207"),
        ("compare", ["--level", "1"], "argument --level: must be between 0 and 1, got 1"),
    ],
)
def test_counts_are_read_in_the_commands_words(one, words, message, capsys):
    with pytest.raises(SystemExit):
        command.main([one, "texts.txt", "--model", "m", "-o", "s.jsonl", *words])
    assert message in capsys.readouterr().err


def test_the_command_says_its_version_and_the_numbers_it_would_use(capsys):
    for words, said in (
        (["--version"], f"mptlml {__version__}\n"),
        (["score", "-h"], "per text, at least 2 (default 16)"),
        (["score", "-h"], "masks per size, at least 1 (default 4)"),
        (["compare", "-h"], "for a pair, at least 208 (default 10000)"),
    ):
        with pytest.raises(SystemExit) as left:
            command.main(words)
        assert left.value.code == 0 and said in re.sub(" +|\n +", " ", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("rank", "world"), [("a", "2"), ("", "2"), ("2", "2"), ("0", "0"), ("\u00b2", "9")]
)
def test_a_launcher_must_say_which_process_this_is(rank, world, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(
        SystemExit, match=f"RANK={rank} and WORLD_SIZE={world} .*: 0 <= RANK < WORLD_SIZE"
    ):
        command.main(["score", "t.txt", "--model", "m", "-o", "s.jsonl"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "s.jsonl: No space left on device"),
        (
            KeyboardInterrupt(),
            "once 16 .* --resume in .* --overwrite and another name for --curve goes on",
        ),
        (
            torch.OutOfMemoryError("of 8 GiB"),
            "out of memory: give a smaller number of --batch-tokens .of 8 GiB",
        ),
        (RuntimeError("index out of range"), "the model fails on these texts: index out of range"),
    ],
)
def test_what_goes_wrong_on_the_way_says_what_to_do(here, monkeypatch, error, message):
    monkeypatch.setattr(
        "mptlml.text.MaskedLM.answers", lambda *_, **__: (_ for _ in ()).throw(error)
    )
    with pytest.raises(SystemExit, match=message):
        here("score", SHORT, "--curve", "drawn.svg", "--overwrite")


def test_a_hub_that_cannot_be_reached_is_told_at_once(here, monkeypatch, capfd):
    """By one line, and without the trials of the hub's own library."""
    nobody = mock.Mock(side_effect=OSError("no route"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", nobody)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it tries again"))
    with pytest.raises(
        SystemExit, match="--model no/such cannot be used: it is no folder here, and no mod"
    ):
        here("score", SHORT, "--model", "no/such")
    with pytest.raises(OSError):
        MaskedLM.from_pretrained("no/such")
    assert capfd.readouterr().err == "" and {
        call.kwargs["timeout"] for call in nobody.call_args_list
    } == {3}


TABLE = b'id;,"te""xt",more\n1,"the cat\nsat",x\n\n2,a dog,y\n3, ,z\n'
CELLS = [(2, "the cat\nsat", None), (5, "a dog", None)]
FASTA = b"\r>one\xe2\x80\xa8of two\nEV\nQL\n\n>\nK\n>none\n"
READ = [(2, "E V Q L", "one"), (6, "K", "")]
PLAIN = [(1, "the cat", None), (2, "a dog", None)]


@pytest.mark.parametrize(
    ("name", "content", "how", "found"),
    [
        (
            "t.txt",
            b"\xef\xbb\xbfthe cat\r\n\n a dog ",
            {},
            [(1, "the cat", None), (3, " a dog", None)],
        ),
        ("t.csv.GZ", gzip.compress(TABLE, mtime=0), dict(column='te"xt'), CELLS),
        ("t.csv", TABLE, dict(column="2"), CELLS),  # not its header
        ("t.tsv", b"the cat\t1\na dog\t2\n", dict(column="1", header=False), PLAIN),
        ("t.txt", b"\nx\ttext\n4\ta dog\n4\t\n", dict(column="2"), [(3, "a dog", None)]),
        (
            "t.csv",
            b"2,1\nthe cat,x\n",
            dict(column="2"),
            [(2, "the cat", None)],
        ),  # a name before a number
        ("t.fa", FASTA, {}, READ),
        ("t.fas", FASTA, {}, READ),
        ("t.FAA", FASTA, {}, READ),
        ("-", b"the cat\na dog\n", {}, PLAIN),
    ],
)
def test_texts_are_read_from_files_of_several_kinds(
    tmp_path, monkeypatch, name, content, how, found
):
    monkeypatch.chdir(tmp_path)
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    else:
        Path(name).write_bytes(content)
    assert read_texts(Path(name), **how) == found


def test_two_columns_of_a_table_are_pairs(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TABLE)
    assert [*read_columns(path, ["more", "id;"])] == [
        (2, ["x", "1"]),
        (5, ["y", "2"]),
        (6, ["z", "3"]),
    ]
    assert next(read_columns(path, ["3", "1"], header=False)) == (1, ["more", "id;"])


def test_what_cannot_be_scored_is_left_out_where_that_is_said(here, lm, capsys):
    """By its number: an unknown word, and a row that is too short. Token scores stand beside the rest."""
    Path("t.csv").write_text("id,text\n1,the cat\n2,50\n4\n3,a dog sat\n")
    here("score", "t.csv", "--column", "text", "--skip", "--tokens", "--orders", "0")
    said = capsys.readouterr().err
    assert re.search("left out: line 3: .* does not know '50'.*say --allow-unknown", said)
    assert "left out: line 4 of t.csv has 1 columns" in said and said.count("left out") == 2
    first, second = read_results(Path("s.jsonl"))
    assert (first["line"], second["line"], second["text"]) == (2, 5, "a dog sat")
    for key, later in (("token_scores", "none"), ("left_to_right", "all")):
        found = lm.token_scores("a dog sat", later)
        assert second["spellings"] == found.tokens
        assert second[key] == pytest.approx(found.scores.tolist(), abs=1e-6)
    assert json.loads(Path("s.settings.json").read_text())["tokens"] is True


def test_the_command_compares_pairs(here, lm, capsys):
    usual = ["--passes", "300", "--skip", "--given", "the cat"]
    here("compare", "b.txt", "c.txt", "-o", "s.jsonl", *usual)
    said = capsys.readouterr()
    here("compare", "p.tsv", *usual)
    assert capsys.readouterr().out.splitlines()[0].startswith("2 pairs, ")
    Path("q.csv").write_text("one,two\n" + Path("p.tsv").read_text().replace("\t", ","))
    here("compare", "q.csv", "-o", "back.jsonl", "--columns", "2", "1", *usual)
    there, back = (read_results(Path(name)) for name in ("s.jsonl", "back.jsonl"))
    assert [line["line"] for line in there] == [1, 3] and [line["line"] for line in back] == [2, 4]
    assert there[0]["first"] == back[0]["second"] == "the mat"
    settings = json.loads(Path("s.settings.json").read_text())
    assert "the cat" in settings["around"][0] and settings["dtype"] == "torch.float32"
    found = compare(
        lm.given("the cat"),
        [("the mat", "the cat"), ("a dog", "the mat")],
        num_passes=300,
        generator=draws.seeded(0, 0),
    )
    assert [line["difference"] for line in there] == [pair.difference for pair in found]
    assert (
        "left out: line 2, first text: " in said.err and f"{found[0].difference:.2f} +-" in said.out
    )
    for pair in found:
        ends = f", not sure, {pair.low:.2f} to {pair.high:.2f}\n"
        assert (
            f"{pair.difference:.2f} +- {pair.error:.2f}{chr(10) if pair.sure else ends}" in said.out
        )
    signs = np.sign(
        [[pair.difference, pair.pseudo_log_likelihood, pair.left_to_right] for pair in found]
    )
    alike = np.mean(signs[:, 0] == signs[:, 1])
    assert re.search(rf"alike by area and pseudo-log-likelihood +{alike:.1%}", said.out)
    assert re.search(rf"first likelier by left to right +{(signs[:, 2] > 0).mean():.1%}", said.out)


def test_a_missing_drawing_library_is_told_before_work_starts(here, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match=r'not installed: in a copy .*pip install "\.\[text\]"'):
        here("score", SHORT, "--curve", "c.svg")
    assert {path.name for path in tmp_path.iterdir()} == {*FILES}


@pytest.mark.parametrize(
    ("gpus", "rank", "device"),
    [(0, "1", "cpu"), (1, None, "cuda"), (4, None, "cuda"), (4, "3", "cuda:3"), (2, "3", "cuda:1")],
)
def test_each_process_of_a_launcher_takes_a_gpu_of_its_own(gpus, rank, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    words = ["score", "t.txt", "--model", "m", "-o", "s.jsonl"]
    assert command._parser().parse_args(words).device == device
