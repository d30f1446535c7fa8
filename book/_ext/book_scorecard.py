"""The `{scorecard}` directive: every claim of the book, the paper's value beside ours, and how it came out.

    ```{scorecard}
    :chapter: 04_convergence        (optional: that chapter's claims alone, with no heading)
    ```

    ```{checked-equations}          (the claims that are the largest error of an equation, in one table)
    ```

What is claimed stands in `book/claims.yml`; what was measured is glued from the chapters, so a claim that a chapter did
not make is a missing key, which stops the build. The verdict is glued too (a chapter may say "not run
here"), hence badges get their colour, and the summary its counts, after Sphinx has filled the keys in. Behind each
claim's <details> stands its story: how it was measured, the band and why, the cell.
"""

import re
from collections import Counter
from pathlib import Path
from posixpath import relpath

from book_records import chapter_title, later, link, one_line, paragraph, read_claims, records, table
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

VERDICTS = ("reproduced", "partly", "not reproduced", "new", "not run here")
HEADER = ("Claim", "Where", "Paper", "Ours", "Verdict")
WIDTHS = (46, 16, 13, 13, 12)
# so `how` begins where an equation is checked
EQUATION = re.compile(r"largest (?:relative )?error over (?:the rows, against )?")


def by_chapter(claims: list[dict]) -> dict[str, list[dict]]:
    """{chapter: its claims}, the chapters in the order of their numbers."""
    groups = {chapter: [] for chapter in sorted({claim["chapter"] for claim in claims})}
    for claim in claims:
        groups[claim["chapter"]].append(claim)
    return groups


def count_verdicts(texts: list[str]) -> list[tuple[str, int]]:
    """How often each verdict occurs, in the book's order; unknown ones last. Zero counts are left out."""
    counts = Counter(texts)
    order = [*VERDICTS, *sorted(set(counts) - set(VERDICTS))]
    return [(verdict, counts[verdict]) for verdict in order if counts[verdict]]


def badge_class(verdict: str) -> str:
    """The style sheet's name for a verdict."""
    return "verdict-" + verdict.replace(" ", "-")


def band_text(claim: dict) -> str:
    """The band as one says it, with its unit and where it comes from."""
    low, high = claim["band"]
    span = f"exactly {low:g}" if low == high else f"{low:g} to {high:g}"
    unit = f" {claim['unit']}" if claim.get("unit") else ""
    return f"{span}{unit}: {one_line(claim['why']).rstrip('.')}."


class summary_node(nodes.General, nodes.Element):
    """Stands where the counts go until the verdicts are known."""


class details_node(nodes.General, nodes.Element):
    """A <details> element; `summary` is the line that opens it. Other builders show what is in it."""


def _open_details(translator, node):
    translator.body.append(f'<details class="story"><summary>{node["summary"]}</summary>')


def _close_details(translator, node):
    translator.body.append("</details>")


def _nothing(translator, node):
    pass


def entry(name, *body):
    return nodes.definition_list_item("", nodes.term("", name), nodes.definition("", *body))


def record_of(app, id):
    return next(claim for claim in records(app)["claims"] if claim["id"] == id)


def measured(app, docname, place):
    """The value with its unit, and how it was measured."""
    record = record_of(app, place["claim"])
    return entry("Measured", paragraph(f"{record['text']} {record['unit'] or ''}".strip(), f", {record['how']}"))


def where(app, docname, place):
    """A link to the cell that measures a claim, and what its chapter cost."""
    record = record_of(app, place["claim"])
    cell = link("the cell that measures it", relpath(record["url"], Path(docname).parent.as_posix()))
    return entry("Where", paragraph(cell, f"; the chapter ran for {record['seconds']:.0f} seconds"))


def equations(app, docname, place):
    """Each equation that was checked: on how many cases, and with what largest error."""
    rows = [[paragraph(link(claim["place"], f"#claim-{claim['id']}")), EQUATION.sub("", claim["how"], count=1),
             f"{claim['text']} {claim['unit'] or ''}"]
            for claim in records(app)["claims"] if EQUATION.match(claim["how"])]
    return table(("Equation", "Checked on", "Largest error"), rows, ["equations"], (30, 50, 20))


class Scorecard(SphinxDirective):
    option_spec = {"chapter": directives.unchanged_required}

    def run(self):
        root = Path(self.env.srcdir)
        source = root / "book" / "claims.yml"
        self.env.note_dependency(str(source))
        # Claims of a chapter outside the table of contents have nothing to be glued from.
        claims = [claim for claim in read_claims(source) if f"notebooks/{claim['chapter']}" in self.env.found_docs]
        groups = by_chapter(claims)
        only = self.options.get("chapter")
        if only:
            groups = {only: groups[only]} if only in groups else {}
        if not groups:
            return [nodes.paragraph("", "No claims are listed yet.")]
        if only:
            return [self._table(only, groups[only])]
        return [summary_node(), *(self._section(chapter, claims) for chapter, claims in groups.items())]

    def _section(self, chapter, claims):
        title = chapter_title(Path(self.env.srcdir) / "notebooks" / f"{chapter}.md")
        section = nodes.section(ids=[f"scorecard-{chapter}"], names=[f"scorecard-{chapter}"])
        section += nodes.title("", "", *self._inline(title))
        section += nodes.paragraph("", "", *self._inline(f"Chapter: [{title}]({self._path(chapter)})"))
        section += self._table(chapter, claims)
        return section

    def _table(self, chapter, claims):
        group = nodes.tgroup(cols=len(HEADER))
        group += [nodes.colspec(colwidth=width) for width in WIDTHS]
        head = nodes.row()
        head += [nodes.entry("", nodes.paragraph("", name)) for name in HEADER]
        group += nodes.thead("", head)
        body = nodes.tbody()
        body += [self._row(chapter, claim) for claim in claims]
        group += body
        return nodes.table("", group, classes=["scorecard", "cards"])

    def _row(self, chapter, claim):
        def glued(what):
            return "{glue:text}`" + f"{self._path(chapter)}::{claim['id']}-{what}:s`"

        paper = claim.get("paper")
        story = nodes.definition_list("", later(make=measured, claim=claim["id"]),
                                      entry("Band", paragraph(*self._inline(band_text(claim)))),
                                      later(make=where, claim=claim["id"]))
        anchor = f"claim-{claim['id']}"
        self.env.domains["std"].anonlabels[anchor] = self.env.docname, anchor  # pages may say [text](#claim-id)
        row = nodes.row(ids=[anchor])
        row += [
            nodes.entry("", paragraph(*self._inline(one_line(claim["statement"]))),
                        details_node("", story, summary="Its story")),
            nodes.entry("", nodes.paragraph("", "", *self._inline(str(claim["place"])))),
            nodes.entry("", nodes.paragraph("", "–" if paper is None else str(paper))),
            nodes.entry("", nodes.paragraph("", "", *self._inline(glued("value")))),
            nodes.entry("", nodes.paragraph("", "", nodes.inline(
                "", "", *self._inline(glued("verdict")), classes=["verdict"]))),
        ]
        return row

    def _path(self, chapter):
        return relpath(f"notebooks/{chapter}.md", Path(self.env.docname).parent.as_posix())

    def _inline(self, text):
        found, messages = self.parse_inline(text)
        return found + messages


class CheckedEquations(SphinxDirective):
    def run(self):
        return [later(make=equations)]


def _fill_in(app, doctree, docname):
    """Colour the badges and write the counts, now that the glued verdicts are text."""
    badges = [node for node in doctree.findall(nodes.inline) if "verdict" in node["classes"]]
    for badge in badges:
        badge["classes"].append(badge_class(badge.astext()))
    for place in list(doctree.findall(summary_node)):
        counts = count_verdicts([badge.astext() for badge in badges])
        line = nodes.paragraph(classes=["scorecard-summary"])
        line += nodes.Text(f"{len(badges)} claim{'s' * (len(badges) != 1)}: ")
        for number, (verdict, count) in enumerate(counts):
            line += nodes.Text(", " if number else "")
            line += nodes.Text(f"{count} ")
            line += nodes.inline("", verdict, classes=["verdict", badge_class(verdict)])
        place.replace_self(line)


def setup(app):
    app.setup_extension("book_records")  # its nodes are filled first
    app.add_node(summary_node)
    app.add_node(details_node, html=(_open_details, _close_details), latex=(_nothing, _nothing),
                 text=(_nothing, _nothing))
    app.add_directive("scorecard", Scorecard)
    app.add_directive("checked-equations", CheckedEquations)
    app.connect("doctree-resolved", _fill_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
