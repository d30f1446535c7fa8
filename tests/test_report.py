"""Records, named values and figures, as a chapter emits them."""

import json
import math
import re
import resource
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from bs4 import BeautifulSoup
from conftest import ROOT, text_of, write_files

from mptlml_book import report
from mptlml_book.report import chapter, claims, figures, records

THREE = """
- &one {id: a, chapter: 01_one, kind: before, place: Table 1, statement: "1 < 2 & so on.", paper: "1.5", unit: null,
   band: [1, 2], why: a law, verdict: partly, format: ".2f", how: exact}
- {<<: *one, id: b, how: "mean over {cases} rows and {seeds} seeds"}
- {<<: *one, id: c, chapter: 02_two}
"""
CLAIMS = Path("book", "claims.yml")


@pytest.fixture(autouse=True)
def shown(tmp_path, monkeypatch):
    """Everything that a chapter displays, [(content, metadata)], in a book of three claims, two chapters."""
    monkeypatch.chdir(tmp_path)
    CLAIMS.parent.mkdir()
    CLAIMS.write_text(THREE)
    Path("book", "data_sets.yml").write_text(
        '01_one: {"0a1b2c3d": three texts, "11111111": or others}'
    )
    monkeypatch.setattr(claims, "BOOK", tmp_path / "book")
    outputs = []

    def display(content, metadata=None, raw=False):
        # else Jupyter would show the text of the dictionary
        assert raw == isinstance(content, dict)
        outputs.append((content, metadata))

    monkeypatch.setattr(records, "display", display)
    monkeypatch.setattr(records, "running", SimpleNamespace())
    monkeypatch.setattr(figures, "get_ipython", lambda: None)
    # this whole process has run other tests as well
    monkeypatch.setattr(chapter, "MOST_MEGABYTES", math.inf)
    claims.claims.cache_clear()
    claims.data_sets.cache_clear()
    with mpl.rc_context():
        report.start("01_one")
        yield outputs
    claims.claims.cache_clear()


def some_data(source="texts", digest="0a1b2c3d", note=""):
    return SimpleNamespace(source=source, size="3 texts", digest=digest, note=note)


def emitted(outputs):
    return [content[records.MIME] for content, _ in outputs if records.MIME in content]


@pytest.mark.parametrize("value", [1, 2, torch.tensor(1.5)])
def test_a_claim_inside_its_band(value, shown):
    report.claim("a", value, np.float64(0.25))
    report.claim("b", value, spread=0.5, seeds=5, cases=np.int64(4000))
    plain, counted = emitted(shown)
    assert plain == dict(
        kind="claim", id="a", value=float(value), stderr=0.25, spread=None, seeds=None, cases=None
    )
    assert counted == plain | dict(id="b", stderr=None, spread=0.5, seeds=5, cases=4000)


@pytest.mark.parametrize(
    ("said", "unit", "record", "text"),
    [
        ("By", "%", {"value": -2.061, "stderr": 0.01}, "By −2.06 ± 0.01%."),
        ("By", "ratio", {"value": 2}, "By 2.00."),
        ("By", "nats per row", {"value": 2}, "By 2.00 nats per row."),
        ("By", "%", {"reason": "no data"}, "Expected, but not run here: By −3 to 4%."),
        ("By at most", "%", {"value": 3}, "By at most 3.00%."),
        ("By at most", "%", {"reason": "no data"}, "Expected, but not run here: By at most 4%."),
    ],
)
def test_a_statement_holds_the_measured_value_or_the_band(said, unit, record, text):
    entry = {"statement": f"{said} {{value}}.", "format": ".2f", "unit": unit, "band": [-3, 4]}
    assert claims.statement(entry, record) == text


@pytest.mark.parametrize(
    ("id", "value", "told", "problem"),
    [
        ("unknown", 1.5, {}, "unknown"),
        *(
            ("a", value, {}, r"Measured .*, the band is \[1, 2\] \(a law\)")
            for value in (0.999, 2.001, math.nan)
        ),
        ("a", 1.5, {"seeds": 5}, "its `how` in claims.yml"),
        ("b", 1.5, {"cases": 5}, "its `how` in claims.yml"),
        ("b", 1.5, {"seeds": 5, "cases": 0}, "at least 1"),
        ("a", 1.5, {"stderr": math.nan}, "not JSON compliant"),
    ],
)
def test_a_claim_that_cannot_be_stops_the_page(id, value, told, problem, shown):
    with pytest.raises((report.ClaimError, KeyError, ValueError), match=problem):
        report.claim(id, value, **told)
    assert not shown and not records.running.records


def test_the_claims_of_the_book_are_well_formed():
    entries = yaml.safe_load(text_of(CLAIMS))
    texts = {
        "id": "[a-z0-9-]+",
        "chapter": r"\w+",
        "kind": "|".join(claims.KINDS),
        "place": ".+",
        "statement": ".+",
        "how": r"([^{}]|\{seeds\}|\{cases\})+",
        "why": ".+",
        "format": r"\.\d[efg]",
        "verdict": "|".join(claims.VERDICTS[:-2]),  # the last two are said by the run
    }
    rare = {"run": "both|stored", "data": "any", "paper": ".+", "unit": ".+", "detects": ".*[^.]"}
    names = {*texts, "band", "paper", "unit"}
    for entry in entries:
        assert names <= entry.keys() <= names | {"run", "reads", "data", "detects"}, entry["id"]
        for name, pattern in (texts | rare).items():
            value = entry.get(name) if name in rare else entry[name]
            assert name in rare and value is None or re.fullmatch(pattern, value), (
                entry["id"],
                name,
            )
        own = entry["paper"] is None
        assert own == (entry["verdict"] == "new") and (not own or entry.get("detects")), entry["id"]
        low, high = entry["band"]
        assert low <= high and ("run" in entry) == bool(entry.get("reads")), entry["id"]
        files = [ROOT / "book" / "data" / name for name in entry.get("reads", [])]
        assert all(file.is_file() for file in files), entry["id"]
    assert len({entry["id"] for entry in entries}) == len(entries)


def test_each_sentence_of_the_ledger_has_a_verdict_and_an_answer():
    verdicts = {"not testable", "not tested", *claims.VERDICTS[:-2]}
    for line in pd.read_csv(ROOT / "book" / "ledger.csv").itertuples():
        assert line.verdict in verdicts and len(line.words.split()) <= 8, line
        assert isinstance(line.where, str), line


def test_closing_wants_each_claim_of_the_chapter_once_and_the_files_behind_it():
    CLAIMS.write_text(THREE.replace("id: b,", "id: b, reads: [runs.csv],"))
    report.claim("a", 1.5)
    with pytest.raises(report.ClaimError, match=r"\['b'\]"):
        report.closing()
    report.not_run("b", "no data here")
    with pytest.raises(report.ClaimError, match=r"claims read \['runs.csv'\]"):
        report.closing()
    write_files(Path("book"), {"data/runs.csv": "1"})
    report.stored("runs.csv")
    report.closing()
    for id in "ac":  # once more; and of another chapter
        report.claim(id, 1.5)
        with pytest.raises(report.ClaimError, match=id):
            report.closing()


def test_closing_says_what_the_chapter_cost_and_in_ci_has_a_limit(shown, monkeypatch):
    report.claim("a", 1.5)
    report.not_run("b", "no data here")
    report.closing()
    cost = emitted(shown)[-1]
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )
    assert 0 <= cost["seconds"] < 60 and 10 < cost["megabytes"] < largest
    assert set(cost["machine"]) == {"system", "architecture", "cores", "gpu"}  # and no one's name
    monkeypatch.setattr(chapter, "MOST_MEGABYTES", 1)
    monkeypatch.delenv("CI", raising=False)
    report.closing()  # a reader's build goes on
    monkeypatch.setenv("CI", "true")
    with pytest.raises(MemoryError, match="01_one took"):
        report.closing()


def test_a_publisher_asks_for_real_data(shown, monkeypatch):
    monkeypatch.setenv("MPTLML_REQUIRE_DATA", "1")
    for _ in range(2):
        report.data_used(some_data())
    assert [record["words"] for record in emitted(shown)] == ["three texts"]
    with pytest.raises(FileNotFoundError, match="MPTLML_REQUIRE_DATA is set: sentences stand in"):
        report.data_used(some_data(note="sentences stand in"))


@pytest.mark.parametrize(
    ("kind", "value", "outcome"),
    [
        ("before", 1.5, "other data"),
        ("after", 3.0, "other data"),
        ("exact", 1.5, "partly"),
        ("exact", 3.0, "stops"),
        ("before, run: stored", 1.5, "partly"),
        ("after, run: both", 3.0, "other data"),
        ("after, data: any", 1.5, "partly"),
        ("after, data: any", 3.0, "stops"),
    ],
)
def test_on_other_data_a_band_that_was_set_for_some_stops_no_build(kind, value, outcome, shown):
    """An identity holds on any data, and a claim that says so; what is read from a file is inside, a run may not be."""
    CLAIMS.write_text(THREE.replace("kind: before", f"kind: {kind}"))
    report.data_used(some_data())
    with nullcontext() if 1 <= value <= 2 else pytest.raises(report.ClaimError):
        report.claim("a", value)  # on the data of the band all are checked
    report.data_used(some_data(digest="99999999"))
    with pytest.raises(report.ClaimError) if outcome == "stops" else nullcontext():
        report.claim("a", value)
        record, entry = emitted(shown)[-1], claims.claims()["a"]
        assert claims.verdict(entry, record) == outcome
        told = "exact; other data: the band was set for three texts; or others"
        assert claims.how(entry, record) == (told if outcome == "other data" else "exact")


def test_a_sentence_that_other_data_do_not_bear_out_is_taken_back(shown):
    report.expect(True, "all is well")
    with pytest.raises(AssertionError, match="01_one says that all is well"):
        report.expect(False, "all is well")
    report.data_used(some_data(digest="99999999"))
    report.expect(False, "all is well")
    assert emitted(shown)[1:] == [{"kind": "unlike", "says": "all is well"}]


def test_the_numbers_of_a_figure_are_a_table(shown):
    columns = {"masks": torch.tensor([1, 10]), "a": ['"x"', None], "b": np.array([0.5, math.nan])}
    for data in (columns, pd.DataFrame(columns)):
        report.figure_data("fig1", data)
        found = emitted(shown)[-1]["columns"]
        assert found == [["masks", [1, 10]], ["a", ['"x"', None]], ["b", [0.5, None]]]
    for columns in ({}, {"a": [1, 2], "b": [1]}, {"a": [math.inf]}):
        with pytest.raises(ValueError, match="equal lengths|Out of range float"):
            report.figure_data("fig1", columns)


def test_a_moving_figure_is_a_still_with_numbers(shown):
    data = {"a": torch.tensor([1.23456789, -1e-9]), "name": "</script><b>"}
    report.moving("mask", data, plt.figure(), 'Heights, "growing" <fast>', digits=3)
    figure = BeautifulSoup(shown[0][0].data, "html.parser").div
    still = figure.select_one(".moving-still[role=img]:has(svg)")
    assert still["aria-label"] == 'Heights, "growing" <fast>'
    assert json.loads(figure.script.text) == {"a": [1.235, 0], "name": "</script><b>"}
    assert plt.get_fignums() == []
