"""Records, named values and figures, as a chapter emits them."""

import json
import math
import platform
import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from bs4 import BeautifulSoup

from mptlml import Estimate, report
from mptlml.data.images import load_images
from mptlml.report import book, chapter, claims, figures, mystnb, records

ROOT = Path(__file__).parents[1]
ENTRY = """
- {id: %s, chapter: %s, kind: before, place: Table 1, statement: "1 < 2 & so on.", paper: "1.5", unit: null, band: [1, 2], why: a law,
   verdict: partly, format: ".2f", how: %s}
"""
COUNTED = '"mean over {cases} rows and {seeds} seeds"'
FIELDS = {  # of a record, by its kind
    "claim": {"id", "value", "stderr", "spread", "seeds", "cases"}, "columns": {"key", "columns"},
    "data": {"source", "note"}, "cost": {"chapter", "seconds", "megabytes", "versions", "machine"},
}


@pytest.fixture(autouse=True)
def a_small_book(tmp_path, monkeypatch):
    """The file of three claims of two chapters; the plot style and the notebook's state are put back afterwards."""
    (tmp_path / "book").mkdir()
    file = tmp_path / "book" / "claims.yml"
    entries = ("a", "01_one", "exact"), ("b", "01_one", COUNTED), ("c", "02_two", "once")
    file.write_text("".join(ENTRY % entry for entry in entries))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(records, "running", SimpleNamespace(name="", began=0, records=[], moving_figures=0))
    monkeypatch.setattr(figures, "set_matplotlib_formats", lambda *_: None)
    monkeypatch.setattr(chapter, "MOST_MEGABYTES", math.inf)  # this whole process has run other tests as well
    claims.claims.cache_clear()
    with mpl.rc_context():
        report.start("01_one")
        yield file
    plt.close("all")
    claims.claims.cache_clear()


@pytest.fixture
def shown(monkeypatch):
    """Everything displayed: [(content, metadata)]."""
    outputs = []
    monkeypatch.setattr(records, "display", lambda content, metadata=None, **_: outputs.append((content, metadata)))
    return outputs


def emitted(outputs):
    """The records among the outputs, each of which must be what the book's builder expects."""
    bundles = [content for content, metadata in outputs if isinstance(content, dict) and not metadata]
    for bundle in bundles:
        record, line = bundle[records.MIME], bundle["text/plain"]
        known = {"id", "reason"} if "reason" in record else FIELDS[record["kind"]]
        assert set(bundle) == {records.MIME, "text/plain"} and set(record) == known | {"kind"}
        assert json.loads(json.dumps(record, allow_nan=False)) == record
        assert line and "\n" not in line
    return [bundle[records.MIME] for bundle in bundles]


def named(outputs):
    """{name: text} of the named values, in the form that MyST-NB reads."""
    return {metadata["scrapbook"]["name"]: content[metadata["scrapbook"]["mime_prefix"] + mime]
            for content, metadata in outputs if metadata for mime in ("text/plain", "text/html")
            if f"application/papermill.record/{mime}" in content}


def page(outputs):
    """The HTML that is shown."""
    text = "".join(content.data for content, _ in outputs if not isinstance(content, dict))
    return BeautifulSoup(text, "html.parser")


@pytest.mark.parametrize("value", [1, 1.5, 2, np.float64(1.25), torch.tensor(1.5)])
def test_a_claim_inside_its_band(value, shown):
    report.claim("a", value, torch.tensor(0.25))
    record, = emitted(shown)
    assert record == dict(kind="claim", id="a", value=float(value), stderr=0.25, spread=None, seeds=None, cases=None)
    assert shown[0][0]["text/plain"] == f"claim a: {float(value):.4g} ± 0.25, in its band 1 to 2"
    entry = claims.claims()["a"]
    assert claims.value_text(entry, record) == f"{float(value):.2f} ± 0.25"
    assert claims.verdict(entry, record) == "partly" and claims.how(entry, record) == "exact"


@pytest.mark.parametrize(("value", "form", "text"), [
    (-1.5, ".2f", "−1.50"), (-0.001, ".2f", "0.00"), (4.2e-16, ".0e", "4 × 10⁻¹⁶"), (0, ".0e", "0"), (1e-10, "g", "1 × 10⁻¹⁰"),
    (1.2111e92, ".4e", "1.2111 × 10⁹²"), (2.5, "+.1f", "+2.5"), (math.inf, "g", "inf"),
])
def test_numbers_are_written_as_people_write_them(value, form, text):
    assert claims.number(value, form) == text


@pytest.mark.parametrize(("unit", "record", "text"), [
    ("%", {"value": -2.061, "stderr": 0.01}, "By −2.06 ± 0.01%."), ("ratio", {"value": 2}, "By 2.00."),
    ("nats per row", {"value": 2}, "By 2.00 nats per row."), (None, {"value": 2}, "By 2.00."),
    ("%", {"reason": "no data"}, "By −3 to 4%."), ("nats per row", {"reason": "no data"}, "By −3 to 4 nats per row."),
])
def test_a_statement_holds_the_measured_value_or_the_band(unit, record, text):
    entry = {"statement": "By {value}.", "format": ".2f", "unit": unit, "band": [-3, 4]}
    assert claims.statement(entry, record) == text


@pytest.mark.parametrize("value", [0.999, 2.001, math.inf, -math.inf, math.nan, torch.tensor(math.nan)])
def test_a_claim_outside_its_band_stops_the_page(value, shown):
    with pytest.raises(report.ClaimError, match=r"a: 1 < 2 & so on. Measured .*, the band is \[1, 2\] \(a law\)"):
        report.claim("a", value)
    assert not shown and not records.running.records


def test_a_claim_tells_over_how_many_seeds_and_cases(shown):
    report.claim("b", 1.5, spread=np.float64(0.1), seeds=5, cases=np.int64(4000))
    record, = emitted(shown)
    assert (record["seeds"], record["cases"], record["stderr"], record["spread"]) == (5, 4000, None, 0.1)
    assert claims.how(claims.claims()["b"], record) == "mean over 4,000 rows and 5 seeds"
    with pytest.raises(ValueError, match="a: seeds = 5, but `how`"):  # where the words have changed since the run
        claims.how(claims.claims()["a"], record)


RIGHT = {"seeds": 5, "cases": 4000}


@pytest.mark.parametrize("told", [
    {"seeds": None},
    {"cases": None},
    {"seeds": 0},
    {"cases": 4000.5},
    {"seeds": True},
    {"stderr": -0.1},
    {"stderr": math.nan},
    {"spread": math.inf},
    {"stderr": 0.1, "spread": 0.1},
])
def test_counts_and_errors_that_cannot_be(told, shown):
    with pytest.raises(ValueError, match="b: "):
        report.claim("b", 1.5, **RIGHT | told)
    assert not shown


def test_the_words_of_a_claim_change_no_output(a_small_book, shown):
    report.claim("a", 1.5)
    a_small_book.write_text(a_small_book.read_text().replace("so on", "on").replace("a law", "luck")
                            .replace("partly", "new").replace(".2f", ".1e").replace("exact", "by counting"))
    claims.claims.cache_clear()
    report.claim("a", 1.5)
    assert claims.claims()["a"]["why"] == "luck" and shown[0] == shown[1]


def test_a_claim_that_was_not_run_says_why(shown):
    report.not_run("b", "no data here")
    record, = emitted(shown)
    assert record == {"kind": "claim", "id": "b", "reason": "no data here"}
    entry = claims.claims()["b"]
    said = [function(entry, record) for function in (claims.value_text, claims.verdict, claims.how)]
    assert said == ["–", "not run here", "no data here"]
    for call in (report.claim, report.not_run):
        with pytest.raises(KeyError, match="nowhere"):
            call("nowhere", 1)


@pytest.mark.parametrize(("old", "new", "problem"), [
    ("why: a law,", "", "its fields are"), ("why: a law,", "why: a law, more: 1,", "its fields are"),
    ("partly", "proved", "verdict must be"), ("before", "later", "kind must be"), ("id: a,", "id: A b,", "id must be"), ("a law", "null", "why must be"),
    ("how: exact", 'how: "{rows} rows"', "how must be"), ('"1.5"', "1.5", "paper must be"),
    ("[1, 2]", "[2, 1]", "lower one first"), ("[1, 2]", "[1, 1e3]", "two numbers"),  # YAML reads 1e3 as text
    ("id: b", "id: a", "share an id"),
])
def test_ill_formed_claims(old, new, problem, a_small_book):
    a_small_book.write_text(a_small_book.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=problem):
        claims.claims()


def test_the_claims_of_the_book_are_well_formed_and_each_has_its_chapter():
    stems = {path.stem for path in (ROOT / "notebooks").glob("*.md")}
    assert {entry["chapter"] for entry in claims.claims(ROOT / "book" / "claims.yml").values()} == stems


def test_closing_wants_the_claims_of_the_chapter_and_no_others(shown):
    report.claim("a", 1.5)
    with pytest.raises(report.ClaimError, match=r"listed but not checked \['b'\]"):
        report.closing()
    report.not_run("b", "no data")
    report.closing()
    assert shown[-1][0]["text/plain"].startswith("1 of 2 claims checked; ")
    report.claim("c", 1.5)
    with pytest.raises(report.ClaimError, match=r"checked but listed elsewhere \['c'\]"):
        report.closing()


def test_closing_says_what_the_chapter_cost_and_on_what_it_ran(shown, monkeypatch):
    report.claim("a", 1.5)
    report.start("02_two")  # of which nothing is checked yet
    report.claim("c", 1.5)
    report.closing()
    cost = emitted(shown)[-1]
    assert cost["chapter"] == "02_two" and 0 <= cost["seconds"] < 60 and cost["megabytes"] > 10
    assert literal_eval(named(shown)["02_two-seconds"]) == cost["seconds"]
    assert cost["versions"]["numpy"] == np.__version__ and {"python", "scikit-learn"} < set(cost["versions"])
    assert set(cost["machine"]) == {"system", "architecture", "cores", "gpu"}
    assert platform.node() not in json.dumps(cost)
    monkeypatch.setattr(chapter, "MOST_MEGABYTES", 1)
    with pytest.raises(MemoryError, match="02_two took"):
        report.closing()


def test_data_are_named_once_with_a_visible_note(shown):
    for _ in range(2):
        report.data_used(load_images("digits", 3))
        report.data_used("texts", "sentences stand in")
    assert [(record["source"], record["note"]) for record in emitted(shown)] == [
        ("scikit-learn digits", ""), ("texts", "sentences stand in")]
    assert "sentences stand in" in shown[1][0]["text/plain"]


def test_glue_keeps_plain_values(shown):
    values = dict(a=3, b=1.5, c="two", d=torch.tensor(2.0), e=np.float64(0.1), f=np.int64(4))
    for name, value in values.items():
        report.glue(name, value)
    assert named(shown) == dict(a="3", b="1.5", c="'two'", d="2.0", e="0.1", f="4")


def test_the_book_is_found_from_its_folders_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(book, "__file__", str(tmp_path / "elsewhere" / "mptlml" / "report" / "book.py"))
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert report.stored("runs.csv") == tmp_path / "book" / "data" / "runs.csv" and "a" in claims.claims()
    (tmp_path / "book").rename(tmp_path / "elsewhere")
    claims.claims.cache_clear()
    for call in (lambda: report.stored("runs.csv"), lambda: report.claim("a", 1.5)):
        with pytest.raises(FileNotFoundError, match="run this in a copy of it"):
            call()


def test_importing_report_takes_no_data_and_no_models(tmp_path):
    code = "import mptlml.report, sys; print(*(name for name in sys.modules if name.startswith('mptlml.')))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "mptlml.report" in names and not {"data", "models", "studies"} & {name.split(".")[1] for name in names}


def test_a_record_becomes_a_node_of_the_page():
    record, other = {"kind": "claim", "id": "a"}, SimpleNamespace(mime_type="text/plain", content="1")
    node, = mystnb.Records.handle_mime(None, SimpleNamespace(mime_type=records.MIME, content=record), False)
    assert node["record"] == record and node["classes"] == ["record"]
    assert mystnb.Records.handle_mime(None, other, False) is None


def test_the_numbers_of_a_figure(shown):
    report.figure_data("fig1-left", {
        "masks": torch.tensor([1, 10, 100]), "name": ["a", 'say "b"', "c"], "error": np.array([0.1, math.nan, 1 / 3]),
        "mixed": [np.float64(1.5), torch.tensor(2), None]})
    assert emitted(shown) == [{"kind": "columns", "key": "fig1-left", "columns": [
        ["masks", [1, 10, 100]], ["name", ["a", 'say "b"', "c"]], ["error", [0.1, None, 0.33333333]],
        ["mixed", [1.5, 2, None]]]}]
    report.figure_data("table1", pd.DataFrame([["a", 1.5], ["b", math.nan]], columns=["name", "value"]))
    assert emitted(shown)[1]["columns"] == [["name", ["a", "b"]], ["value", [1.5, None]]]


@pytest.mark.parametrize(("key", "columns", "problem"), [
    ("fig1-left", {}, "columns of one length"), ("fig1 left", {"a": [1]}, "lower-case letters"),
    ("fig1-left", {"a": [1, 2], "b": [1]}, r"columns of one length, got {'a': 2, 'b': 1}"),
    ("fig1-left", {"a": [1, 2], "b": torch.ones(2, 3)}, r"one value per row, which \['b'\]"),
    ("../fig1", {"a": [1]}, "lower-case letters"), ("fig1-left", {"a": [math.inf]}, "Out of range float"),
])
def test_data_that_are_no_table(key, columns, problem, shown):
    with pytest.raises(ValueError, match=problem):
        report.figure_data(key, columns)
    assert not shown


def test_a_table_escapes_and_formats(shown):
    report.table([["<a>", 1.234], ["b", -2.0]], ["name & co", "value"], "Caption < 1", ["", ".1f"])
    cells = [cell.text for cell in page(shown).select("caption, th, td")]
    assert cells == ["Caption < 1", "name & co", "value", "<a>", "1.2", "b", "-2.0"]
    with pytest.raises(ValueError):
        report.table([["a"]], ["a", "b"], "short row")
    assert report.bracket(Estimate(-1.23456, 0.01234)) == "-1.235 ± 0.012"
    assert report.bracket(Estimate(-1.23456, math.nan), digits=1) == "-1.2"


def draw():
    figure, axes = plt.subplots()
    axes.plot([0, 1], [0, 1], marker="o", label="line")
    axes.fill_between([0, 1], [0, 1])
    axes.legend()
    return figure


def test_a_moving_figure_is_a_still_with_numbers(shown):
    data = {"a": torch.tensor([1.23456789, -1e-9]), "b": np.array([True]), "name": "</script><b>", "range": range(2)}
    for _ in range(2):  # the same figure is the same page
        report.start("01_one")
        report.moving("training", data, draw(), 'Heights, "growing" <fast>', "Caption < 1", digits=3)
    figure, again = page(shown).select("figure")
    assert figure == again
    assert figure.attrs == {"class": ["moving"], "data-kind": "training", "id": "01_one-moving-1"}
    still, numbers = figure.select_one(".moving-still[role=img]:has(svg)"), figure.script.text
    assert still["aria-label"] == 'Heights, "growing" <fast>' and figure.figcaption.text == "Caption < 1"
    assert json.loads(numbers) == {"a": [1.235, 0], "b": [True], "name": "</script><b>", "range": [0, 1]}
    assert "-0.0" not in numbers and plt.get_fignums() == []


def test_pictures_of_a_page_share_no_id_and_load_nothing(shown):
    report.moving("training", {}, draw(), "alt", name="again")
    assert named(shown)["again"] == shown[0][0].data  # on another page, the same
    report.moving("training", {}, draw(), "alt")
    report.glue_figure("front", draw(), 'a "front" <page>')
    text = str(page(shown)) + named(shown)["front"]
    found = BeautifulSoup(text, "html.parser")
    ids = [tag["id"] for tag in found.select("[id]")]
    assert len(ids) == len(set(ids)) > 20
    links = [value for tag in found.find_all() for name, value in tag.attrs.items() if name.endswith(("href", "src"))]
    used = [*links, *re.findall(r"url\((.+?)\)", text)]
    assert links and {link[1:] for link in used} <= set(ids) and "@import" not in text
    assert found.select('[aria-label="a \\"front\\" <page>"]')


@pytest.mark.parametrize(("kind", "data", "words"), [
    ("dance", {}, "no figure of the kind 'dance'"), ("mask", {"a": list(range(40_000))}, "bytes, at most"),
    ("mask", {"a": [1.0, math.nan]}, "Out of range"), ("mask", {"a": torch.tensor(-math.inf)}, "Out of range"),
])
def test_what_cannot_move(kind, data, words, shown):
    with pytest.raises(ValueError, match=words):
        report.moving(kind, data, draw(), "alt")
    assert not shown
