"""The book in print: what `make pdf` writes.

    python book/_ext/book_print.py --code none     _build/mptlml-book.pdf, to be read
    python book/_ext/book_print.py --code all      ... with every code cell opened, the scorecard and the interface

The pages of the built site are put into one (print.html), in the order of _toc.yml, and Chromium prints that, so
links between pages lead to places in the print. Sphinx's own singlehtml builder does not serve: in it the ids of
different pages collide, and every page is nested in the first. The look on paper is that of book/_static/print.css.
"""

import argparse
import io
import os
import shutil
import sys
from pathlib import Path
from posixpath import dirname, join, normpath

import yaml
from book_digest import ROOT
from bs4 import BeautifulSoup
from jinja2 import Template
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter

import mptlml

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCREEN = "article script, .headerlink, .toctree-wrapper"
CODE = "div.cell_input, details.above-input"
TO_LOOK_UP = ("book/scorecard", "book/api", "book/api_book")
HEAD = 'link[rel="stylesheet"], script:-soup-contains("MathJax"), script[src*="mathjax"]'


def find_chromium() -> str | None:
    """The path of a Chromium: what CHROMIUM names, else the first of its usual names on the PATH; None without one.

    Raises ValueError: CHROMIUM names something that cannot be run.
    """
    asked = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [asked] if asked else BROWSERS)), None)
    if asked and not found:
        raise ValueError(f"CHROMIUM is {asked!r}, which is not a program")
    return found


def prepare(page: BeautifulSoup, path: str, keys: dict[str, str], code: str) -> None:
    """Make a page ready to stand among others: all opened, its ids its own, addresses as seen from beside the site."""
    for gone in page.select(f"{SCREEN}, {CODE}" if code == "none" else SCREEN):
        gone.decompose()
    for fold in page.select("details.above-input, details.above-output, details.hide"):
        fold.summary.decompose()
        fold.unwrap()
    for fold in page.select("details:not(.claim)"):
        fold["open"] = ""
    for marked in page.select("[id]"):
        if not marked.find_parent("svg"):  # a drawing refers to its own parts, whose ids hold the chapter's name
            marked["id"] = f"{keys[path]}-{marked['id']}"
    for element in page.select("img[src], script[src], link[href]"):
        name = "href" if element.name == "link" else "src"
        element[name] = normpath(join("html", dirname(path), element[name]))
    for link in page.select("a[href]"):
        target, _, anchor = link["href"].partition("#")
        key = keys.get(normpath(join(dirname(path), target)) if target else path)
        if key:
            link["href"] = f"#{key}-{anchor}" if anchor else f"#{key}"
        elif "://" not in target:
            del link["href"]  # a file that is not in the print; its path is this machine's


def one_page(site: Path, code: str, config: dict, toc: dict) -> tuple[str, list[tuple]]:
    """All pages in one, to lie beside the site's folder, and its contents: [(level from 1, title, id it leads to)]."""
    parts = {f"{toc['root']}.html": ""}
    parts |= {f"{page['file']}.html": part["caption"] for part in toc["parts"] for page in part["chapters"]
              if code == "all" or page["file"] not in TO_LOOK_UP}
    keys = {path: f"page-{place}" for place, path in enumerate(parts)}
    head, entries, articles, last = {}, [], [], ""
    for path, part in parts.items():
        page = BeautifulSoup((site / path).read_text(encoding="utf-8"), "html.parser")
        prepare(page, path, keys, code)
        article = page.select_one("article.bd-article")
        article["id"] = keys[path]
        head |= {str(tag): None for tag in page.select(HEAD)}
        entries += [(1, part, keys[path])] * (part != last)
        entries.append((1 + bool(part), _text(article.h1), keys[path]))
        entries += [(3, _text(heading), heading.parent["id"]) for heading in article.select("h2") if part]
        articles.append(article)
        last = part
    template = Template(Path(__file__).with_name("print.html").read_text(encoding="utf-8"), autoescape=True)
    settings = {"config": config, "version": mptlml.__version__}
    return template.render(**settings, head=head, entries=entries, articles=articles), entries


def write_print(path: str, site: Path, target: Path, code: str, config: dict, toc: dict) -> int:
    """Print the site with the browser at `path` into `target`, by way of one page beside it; the number of pages."""
    text, entries = one_page(site, code, config, toc)
    source = site.parent / "print.html"
    source.write_text(text, encoding="utf-8")
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path) as browser:
        tab = browser.new_page(color_scheme="light", reduced_motion="reduce", offline=True)
        tab.set_default_timeout(120_000)  # milliseconds until the whole book must be typeset
        tab.goto(source.as_uri())
        tab.emulate_media(media="print")
        tab.evaluate("stand()")
        for _ in range(2):  # the first print tells the page numbers
            made = PdfReader(io.BytesIO(tab.pdf(prefer_css_page_size=True, print_background=True, tagged=True)))
            pages = {name.removeprefix("/"): made.get_destination_page_number(place)
                     for name, place in made.named_destinations.items()}
            tab.evaluate("pages => number(pages)", pages)
    writer, above = PdfWriter(clone_from=made), {0: None}
    for level, title, key in entries:
        above[level] = writer.add_outline_item(title=title, page_number=pages[key], parent=above[level - 1])
    writer.add_metadata({"/Author": config["author"]})
    writer.page_mode = "/UseOutlines"
    part = target.with_suffix(".part")
    writer.write(part)
    part.replace(target)
    return len(writer.pages)


def _text(element):
    return " ".join(element.get_text().split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--code", choices=("all", "none"), default="none", help="no code cell, or every one")
    code = parser.parse_args().code
    path = find_chromium() or sys.exit(f"no Chromium: install one ({', '.join(BROWSERS)}), or set CHROMIUM")
    config, toc = (yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in ("_config.yml", "_toc.yml"))
    target = ROOT / "_build" / "mptlml-book.pdf"
    count = write_print(path, ROOT / "_build" / "html", target, code, config, toc)
    print(f"{target.relative_to(ROOT)}: {count} pages, {target.stat().st_size / 1e6:.1f} MB")
