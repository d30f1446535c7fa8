"""What the pages show of the chapters' records, all from one file and through one template, book_records.html.

    ```{records} scorecard     every claim, the paper's value beside ours, and how it came out; also `summary`,
    ```                        `figures` and `passport` (from book/figures.yml)
    {claim}`id`                a claim's value in a sentence, with a mark for how it came out and its story on hover,
                               focus or tap; {verdict}`id` is the verdict in words

Chapters that are out of date run first. Then all are read with their outputs, each record drawn
where it stands. The site gets claims.json (described by claims.schema.json) and data/KEY.csv beside
its pages.
"""

import csv
import json
import shutil
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path

import yaml
from book_digest import chapters, code_cells, read_chapter
from book_execute import execute
from book_outputs import executed_chapter
from book_polish import minus, unbroken
from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from nbformat import NotebookNode
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from mptlml_book.report.claims import (
    KINDS,
    NOT_RUN,
    OTHER_DATA,
    RUNS,
    VERDICTS,
    band_text,
    with_unit,
)
from mptlml_book.report.records import MIME

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent
SCHEMA = HERE.parent / "claims.schema.json"


def typeset(text: str) -> str:
    """Text with apostrophes as on the pages; a number stays on one line with its power or its error."""
    return unbroken(text.replace("'", "’"))


PAGES = Environment(
    loader=FileSystemLoader(HERE),
    autoescape=True,
    trim_blocks=True,
    finalize=lambda value: typeset(value) if isinstance(value, str) else value,
)
PAGES.globals.update(
    runs=RUNS, checked=partial(filter, lambda claim: claim["verdict"] not in (NOT_RUN, OTHER_DATA))
)
PAGES.filters.update(band=band_text, with_unit=with_unit, minus=minus)
TEMPLATE = PAGES.get_template("book_records.html").module


@cache
def read_records(root: Path) -> dict:
    """The records of all chapters (book_outputs.py), and what else the pages need."""
    found = json.loads((root / "_build" / "records.json").read_text(encoding="utf-8"))
    count = Counter(claim["verdict"] for claim in found["claims"])
    missing, other = count[NOT_RUN], count[OTHER_DATA]
    # outside its band such a claim stops the build
    in_band = len(found["claims"]) - missing - other
    lacking = f", {missing} need{'s' * (missing == 1)} data that this copy lacks" * bool(missing)
    lacking += (
        f", {other} ran on other data than those of {'their bands' if other > 1 else 'its band'}"
        * bool(other)
    )
    return found | {
        "kinds": KINDS,
        "verdicts": VERDICTS,
        "figures": read_figures(root, found["claims"]),
        "in_band": in_band,
        "said": f"{in_band} checked" + lacking,
    }


def read_figures(root: Path, found: list[dict]) -> list[dict]:
    """The paper's figures, in its order, each with the claims that it names by id or pattern."""
    figures = yaml.safe_load((root / "book" / "figures.yml").read_text(encoding="utf-8"))
    return [
        figure
        | {
            "found": [
                claim
                for name in figure["claims"]
                for claim in found
                if fnmatchcase(claim["id"], name)
            ]
        }
        for figure in figures
    ]


def drawn(record: dict, book: dict, text: str = "") -> str:
    """A record as its page shows it: HTML, or nothing. A claim that `text` names has its story there."""
    if record["kind"] == "claim":
        found = [claim for claim in book["claims"] if claim["id"] == record["id"]]
        if not found:  # its chapter did not close: see `problems`
            return ""
        if f"{{claim}}`{record['id']}`" not in text:
            return str(TEMPLATE.claim(found[0]))
        anchor = f"measured-{record['id']}"
        return f'<span id="{anchor}"></span>' if found[0]["cell"] == anchor else ""
    if record["kind"] == "cost":
        own = [claim for claim in book["claims"] if claim["chapter"] == record["chapter"]]
        return str(TEMPLATE.cost(record, own, book["chapters"][record["chapter"]]["data"]))
    if record["kind"] == "unlike":
        says = f"The page says that {record['says']}. On the data at hand that does not hold."
        return str(TEMPLATE.note("Other", says))
    return str(TEMPLATE.note("Default", record["note"])) if record.get("note") else ""


def read_executed(text: str, path: str) -> NotebookNode:
    """MyST-NB's reader of chapters: today's text with the outputs that are kept, and its records drawn."""
    source, root = Path(path), Path(path).parents[1]
    notebook, said = executed_chapter(source, root, text) or read_chapter(source, text), []
    for cell in code_cells(notebook):
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
        for output in cell.outputs:
            if MIME in output.get("data", {}):
                shown = drawn(output["data"][MIME], read_records(root), text)
                # a note on data once
                output["data"] = {"text/html": "" if shown in said else shown}
                said.append(shown)
            elif alt and "text/html" in output.get("data", {}):
                output["data"] = {
                    "text/html": str(TEMPLATE.drawing(alt, Markup(output["data"]["text/html"])))
                }
        cell.outputs = [
            output for output in cell.outputs if output.get("data") != {"text/html": ""}
        ]
    return notebook


class Records(SphinxDirective):
    """{records}: what to show of all chapters is its argument."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        book = read_records(Path(self.env.srcdir))
        page = getattr(TEMPLATE, f"page_{self.arguments[0]}")
        if self.arguments[0] == "scorecard":
            # pages may say [text](#claim-id)
            for anchor in (f"claim-{claim['id']}" for claim in book["claims"]):
                self.env.domains["std"].anonlabels[anchor] = self.env.docname, anchor
        return self.parse_text_to_nodes(str(page(book)), allow_section_headings=True)


class Twin(SphinxDirective):
    """{twin}: a chapter's own picture of a figure, once on a page. A claim's anchor has none."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(f"notebooks/{self.arguments[0]}.md")
        return [nodes.container("", twin=self.arguments, classes=["twin"])]


class TableFigure(nodes.figure):
    """A figure that holds a table, and is numbered as one: its name begins with tab-."""


def _number_tables(app, doctree):
    for figure in doctree.findall(nodes.figure):
        if any(name.startswith("tab-") for name in figure["names"]):
            figure.__class__ = TableFigure  # in place: others hold it already


def _tag_paper(app, doctree, docname):
    """A caption says which figure or table of the paper this is, and leads to the passport."""
    found = {name: figure for figure in doctree.findall(nodes.figure) for name in figure["ids"]}
    for figure in read_records(Path(app.srcdir))["figures"]:
        if figure["anchor"] in found and docname == f"notebooks/{figure['chapter']}":
            tag = nodes.reference(
                "",
                f"Paper: {figure['paper']}",
                internal=True,
                classes=["paper"],
                refuri=f"../book/passport.html#passport-{figure['id']}",
            )
            next(found[figure["anchor"]].findall(nodes.caption)).insert(0, tag)


def _show_twins(app, doctree, docname):
    shown = set()
    for place in [node for node in doctree.findall(nodes.container) if "twin" in node]:
        chapter, anchor = place["twin"]
        figures = app.env.get_doctree(f"notebooks/{chapter}").findall(nodes.figure)
        for figure in [figure for figure in figures if anchor in figure["ids"]]:
            pictures = [
                picture.astext() for picture in figure.findall(nodes.raw) if anchor not in shown
            ]
            place += [nodes.raw("", picture, format="html") for picture in pictures]
            shown.add(anchor)
            if docname == "book/short":  # without its chapter a picture needs its key
                caption = next(figure.findall(nodes.caption)).deepcopy()
                place += nodes.paragraph("", "", *caption.children, classes=["key"])


class ClaimValue(nodes.inline):
    """A claim's value in a sentence: a button that shows the story behind it."""


class Claim(SphinxRole):
    """{claim}, the value with its story; {verdict}, how it came out, as a badge."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        claims = {claim["id"]: claim for claim in read_records(Path(self.env.srcdir))["claims"]}
        if self.text not in claims:
            logger.warning(
                "no claim %r was made", self.text, location=self.get_location(), type="book_records"
            )
        elif self.name == "claim":
            claim, told = claims[self.text], self.env.temp_data.setdefault("claims told", set())
            text = typeset(claim["text"])
            node = ClaimValue(
                "", text, claim=claim, number=f"story-{self.env.new_serialno('claim')}", anchor=""
            )
            if self.env.docname == f"notebooks/{claim['chapter']}" and self.text not in told:
                node["anchor"] = f"claim-{self.text}"  # where its chapter says it first
            told.add(self.text)
            return [node], []
        else:
            return [
                nodes.raw("", str(TEMPLATE.badge(claims[self.text]["verdict"])), format="html")
            ], []
        return [], []


def _open_value(self, node):
    self.body.append(str(TEMPLATE.open_value(node["claim"], node["number"], node["anchor"])))


def _close_value(self, node):
    self.body.append(str(TEMPLATE.close_value(node["claim"], node["number"])))


def write_files(book: dict, site: Path) -> None:
    """Put claims.json, its schema and the figures' data into a built site."""
    counts = {
        f"{name}s": dict(sorted(Counter(claim[name] for claim in book["claims"]).items()))
        for name in ("kind", "run", "verdict")
    }
    summary = {"claims": len(book["claims"]), "in_band": book["in_band"], **counts}
    content = {"$schema": SCHEMA.name, "version": 2, "summary": summary, "claims": book["claims"]}
    (site / "claims.json").write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    shutil.copy(SCHEMA, site)
    (site / "data").mkdir(exist_ok=True)
    for chapter in book["chapters"].values():
        for key, columns in chapter["columns"].items():
            rows = [
                [f"{cell:.8g}" if isinstance(cell, float) else cell for cell in row]
                for row in zip(*columns.values(), strict=True)
            ]
            with (site / "data" / f"{key}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def _run_and_read(app, config):
    """Run the chapters that are out of date, and let MyST-NB read them all with their outputs."""
    root = Path(app.srcdir)
    execute([], 2, root, ask=False)  # `make book` has asked
    config.nb_custom_formats = {
        f"notebooks/{path.name}": ["book_records.read_executed", {"path": str(path)}]
        for path in chapters(root)
    }
    for problem in read_records(root)["problems"]:
        logger.warning(problem, type="book_records")


def _write(app, exception):
    if exception is None and app.builder.name == "html":
        write_files(read_records(Path(app.srcdir)), Path(app.outdir))


def setup(app):
    app.add_directive("records", Records)
    app.add_directive("twin", Twin)
    app.add_node(ClaimValue, html=(_open_value, _close_value))
    app.add_role("claim", Claim())
    app.add_role("verdict", Claim())
    app.connect("config-inited", _run_and_read)
    app.add_enumerable_node(
        TableFigure,
        "table",
        html=(
            lambda self, node: self.visit_figure(node),
            lambda self, node: self.depart_figure(node),
        ),
    )
    app.connect("doctree-read", _number_tables, priority=100)
    app.connect("doctree-resolved", _tag_paper)
    app.connect("doctree-resolved", _show_twins)
    app.connect("build-finished", _write, priority=400)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
