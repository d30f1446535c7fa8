"""The page of the package's names, and the links that lead to it."""

import ast
import importlib
import inspect
import pkgutil
import re

import book_api
import book_digest
import pytest
from docutils.core import publish_doctree

import mptlml
import mptlml_book

PAGE = "book/api"
PUBLIC = {}  # {entry: class or function} of all modules
for package in (mptlml, mptlml_book):
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(info.name)).items():
            own = getattr(value, "__module__", None) == info.name and not name.startswith("_")
            if own and (inspect.isclass(value) or inspect.isfunction(value)):
                PUBLIC[f"{info.name}.{name}"] = value
MARKS = [
    "x_j of |M| tokens, [*shape, D], a*b*c and W_R^T (x_R - mu_R)",
    "- no list",
    "1. no list either",
    "so::",
    ":param: no field",
    "a \\ b",
    "`code`s and `x_j`-s",
    "one\n\n    p(x) = |S|_j * 2\n\ntwo",
]


@pytest.mark.parametrize(
    "docstring", [*MARKS, *map(inspect.getdoc, PUBLIC.values())], ids=[*MARKS, *PUBLIC]
)
def test_a_docstring_reads_on_the_page_as_in_the_source(docstring):
    source = "\n".join(book_api.plain_to_rst(docstring.splitlines()))
    page = publish_doctree(source, settings_overrides={"report_level": 1, "halt_level": 1})
    assert page.astext().split() == re.sub(r"`([^`]+)`", r"\1", docstring).split()


def imports(soup):
    """{(module, name)} that the code of a page imports from the package."""
    code = "\n".join(
        block.get_text()
        for block in soup.select("div.highlight-ipython3 pre, div.highlight-python pre")
    )
    code = re.sub("^ *%.*", "", code, flags=re.MULTILINE)  # magics
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("mptlml")
        for alias in node.names
    }


def test_every_public_name_has_its_entry(page):
    ids = {tag["id"] for name in (PAGE, f"{PAGE}_book") for tag in page(name).select("[id]")}
    assert set(PUBLIC) - ids == set()
    rooms = {"mptlml": mptlml, "mptlml.models": mptlml.models, "mptlml.text": mptlml.text}
    assert imports(page(PAGE)) == {
        (room, name) for room, module in rooms.items() for name in module.__all__
    }


@pytest.mark.parametrize(
    "name", [PAGE, *(f"notebooks/{path.stem}" for path in book_digest.chapters())]
)
def test_what_is_imported_is_linked(name, page):
    soup = page(name)
    names = {
        name
        for module, name in imports(soup)
        if callable(getattr(importlib.import_module(module), name))
    }
    linked = {link.get_text() for link in soup.select("pre a")}
    assert linked and names <= linked  # a chapter may import modules alone
