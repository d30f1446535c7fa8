"""A chapter as a notebook that can be read anywhere, as in JupyterLab or on GitHub, before it is run.

Its text has numbers, references and equations in place of the roles and directives that only this
book's builder knows; they are taken from the chapters' outputs, from claims, and from the page as
it was built. Its drawings are images.
"""

import base64
import html
import json
import re
from ast import literal_eval
from functools import cache
from pathlib import Path
from urllib.parse import urljoin

import nbformat
from book_digest import ROOT
from bs4 import BeautifulSoup
from docutils.nodes import make_id
from pybtex.database import parse_file

from mptlml_book.report.claims import number
from mptlml_book.report.records import MIME, NAMED

LINK = re.compile(r"\[([^\]]+)\]\((#?[\w./-]+)\)")
ROLE = re.compile(r"\{([a-z:]+)\}`([^`]+)`")
DIRECTIVE = re.compile(
    r"^(:{3,}|`{3,})\{([a-z:-]+)\}[ ]*([^\n]*)\n((?::[a-z]+:[^\n]*\n)*)(.*?)^\1[ ]*$",
    re.DOTALL | re.MULTILINE,
)
ANCHOR = re.compile(r"^\([\w-]+\)=\n?", re.MULTILINE)
FORMULA = re.compile(r"\$\$?[^$]+\$\$?")
NARROW = re.compile(r'<div class="narrow".*?</svg>\s*</div>', re.DOTALL)  # for a phone


@cache
def said(root: Path) -> dict:
    """The records of all chapters."""
    return json.loads((root / "_build" / "records.json").read_text(encoding="utf-8"))


@cache
def cited(path: Path) -> dict[str, tuple[str, str]]:
    """(authors, year) of each entry of a bibliography."""
    found = {}
    for key, entry in parse_file(path).entries.items():
        names = [" ".join(map(str, person.rich_last_names)) for person in entry.persons["author"]]
        names = names if len(names) < 3 else [f"{names[0]} et al."]
        found[key] = " and ".join(names), entry.fields["year"]
    return found


class Page:
    """A built page: what its references are called, and where they lead."""

    def __init__(self, body: str, address: str, root: Path = ROOT) -> None:
        self.soup, self.address, self.root = BeautifulSoup(body, "html.parser"), address, root
        links = self.soup.select("a.reference.internal[href]")
        self.links = {
            link["href"].rpartition("#")[2].removesuffix(".html").rpartition("/")[2]: link
            for link in links
        }

    def text(self, markdown: str) -> str:
        """Markdown with values and plain Markdown in place of roles and directives."""
        plain = ROLE.sub(self._role, LINK.sub(self._link, ANCHOR.sub("", markdown)))
        return DIRECTIVE.sub(self._directive, plain).strip()

    def title(self, label: str) -> str:
        """Number and title of a figure, an exercise or an equation of this page; "" for none."""
        part = self.soup.find(id=label) or self.soup.find(attrs={"name": label})
        found = part and part.select_one(".caption-number, .admonition-title, .eqno")
        return " ".join(found.get_text().replace("#", "").split()) if found else ""

    def _role(self, found: re.Match) -> str:
        kind, text = found[1], found[2]
        if kind == "glue:text":
            name, _, form = text.rpartition("::")[2].partition(":")
            value = literal_eval(
                next(
                    chapter["glued"][name]
                    for chapter in said(self.root)["chapters"].values()
                    if name in chapter["glued"]
                )
            )
            return number(value, form) if form and not isinstance(value, str) else str(value)
        if kind in ("claim", "verdict"):
            claim = next(claim for claim in said(self.root)["claims"] if claim["id"] == text)
            return claim["text" if kind == "claim" else "verdict"]
        if kind.startswith("cite"):
            known = [
                cited(self.root / "book" / "references.bib")[key.strip()] for key in text.split(",")
            ]
            if kind == "cite:t":
                return ", ".join(f"{authors} ({year})" for authors, year in known)
            return "(" + "; ".join(f"{authors}, {year}" for authors, year in known) + ")"
        words, _, target = text.removesuffix(">").rpartition("<")
        label = make_id(target) if kind != "doc" else target.rpartition("/")[2]
        return self._leading(f"equation-{label}" if kind == "eq" else label, words.strip())

    def _link(self, found: re.Match) -> str:
        label = found[2].rpartition("#")[2].rpartition("/")[2].removesuffix(".md")
        return self._leading(label, found[1]) if label in self.links else found[0]

    def _leading(self, label: str, words: str) -> str:
        """Words, else those of the page; where its address is known, as a link to what they name."""
        link = self.links.get(label)
        words = words or (link.get_text() if link else label)
        return (
            f"[{words}]({urljoin(self.address, link['href'])})" if link and self.address else words
        )

    def _directive(self, found: re.Match) -> str:
        _, kind, title, options, body = found.groups()
        body = DIRECTIVE.sub(self._directive, body).strip()
        label = re.search(r":(?:label|name): (\S+)", options)
        named = self.title(make_id(label[1])) if label and kind != "math" else ""
        if kind == "math":
            told = self.title(f"equation-{make_id(label[1])}") if label else ""
            return f"$$\n{body}" + (f" \\tag{{{told.strip('()')}}}" if told else "") + "\n$$"
        if kind == "solution":
            return f"<details><summary>Solution</summary>\n\n{body}\n\n</details>"
        if kind.startswith("solution"):
            return "**Solution**" * (kind == "solution-start")
        # else > is part of it
        body = FORMULA.sub(lambda formula: " ".join(formula[0].split()), body)
        lines = [
            f"**{named or title or kind.rpartition(':')[2].capitalize()}**",
            "",
            *body.splitlines(),
        ]
        return "\n".join(f"> {line}".rstrip() for line in lines)


def image(svg: str, alt: str) -> str:
    """A drawing as an image in HTML: many readers show neither a bare drawing nor one in Markdown."""
    return f'<img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'


def shown(output: nbformat.NotebookNode, alt: str) -> nbformat.NotebookNode | None:
    """An output as any reader shows it, drawings with their `alt`; None for what only the pages use."""
    data = output.get("data", {})
    if any(name.startswith(NAMED) for name in data) or data.get(MIME, {}).get("kind") in (
        "columns",
        "stored",
    ):
        return None
    data.pop(MIME, None)
    once = NARROW.sub("", data.get("text/html", ""))
    drawings = re.findall(r"<svg.*?</svg>", once, re.DOTALL)
    if drawings:
        label = re.search(r'role="img" aria-label="([^"]*)"', once)
        alt = html.unescape(label[1]) if label else alt
        images = [image(svg, "" if k else alt) for k, svg in enumerate(drawings)]
        output["data"] = {"text/html": f"<p>{' '.join(images)}</p>", "text/plain": alt}
    return output


def readable(notebook: nbformat.NotebookNode, page: Page) -> nbformat.NotebookNode:
    """The executed chapter, to be read far from its page."""
    cells: list[nbformat.NotebookNode] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cells.append(nbformat.v4.new_markdown_cell(page.text(cell.source)))
            continue
        drawn, tags = cell.metadata.get("mystnb", {}), cell.metadata.get("tags", [])
        figure, alt = drawn.get("figure", {}), drawn.get("image", {}).get("alt", "")
        cell.outputs = [output for output in cell.outputs if shown(output, alt)]
        cell.metadata = {"jupyter": {"source_hidden": True}} if tags else {}
        cells.append(cell)
        if caption := figure.get("caption"):
            cells.append(
                nbformat.v4.new_markdown_cell(
                    f"**{page.title(figure['name'])}** {page.text(caption)}"
                )
            )
    where = f"[a page]({page.address})" if page.address else "a page"
    top = f"*This is {where} of the book **Masked pre-training, in numbers**. What moves there stands still here.*"
    for k, cell in enumerate(cells := [nbformat.v4.new_markdown_cell(top), *cells]):
        cell["id"] = f"cell-{k}"
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": notebook.metadata["kernelspec"]}
    )
