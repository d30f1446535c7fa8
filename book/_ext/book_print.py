"""The book in print: what `make pdf` writes.

    python book/_ext/book_print.py --code all      _build/mptlml-book.pdf, every code cell opened
    python book/_ext/book_print.py --code none     ... without code

A Chromium that is already here prints each page of the built site, in the order of the contents; here they get a title
page, contents with page numbers, bookmarks, and links that lead to pages of the print. How a page looks on paper stands
in book/_static/print.css, which the browser's own print command follows too.
"""

import argparse
import html
import io
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import yaml
from book_archive import NAME
from book_browser import NAMES, chromium, find_chromium
from book_digest import ROOT
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, FloatObject, NameObject, NullObject, NumberObject

CODE = ("all", "none")
WAIT = 60_000  # milliseconds until a page must stand

# Solutions and cells are opened, or code is taken out; the theme in light; equations and pictures are waited for.
PREPARE = """async (code) => {
  document.documentElement.dataset.theme = document.documentElement.dataset.mode = "light";
  if (code === "none") document.querySelectorAll("div.cell_input, details.above-input").forEach(e => e.remove());
  document.querySelectorAll("details.above-input, details.above-output, details.hide").forEach(e => {
    e.querySelector("summary")?.remove();
    e.replaceWith(...e.childNodes);
  });
  document.querySelectorAll("article details:not(.claim)").forEach(e => { e.open = true; });
  document.querySelectorAll("article .toggle-hidden").forEach(e => e.classList.remove("toggle-hidden"));
  document.querySelectorAll("img").forEach(e => { e.loading = "eager"; });
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  await Promise.all([...document.images].map(e => e.decode().catch(() => {})));
  await document.fonts.ready;
}"""

FRONT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
@page {{ size: A4; margin: 18mm 18mm 20mm }}
body {{ font: 10.5pt/1.5 system-ui, sans-serif; margin: 0 }}
.cover {{ padding-top: 80mm; break-after: page }}
h1 {{ font-size: 28pt; font-weight: 500; line-height: 1.2 }} h2 {{ font-size: 18pt; font-weight: 500 }}
h3 {{ font-size: 10.5pt; margin: 1em 0 .25em }} a {{ color: inherit; text-decoration: none }}
li {{ display: flex; gap: .5em }} li span {{ flex: 1; border-bottom: 1px dotted #999; margin-bottom: .35em }}
ul {{ list-style: none; margin: 0; padding: 0 }}
</style><div class="cover"><h1>{title}</h1><p>{author}</p><p>{footer}</p></div><h2>Contents</h2>{contents}</html>"""

FOOT = """<!doctype html><html lang="en"><meta charset="utf-8"><style>
@page {{ size: A4; margin: 0 }} body {{ margin: 0; font: 8.5pt system-ui, sans-serif; color: #555 }}
p {{ height: 297mm; margin: 0; box-sizing: border-box; padding: 284mm 18mm 0; break-after: page; overflow: hidden;
     display: flex; justify-content: space-between }} p:last-child {{ break-after: auto }}
</style>{pages}</html>"""


class Printed(NamedTuple):
    """A page of the site on paper."""

    name: str  # in the contents, such as notebooks/04_convergence; "" for the title page and the contents
    title: str
    part: str  # the caption it stands under, if any
    pdf: PdfReader


class Target(NamedTuple):
    """Where a link leads: a page of the print, counted from 0, and a place on it (None: its top)."""

    page: int
    left: float | None = None
    top: float | None = None


def contents(root: Path) -> list[tuple[str, str]]:
    """The pages of the book in order, each with the caption of its part."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [(toc["root"], ""), *((page["file"], part.get("caption", "")) for part in toc["parts"]
                                 for page in part["chapters"])]


def print_pages(browser, site: Path, pages: list[tuple[str, str]], code: str) -> list[Printed]:
    """Each page of the site on paper."""
    context = browser.new_context(color_scheme="light", reduced_motion="reduce", offline=True)
    context.set_default_timeout(WAIT)
    printed = []
    for name, part in pages:
        tab = context.new_page()
        tab.goto((site / f"{name}.html").as_uri())
        title = tab.evaluate("""() => { const h = document.querySelector("article h1").cloneNode(true);
            h.querySelectorAll(".headerlink").forEach(e => e.remove()); return h.textContent.trim(); }""")
        tab.emulate_media(media="print")
        tab.evaluate(PREPARE, code)
        made = tab.pdf(prefer_css_page_size=True, print_background=True, outline=True, tagged=True)
        printed.append(Printed(name, " ".join(title.split()), part, PdfReader(io.BytesIO(made))))
        tab.close()
    context.close()
    return printed


def print_html(browser, text: str) -> PdfReader:
    """A page that is only made to be printed."""
    tab = browser.new_page()
    tab.set_content(text)
    made = tab.pdf(prefer_css_page_size=True, print_background=True)
    tab.close()
    return PdfReader(io.BytesIO(made))


def front_page(site: Path, root: Path, printed: list[Printed], first: list[int]) -> str:
    """Title page and contents, as HTML; `first` holds the page number that each page of the site begins on."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    lines, part = [], None
    for page, number in zip(printed, first, strict=True):
        if page.part != part:
            part = page.part
            lines.append(f"</ul><h3>{html.escape(part)}</h3><ul>")
        address = (site / f"{page.name}.html").as_uri()
        lines.append(f'<li><a href="{address}">{html.escape(page.title)}</a><span></span>{number}</li>')
    return FRONT.format(title=html.escape(config["title"]), author=html.escape(config["author"]),
                        footer=html.escape(config["html"]["extra_footer"].strip()),
                        contents=f"<ul>{''.join(lines)}</ul>")


def foot_pages(printed: list[Printed]) -> str:
    """As many pages as the book has, with nothing but the chapter's name and the page number at their foot, as HTML."""
    feet, number = [], 0
    for page in printed:
        for _ in page.pdf.pages:
            number += 1
            named = f"<span>{html.escape(page.title)}</span><span>{number}</span>" if page.name else ""
            feet.append(f"<p>{named}</p>")
    return FOOT.format(pages="".join(feet))


def take_target(annotation, reader: PdfReader, offset: int, starts: dict[str, int]) -> Target | None:
    """Where a link of the site leads within the print, if it does; then the old address is taken off the link."""
    action = annotation.get("/A", {})
    name = annotation.get("/Dest") or (action.get("/D") if action.get("/S") == "/GoTo" else None)
    if name is not None:
        found = reader.named_destinations.get(str(name))
        target = Target(offset) if found is None else Target(
            offset + reader.get_destination_page_number(found), found.left, found.top)
    else:
        address = urlsplit(str(action.get("/URI", "")))
        if address.scheme != "file":
            return None
        # What is not a page of the print, such as a data file, leads to the beginning: no path of this machine stays.
        target = Target(starts.get(unquote(address.path), 0))
    for key in ("/A", "/Dest"):
        annotation.pop(key, None)
    return target


def join(printed: list[Printed], feet: PdfReader, site: Path) -> PdfWriter:
    """All pages as one document, with its links, bookmarks and page numbers."""
    writer, starts, offset = PdfWriter(), {}, 0
    offsets = []
    for page in printed:
        offsets.append(offset)
        starts[str(site / f"{page.name}.html")] = offset
        offset += len(page.pdf.pages)
    links = []
    for page, offset in zip(printed, offsets, strict=True):
        for sheet in page.pdf.pages:
            found = [(place, take_target(mark.get_object(), page.pdf, offset, starts))
                     for place, mark in enumerate(sheet.get("/Annots", []))]
            sheet.pop("/StructParents", None)  # the structure of single pages does not survive the joining
            made = writer.add_page(sheet)
            made.merge_page(feet.pages[len(writer.pages) - 1])
            made.compress_content_streams()
            links += [(made, place, target) for place, target in found if target]
    for made, place, target in links:
        mark = made["/Annots"][place].get_object()
        mark[NameObject("/Dest")] = destination(writer, target)
    part, above = "", None
    for page, offset in zip(printed, offsets, strict=True):
        if page.name:
            if page.part != part:
                part, above = page.part, writer.add_outline_item(title=page.part, page_number=offset)
            chapter = writer.add_outline_item(title=page.title, page_number=offset, parent=above)
            for title, number in sections(page.pdf, offset):
                writer.add_outline_item(title=title, page_number=number, parent=chapter)
    return writer


def sections(reader: PdfReader, offset: int) -> list[tuple[str, int]]:
    """The second-level headings of a page of the site, each with the page of the print that it stands on."""
    found = []
    for place, item in enumerate(reader.outline):  # a list follows the item whose children it holds
        children = reader.outline[place + 1] if place + 1 < len(reader.outline) else None
        if not isinstance(item, list) and isinstance(children, list):
            for child in children:
                if not isinstance(child, list):
                    number = reader.get_destination_page_number(child)
                    found.append((re.sub(r"\s*#$", "", child.title), offset + max(number, 0)))
    return found


def destination(writer: PdfWriter, target: Target) -> ArrayObject:
    """The target as a link of the joined document holds it."""
    left, top = (NullObject() if value is None else FloatObject(value) for value in (target.left, target.top))
    page = writer.pages[target.page].indirect_reference
    return ArrayObject([page, NameObject("/XYZ"), left, top, NumberObject(0)])


def write_print(path: str, site: Path, target: Path, code: str, root: Path = ROOT) -> PdfWriter:
    """Print the site with the browser at `path` into `target`, whole or not at all."""
    with chromium(path) as browser:
        printed = print_pages(browser, site, contents(root), code)
        first = [1] * len(printed)
        for _ in range(2):  # how long the contents are is known once they are printed
            front = Printed("", "", "", print_html(browser, front_page(site, root, printed, first)))
            first = [1 + sum(len(page.pdf.pages) for page in [front, *printed[:place]])
                     for place in range(len(printed))]
        feet = print_html(browser, foot_pages([front, *printed]))
    writer = join([front, *printed], feet, site)
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    writer.add_metadata({"/Title": config["title"], "/Author": config["author"]})
    writer.root_object[NameObject("/PageMode")] = NameObject("/UseOutlines")
    writer.compress_identical_objects(remove_duplicates=True, remove_unreferenced=True)
    part = target.with_suffix(".part")
    try:
        with part.open("wb") as file:
            writer.write(file)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return writer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--code", choices=CODE, default="all", help="every code cell, or none")
    code = parser.parse_args().code
    path = find_chromium()
    if path is None:
        print(f"the printed book needs a Chromium, and there is none: install one ({', '.join(NAMES)}), or set "
              "CHROMIUM to its path", file=sys.stderr)
        return 1
    target = ROOT / "_build" / f"{NAME}.pdf"
    writer = write_print(path, ROOT / "_build" / "html", target, code)
    print(f"{target.relative_to(ROOT)}: {len(writer.pages)} pages, {target.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
