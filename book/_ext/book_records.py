"""What the pages show of the chapters' records, all from _build/records.json through one template, book_records.html.

    ```{records} scorecard     every claim, the paper's value beside ours, and how it came out; also `equations`,
    ```                        `passport` (the paper's figures, from book/figures.yml), `status` and `badge`
    {claim}`id`                a claim's value in a sentence, and {verdict}`id` how it came out

The chapters are run first where they must be, then read with their outputs, each record drawn where it stands. The site
gets claims.json (described by claims.schema.json), badge.svg and data/KEY.csv beside its pages.
"""

import csv
import hashlib
import json
import re
from collections import Counter
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml
from book_digest import ROOT, chapters, code_cells, read_chapter
from book_execute import execute
from book_outputs import executed_chapter
from docutils import nodes
from jinja2 import Environment, FileSystemLoader
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from mptlml.report.chapter import MOST_MEGABYTES
from mptlml.report.claims import VERDICTS
from mptlml.report.records import MIME

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent
PAGE = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True).get_template(
    "book_records.html").module
EQUATION = re.compile(r"largest (?:relative )?error over (?:the rows, against )?")  # so `how` begins for an equation


@cache
def read_json(path: Path, modified: float) -> dict:
    """A file of records; read again when it was modified."""
    return json.loads(path.read_text(encoding="utf-8"))


def records(root: Path = ROOT) -> dict:
    """What `book_outputs.gather` found."""
    path = root / "_build" / "records.json"
    return read_json(path, path.stat().st_mtime)


def shown(record: dict, found: dict) -> str:
    """A record as it is drawn on its chapter's page: HTML, or nothing."""
    if record["kind"] == "claim":
        return PAGE.claim(next(claim for claim in found["claims"] if claim["id"] == record["id"]))
    if record["kind"] == "cost":
        return PAGE.cost(record, [claim for claim in found["claims"] if claim["chapter"] == record["chapter"]])
    return PAGE.data(record) if record.get("note") else ""


def read_executed(text: str, stem: str, root: str):
    """MyST-NB's reader of chapters: today's text with the outputs that are kept, and its records drawn."""
    path = Path(root) / "notebooks" / f"{stem}.md"
    notebook = executed_chapter(path, Path(root), text) or read_chapter(path, Path(root), text)
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if MIME in output.get("data", {}):
                output["data"] = {"text/html": str(shown(output["data"][MIME], records(Path(root))))}
        cell.outputs = [output for output in cell.outputs if output.get("data") != {"text/html": ""}]
    return notebook


def read_figures(path: Path) -> list[dict]:
    """The entries of figures.yml, in the paper's order."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def claims_of(figure: dict, claims: list[dict]) -> list[dict]:
    """The claims that a figure names, by id or by a pattern such as `linvae-*-script`, in the order of its names."""
    return [claim for name in figure["claims"] for claim in claims if fnmatchcase(claim["id"], name)]


def checked_equations(claims: list[dict]) -> list[tuple[dict, str]]:
    """The claims that are the largest error of an equation, each with what it was checked on."""
    return [(claim, EQUATION.sub("", claim["how"], count=1)) for claim in claims if EQUATION.match(claim["how"])]


def settings(found: dict) -> dict[str, list[str]]:
    """{version or property of the machine: its values}, over all chapters."""
    values = {}
    for part in ("versions", "machine"):
        for chapter in found["chapters"].values():
            for name, value in chapter[part].items():
                text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
                values.setdefault(name, {})[text] = None
    return {name: list(texts) for name, texts in values.items()}


def in_words(claims: list[dict]) -> str:
    """What the badge says. A claim that was measured lies in its band: others stop the build."""
    return f"{sum(claim['value'] is not None for claim in claims)} of {len(claims)} in band"


def html(text: str) -> nodes.raw:
    """HTML as a node."""
    return nodes.raw("", str(text), format="html")


class Records(SphinxDirective):
    """The directive: what to show is its argument, and the method that shows it."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.root = Path(self.env.srcdir)
        self.found = records(self.root)
        self.claims, self.chapters = self.found["claims"], self.found["chapters"]
        show = {"scorecard": self.scorecard, "equations": self.equations, "passport": self.passport,
                "status": self.status, "badge": self.badge}
        if self.arguments[0] not in show:
            raise self.error(f"records are shown as one of {sorted(show)}, not as {self.arguments[0]!r}")
        return show[self.arguments[0]]()

    def section(self, name: str, title: str, *body: nodes.Node) -> nodes.section:
        """A section that the page's contents list."""
        return nodes.section("", nodes.title("", title), *body, ids=[name], names=[name])

    def scorecard(self) -> list[nodes.Node]:
        for claim in self.claims:  # pages may say [text](#claim-id)
            anchor = f"claim-{claim['id']}"
            self.env.domains["std"].anonlabels[anchor] = self.env.docname, anchor
        sections = []
        for stem, chapter in self.chapters.items():
            claims = [claim for claim in self.claims if claim["chapter"] == stem]
            table = html(PAGE.scorecard(stem, chapter["title"], claims))
            sections.append(self.section(f"scorecard-{stem}", chapter["title"], table))
        return [html(PAGE.summary(self.claims, VERDICTS)), *sections]

    def equations(self) -> list[nodes.Node]:
        return [html(PAGE.equations(checked_equations(self.claims)))]

    def passport(self) -> list[nodes.Node]:
        source = self.root / "book" / "figures.yml"
        self.env.note_dependency(str(source))
        figures = [figure for figure in read_figures(source) if figure["chapter"] in self.chapters]
        sections = []
        for figure in figures:
            chapter, claims = self.chapters[figure["chapter"]], claims_of(figure, self.claims)
            sections.append(self.section(
                f"passport-{figure['id']}", figure["paper"], html(PAGE.shows(figure, chapter)),
                nodes.container("", twin_of=figure, classes=["twin"]), html(PAGE.figure(figure, chapter, claims))))
        return [html(PAGE.passport(figures, self.chapters)), *sections]

    def status(self) -> list[nodes.Node]:
        return [html(PAGE.status(self.chapters, MOST_MEGABYTES, settings(self.found)))]

    def badge(self) -> list[nodes.Node]:
        return [html(PAGE.claims_badge(in_words(self.claims)))]


class Claim(SphinxRole):
    """{claim}`id`, the value as text; {verdict}`id`, how it came out, as a badge."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        claim = next((claim for claim in records(Path(self.env.srcdir))["claims"] if claim["id"] == self.text), None)
        if claim is None:
            logger.warning("no claim %r was made", self.text, location=self.get_location(), type="book_records")
            return [], []
        return [nodes.Text(claim["text"]) if self.name == "claim" else html(PAGE.badge(claim["verdict"]))], []


def _run_and_read(app, config):
    """Run the chapters that are out of date, and let MyST-NB read them all with their outputs."""
    root = Path(app.srcdir)
    execute([], 2, root)
    config.nb_custom_formats = {
        f"notebooks/{path.stem}.md": ["book_records.read_executed", {"stem": path.stem, "root": str(root)}]
        for path in chapters(root)}
    sources = [root / "_build" / "records.json", HERE / "book_records.html"]
    config.book_records = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    for problem in records(root)["problems"]:
        logger.warning(problem, type="book_records")


def _show_twins(app, doctree, docname):
    """Put the chapters' own pictures into the passport, each as a link to it; claims have none."""
    for place in list(doctree.findall(nodes.container)):
        if "twin_of" in place:
            figure = place["twin_of"]
            chapter = app.env.get_doctree(f"notebooks/{figure['chapter']}")
            pictures = [image.deepcopy() for found in chapter.findall(nodes.figure) if figure["anchor"] in found["ids"]
                        for image in found.findall(nodes.image)]
            link = f"../notebooks/{figure['chapter']}.html#{figure['anchor']}"
            place += [nodes.reference("", "", picture, refuri=link, internal=True) for picture in pictures[:1]]


def claims_json(found: dict) -> dict:
    """The content of claims.json."""
    claims = found["claims"]
    return {
        "$schema": "claims.schema.json", "version": found["version"],
        "summary": {"claims": len(claims), "in_band": sum(claim["value"] is not None for claim in claims),
                    "verdicts": dict(sorted(Counter(claim["verdict"] for claim in claims).items()))},
        "claims": claims,
    }


def claims_schema() -> dict:
    """What stands in claims.json, as a JSON Schema; the verdicts are those of mptlml.report."""
    schema = json.loads((HERE / "claims.schema.json").read_text(encoding="utf-8"))
    schema["properties"]["claims"]["items"]["properties"]["verdict"]["enum"] = list(VERDICTS)
    return schema


def write_files(found: dict, site: Path) -> None:
    """Put claims.json, its schema, the badge and the figures' data into a built site."""
    for name, content in (("claims.json", claims_json(found)), ("claims.schema.json", claims_schema())):
        (site / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (site / "badge.svg").write_text(str(PAGE.picture("claims", in_words(found["claims"]))).strip(), encoding="utf-8")
    (site / "data").mkdir(exist_ok=True)
    for chapter in found["chapters"].values():
        for key, columns in chapter["columns"].items():
            rows = [[f"{cell:.8g}" if isinstance(cell, float) else cell for cell in row]
                    for row in zip(*columns.values(), strict=True)]
            with (site / "data" / f"{key}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def _write(app, exception):
    if exception is None and app.builder.name == "html":
        write_files(records(Path(app.srcdir)), Path(app.outdir))


def setup(app):
    app.add_config_value("book_records", "", "env")  # every page is read anew when the records or their template change
    app.add_directive("records", Records)
    for name in ("claim", "verdict"):
        app.add_role(name, Claim())
    app.connect("config-inited", _run_and_read)
    app.connect("doctree-resolved", _show_twins)
    app.connect("build-finished", _write, priority=400)  # before the pages are inspected
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
