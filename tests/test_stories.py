"""Every number's story: claims.json and the badge, the figure passport, the status page."""

import csv
import io
import json
import re
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml
from bs4 import BeautifulSoup
from docutils import nodes

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_execute  # noqa: E402
import book_passport  # noqa: E402
import book_records  # noqa: E402
import book_scorecard  # noqa: E402
import book_stories  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
SITE = ROOT / "_build" / "html"
CLAIMS = book_records.read_claims(ROOT / "book" / "claims.yml")
FIGURES = book_passport.read_figures(ROOT / "book" / "figures.yml")
SCHEMA = json.loads(book_stories.SCHEMA.read_text())

# Each figure and table that the paper holds (it has none in the appendix)
PAPER = [*(f"Fig. {n}, {side}" for n in (1, 2) for side in ("left", "centre", "right")), "Fig. 3, upper row",
         "Fig. 3, lower row", "Fig. 4, left", "Fig. 4, centre", "Fig. 4, right", "Fig. 5, left", "Fig. 5, right",
         "Table 1", "Table 2"]


# A small book ------------------------------------------------------------------------------------------------------

CLAIM = {"id": "a", "chapter": "01_one", "place": "Table 1", "statement": "One\n  line.", "paper": None, "unit": "nats",
         "band": [1, 2], "why": "a law", "verdict": "new", "format": ".2f", "how": "mean over {cases} rows"}


def output(mime, text):
    return {"output_type": "display_data", "data": {mime: text}, "metadata": {}}


@pytest.fixture
def small(tmp_path):
    """What is gathered of a book with two chapters and two claims, of which one was not run."""
    for folder in ("book", "notebooks", "glue/notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    entries = [CLAIM, CLAIM | {"id": "b", "paper": "3"}, CLAIM | {"id": "c", "chapter": "09_outside"}]
    (tmp_path / "book" / "claims.yml").write_text(yaml.safe_dump(entries))
    for stem, title in (("01_one", "First"), ("02_two", "Second")):
        (tmp_path / "notebooks" / f"{stem}.md").write_text(f"---\n---\n\n# {title}\n")
    record = {"value": 1.5, "stderr": 0.1, "spread": None, "seeds": None, "cases": 4000}
    glued = {
        "a-value": output("text/plain", "'1.50 ± 0.10'"), "a-verdict": output("text/plain", "'new'"),
        "a-record": output("application/json", json.dumps(record)), "b-value": output("text/plain", "'–'"),
        "b-verdict": output("text/plain", "'not run here'"),
        "b-record": output("application/json", '{"reason": "no data here"}'),
        "01_one-seconds": output("text/plain", "12.34"), "01_one-megabytes": output("text/plain", "2000.0"),
        "theorem": output("text/html", "<svg></svg>"), "fig1-left-data": output("text/csv", "x,y\n1,2\n3,4\n"),
        "01_one-setting": output("application/json", json.dumps({
            "versions": {"python": "3.11"}, "machine": {"cores": 2, "gpu": False}, "data": {"digits": "note"}}))}
    two = {"02_two-seconds": output("text/plain", "6"), "02_two-megabytes": output("text/plain", "100.5"),
           "02_two-setting": output("application/json", json.dumps({
               "versions": {"python": "3.12"}, "machine": {"cores": 2, "gpu": False}, "data": {}}))}
    for stem, content in (("01_one", glued), ("02_two", two)):
        (tmp_path / "glue" / "notebooks" / f"{stem}.glue.json").write_text(json.dumps(content))
    return book_records.gather(tmp_path, tmp_path / "glue", {"book/intro", "notebooks/01_one", "notebooks/02_two"})


def test_what_the_chapters_glued_is_read_back(small):
    first, second = small["claims"]
    assert first["how"] == "mean over 4,000 rows" and first["statement"] == "One line."
    assert (first["value"], first["stderr"], first["cases"], first["seconds"]) == (1.5, 0.1, 4000, 12.3)
    assert first["url"] == "notebooks/01_one.html#claim-a"
    assert (second["value"], second["text"], second["how"]) == (None, "–", "no data here")
    assert small["chapters"]["01_one"]["tables"] == {"fig1-left": "x,y\n1,2\n3,4\n"}
    assert small["chapters"]["02_two"]["title"] == "Second"


def test_a_chapter_above_two_gigabytes_stops_the_pages(small, monkeypatch):
    chapters = small["chapters"]
    assert book_records.too_large(chapters) == []
    chapters["01_one"]["megabytes"] = 2048.6
    assert book_records.too_large(chapters) == ["01_one took 2049 MB, a Binder has 2048"]
    warned = []
    monkeypatch.setattr(book_records, "gather", lambda *_: small)
    monkeypatch.setattr(book_records.logger, "warning", lambda sentence, **_: warned.append(sentence))
    app = type("App", (), {"srcdir": "."})()
    env = type("Env", (), {"mystnb_config": type("Config", (), {"output_folder": "."}), "found_docs": set()})
    book_records._collect(app, env)
    assert warned == ["01_one took 2049 MB, a Binder has 2048"]  # and warnings are errors


def test_the_site_gets_its_data(small, tmp_path):
    book_stories.write_files(small, tmp_path)
    found = json.loads((tmp_path / "claims.json").read_text())
    jsonschema.validate(found, SCHEMA)
    assert found["summary"] == {"claims": 2, "in_band": 1, "verdicts": {"new": 1, "not run here": 1}}
    assert (tmp_path / found["$schema"]).is_file()
    assert (tmp_path / "data" / "fig1-left.csv").read_text() == "x,y\n1,2\n3,4\n"
    badge = ElementTree.parse(tmp_path / "badge.svg").getroot()
    assert badge.find(SVG + "title").text == "claims: 1 of 2 in band" == badge.get("aria-label")
    assert [text.text for text in badge.iter(SVG + "text")] == ["claims", "1 of 2 in band"]
    assert "http" not in (tmp_path / "badge.svg").read_text().replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("change", [
    {"value": "1.5"}, {"stderr": -1}, {"seeds": 0}, {"band": [1]}, {"verdict": "true"}, {"id": "A b"}, {"more": 1},
])
def test_the_schema_refuses(small, change):
    found = book_stories.as_json(small)
    found["claims"][0] |= change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, SCHEMA)


@pytest.mark.parametrize("field", sorted(SCHEMA["properties"]["claims"]["items"]["required"]))
def test_the_schema_misses_each_field(small, field):
    found = book_stories.as_json(small)
    del found["claims"][0][field]
    with pytest.raises(jsonschema.ValidationError, match=field):
        jsonschema.validate(found, SCHEMA)


def test_the_badge_escapes_and_fits():
    svg = ElementTree.fromstring(book_stories.badge("a < b", "1 & 2"))
    assert svg.find(SVG + "title").text == "a < b: 1 & 2"
    left, right = svg.iter(SVG + "rect")
    assert int(left.get("width")) + int(right.get("width")) == int(svg.get("width"))
    for box, text in zip((left, right), svg.iter(SVG + "text"), strict=True):
        assert int(text.get("textLength")) < int(box.get("width"))


def test_a_claim_on_its_page_leads_to_the_scorecard():
    text = '<details class="claim" id="claim-a"><summary>s</summary><dl><dt>x</dt><dd>y</dd></dl></details>'
    whole = book_records.complete_stories(text + "<p>between</p>" + text.replace("-a", "-b"), 12.3, "../book/s.html")
    links = [link["href"] for link in BeautifulSoup(whole, "html.parser").select("details dd a")]
    assert links == ["../book/s.html#claim-a", "../book/s.html#claim-b"] and "12 seconds" in whole


def fill(make, small, docname="book/page", **attributes):
    """What a `later` node turns into, as text."""
    app = type("App", (), {"book_records": small})
    made = make(app, docname, book_records.later(**attributes))
    return nodes.container("", *(made if isinstance(made, list) else [made]))


def test_the_status_page_shows_cost_versions_and_stand_ins(small):
    text = fill(book_passport.status, small).astext()
    assert "digits (a default: the real data were not at hand)" in text and "none: rows are drawn from models" in text
    assert "3.11 or 3.12" in text and "no" in text and "18" in text  # 12.34 + 6 seconds
    bars = [node.astext() for node in fill(book_passport.status, small).findall(nodes.raw)]
    assert ["100%" in bars[0], "98%" in bars[1], "49%" in bars[2], "5%" in bars[3]] == [True] * 4


def test_equations_are_those_with_a_largest_error(small):
    small["claims"][0]["how"] = "largest relative error over 120 orders"
    table = fill(book_scorecard.equations, small)
    assert [entry.astext() for entry in table.findall(nodes.entry)][3:] == ["Table 1", "120 orders", "1.50 ± 0.10 nats"]


# What is written ---------------------------------------------------------------------------------------------------

def test_each_figure_and_table_of_the_paper_has_a_passport():
    assert sorted(figure["paper"] for figure in FIGURES) == sorted(PAPER)
    assert len({figure["id"] for figure in FIGURES}) == len(FIGURES)
    for figure in FIGURES:
        assert set(figure) == {"id", "paper", "shows", "chapter", "anchor", "settings", "claims", "differs"}
        named = book_passport.claims_of(figure, CLAIMS)
        assert {claim["chapter"] for claim in named} == {figure["chapter"]}, figure["id"]
        for name in figure["claims"]:
            assert book_passport.claims_of({"claims": [name]}, named), (figure["id"], name)


def test_the_command_of_a_passport_is_one_that_the_makefile_knows():
    makefile = (ROOT / "Makefile").read_text()
    line = re.fullmatch(r'make ([a-z]+) ([A-Z]+)="[0-9a-z_]+"', book_passport.command(FIGURES[0]))
    target, assignment = line.groups()
    assert re.search(rf"^{target}:.*\n\t.*book_execute\.py .*\$\({assignment}\)", makefile, re.MULTILINE)
    stems = {path.stem for path in book_execute.chapters()}
    assert {figure["chapter"] for figure in FIGURES} <= stems


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure["id"])
def test_the_twin_is_in_its_chapter(figure):
    text = (ROOT / "notebooks" / f"{figure['chapter']}.md").read_text()
    if figure["anchor"].startswith("claim-"):
        assert figure["anchor"].removeprefix("claim-") in figure["claims"]
    else:
        assert f"name: {figure['anchor']}\n" in text


# What was built ----------------------------------------------------------------------------------------------------

@cache
def page(address):
    """A page of the site, parsed."""
    return BeautifulSoup((SITE / address).read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def built(built_site):
    return {name: page(f"book/{name}.html") for name in ("scorecard", "passport", "status")}


@pytest.fixture(scope="module")
def claims_json(built):
    return json.loads((SITE / "claims.json").read_text(encoding="utf-8"))


def test_claims_json_is_as_its_schema_says(claims_json):
    jsonschema.validate(claims_json, json.loads((SITE / claims_json["$schema"]).read_text()))
    assert [claim["id"] for claim in claims_json["claims"]] == [claim["id"] for claim in CLAIMS]
    assert claims_json["summary"]["in_band"] + sum(
        claim["verdict"] == "not run here" for claim in claims_json["claims"]) == len(CLAIMS)


def test_each_claim_tells_how_and_over_what_it_was_measured(claims_json):
    for claim, entry in zip(claims_json["claims"], CLAIMS, strict=True):
        if claim["verdict"] == "not run here":
            assert claim["value"] is None and claim["how"]
            continue
        low, high = claim["band"]
        assert low <= claim["value"] <= high, claim["id"]
        assert claim["text"].startswith(format(claim["value"], entry["format"])), claim["id"]
        assert ("±" in claim["text"]) == (claim["stderr"] is not None or claim["spread"] is not None), claim["id"]
        for count in ("seeds", "cases"):
            assert (claim[count] is not None) == (f"{{{count}}}" in entry["how"]), claim["id"]


def test_each_claim_leads_to_its_cell_and_back(claims_json, built):
    for claim in claims_json["claims"]:
        address, anchor = claim["url"].split("#")
        story = page(address).find(id=anchor)
        assert story.name == "details" and story.summary.select_one(".verdict").get_text() == claim["verdict"]
        assert claim["how"] in story.get_text(), claim["id"]
        assert story.select(f'a[href$="scorecard.html#{anchor}"]'), claim["id"]
        row = built["scorecard"].find("tr", id=anchor)
        assert claim["how"] in row.select_one("details.story").get_text(), claim["id"]
        assert row.select(f'a[href="../{claim["url"]}"]'), claim["id"]


def test_the_equations_have_their_cases_and_errors(claims_json, built):
    rows = built["scorecard"].select("table.equations tbody tr")
    checked = [claim for claim in claims_json["claims"] if re.match("largest .*error", claim["how"])]
    assert len(rows) == len(checked) >= 15
    for row, claim in zip(rows, checked, strict=True):
        assert re.search(r"\d", row.select("td")[1].get_text()), claim["id"]  # on how many
        assert claim["text"] in row.select("td")[2].get_text()


def test_the_badge_is_on_the_front_page(claims_json, built):
    summary = claims_json["summary"]
    said = f"{summary['in_band']} of {summary['claims']} in band"
    for name in ("intro", "scorecard"):
        assert page(f"book/{name}.html").select_one('img[src="../badge.svg"]')["alt"] == f"Claims: {said}"
    assert said in (SITE / "badge.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure["id"])
def test_a_passport_has_its_twin_numbers_data_and_cost(figure, built):
    section = built["passport"].find("section", id=f"passport-{figure['id']}")
    target = f"../{book_passport.target(figure)}"
    assert section.select(f'a[href="{target}"]')
    address, anchor = book_passport.target(figure).split("#")
    twin = page(address).find(id=anchor)
    if twin.name == "figure":
        ours, theirs = section.select_one("div.twin img"), twin.find("img")
        assert ours["src"] == theirs["src"] and ours["alt"] == theirs["alt"]
    assert len(section.select("table.numbers tbody tr")) == len(book_passport.claims_of(figure, CLAIMS))
    assert book_passport.command(figure) in section.get_text()
    assert re.search(r"\(\d+ s, \d+ MB for the whole chapter\)", section.get_text())
    data = section.select_one(f'a[href="../data/{figure["id"]}.csv"]')
    rows = list(csv.reader(io.StringIO((SITE / "book" / data["href"]).read_text(encoding="utf-8"))))
    assert len(rows) >= 5 and len(set(map(len, rows))) == 1 and len(set(rows[0])) == len(rows[0]) > 1
    assert any(cell for row in rows[1:] for cell in row)
    line, = [row for row in built["passport"].select("table.passport tbody tr") if figure["paper"] in row.get_text()]
    assert target in {link["href"] for link in line.select("a")} and book_passport.command(figure) in line.get_text()


def test_the_status_page_has_every_chapter(built):
    rows = built["status"].select("table.status tbody tr")
    assert len(rows) == len(book_execute.chapters()) + 1
    for row in rows[:-1]:
        seconds, megabytes = (int(re.match(r"\d+", cell.get_text())[0]) for cell in row.select("td")[1:3])
        assert seconds > 0 and 100 < megabytes < book_records.MOST_MEGABYTES
    settings = built["status"].select_one("table.setting").get_text()
    assert "torch" in settings and "cores" in settings
