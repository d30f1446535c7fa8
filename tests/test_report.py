"""Claims, glue and moving figures, as a page would show them."""

import csv
import html.parser
import io
import json
import math
import platform
import re
from ast import literal_eval

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from mptlml import Estimate, report
from mptlml.data import images

ENTRY = """
- {id: %s, chapter: %s, place: Table 1, statement: "1 < 2 & so on.", paper: %s, unit: nats, band: [1, 2], why: a law,
   verdict: %s, format: ".2f"}
"""
HOW = 'how: "mean over {cases} rows and {seeds} seeds"'


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """The peak is that of this whole process, which runs other tests as well: no limit but where a test sets one."""
    monkeypatch.setattr(report, "MOST_BYTES", math.inf)


@pytest.fixture
def shown(monkeypatch):
    """Everything displayed: [(content, metadata)]."""
    outputs = []
    monkeypatch.setattr(report, "display", lambda content, metadata=None, **_: outputs.append((content, metadata)))
    return outputs


@pytest.fixture(autouse=True)
def a_small_book(tmp_path, monkeypatch):
    """Three claims of two chapters; the plot style and the notebook's figure format are put back afterwards."""
    book = tmp_path / "claims.yml"
    book.write_text(ENTRY % ("a", "01_one", '"1.5 ± 0.1"', "reproduced") + ENTRY % ("b", "01_one", "null", "new")
                    + ENTRY % ("c", "02_two", "null", "not reproduced"))
    monkeypatch.setattr(report, "CLAIMS_FILE", book)
    monkeypatch.setattr(report, "_chapter", {})
    monkeypatch.setattr(report, "set_matplotlib_formats", lambda *_: None)
    report.claims.cache_clear()
    with mpl.rc_context():
        yield book
    plt.close("all")
    report.claims.cache_clear()


def glued(outputs):
    """{name: text} of everything glued, in the form that the book's builder reads."""
    prefix = "application/papermill.record/"
    found = {}
    for content, metadata in outputs:
        if metadata:
            assert metadata["scrapbook"]["mime_prefix"] == prefix
            (mime, text), = content.items()
            assert mime in {prefix + known for known in ("text/plain", "text/html", "text/csv", "application/json")}
            found[metadata["scrapbook"]["name"]] = text
    return found


def page(outputs):
    return "".join(content.data for content, metadata in outputs if not metadata)


class Page(html.parser.HTMLParser):
    """All tags of a page, [(tag, attributes)], and the tags left open."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("input", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("value", [1, 1.5, 2, np.float64(1.25), torch.tensor(1.5)])
def test_a_claim_inside_its_band(value, shown):
    report.start("01_one")
    report.claim("a", value, stderr=0.1)
    record = glued(shown)
    assert literal_eval(record["a-value"]) == f"{float(value):.2f} ± 0.10"
    assert literal_eval(record["a-verdict"]) == "reproduced"
    text = page(shown)
    assert "1 &lt; 2 &amp; so on." in text and "band 1 to 2" in text and "paper: 1.5 ± 0.1" in text
    assert Page(text).open == []


@pytest.mark.parametrize("value", [0.999, 2.001, math.inf, -math.inf, math.nan, torch.tensor(math.nan)])
def test_a_claim_outside_its_band_stops_the_page(value, shown):
    report.start("01_one")
    with pytest.raises(report.ClaimError, match=r"a: 1 < 2 & so on. Measured .*, the band is \[1, 2\] \(a law\)"):
        report.claim("a", value)
    assert not shown  # and nothing is glued that a later page could show


def counted(book):
    """Claim a of the small book says over how many rows and seeds it was measured."""
    book.write_text((ENTRY % ("a", "01_one", "null", "new")).replace("why:", f"{HOW}, why:"))
    report.claims.cache_clear()


def test_a_claim_tells_over_how_many_seeds_and_cases(a_small_book, shown):
    counted(a_small_book)
    report.start("01_one")
    report.claim("a", torch.tensor(1.5), np.float64(0.1), seeds=5, cases=np.int64(4000))
    assert json.loads(glued(shown)["a-record"]) == {
        "value": 1.5, "stderr": 0.1, "spread": None, "seeds": 5, "cases": 4000}
    text = page(shown)
    assert "<dt>Measured</dt><dd>mean over 4,000 rows and 5 seeds</dd>" in text
    assert "<dt>Why this band</dt><dd>a law</dd>" in text and "<dt>Unit</dt><dd>nats</dd>" in text
    story, = [attrs for tag, attrs in Page(text).tags if tag == "details"]
    assert story["id"] == "claim-a" and "open" not in story


@pytest.mark.parametrize("told", [
    {}, {"seeds": 5}, {"cases": 4000}, {"seeds": 0, "cases": 4000}, {"seeds": 5, "cases": -1},
    {"seeds": 5, "cases": 4000.5}, {"seeds": True, "cases": 4000}, {"seeds": [1, 2], "cases": 4000},
    {"seeds": 5, "cases": 4000, "stderr": -0.1},
    {"seeds": 5, "cases": 4000, "stderr": math.nan}, {"seeds": 5, "cases": 4000, "spread": math.inf},
    {"seeds": 5, "cases": 4000, "stderr": 0.1, "spread": 0.1},
])
def test_counts_that_do_not_fit_what_is_said_of_them(told, a_small_book, shown):
    counted(a_small_book)
    report.start("01_one")
    with pytest.raises(ValueError, match="a: "):
        report.claim("a", 1.5, **told)
    assert not shown


def test_a_spread_is_no_standard_error(shown):
    report.start("01_one")
    report.claim("a", 1.5, spread=0.25)
    record = glued(shown)
    assert literal_eval(record["a-value"]) == "1.50 ± 0.25"
    assert json.loads(record["a-record"])["stderr"] is None and json.loads(record["a-record"])["spread"] == 0.25
    with pytest.raises(ValueError, match="seeds = 5, but `how` in book/claims.yml says ''"):
        report.claim("a", 1.5, seeds=5)


def test_unknown_claims():
    report.start("01_one")
    with pytest.raises(KeyError, match="nowhere"):
        report.claim("nowhere", 1)
    with pytest.raises(KeyError, match="nowhere"):
        report.not_run("nowhere", "no data")


def test_a_claim_that_was_not_run_says_why(shown):
    report.start("01_one")
    report.not_run("a", "no data here")
    record = glued(shown)
    assert literal_eval(record["a-verdict"]) == "not run here" and "no data here" in page(shown)
    assert json.loads(record["a-record"]) == {"reason": "no data here"}


def test_closing_wants_every_claim_of_the_chapter(shown):
    report.start("01_one")
    report.claim("a", 1.5)
    with pytest.raises(report.ClaimError, match=r"listed but not checked \['b'\]"):
        report.closing()
    report.not_run("b", "no data")
    report.closing()
    record = glued(shown)
    assert float(record["01_one-seconds"]) >= 0 and float(record["01_one-megabytes"]) > 10
    assert "1 of 2 claims checked" in page(shown)


def test_closing_wants_no_other_chapters_claim(shown):
    report.start("02_two")
    report.claim("c", 1.5)
    report.claim("a", 1.5)
    with pytest.raises(report.ClaimError, match=r"checked but listed elsewhere \['a'\]"):
        report.closing()


def test_closing_minds_the_memory_of_a_binder(shown, monkeypatch):
    monkeypatch.setattr(report, "MOST_BYTES", 2**20)
    report.start("02_two")
    report.claim("c", 1.5)
    with pytest.raises(MemoryError, match="02_two took"):
        report.closing()


def test_closing_says_on_what_the_chapter_ran(shown, monkeypatch):
    monkeypatch.setattr(images, "_read", {})
    images.load_images("digits", 3)
    report.start("02_two")
    report.claim("c", 1.5)
    report.closing()
    setting = json.loads(glued(shown)["02_two-setting"])
    assert setting["versions"]["numpy"] == np.__version__
    assert {"python", "numpy", "scipy", "scikit-learn", "matplotlib"} < set(setting["versions"])
    assert setting["data"] == {"scikit-learn digits": ""}
    assert set(setting["machine"]) == {"system", "architecture", "cores", "gpu"}
    assert platform.node() not in json.dumps(setting)


def test_a_new_chapter_begins_with_nothing_checked(shown):
    report.start("01_one")
    report.claim("a", 1.5)
    report.start("02_two")
    report.claim("c", 1.5)
    report.closing()


@pytest.mark.parametrize("entry", [
    "- {id: a}", ENTRY % ("a", "x", "null", "proved"), ENTRY % ("a", "x", "null", "new") * 2,
    (ENTRY % ("a", "x", "null", "new")).replace("[1, 2]", "[2, 1]"),
], ids=["fields missing", "unknown verdict", "an id twice", "empty band"])
def test_ill_formed_claims(entry, a_small_book):
    a_small_book.write_text(entry)
    with pytest.raises(ValueError, match="well formed|share an id"):
        report.claims()


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (1.5, "1.5"), ("two", "'two'"), (torch.tensor(2.0), "2.0"),
                                             (np.float64(0.1), "0.1"), (np.int64(4), "4")])
def test_glue_keeps_plain_values(value, text, shown):
    report.glue("n", value)
    assert glued(shown) == {"n": text}


def test_the_data_of_a_figure_are_a_csv_file(shown):
    report.figure_data("fig1-left", {
        "masks": torch.tensor([1, 10, 100]), "name, with comma": ["a", 'say "b"', "c"],
        "error": np.array([0.1, math.nan, 1 / 3]), "mixed": [np.float64(1.5), torch.tensor(2), None]})
    assert page(shown) == ""
    rows = list(csv.reader(io.StringIO(glued(shown)["fig1-left-data"])))
    assert rows == [["masks", "name, with comma", "error", "mixed"], ["1", "a", "0.1", "1.5"],
                    ["10", 'say "b"', "", "2"], ["100", "c", "0.33333333", ""]]


@pytest.mark.parametrize(("key", "columns", "problem"), [
    ("fig1-left", {}, "columns of one length"),
    ("fig1-left", {"a": [1, 2], "b": [1]}, r"columns of one length, got {'a': 2, 'b': 1}"),
    ("fig1-left", {"a": [1, 2], "b": torch.ones(2, 3)}, r"one value a row, \['b'\] hold more"),
    ("fig1 left", {"a": [1]}, "lower-case letters"), ("../fig1", {"a": [1]}, "lower-case letters"),
])
def test_data_that_are_no_table(key, columns, problem, shown):
    with pytest.raises(ValueError, match=problem):
        report.figure_data(key, columns)
    assert not shown


def draw(height):
    figure, axes = plt.subplots()
    axes.plot([0, 1], [0, height], marker="o", label="line")
    axes.fill_between([0, 1], [0, height])
    axes.legend()
    axes.set_title("title")
    return figure


def test_a_moving_figure_is_a_still_with_numbers(shown):
    report.start("01_one")
    data = {"a": torch.tensor([1.23456789, -1e-9]), "b": np.array([True]), "name": "</script><b>", "range": range(2)}
    report.moving("training", data, draw(1), 'Heights, "growing" <fast>', "Caption < 1", digits=3)
    text = page(shown)
    parsed = Page(text)
    assert parsed.open == []
    figure, = [attrs for tag, attrs in parsed.tags if tag == "figure"]
    assert figure["class"] == "moving" and figure["data-kind"] == "training" and figure["id"].startswith("01_one-")
    still, = [attrs for _, attrs in parsed.tags if attrs.get("class") == "moving-still"]
    assert still["role"] == "img" and still["aria-label"] == 'Heights, "growing" <fast>'
    assert "hidden" not in still and "<svg" in text and "<figcaption>Caption &lt; 1</figcaption>" in text
    assert text.count("</script>") == 1  # a word of the data cannot end the script
    numbers = re.search(r'<script type="application/json">(.*)</script>', text)[1]
    assert json.loads(numbers) == {"a": [1.235, 0], "b": [True], "name": "</script><b>", "range": [0, 1]}
    assert "-0.0" not in numbers
    assert plt.get_fignums() == []


def test_pictures_of_a_page_share_no_id_and_load_nothing(shown):
    report.start("01_one")
    report.moving("training", {}, draw(1), "alt", name="again")
    assert glued(shown)["again"] == page(shown)  # on another page, the same
    report.moving("training", {}, draw(1), "alt")
    report.glue_figure("front", draw(1), 'a "front" <page>')
    text = page(shown) + glued(shown)["front"]
    tags = Page(text).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids)) > 20
    used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    assert used and set(used) <= set(ids)
    assert not [attrs for _, attrs in tags if "src" in attrs]
    links = [value for _, attrs in tags for name, value in attrs.items() if name.endswith("href")]
    assert links and all(link.startswith("#") for link in links)
    assert "@import" not in text and "url(http" not in text
    assert 'aria-label="a &quot;front&quot; &lt;page&gt;"' in text


def test_the_same_moving_figure_is_the_same_page(shown, monkeypatch):
    pages = []
    for _ in range(2):
        monkeypatch.setattr(report, "_figures", iter(range(1, 5)))
        report.start("01_one")
        report.moving("mask", {"a": [1, 2.5]}, draw(1), "alt")
        pages.append(page(shown))
        shown.clear()
    assert pages[0] == pages[1]


@pytest.mark.parametrize(("kind", "data", "words"), [
    ("dance", {}, "no figure of the kind 'dance'"),
    ("mask", {"a": [1.0, math.nan]}, "finite numbers only, got nan"),
    ("mask", {"a": torch.tensor(-math.inf)}, "finite numbers only, got -inf"),
    ("mask", {"a": list(range(40_000))}, "bytes, at most"),
])
def test_what_cannot_move(kind, data, words, shown):
    report.start("01_one")
    with pytest.raises(ValueError, match=words):
        report.moving(kind, data, draw(1), "alt")
    assert not shown


def test_a_table_escapes_and_formats(shown):
    report.table([["<a>", 1.234], ["b", -2.0]], ["name & co", "value"], "Caption < 1", ["", ".1f"])
    text = page(shown)
    assert Page(text).open == []
    assert re.findall(r"<td>(.*?)</td>", text) == ["&lt;a&gt;", "1.2", "b", "-2.0"]
    assert '<th scope="col">name &amp; co</th>' in text and "<caption>Caption &lt; 1</caption>" in text
    with pytest.raises(ValueError):
        report.table([["a"]], ["a", "b"], "short row")


def test_a_note_shows_only_where_there_is_one(shown):
    report.show_note("")
    assert not shown
    report.show_note("digits <stand> in")
    assert "digits &lt;stand&gt; in" in page(shown)


def test_brackets():
    assert report.bracket(Estimate(-1.23456, 0.01234)) == "-1.235 ± 0.012"
    assert report.bracket(Estimate(-1.23456, math.nan), digits=1) == "-1.2"
