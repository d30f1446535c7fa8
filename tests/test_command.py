"""The command `mptlml`: one table in, the same table out, whatever it is, however it is shared, and after a kill."""

import gzip
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from conftest import ROOT, finished, text_of

from mptlml import __version__
from mptlml.__main__ import main
from mptlml.scoring import tables
from mptlml.scoring.options import parse
from mptlml.scoring.scorer import Scorer

FILES = {
    "t.txt": b"the cat\n\na dog\n",
    "w.txt": b"the cat\n50\n",
    "t.csv": b"id,text\n1,the cat\n2,NA\n",
    "n.csv": b"2,1\na dog,the cat\n",
    "twice.csv": b"text,text\na,b\n",
    "wide.csv": b"text,b\na,b,c\n",
    "latin.txt": "\xe9t\xe9".encode("latin-1"),
    "two.fasta": b">a\nMK\n>b\nMK\n",
    "torn.txt.gz": gzip.compress(b"the cat", mtime=0)[:-9],
    "bad.jsonl": b'{"text": "the cat"}\na dog\n',
    "t.doc": b"the cat",
    "empty.txt": b"",
    "head.csv": b"text\n",
    "keys.jsonl": b'{"text": "a"}\n' * 64 + b'{"text": "a", "new": 1}',
    "there.jsonl": b"mine",
}
FASTA = b"MK\n>one two\nTHE \nCAT\n\n>three\nSAT\n"


@pytest.fixture
def here(run):
    """The command in a folder with FILES."""
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    return run


@pytest.mark.parametrize(
    "name, content, found",
    [
        ("t.txt", b"\xef\xbb\xbfthe cat\r\n\r\n a, dog", [(1, "the cat"), (2, ""), (3, " a, dog")]),
        ("t.csv", b'text,b\n"the ""cat""\nsat",1\na dog,\n', [(2, 'the "cat"\nsat'), (3, "a dog")]),
        ("t.tsv.gz", gzip.compress(b'b\ttext\n1\t"the\n', mtime=0), [(2, '"the')]),
        (
            "t.jsonl",
            b'{"text": "the cat", "n": 1}\n\n{"text": "\\u00e9"}\n{"text": 5}\n{"text": null}\n',
            [(1, "the cat"), (3, "é"), (4, 5), (5, None)],
        ),
        ("t.faa", FASTA, [(1, "MK"), (2, "THECAT"), (6, "SAT")]),
    ],
)
def test_a_file_is_what_its_suffix_says(tmp_path, monkeypatch, name, content, found):
    """Its columns are those of its first chunk."""
    monkeypatch.setattr(tables, "CHUNK", 2)
    (tmp_path / name).write_bytes(content)
    frames = [*tables.chunks(tmp_path / name, tables.kind_of(Path(name)))]
    assert [row for frame in frames for row in frame.text.items()] == found
    assert all([*frame] == [*frames[0]] for frame in frames)


REFUSED = {
    "score no.txt": "no.txt",
    "score t.doc": "'doc' is none of",
    "score empty.txt": "no rows",
    "score head.csv": "no rows",
    "score keys.jsonl": "from line 65 on there are new columns ..new.",
    "score t.csv --group nobody": "'nobody' is the name or number of 0",
    "score t.txt -o t.fasta": "must end in .jsonl",
    "score latin.txt": "latin.txt: .utf-8",
    "score wide.csv": "Length of header",
    "score torn.txt.gz": "ended before",
    "score bad.jsonl": "Expecting value",
    "score t.csv --text words": "'words' is the name or number of 0 of the columns ..id., .text.",
    "score n.csv --text 1": "'1' is the name or number of 2",
    "score twice.csv": "name or number of 2",
    "score w.txt": "line 2: .*does not know token 1 .*--skip",
    "score t.txt --scores ppl": "got 'ppl'",
    "score t.txt --shard 2/2": "0 <= I < N, got 2/2",
    "score t.txt --set sead=1": "sead",
    "score t.txt --model no/such": "no/such|couldn't connect",
    "score t.txt -o there.jsonl": "there.jsonl exists; --resume",
    "mutants two.fasta": "2 sequences: give one wild type",
    "compare a b": "now: mptlml score TABLE --text",
    "variants a b": "mptlml mutants WILD.fasta",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_done_is_said_and_nobodys_file_is_touched(here, folder, line):
    words = [*line.split(), *([] if "--model" in line else ["--model", str(folder)])]
    with pytest.raises(SystemExit, match=REFUSED[line]):
        main([*words, *([] if "-o" in words else ["-o", "new.csv"])])
    assert {name: Path(name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize("words", ["--version", "score -h", "mutants -h"])
def test_the_command_answers_before_torch_is_there(words):
    code = f"import sys, mptlml.__main__ as m\ntry: m.main({words.split()})\nfinally: print(*sys.modules)"
    said = finished(sys.executable, "-c", code).stdout
    assert (__version__ if words == "--version" else "--model") in said
    assert said.count("\n  -") <= 19  # eighteen options, and -h
    assert not {"torch", "numpy", "transformers", "pandas"} & {*said.split()}


def test_the_output_has_a_usual_name():
    assert parse("score t.txt --model m".split()).output == Path("scores.jsonl")


def test_rows_keep_their_columns_and_what_is_missing_is_told(here, lm, capsys):
    """In every kind of output; lines are those of the file."""
    rows = here("score t.csv --scores pll")
    assert [(row["id"], row["text"], row["line"]) for row in rows] == [
        ("1", "the cat", 2),
        ("2", "NA", 3),
    ]
    pll = lm.pseudo_log_likelihood(["the cat"]).item()
    assert rows[0]["pll"] == pytest.approx(pll, abs=1e-5) and rows[1]["left_out"] == "missing"
    said = capsys.readouterr().out
    assert "all hidden, minus a blind guess" in said and f"{pll:.3f}"[:6] in said
    text = here("score t.csv --scores pll --format csv", "s.tsv")
    assert text.split("\n")[0].startswith("id\ttext\t") and text.count("\n") == 3
    with pytest.raises(SystemExit, match="--skip"):
        here("score w.txt", "w.jsonl")
    skipped = here("score w.txt --skip --set seed=3", "w.jsonl")
    assert skipped[0]["left_out"] is None and "does not know" in skipped[1]["left_out"]


def test_what_is_written_reads_as_it_was(tmp_path):
    for out in ("o.csv", "o.tsv", "o.jsonl"):
        frame = tables.pd.DataFrame(dict(text=['"the', "a, b"], n=[2**60, None]), dtype=object)
        tables.write(frame, tmp_path / out)
        [found] = tables.chunks(tmp_path / out, tables.kind_of(Path(out)))
        assert [*found.text, str(found.n.iloc[0])] == [*frame.text, str(2**60)]


def test_a_check_says_what_would_be_refused(here, folder, capsys):
    main(["score", "w.txt", "--model", str(folder), "--check"])
    assert "line 2: the tokenizer does not know" in capsys.readouterr().out
    assert not Path("scores.jsonl").exists()


def test_right_answers_are_counted_by_group_and_ties_apart(run, lm, capsys, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK", 2)
    Path("q.tsv").write_text(
        "one\ttwo\tlabel\tUID\nthe cat\ta dog\tA\tx\na\tthe\t2\tx\na cat\ta  cat\t1\ty\n"
    )
    found = run("score q.tsv --text one two --right label --group 4 --scores pll")
    first, second = (row["pll_one"] > row["pll_two"] for row in found[:2])
    names = ["one" if first else "two", "one" if second else "two", None]
    assert [row["likeliest_pll"] for row in found] == names
    said = " ".join(capsys.readouterr().out.split())
    assert f"right, likeliest_pll {(first + (not second)) / 2:f} " in said
    assert "tie, likeliest_pll 0.333333 0.333333 3.0" in said
    assert "tie, likeliest_pll, y 1.000000 NaN 1.0" in said
    Path("q.csv").write_text("B,two,label\na,the,B\n")
    with pytest.raises(SystemExit, match="line 2: 'B' in label names 2 alternatives"):
        run("score q.csv --text B two --right label --scores pll", "r.jsonl")


@pytest.mark.parametrize("out, chunk", [("s.jsonl", 1), ("s.jsonl", 2), ("s.csv", 1), ("s.csv", 2)])
def test_a_killed_run_goes_on_and_parts_join_to_the_whole(run, folder, monkeypatch, out, chunk):
    """A kill within a chunk leaves whole ones, and perhaps half a line, which is cut off."""
    text = "the cat\na dog sat\n" * 80
    Path("t.txt").write_text(text)
    whole, call, asked = run("score t.txt", out), Scorer.__call__, []

    def stops(self, batch):
        asked.append(batch)
        if len(asked) == chunk:
            raise KeyboardInterrupt
        return call(self, batch)

    with monkeypatch.context() as patch, pytest.raises(SystemExit, match="--resume"):
        patch.setattr(Scorer, "__call__", stops)
        run("score t.txt", f"k{out}")
    with Path(f"k{out}").open("a") as file:
        file.write('{"half')
    assert run("score t.txt --resume", f"k{out}") == whole
    size = Path(f"k{out}").stat().st_size
    for words, source, kept in (("--set seed=1", text, size), ("", "a", size), ("", text, 0)):
        Path("t.txt").write_text(source)
        os.truncate(f"k{out}", kept)
        with pytest.raises(SystemExit, match="what the same words began"):
            run(f"score t.txt --resume {words}", f"k{out}")
    for part in ("1/2", "0/2"):
        main(["score", "t.txt", "--shard", part, "--model", str(folder), "-o", f"p{out}"])
    joined = "".join(path.read_text() for path in sorted(Path().glob("ps.*-of-0002.*[lv]")))
    assert sorted(joined.splitlines()) == sorted(Path(out).read_text().splitlines())


def test_a_launcher_says_which_part_this_is(run, monkeypatch):
    Path("t.txt").write_text("the cat\n" * 65)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(FileNotFoundError):
        run("score t.txt --scores pll")
    assert len(Path("s.0001-of-0002.jsonl").read_text().splitlines()) == 1


PAGE = text_of("book/score_your_own.md")
BOTH = (PAGE + text_of("book/questions.md")).replace("\\\n", " ")
COMMANDS = re.findall(r"^mptlml (.+)$", BOTH, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_pages_say_commands_that_are_there(line):
    given = parse(shlex.split(line))
    assert given.output and given.model


def test_the_page_has_an_example_that_runs(folder, tmp_path):
    """A batch of other people's engines, in two processes, and streamed."""
    [code] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    (tmp_path / "texts.txt").write_text("the cat\na dog sat\n" * 2)
    (tmp_path / "network").symlink_to(folder)
    (tmp_path / "example.py").write_text(code)
    said = finished(
        sys.executable, "example.py", cwd=tmp_path, env=os.environ | dict(PYTHONPATH=str(ROOT))
    )
    scored = [json.loads(row) for row in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert [row["text"] for row in scored] == ["the cat", "a dog sat"] * 2, said.stderr
    text, area = said.stdout.splitlines()[-1].rsplit(" ", 1)
    assert text == "a dog sat" and float(area) == pytest.approx(scored[-1]["area"], abs=1e-5)
