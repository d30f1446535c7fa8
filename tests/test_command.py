"""The command `mptlml`: what it reads and says, and what can go wrong is told before work starts."""

import gzip
import io
import json
import re
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import transformers
from conftest import finished

from mptlml import MaskedLM, __version__, draws
from mptlml.__main__ import main
from mptlml.scoring import compare, given
from mptlml.scoring.command import COMMANDS
from mptlml.scoring.inputs import Source, Text
from mptlml.scoring.sequences import is_spaced

FILES = {
    "latin.txt": "\xe9t\xe9".encode("latin-1"),
    "short.txt": b"the cat\na dog\n",
    "empty.txt": b"\n \n",
    "wrong.txt": b"the cat\n\n%\n%\n",
    "long.txt": b"cat " * 600,
    "drawn.svg": b"<svg/>",
    "all.csv": b"id,text\n1,the cat\n",
    "open.tsv": b'the cat\n"a dog\n',
    "torn.gz": gzip.compress(b"the cat", mtime=0)[:-9],
    "bad.txt": b"%",
    "known.settings.json": b"{}",
    "b.txt": b"the mat\n50\na dog\n",
    "c.txt": b"the cat\na dog\nthe mat\n",
    "gap.txt": b"the cat\n\na dog\n\na\n",
    "q.tsv": b"id\tgood\tbad\n1\tthe cat\ta dog\n",
    "twice.csv": b"text,text\na,b\n",
    "wide.csv": b"id,text\n1,a dog\n2,the cat, the dog\n",
    "reads.txt": b"@r\nACGT\n+\nIIII\n",
    "all.jsonl": b'{"text": "the cat"}\na dog\n',
    "piped.txt": b"id,text\n1,the cat\n",
    "p.tsv": b"the mat\tthe cat\n50\ta dog\na dog\tthe mat\n",
}


def stop_when_asked(monkeypatch, stop):
    """Networks are loaded, and stop() is called as soon as they are asked about a text."""
    load = MaskedLM.from_pretrained

    def loaded(*given, **named):
        lm = load(*given, **named)
        lm.model.forward = lambda *_, **__: stop()
        return lm

    monkeypatch.setattr(MaskedLM, "from_pretrained", loaded)


@pytest.fixture
def here(run):
    """The command in a working folder with FILES."""
    for name, content in FILES.items():
        Path(name).write_bytes(content)

    return run


SAME, NO_FOLDER = "is the file of texts too", "is no folder that can be written to"
EARLY = {  # told before a model is loaded
    "score no.txt": "no.txt: No such file",
    "score empty.txt": "empty.txt holds no text",
    "score latin.txt": "latin.txt is not a text file in UTF-8",
    "score all.csv": "all.csv has the columns id, text: say which is meant, by --column or",
    "score all.csv --column words": "all.csv has no column 'words', but id, text",
    "compare p.tsv --columns 1 3": "p.tsv has no column '3', but the mat, the cat",
    "score open.tsv --quotes": "open.tsv is no table: line 2",
    "compare q.tsv": "q.tsv has the columns id, good, bad: say which is meant",
    "score twice.csv --column text": "twice.csv has two columns 'text'",
    "score wide.csv --column text": "line 3 of wide.csv has 3 columns, not 2",
    "score reads.txt": "reads.txt looks like FASTQ: say how",
    "score all.jsonl --column text": "line 2 of all.jsonl is no object of JSON",
    "score piped.txt": "piped.txt has the columns id, text: say which is meant, by --column",
    "score short.txt --resume --overwrite": "say either --resume or --overwrite",
    "score short.txt --windows": "--windows reads texts for --pseudo-log-likelihood",
    "score short.txt --pseudo-log-likelihood --error 1": "pseudo-log-likelihood leaves out areas",
    "score torn.gz": "torn.gz is a damaged archive",
    "score short.txt -o known.jsonl": "known.settings.json exists",
    "score short.txt -o ./short.txt --resume": f"--output short.txt {SAME}",
    "score short.txt -o hard.txt --overwrite": f"--output hard.txt {SAME}",
    "score short.txt -o dangling --overwrite": "dangling is no ordinary file",
    "score - -o s.jsonl --seed 2": "several processes share files alone",
    "score short.txt -o latin.txt": "latin.txt exists: go on .* by --resume, or replace it by --ov",
    "score short.txt -o no/such/s.jsonl": f"no/such/s.jsonl: no/such {NO_FOLDER}",
    "score short.txt --curve no/such/c.svg": f"no/such/c.svg: no/such {NO_FOLDER}",
    "score short.txt --curve c.xyz": "--curve c.xyz must end in one of .svg, .png, .pdf",
    "score short.txt --curve s.jsonl": "--curve s.jsonl is --output too",
    "score short.txt --curve drawn.svg --resume": "drawn.svg exists: choose another name",
    "score short.txt --curve hard.svg --overwrite": f"--curve hard.svg {SAME}",
    "score short.txt --passes 999": "--passes bounds what --error takes",
    "score short.txt --error 1 --sizes 2": "--error takes the place of --sizes and --masks",
    "compare a.txt c.txt -o a.txt": SAME,
    "compare c.txt short.txt": "c.txt holds 3 texts, short.txt 2",
    "compare c.txt gap.txt": "line 2 of c.txt would be compared with line 3 of gap.txt",
}
LATE = {  # told before the model is asked
    "score wrong.txt": "line 3: .*say --allow-unknown; '%'.* .of 3, 2 cannot be scored",
    "score long.txt": "line 1: 600 tokens are more than .* 510 .*: shorten .* or say --truncate",
    "score bad.txt --skip": "no text is left that can be scored",
    f"score short.txt --given '{'cat ' * 510}'": "--given: .* has 510 tokens of the 510",
    "score short.txt --given 50": "--given: the tokenizer does not know token 1",
    "score short.txt -o latin.txt --resume": "line 1 of latin.txt is not from a file of results",
    "score short.txt --model nowhere/at/all": "nowhere/at/all cannot be used: it is no folder here",
    "score short.txt --model long.txt": "long.txt is a file: give the folder",
    "compare p.tsv --no-header": "line 2, first text: .*'50'",
    "compare c.txt b.txt": "line 2, second text: .*'50'",
}


@pytest.mark.parametrize("line", EARLY | LATE)
def test_the_command_leaves_with_a_message_and_touches_no_file(here, tmp_path, monkeypatch, line):
    """What a user can do wrong, in the command's words."""
    Path("dangling").symlink_to("nothing")
    for name in ("hard.txt", "hard.svg"):
        Path(name).hardlink_to("short.txt")
    if line.startswith("score - "):
        monkeypatch.setenv("WORLD_SIZE", "2")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    stop_when_asked(monkeypatch, partial(pytest.fail, "work has begun"))
    if line in EARLY:
        monkeypatch.setattr(MaskedLM, "from_pretrained", lambda *_, **__: pytest.fail("it is read"))
    with pytest.raises(SystemExit, match=f"^mptlml: .*({(EARLY | LATE)[line]})"):
        here(line)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("words", ["--version", "score -h", "score --sizes 1"])
def test_the_command_answers_before_torch_is_there(words):
    code = f"import sys, mptlml.__main__ as m\ntry: m.main({words.split()})\nfinally: print(*sys.modules)"
    said = finished(sys.executable, "-c", code)
    assert said.stdout and not {"torch", "numpy", "transformers"} & {*said.stdout.split()}
    told = {"--version": __version__, "score -h": "texts", "score --sizes 1": "must be at least 2"}
    assert told[words] in said.stdout + said.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_the_numbers_that_would_be_used(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "-h"])
    said = {
        float(number) for number in re.findall(r"\(default\s+([\d.]+)\)", capsys.readouterr().out)
    }
    usual = COMMANDS[name][0].__kwdefaults__.values()
    assert said == {float(value) for value in usual if type(value) in (int, float)}


@pytest.mark.parametrize("rank", ["a", "", "2"])
def test_a_launcher_must_say_which_process_this_is(rank, run, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match=f"RANK={rank} .*: 0 <= RANK < WORLD_SIZE"):
        run("score t.txt")


@pytest.mark.parametrize(
    "error, message",
    [
        (OSError(28, "No space left"), "s.jsonl: No space left"),
        (KeyboardInterrupt(), "once 16 .* --resume in .* --overwrite and another name for --curve"),
        (torch.OutOfMemoryError("of 8 GiB"), "a smaller number of --batch-tokens .of 8 GiB"),
        (RuntimeError("index out of range"), "the model fails on these texts: index out of range"),
    ],
)
def test_what_goes_wrong_on_the_way_says_what_to_do(here, monkeypatch, error, message):
    stop_when_asked(monkeypatch, mock.Mock(side_effect=error))
    with pytest.raises(SystemExit, match=message):
        here("score short.txt --curve drawn.svg --overwrite")


def test_a_hub_that_cannot_be_reached_is_told_at_once(here, monkeypatch, capfd):
    """By one line, and without the trials of the hub's own library."""
    nobody = mock.Mock(side_effect=OSError("no route"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.urlopen", nobody)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it tries again"))
    with pytest.raises(
        SystemExit, match="no/such cannot be used: it is no folder here, and no mod"
    ):
        here("score short.txt --model no/such")
    assert capfd.readouterr().err == ""
    assert {call.kwargs["timeout"] for call in nobody.call_args_list} == {3}


TABLE = b'id;,"te""xt",more\n1,"the cat\nsat",x\n\n2,a dog,y\n3, ,z\n'
CELLS = [(2, "the cat\nsat"), (5, "a dog")]
FASTA = b"\r>one\xe2\x80\xa8of two\nEV\nQL\n\n>\nK\n>none\n"
READ = [(2, "EVQL"), (6, "K")]
PLAIN = [(1, "the cat"), (2, "a dog")]
LINES = b'{"a": "the cat", "UID": 1}\n\n{"a": "a dog", "UID": 2}\n'
OBJECTS = [(1, "the cat"), (3, "a dog")]
QUOTED = b'1\t"the cat\n2\ta dog"\n3\tthe mat\n'
WHOLE = [(1, "the cat\n2\ta dog"), (3, "the mat")]


def reading(name, content, found, columns=None, **how):
    """A file of this name and content holds the texts `found`, [(line, text)]."""
    return pytest.param(name, content, found, columns, how)


@pytest.mark.parametrize(
    "name, content, found, columns, how",
    [
        reading("t.txt", b"\xef\xbb\xbfthe cat\r\n\n a dog ", [(1, "the cat"), (3, " a dog")]),
        reading("t.txt", b"\xef\xbb\xbfthe cat\n\xef\xbb\xbfa dog\n", PLAIN),  # joined files
        reading("-", b"the cat\na dog\n", PLAIN),
        reading("t.csv.GZ", gzip.compress(TABLE, mtime=0), CELLS, ['te"xt']),
        reading("t.csv", TABLE, CELLS, ["2"]),  # not its header
        reading("t.tsv", QUOTED, WHOLE, ["2"], header=False, quotes=True),
        reading("t.fa", FASTA, READ),
        reading("t.fa", b"; of mine\n>one\nEV\n; C\nQL\n\xef\xbb\xbf>two\nK\n", READ),
        reading("t.jsonl", LINES, OBJECTS, ["a"]),
        reading("t.json", b'[{"a": "the cat"},\n {"a": "a dog"}]', PLAIN, ["a"]),
    ],
)
def test_texts_are_read_from_files_of_several_kinds(
    tmp_path, monkeypatch, name, content, found, columns, how
):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert [text[:2] for [text] in Source(Path(name), **how).texts(columns)] == found


def test_a_row_brings_its_name_its_context_and_its_other_columns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(TABLE)
    first, *_, last = Source(path).texts(["more", "id;"], given='te"xt')
    assert [text[:5] for text in first] == [(2, cell, None, "the cat\nsat", {}) for cell in "x1"]
    source = Source(path)
    [_, [second]] = source.texts(['te"xt'])
    assert second[:5] == (5, "a dog", None, "", {"id;": "2", "more": "y"})
    assert last[0].line == 6 and source.counts == {"empty": 1}
    path.with_suffix(".fa").write_bytes(FASTA)
    assert [text.name for [text] in Source(path.with_suffix(".fa")).texts()] == ["one", ""]


@pytest.mark.parametrize("content", ["the\0cat", '["the cat"]\n', "{\\rtf1 the}", ">one\nEV>two\n"])
def test_what_holds_no_plain_texts_is_refused(tmp_path, content):
    (tmp_path / "t.txt").write_text(content)
    with pytest.raises(ValueError):
        Source(tmp_path / "t.txt").texts()


def kmers(words):
    """A tokenizer of sequences: of single letters or of pieces, as `words` are."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return transformers.BertTokenizer(
        {word: k for k, word in enumerate(names + words)}, do_lower_case=False
    )


PIECES, SINGLE = ["ATT", "##CCG", "A", "T", "C", "G"], ["A", "T", "C", "G", "-"]


@pytest.mark.parametrize(
    "words, text, name, spaced",
    [
        (SINGLE, "ATTCCG", None, True),
        (PIECES, "ATTCCG", "one", None),
        (SINGLE, "the cat", None, False),
    ],
)
def test_a_sequence_is_read_as_the_tokenizer_knows_it(words, text, name, spaced):
    """In files of every kind alike; where it knows both ways, it has to be said."""
    tokenizer, texts = kmers(words), [Text(3, text, name)]
    told = "line 3: .*'ATTCCG' as it stands .2 tokens. and letter by letter .6"
    with pytest.raises(ValueError, match=told) if spaced is None else nullcontext():
        assert is_spaced(tokenizer, texts, None) is spaced
    for letters in ("joined", "spaced"):
        assert is_spaced(tokenizer, texts, letters) is (letters == "spaced")


def test_what_cannot_be_scored_is_left_out_where_that_is_said(here, lm, capsys):
    """By its number: an unknown word, and a row that is too short. Token scores stand beside the rest."""
    Path("t.csv").write_text("id,text\n1,the cat\n2,50\n4\n5,\n3,a dog sat\n")
    first, second = here("score t.csv --column text --skip --tokens")
    out, said = capsys.readouterr()
    assert re.search("left out: line 3: .* does not know token 1.*say --allow-unknown; '50'", said)
    assert "left out: line 4 of t.csv has no text in text" in said and said.count("left out") == 2
    assert (first["line"], second["line"], second["text"]) == (2, 6, "a dog sat")
    assert second["id"] == "3" and out.endswith("  2 skipped, 1 empty\n")
    ids = lm.encode("a dog sat")
    assert second["spellings"] == ["a", "dog", "sat"]
    assert second["token_scores"] == pytest.approx(lm.single_scores(ids)[0], abs=1e-6)
    left = lm.chain_rule(ids, [[2, 1, 0]])[0].flip(0)
    assert second["left_to_right"] == pytest.approx(left, abs=1e-6)
    settings = json.loads(Path("s.settings.json").read_text())
    assert settings["tokens"] is True and settings["read"]["counts"] == {"skipped": 2, "empty": 1}


def test_the_command_compares_pairs(here, lm, capsys):
    usual = "--passes 300 --skip --given 'the cat'"
    there = here(f"compare b.txt c.txt -o s.jsonl {usual}")
    said = capsys.readouterr()
    Path("q.csv").write_text("one,two\n" + Path("p.tsv").read_text().replace("\t", ","))
    back = here(f"compare q.csv -o back.jsonl --columns 2 1 {usual}")
    assert [[line["line"] for line in lines] for lines in (there, back)] == [[1, 3], [2, 4]]
    assert there[0]["first"] == back[0]["second"] == "the mat"
    settings = json.loads(Path("s.settings.json").read_text())
    assert "the cat" in settings["around"][0] and settings["dtype"] == "torch.float32"
    pairs = [("the mat", "the cat"), ("a dog", "the mat")]
    found = compare(given(lm, "the cat"), pairs, num_passes=300, generator=draws.seeded(0, 0))
    assert [line["difference"] for line in there] == [pair.difference for pair in found]
    assert "left out: line 2, first text: " in said.err
    share = np.mean([pair.left_to_right > 0 for pair in found])
    assert re.search(rf"first likelier by left to right +{share:.1%}", said.out)


def test_what_is_one_text_to_the_tokenizer_is_a_tie(here, capsys):
    Path("t.txt").write_text("the  cat,The cat\nthe cat sat,a dog\nthe cat,the cat \n")
    lines = here("compare t.txt --no-header -o s.jsonl")
    said = capsys.readouterr().out
    assert [line["difference"] == line["passes"] == 0 for line in lines] == [True, False, True]
    assert "line 1: 0.00 +- 0.00, a tie" in said and "ties, one text to the tokenizer: 2" in said
    assert f"first likelier by area {lines[1]['difference'] > 0:33.1%}\n" in said


def test_a_text_that_is_too_long_is_read_through_windows(here, capsys, monkeypatch):
    monkeypatch.setattr("mptlml.masked_lm._positions", lambda *_: 42)
    Path("t.txt").write_text("the cat sat on a mat " * 8 + "\na dog\n")
    line, short = here("score t.txt --pseudo-log-likelihood --windows")
    assert (line["tokens"], line["windows"], short["windows"]) == (48, 9, 1)
    assert "1 read through windows" in capsys.readouterr().out


def test_the_pseudo_log_likelihood_alone_is_a_pass_per_token(here, lm, capsys):
    Path("t.csv").write_text("text,before\ncat sat,the\na dog,\n")
    found = here("score t.csv --column text --context before --pseudo-log-likelihood")
    known = torch.cat(
        [given(lm, "the").pseudo_log_likelihood("cat sat"), lm.pseudo_log_likelihood("a dog")]
    )
    assert [line["pseudo_log_likelihood"] for line in found] == pytest.approx(known, abs=1e-5)
    assert found[0]["given"] == "the" and "area" not in found[0]
    nats = -known.sum() / 4
    said = f"or {nats / np.log(2):.3f} bits; pseudo-perplexity {nats.exp():.2f}"
    assert said in capsys.readouterr().out
