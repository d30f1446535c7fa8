"""The stored tables of the long runs: what they hold, and how they are written, taken up again and checked."""

import csv
import re
import runpy
from importlib import import_module
from types import SimpleNamespace
from unittest import mock

import pytest
from conftest import ROOT, text_of

from mptlml_book import runs

TABLES = {
    name: table
    for path in sorted((ROOT / "mptlml_book").glob("*.py"))
    if "\nTABLES = " in path.read_text(encoding="utf-8")
    for name, table in import_module(f"mptlml_book.{path.stem}").TABLES.items()
}
UNHELD = "deep", "networks", "real"


@pytest.mark.parametrize("name", [name for name in TABLES if not name.startswith(UNHELD)])
def test_a_stored_table_holds_what_its_plan_says(name):
    """No line but of a unit, whose parts stand in it, and lines of each."""
    text = text_of(f"book/data/{name}.csv")
    assert text.startswith("# python -m mptlml_book.")
    _, *lines = map(set, csv.reader(re.findall("(?m)^[^#].*", text)))
    units = [set(map(runs.text, unit)) for unit in TABLES[name].units()]
    assert [line for line in lines if not any(unit <= line for unit in units)] == []
    assert [unit for unit in units if not any(unit <= line for line in lines)] == []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where tables and networks are kept for a test."""
    monkeypatch.setattr(runs, "FOLDER", tmp_path)
    monkeypatch.setattr(runs, "NETWORKS", tmp_path / "networks")
    return tmp_path


def table_of(run, digest="12345678"):
    """A table of three units."""
    data = SimpleNamespace(source="MNIST", size="two images", digest=digest)
    units = ("mnist", 1), ("mnist", 2), ("digits", 1)
    return runs.Table(run, lambda: units, lambda: [data])


def lines_of(shift):
    """Two lines a unit."""
    for_step = {0: [1, 0.5], 50: ""}
    return lambda data, seed: [
        dict(data=data, seed=seed, step=step, note=note, score=seed + shift + step / 100)
        for step, note in for_step.items()
    ]


def kill(after, digest="12345678"):
    """A run that is killed in its second unit."""
    killed = mock.Mock(side_effect=[after("mnist", 1), KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        runs.write("runs", table_of(killed, digest))


def test_a_killed_run_goes_on_with_the_next_unit(folder):
    kill(lines_of(0))
    assert not (folder / "runs.csv").exists()
    runs.write("runs", table_of(lines_of(7)))
    head, read, *lines = (folder / "runs.csv").read_text().split("\n")
    assert "torch" in head and read == "# read: MNIST, two images, digest 12345678"
    first = "mnist,1,0,1 0.5,1 mnist,1,50,,1.5 mnist,2,0,1 0.5,9 mnist,2,50,,9.5 "
    assert " ".join(lines) == (
        f"data,seed,step,note,score {first}digits,1,0,1 0.5,8 digits,1,50,,8.5 "
    )


def test_a_run_that_ended_or_was_on_other_data_starts_anew(folder):
    runs.write("runs", table_of(lines_of(0)))
    kill(lines_of(3), digest="87654321")
    runs.write("runs", table_of(lines_of(7)))
    assert "mnist,1,50,,8.5\n" in (folder / "runs.csv").read_text()


def test_a_check_runs_the_units_of_a_seed_and_counts(folder, capsys):
    runs.write("runs", table_of(lines_of(0)))
    half = lambda data, seed: lines_of(float(data == "digits"))(data, seed)  # noqa: E731
    for run, seed, status, said in (
        (lines_of(1e-4), "1", False, "8 of 8 values as stored"),
        (half, "1", True, "6 of 8 values"),
        (half, "2", False, "4 of 4 values"),
    ):
        with pytest.raises(SystemExit) as ended:
            runs.check("runs", table_of(run), seed)
        assert ended.value.code is status and said in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no seed 3"):
        runs.check("runs", table_of(lines_of(0)), "3")


def test_what_cannot_be_run_leaves_the_stored_table(folder):
    (folder / "runs.csv").write_text("kept")
    with pytest.raises(SystemExit, match="not at hand"):
        runs.write("runs", runs.Table(lines_of(0), list))
    assert (folder / "runs.csv").read_text() == "kept"


STUDY = """
from mptlml_book import runs

class Network:
    pass

def run(seed):
    yield dict(seed=seed, network=type(runs.kept("net", Network)).__module__)

TABLES = {"runs": runs.Table(run, lambda: [(1,)])}
if __name__ == "__main__":
    runs.main(TABLES)
"""


def test_a_study_that_is_a_program_keeps_networks_under_its_own_name(folder, monkeypatch):
    (folder / "little.py").write_text(STUDY)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(runs, "STUDY", "little")
    monkeypatch.setattr("sys.argv", ["little.py", "runs"])
    runpy.run_path(folder / "little.py", run_name="__main__")
    assert "\n1,little\n" in (folder / "runs.csv").read_text()
