"""The `{scorecard}` directive: every claim of the book, the paper's value beside ours, and how it came out.

    ```{scorecard}
    :chapter: 04_convergence        (optional: that chapter's claims alone, with no heading)
    ```

What is claimed stands in `book/claims.yml`; what was measured is glued from the chapters, so a claim that a chapter did
not make is a missing key, which stops the build. The verdict is glued too (a chapter may say "not run
here"), hence badges get their colour, and the summary its counts, after Sphinx has filled the keys in.
"""

from collections import Counter
from pathlib import Path
from posixpath import relpath

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

VERDICTS = ("reproduced", "partly", "not reproduced", "new", "not run here")
HEADER = ("Claim", "Where", "Paper", "Ours", "Verdict")
WIDTHS = (46, 16, 13, 13, 12)


def read_claims(path: Path) -> list[dict]:
    """The entries of claims.yml, in order."""
    return yaml.safe_load(path.read_text(encoding="utf-8")) or []


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


def chapter_title(path: Path) -> str:
    """The first heading of a chapter."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line[2:].strip() for line in lines if line.startswith("# ")), path.stem)


def badge_class(verdict: str) -> str:
    """The style sheet's name for a verdict."""
    return "verdict-" + verdict.replace(" ", "-")


def band_text(claim: dict) -> str:
    """The band as one says it, with its unit and where it comes from."""
    low, high = claim["band"]
    span = f"exactly {low:g}" if low == high else f"{low:g} to {high:g}"
    unit = f" {claim['unit']}" if claim.get("unit") else ""
    why = " ".join(str(claim["why"]).split()).rstrip(".")
    return f"Band {span}{unit}: {why}."


class summary_node(nodes.General, nodes.Element):
    """Stands where the counts go until the verdicts are known."""


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
        return nodes.table("", group, classes=["scorecard"])

    def _row(self, chapter, claim):
        def glued(what):
            return "{glue:text}`" + f"{self._path(chapter)}::{claim['id']}-{what}:s`"

        statement = " ".join(str(claim["statement"]).split())
        paper = claim.get("paper")
        anchor = f"claim-{claim['id']}"
        self.env.domains["std"].anonlabels[anchor] = self.env.docname, anchor  # pages may say [text](#claim-id)
        row = nodes.row(ids=[anchor])
        row += [
            nodes.entry("", nodes.paragraph("", "", *self._inline(statement)),
                        nodes.paragraph("", "", *self._inline(band_text(claim)), classes=["band"])),
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
    app.add_node(summary_node)
    app.add_directive("scorecard", Scorecard)
    app.connect("doctree-resolved", _fill_in)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
