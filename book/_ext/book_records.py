"""What the chapters measured, read back from what they glued, for the pages that show all of it.

`records(app)` gives the claims, the cost of each chapter and the data of its figures once every page has been read.
Pages that are made of them (scorecard, passport, status) hold `later` nodes, which this extension fills by then. In the
story of each claim on a chapter's page it also tells what the chapter cost and where the scorecard has it.
"""

import ast
import json
import re
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util import logging

logger = logging.getLogger(__name__)

MOST_MEGABYTES = 2048  # what a Binder has; report.closing() stops a chapter above it, and this the pages
CLAIM = re.compile(r'(<details class="claim" id="claim-([a-z0-9-]+)">.*?)</dl></details>', re.DOTALL)


def read_claims(path: Path) -> list[dict]:
    """The entries of claims.yml, in order."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or []


def one_line(text) -> str:
    """Text of a YAML file without its line breaks."""
    return " ".join(str(text or "").split())


def chapter_title(path: Path) -> str:
    """The first heading of a chapter."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line[2:].strip() for line in lines if line.startswith("# ")), path.stem)


def read_glued(path: Path) -> dict:
    """{name: value} that a chapter glued, from myst-nb's file: numbers, strings, records; CSV tables as text."""
    readers = {"text/plain": ast.literal_eval, "application/json": json.loads, "text/csv": str}
    found = {}
    if path.is_file():
        for name, output in json.loads(path.read_text(encoding="utf-8")).items():
            for mime, reader in readers.items():
                if mime in output["data"]:
                    found[name] = reader(output["data"][mime])
    return found


def claim_record(claim: dict, glued: dict) -> dict:
    """A claim as claims.json has it, from its entry in claims.yml and what its chapter glued."""
    measured = glued.get(f"{claim['id']}-record", {})
    counts = {name: f"{measured.get(name) or 0:,}" for name in ("seeds", "cases")}
    return {
        **{name: claim[name] for name in ("id", "chapter", "place", "paper", "unit", "band")},
        "statement": one_line(claim["statement"]),
        "why": one_line(claim["why"]),
        **{name: measured.get(name) for name in ("value", "stderr", "spread", "seeds", "cases")},
        "text": glued.get(f"{claim['id']}-value"),
        "how": measured.get("reason") or one_line(claim.get("how")).format(**counts),
        "verdict": glued.get(f"{claim['id']}-verdict"),
        "seconds": round(glued.get(f"{claim['chapter']}-seconds", 0), 1),
        "url": f"notebooks/{claim['chapter']}.html#claim-{claim['id']}",
    }


def gather(root: Path, glue_folder: Path, docnames: set[str]) -> dict:
    """{"claims": [...], "chapters": {stem: ...}}, for the chapters among the book's pages."""
    chapters, claims = {}, []
    stems = sorted(name.removeprefix("notebooks/") for name in docnames if name.startswith("notebooks/"))
    by_chapter = {stem: read_glued(glue_folder / "notebooks" / f"{stem}.glue.json") for stem in stems}
    for stem, glued in by_chapter.items():
        chapters[stem] = {
            "title": chapter_title(root / "notebooks" / f"{stem}.md"),
            "seconds": glued.get(f"{stem}-seconds", 0.0),
            "megabytes": glued.get(f"{stem}-megabytes", 0.0),
            "setting": glued.get(f"{stem}-setting", {}),
            "tables": {name.removesuffix("-data"): value for name, value in glued.items() if name.endswith("-data")},
        }
    for claim in read_claims(root / "book" / "claims.yml"):
        if claim["chapter"] in by_chapter:  # others have nothing to be glued from
            claims.append(claim_record(claim, by_chapter[claim["chapter"]]))
    return {"claims": claims, "chapters": chapters}


def too_large(chapters: dict) -> list[str]:
    """A sentence for each chapter that needs more memory than a Binder has."""
    return [f"{stem} took {chapter['megabytes']:.0f} MB, a Binder has {MOST_MEGABYTES}"
            for stem, chapter in chapters.items() if chapter["megabytes"] > MOST_MEGABYTES]


def records(app) -> dict:
    """What `gather` found, once all pages are read."""
    return app.book_records


class later(nodes.General, nodes.Element):
    """Stands where `make(app, docname, node)` puts nodes, once the records are there: `later(make=...)`."""


def paragraph(*parts, classes=()):
    """A paragraph of nodes and strings."""
    return nodes.paragraph("", "", *(nodes.Text(part) if isinstance(part, str) else part for part in parts),
                           classes=list(classes))


def link(text: str, target: str) -> nodes.reference:
    """A link to a page or file of the site, relative to the page that it stands on."""
    return nodes.reference("", text, refuri=target, internal=True)


def table(header, rows, classes, widths=None) -> nodes.table:
    """A table of strings and nodes."""
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=width) for width in widths or [1] * len(header)]
    head, body = nodes.thead(), nodes.tbody()
    head += nodes.row("", *(nodes.entry("", paragraph(name)) for name in header))
    body += [nodes.row("", *(nodes.entry("", cell if isinstance(cell, nodes.paragraph) else paragraph(cell))
                             for cell in row)) for row in rows]
    group += [head, body]
    return nodes.table("", group, classes=list(classes))


def _collect(app, env):
    app.book_records = gather(Path(app.srcdir), Path(env.mystnb_config.output_folder), env.found_docs)
    for sentence in too_large(app.book_records["chapters"]):
        logger.warning(sentence, type="book_records")


def complete_stories(text: str, seconds: float, scorecard: str) -> str:
    """The claims in a cell's HTML, each with a line on the scorecard and on what the chapter cost."""
    def complete(found):
        row = f'<a href="{scorecard}#claim-{found[2]}">the scorecard</a>'
        return f"{found[1]}<dt>See also</dt><dd>{row}. The chapter ran for {seconds:.0f} seconds.</dd></dl></details>"

    return CLAIM.sub(complete, text)


def _fill_in(app, doctree, docname):
    for place in list(doctree.findall(later)):
        place.replace_self(place["make"](app, docname, place))
    chapter = records(app)["chapters"].get(docname.removeprefix("notebooks/"))
    if chapter and app.builder.format == "html":
        scorecard = app.builder.get_relative_uri(docname, "book/scorecard")
        for output in doctree.findall(nodes.raw):
            if 'class="claim"' in output.astext():
                text = complete_stories(output.astext(), chapter["seconds"], scorecard)
                output.replace_self(nodes.raw("", text, format="html", classes=output["classes"]))


def setup(app):
    app.add_node(later)
    app.connect("env-check-consistency", _collect)
    app.connect("doctree-resolved", _fill_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
