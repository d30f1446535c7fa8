"""What all chapters said: gathered into one file, checked against the schema, and shown on the pages made of it."""

import csv
import json
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_outputs  # noqa: E402
import book_records  # noqa: E402

from mptlml.report.claims import KINDS, VERDICTS, claims, how, value_text, verdict  # noqa: E402
from mptlml.report.records import MIME  # noqa: E402

SITE = ROOT / "_build" / "html"
CLAIMS = claims(ROOT / "book" / "claims.yml")
FIGURES = yaml.safe_load((ROOT / "book" / "figures.yml").read_text())
SCHEMA = book_records.claims_schema()
CLAIM = {"id": "a", "chapter": "01_one", "kind": "exact", "place": "Table 1", "statement": "1 < 2, {value}.", "paper": None,
         "unit": "nats", "band": [1, 2], "why": "a law", "verdict": "new", "format": ".2f",
         "how": "largest error over {cases} rows"}
COST = {"kind": "cost", "seconds": 12.34, "versions": {"python": "3.11"}, "machine": {"cores": 2, "gpu": False}}


def chapter(title, *records):
    outputs = [nbformat.v4.new_output("display_data", {MIME: record, "text/plain": "a record"}) for record in records]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# {title}"),
                                           nbformat.v4.new_code_cell("1", outputs=outputs)])


@pytest.fixture
def small(tmp_path, monkeypatch):
    """gather(*more records), of a book with two chapters and two claims, one of which was not run."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "claims.yml").write_text(yaml.safe_dump([CLAIM, CLAIM | {"id": "b", "paper": "3"}]))
    measured = {"kind": "claim", "id": "a", "value": 1.5, "stderr": 0.1, "spread": None, "seeds": None, "cases": 4000}

    def gather(*more, megabytes=2000):
        executed = {
            "01_one": chapter("First", measured, {"kind": "claim", "id": "b", "reason": "no data here"},
                              {"kind": "data", "source": "digits", "note": "a < b"},
                              {"kind": "columns", "key": "fig1-left", "columns": [["y", [1, 2]], ["x", [1e5, None]]]},
                              COST | {"chapter": "01_one", "megabytes": megabytes}, *more),
            "02_two": chapter("Second", COST | {"chapter": "02_two", "megabytes": 9, "versions": {"python": "3.12"}})}
        monkeypatch.setattr(book_outputs, "chapters", lambda root: [Path(f"{stem}.md") for stem in (*executed, "03")])
        monkeypatch.setattr(book_outputs, "executed_chapter", lambda path, root: executed.get(path.stem))
        book_outputs.write_records(tmp_path)
        book_records.read_records.cache_clear()
        return book_records.read_records(tmp_path)

    return gather


def test_the_records_of_all_chapters_are_gathered(small):
    book = small()
    first, second = book["claims"]
    assert first["how"] == "largest error over 4,000 rows" and first["statement"] == "1 < 2, 1.50 ± 0.10 nats."
    assert (first["value"], first["text"], first["seconds"]) == (1.5, "1.50 ± 0.10", 12.3)
    assert first["url"] == "notebooks/01_one.html#claim-a"
    assert (second["value"], second["text"], second["verdict"], second["how"]) == (
        None, "–", "not run here", "no data here")
    assert second["statement"] == "1 < 2, 1 to 2 nats." and first["kind"] == "exact"
    assert [chapter["title"] for chapter in book["chapters"].values()] == ["First", "Second"]
    assert book["problems"] == ["03 has not run for its sources as they are, or not to report.closing()"]


def test_what_is_double_or_too_large_is_a_problem(small):
    assert small({"kind": "claim", "id": "b", "reason": "again"})["problems"][1:] == ["claim b was made 2 times"]
    assert small(megabytes=2048.6)["problems"][0] == "01_one took 2049 MB, a Binder has 2048"


def test_the_site_gets_its_data(small, tmp_path):
    book_records.write_files(small(), tmp_path)
    found = json.loads((tmp_path / "claims.json").read_text())
    jsonschema.validate(found, json.loads((tmp_path / found["$schema"]).read_text()))
    assert found["summary"] == {"claims": 2, "in_band": 1, "kinds": {"exact": 2}, "verdicts": {"new": 1, "not run here": 1}}
    assert (tmp_path / "data" / "fig1-left.csv").read_text() == "y,x\n1,100000\n2,\n"
    badge = ElementTree.parse(tmp_path / "badge.svg").getroot()
    texts = [part.text for part in badge.iter() if part.tag.endswith("}text")]
    assert texts == ["claims", "1 of 2 in band"] and badge.get("aria-label") == "claims: 1 of 2 in band"


@pytest.mark.parametrize("change", [
    {"value": "1.5"}, {"stderr": -1}, {"seeds": 0}, {"band": [1]}, {"verdict": "true"}, {"kind": "late"}, {"id": "A b"}, {"more": 1},
    *({name: ...} for name in SCHEMA["properties"]["claims"]["items"]["required"]),
], ids=str)
def test_the_schema_refuses_other_values_and_misses_each_field(small, change):
    found = book_records.claims_json(small())
    claim = found["claims"][0] | change
    found["claims"][0] = {name: value for name, value in claim.items() if value is not ...}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, SCHEMA)


def test_the_template_escapes_and_counts(small):
    book = small()
    box = BeautifulSoup(book_records.drawn({"kind": "claim", "id": "a"}, book), "html.parser")
    assert "1 < 2, 1.50 ± 0.10 nats. 1.50 ± 0.10 (band 1 to 2)" in box.summary.get_text()
    assert [link["href"] for link in box.select("dd a")] == [f"../book/scorecard.html#{name}" for name in ("kinds", "claim-a")]
    assert "1 of 2 claims" in book_records.drawn(COST | {"chapter": "01_one", "megabytes": 9}, book)
    assert "a &lt; b" in book_records.drawn({"kind": "data", "note": "a < b"}, book)
    assert book_records.drawn({"kind": "data", "note": ""}, book) == "" == book_records.drawn({"kind": "columns"}, book)
    status = BeautifulSoup(book_records.TEMPLATE.page_status(book), "html.parser").get_text(" ")
    assert "digits (a default: the real data were not at hand)" in status and "3.11 or 3.12" in status
    assert "none: rows are drawn from models" in status and "25" in status  # 12.34 seconds twice
    rows = BeautifulSoup(book_records.TEMPLATE.page_equations(book), "html.parser").select("td")
    assert [cell.get_text() for cell in rows] == ["Table 1", "4,000 rows", "1.50 ± 0.10 nats"]


# What was built ----------------------------------------------------------------------------------------------------

@cache
def page(address):
    """A page of the site, parsed."""
    return BeautifulSoup((SITE / address).read_text(encoding="utf-8"), "html.parser")


def test_each_claim_is_on_its_chapter_and_on_the_scorecard(built_site):
    found = json.loads((SITE / "claims.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA)
    assert [claim["id"] for claim in found["claims"]] == list(CLAIMS)
    scorecard = page("book/scorecard.html")
    assert len(scorecard.select("table.scorecard tbody tr")) == len(CLAIMS)
    for claim in found["claims"]:
        entry = CLAIMS[claim["id"]]
        record = claim | ({"reason": claim["how"]} if claim["value"] is None else {})
        assert (claim["text"], claim["verdict"], claim["how"]) == (
            value_text(entry, record), verdict(entry, record), how(entry, record)), claim["id"]
        address, anchor = claim["url"].split("#")
        story, row = page(address).find(id=anchor), scorecard.find("tr", id=anchor)
        for part in (story, row):
            assert part.select_one(".verdict.verdict-" + claim["verdict"].replace(" ", "-")), claim["id"]
            assert {link.get_text() for link in part.select('a.kind[href$="#kinds"]')} == {entry["kind"]}, claim["id"]
            text = part.get_text().replace("’", "'") + "–"
            assert claim["how"] in text and claim["text"] in text, claim["id"]
        assert story.select(f'a[href$="scorecard.html#{anchor}"]') and row.select(f'a[href="../{claim["url"]}"]')
    said = f"Claims: {found['summary']['in_band']} of {len(CLAIMS)} in band"
    for name in ("intro", "scorecard"):
        assert page(f"book/{name}.html").select_one("img.claims-badge")["alt"] == said
    legend = scorecard.find(id="kinds").find_next("ul").select("li > p > strong")
    assert [word.get_text() for word in legend] == list(KINDS)
    equations = sum(bool(book_records.EQUATION.match(claim["how"])) for claim in found["claims"])
    assert len(scorecard.select("table.equations tbody tr")) == equations >= 15


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure["id"])
def test_a_passport_has_its_twin_numbers_data_and_cost(figure, built_site):
    passport = page("book/passport.html")
    section = passport.find(id=f"passport-{figure['id']}").find_parent("section")
    address, anchor = f"notebooks/{figure['chapter']}.html", figure["anchor"]
    assert section.select(f'a[href="../{address}#{anchor}"]')
    twin = page(address).find(id=anchor)
    if not anchor.startswith("claim-"):
        ours, theirs = section.select_one("div.twin img"), twin.find("img")
        assert ours["src"] == theirs["src"] and ours["alt"] == theirs["alt"]
    assert len(section.select("table.numbers tbody tr")) >= len(figure["claims"])
    assert f'make execute CHAPTERS="{figure["chapter"]}" (' in section.get_text()
    data = section.select_one(f'a[href="../data/{figure["id"]}.csv"]')
    rows = list(csv.reader((SITE / "book" / data["href"]).read_text(encoding="utf-8").splitlines()))
    assert len(rows) >= 5 and len(set(map(len, rows))) == 1 and len(set(rows[0])) == len(rows[0]) > 1


def test_verdicts_have_their_colours_and_the_status_page_every_chapter(built_site):
    style = (ROOT / "book" / "_static" / "custom.css").read_text()
    assert [name for name in VERDICTS if f".verdict-{name.replace(' ', '-')} {{" not in style] == []
    rows = page("book/status.html").select("table.status tbody tr")
    assert len(rows) == len({entry["chapter"] for entry in CLAIMS.values()}) + 1
    assert "torch" in page("book/status.html").select_one("table.setting").get_text()
