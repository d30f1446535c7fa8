"""What the pages show of the chapters' records, all through one template, book_records.html.

    ```{records} scorecard     every claim, the paper's value beside ours, and how it came out; also `summary`,
    ```                        `figures` and `passport` (from book/figures.yml), `ledger` (from book/ledger.csv)
    {claim}`id`                a claim's value in a sentence, with a mark for how it came out and its story on hover,
                               focus or tap; {verdict}`id` is the verdict in words

Each record is drawn where it stands. The site gets claims.json and data/KEY.csv beside its pages.
"""

import json
import re
from collections import Counter, defaultdict
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pandas as pd
import yaml
from book_polish import minus, unbroken
from book_reader import chapters, code_cells, executed_chapter
from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from nbformat import NotebookNode
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from mptlml_book.report import claims as rules
from mptlml_book.report.records import MIME

logger = logging.getLogger(__name__)
# of an entry of claims.yml, and of its record
FIELDS = (
    "id chapter kind place paper unit band why detects run value stderr spread seeds cases".split()
)


def typeset(text: str) -> str:
    """Text with apostrophes as on the pages; a number stays on one line with its power or its error."""
    return unbroken(text.replace("'", "’"))


def was_checked(claims: list[dict]) -> list[dict]:
    """The claims that were checked, here and on the data of their bands."""
    return [claim for claim in claims if claim["verdict"] not in (rules.NOT_RUN, rules.OTHER_DATA)]


PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    finalize=lambda value: typeset(value) if isinstance(value, str) else value,
)
PAGES.globals["rules"] = rules
PAGES.filters.update(
    band=rules.band_text, with_unit=rules.with_unit, minus=minus, checked=was_checked
)
TEMPLATE = PAGES.get_template("book_records.html").module


def account(notebook: NotebookNode) -> dict:
    """A chapter's cost, its title, its drawings with their captions by name, and its other records by kind."""
    records, figures = defaultdict(list), {}
    for cell in code_cells(notebook):
        shown = cell.metadata.get("mystnb", {})
        figure = shown.get("figure", {}).get("name", "")
        for data in [output.data for output in cell.outputs if "data" in output]:
            if MIME in data:
                records[data[MIME]["kind"]].append(data[MIME] | {"figure": figure})
            elif figure and "text/html" in data:
                alt, html = shown.get("image", {}).get("alt"), Markup(data["text/html"])
                figures[figure] = str(TEMPLATE.drawing(alt, html)), shown["figure"]["caption"]
    text = "\n".join(cell.source for cell in notebook.cells)
    return records["cost"][0] | {
        "title": re.search("^# (.+)", text, re.MULTILINE)[1].strip(),
        "columns": {record["key"]: dict(record["columns"]) for record in records["columns"]},
        "claims": records["claim"],
        "data": records["data"],
        "figures": figures,
    }


def told(entry: dict, record: dict, seconds: float) -> dict:
    """A claim as claims.json has it: its entry in claims.yml, and what its chapter measured in `seconds`."""
    known = {"run": "here"} | record | entry
    return {name: known.get(name) for name in FIELDS} | {
        "statement": rules.statement(entry, record),
        "text": rules.value_text(entry, record),
        "how": rules.how(entry, record),
        "verdict": rules.verdict(entry, record),
        "cell": record["figure"] or f"measured-{entry['id']}",
        "seconds": seconds,
        "url": f"notebooks/{entry['chapter']}.html#claim-{entry['id']}",
    }


@cache
def read_records(root: Path) -> dict:
    """What all chapters said: `chapters`, their `claims`, and the paper's `figures`, each with those it names."""
    book = root / "book"
    found = {path.stem: account(executed_chapter(path)) for path in chapters(root)}
    records = {claim["id"]: claim for chapter in found.values() for claim in chapter["claims"]}
    claims = [
        told(entry, records[id], found[entry["chapter"]]["seconds"])
        for id, entry in rules.claims(book / "claims.yml").items()
    ]
    figures = yaml.safe_load((book / "figures.yml").read_text(encoding="utf-8"))
    for figure in figures:
        figure["found"] = [
            claim for name in figure["claims"] for claim in claims if fnmatchcase(claim["id"], name)
        ]
    ledger = pd.read_csv(book / "ledger.csv")
    return {"chapters": found, "claims": claims, "figures": figures, "ledger": ledger}


def read_executed(text: str, path: str) -> NotebookNode:
    """MyST-NB's reader of chapters: today's text with the outputs that are kept, and its records drawn."""
    notebook, book, said = (
        executed_chapter(Path(path), text),
        read_records(Path(path).parents[1]),
        [],
    )
    figures = book["chapters"][Path(path).stem]["figures"]
    for cell in code_cells(notebook):
        shown = cell.metadata.get("mystnb", {}).get("figure", {})
        for figure in book["figures"]:
            if figure["anchor"] == shown.get("name"):  # what the paper calls it
                shown["caption"] = f"{TEMPLATE.of_paper(figure)} {shown['caption']}"
        for data in [output.data for output in cell.outputs if "data" in output]:
            if MIME in data:
                in_sentence = f"{{claim}}`{data[MIME].get('id')}`" in text
                html = str(TEMPLATE.record(data[MIME], book, in_sentence))
                data.clear()
                data["text/html"] = "" if html in said else html  # a note on data stands once
                said.append(html)
            elif shown.get("name") in figures:
                data["text/html"], _ = figures[shown["name"]]
        cell.outputs = [one for one in cell.outputs if one.get("data") != {"text/html": ""}]
    return notebook


class Records(SphinxDirective):
    """{records}: what to show of all chapters is its argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        book = read_records(Path(self.env.srcdir))
        for stem in book["chapters"]:
            self.env.note_dependency(f"notebooks/{stem}.md")
        if self.arguments[0] == "scorecard":
            # pages may say [text](#claim-id)
            for anchor in (f"claim-{claim['id']}" for claim in book["claims"]):
                self.env.domains["std"].anonlabels[anchor] = self.env.docname, anchor
        page = getattr(TEMPLATE, f"page_{self.arguments[0]}")
        return self.parse_text_to_nodes(str(page(book)), allow_section_headings=True)


class Twin(SphinxDirective):
    """{twin} CHAPTER FIGURE: the chapter's picture, once on a page; a claim's anchor has none."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        chapter, name = self.arguments
        self.env.note_dependency(f"notebooks/{chapter}.md")
        figures = read_records(Path(self.env.srcdir))["chapters"][chapter]["figures"]
        shown = self.env.temp_data.setdefault("twins shown", set())
        if name not in figures or name in shown:
            return []
        shown.add(name)
        drawing, caption = figures[name]
        place = nodes.container("", nodes.raw("", drawing, format="html"), classes=["twin"])
        if self.env.docname == "book/short":  # without its chapter a picture needs its key
            key, *_ = self.parse_text_to_nodes(caption)
            key["classes"].append("key")
            place += key
        return [place]


class TableFigure(nodes.figure):
    """A figure that holds a table, and is numbered as one: its name begins with tab-."""


def _number_tables(app, doctree):
    for figure in doctree.findall(nodes.figure):
        if any(name.startswith("tab-") for name in figure["names"]):
            figure.__class__ = TableFigure  # in place: others hold it already


class ClaimValue(nodes.inline):
    """A claim's value in a sentence: a button that shows the story behind it."""


class Claim(SphinxRole):
    """{claim}, the value with its story; {verdict}, how it came out, as a badge."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        claims = {claim["id"]: claim for claim in read_records(Path(self.env.srcdir))["claims"]}
        if not (claim := claims.get(self.text)):
            logger.warning("no claim %r is listed", self.text, location=self.get_location())
            return [], []
        if self.name == "verdict":
            return [nodes.raw("", str(TEMPLATE.badge(claim["verdict"])), format="html")], []
        told = self.env.temp_data.setdefault("claims told", set())
        # where its chapter says it first
        first = self.env.docname == f"notebooks/{claim['chapter']}" and self.text not in told
        told.add(self.text)
        number = f"story-{self.env.new_serialno('claim')}"
        anchor = f"claim-{self.text}" if first else ""
        text = typeset(claim["text"])
        return [ClaimValue("", text, claim=claim, number=number, anchor=anchor)], []


def _open_value(self, node):
    self.body.append(str(TEMPLATE.open_value(node["claim"], node["number"], node["anchor"])))


def _close_value(self, node):
    self.body.append(str(TEMPLATE.close_value(node["claim"], node["number"])))


def write_files(book: dict, site: Path) -> None:
    """Put claims.json and the figures' data into a built site."""
    summary = {"claims": len(book["claims"]), "in_band": len(was_checked(book["claims"]))}
    for name in ("kind", "run", "verdict"):
        summary[f"{name}s"] = dict(sorted(Counter(claim[name] for claim in book["claims"]).items()))
    content = {"version": 2, "summary": summary, "claims": book["claims"]}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (site / "claims.json").write_text(f"{text}\n", encoding="utf-8")
    (site / "data").mkdir(exist_ok=True)
    for chapter in book["chapters"].values():
        for key, columns in chapter["columns"].items():
            path = site / "data" / f"{key}.csv"
            pd.DataFrame(columns).to_csv(path, index=False, float_format="%.8g")


def _read_chapters(app, config):
    config.nb_custom_formats = {
        f"notebooks/{path.name}": ["book_records.read_executed", {"path": str(path)}]
        for path in chapters(Path(app.srcdir))
    }


def _write(app, exception):
    if exception is None and app.builder.name == "html":
        write_files(read_records(Path(app.srcdir)), Path(app.outdir))


def setup(app):
    app.add_directive("records", Records)
    app.add_directive("twin", Twin)
    app.add_node(ClaimValue, html=(_open_value, _close_value))
    app.add_role("claim", Claim())
    app.add_role("verdict", Claim())
    app.connect("config-inited", _read_chapters)
    app.add_enumerable_node(
        TableFigure,
        "table",
        html=(
            lambda self, node: self.visit_figure(node),
            lambda self, node: self.depart_figure(node),
        ),
    )
    app.connect("doctree-read", _number_tables, priority=100)
    app.connect("build-finished", _write, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
