"""The page of the package's names, and the links that lead to it."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import jupytext
import pytest
from bs4 import BeautifulSoup

import mptlml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_api  # noqa: E402

CHAPTERS = sorted((ROOT / "notebooks").glob("*.md"))


def public_objects():
    """{entry: object} of the package: modules with functions or classes of their own, these, and their methods."""
    found = {}
    for info in pkgutil.walk_packages(mptlml.__path__, "mptlml."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            own = getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
            if own and (inspect.isclass(value) or inspect.isfunction(value)):
                found |= {module.__name__: module, f"{module.__name__}.{name}": value}
                found |= {f"{module.__name__}.{name}.{inner}": member for inner, member in vars(value).items()
                          if not inner.startswith("_") and isinstance(
                              member, property | classmethod | staticmethod | type(public_objects))}
    return found


PUBLIC = {name: value for name, value in public_objects().items()
          if not (name.endswith(".forward") and value.__doc__ is None)}  # what PyTorch calls, not the reader


def rendered(docstring):
    """The text of a docstring on the page."""
    from docutils.core import publish_doctree

    tree = publish_doctree("\n".join(book_api.plain_to_rst(inspect.cleandoc(docstring).splitlines())),
                           settings_overrides={"report_level": 1, "halt_level": 1})
    return tree.astext()


MARKS = ["x_j of |M| tokens, [*shape, D], a*b*c and W_R^T (x_R - mu_R)", "- no list", "1. no list either", "so::",
         ":param: no field", "a \\ b", "`code`s and `x_j`-s", "one\n\n    p(x) = |S|_j * 2\n\ntwo"]


@pytest.mark.parametrize("docstring", [*MARKS, *map(inspect.getdoc, PUBLIC.values())], ids=[*MARKS, *PUBLIC])
def test_a_docstring_reads_on_the_page_as_in_the_source(docstring):
    assert rendered(docstring).split() == re.sub(r"`([^`]+)`", r"\1", docstring).split()


@pytest.fixture(scope="module")
def site(built_site):
    return {path: BeautifulSoup((built_site / f"{path}.html").read_text(encoding="utf-8"), "html.parser")
            for path in [book_api.PAGE, *(f"notebooks/{chapter.stem}" for chapter in CHAPTERS)]}


def test_every_public_name_has_its_entry(site):
    entries = {tag["id"].removeprefix("module-") for tag in site[book_api.PAGE].select("[id]")}
    assert set(PUBLIC) - entries == set()


def linked(soup):
    """The names in code that are links."""
    return {link.get_text() for link in soup.select("a.sphinx-codeautolink-a")}


def test_what_can_be_imported_is_listed_with_links(site):
    source = (ROOT / f"{book_api.PAGE}.md").read_text(encoding="utf-8")
    for room in ("mptlml", "mptlml.models"):
        statement, = re.findall(rf"^from {room} import \(.*?^\)", source, re.MULTILINE | re.DOTALL)
        names = {alias.name for alias in ast.parse(statement).body[0].names}
        assert names == set(importlib.import_module(room).__all__)
        assert names <= linked(site[book_api.PAGE])


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_links_what_it_imports_and_leaves_its_code_as_it_is(chapter, site):
    soup = site[f"notebooks/{chapter.stem}"]
    cells = [cell.source.strip() for cell in jupytext.read(chapter).cells if cell.cell_type == "code"]
    assert {block.get_text().strip() for block in soup.select("div.cell_input pre")} <= set(cells)
    code = "\n".join(line for cell in cells for line in cell.splitlines() if not line.lstrip().startswith("%"))
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports if node.module.startswith("mptlml") for alias in node.names
             if callable(getattr(importlib.import_module(node.module), alias.name))}
    assert names | {"report.claim"} <= linked(soup)


def test_the_first_mention_in_the_text_is_linked(site):
    mentions = [code.parent["href"] for code in site["notebooks/03_ppca"].select("article a > code")]
    assert mentions.count("../book/api.html#mptlml.models.ppca.PPCA") == 1
