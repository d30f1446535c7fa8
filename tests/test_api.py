"""The page of the package's names, and the links that lead to it."""

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

import mptlml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_api  # noqa: E402
import book_execute  # noqa: E402

CHAPTERS = book_execute.chapters()
MODULES = [importlib.import_module(f"mptlml.{module.name}") for module in pkgutil.iter_modules(mptlml.__path__)]


def own(module):
    """{name: object} of the classes and functions that a module defines in public."""
    return {name: value for name, value in vars(module).items()
            if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == module.__name__}


def every_public_object():
    """{entry: object} of the package: modules, classes, functions, methods and properties."""
    found = {}
    for module in MODULES:
        found[module.__name__] = module
        for name, value in own(module).items():
            found[f"{module.__name__}.{name}"] = value
            if inspect.isclass(value):
                found |= {f"{module.__name__}.{name}.{inner}": member for inner, member in vars(value).items()
                          if not inner.startswith("_") and isinstance(
                              member, property | classmethod | staticmethod | type(own))}
    return found


PUBLIC = every_public_object()


# Docstrings --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_does(name):
    if name.endswith(".forward") and PUBLIC[name].__doc__ is None:
        return  # what PyTorch calls, not the reader
    assert inspect.getdoc(PUBLIC[name]), f"{name} has no docstring"


def rendered(docstring):
    """The text of a docstring on the page."""
    from docutils.core import publish_doctree

    tree = publish_doctree("\n".join(book_api.plain_to_rst(inspect.cleandoc(docstring).splitlines())),
                           settings_overrides={"report_level": 1, "halt_level": 1})
    return tree.astext()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_reads_on_the_page_as_in_the_source(name):
    docstring = inspect.getdoc(PUBLIC[name]) or ""
    assert rendered(docstring).split() == re.sub(r"`([^`]+)`", r"\1", docstring).split()


@pytest.mark.parametrize("docstring", [
    "x_j of |M| tokens, [*shape, D], a*b*c and W_R^T (x_R - mu_R)", "- no list", "1. no list either", "so::",
    ":param: no field", "a \\ b", "`code`s and `x_j`-s", "one\n\n    p(x) = |S|_j * 2\n\ntwo",
])
def test_marks_are_shown_and_not_obeyed(docstring):
    assert rendered(docstring).split() == docstring.replace("`", "").split()


# Links -------------------------------------------------------------------------------------------------------------

def test_what_a_chapter_imports_is_found():
    source = """# A chapter

```{code-cell} ipython3
:tags: [hide-input]
import numpy as np
import mptlml
import mptlml.masks
from mptlml import PPCA, report as r
```

```{code-cell} ipython3
---
mystnb:
  figure: {name: fig-a}
---
%matplotlib inline
def late():
    from mptlml.models.linear_vae import disc_rule
```

    from mptlml import chain_rule
"""
    assert book_api.imported_names(source) == {
        "mptlml": "mptlml", "PPCA": "mptlml.PPCA", "r": "mptlml.report",
        "disc_rule": "mptlml.models.linear_vae.disc_rule"}


@pytest.mark.parametrize(("path", "entry"), [
    ("mptlml.PPCA", "mptlml.models.ppca.PPCA"), ("mptlml.PPCA.fit", "mptlml.models.ppca.PPCA.fit"),
    ("mptlml.fit", "mptlml.training.fit"), ("mptlml.report", "mptlml.report"),
    ("mptlml.ScoreCurve.stderr", "mptlml.curve.ScoreCurve.stderr"), ("mptlml.report.nothing", None), ("nowhere", None),
])
def test_an_import_path_leads_to_the_definition(path, entry):
    assert book_api.entry_of(path) == entry


def page(code, text=""):
    """The HTML of a page with one code cell, as Pygments writes it."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    block = highlight(code, PythonLexer(), HtmlFormatter())
    return f'<div class="highlight-ipython3 notranslate">{block}</div>{text}'


def linked(body, names=None):
    """(the links' texts and addresses, the page without them) after the links were added."""
    names = names or {"PPCA": "mptlml.PPCA", "fit": "mptlml.training", "report": "mptlml.report", "mptlml": "mptlml"}
    out = book_api.Links(names, {name: f"api.html#{name}" for name in PUBLIC}).add(body)
    found = BeautifulSoup(out, "html.parser").select("a.api-link")
    assert re.sub(r'<a class="api-link"[^>]*>(.*?)</a>', r"\1", out, flags=re.DOTALL) == body
    return [(link.get_text(), link["href"].removeprefix("api.html#")) for link in found]


def test_the_first_use_of_each_name_in_code_is_linked():
    code = """from mptlml import (
    PPCA,
    fit,
)
from mptlml import report
model = PPCA.fit(rows, 2, fit=False)
model = PPCA(weight, 0.1)  # PPCA again
truth.fit(x)
fit(objective)
fit(objective)
axis.plot(x, color=report.BLUE)
report.start("PPCA")
"""
    assert linked(page(code)) == [
        ("PPCA.fit", "mptlml.models.ppca.PPCA.fit"), ("PPCA", "mptlml.models.ppca.PPCA"),
        ("fit", "mptlml.training.fit"),
        ("report", "mptlml.report"), ("report.start", "mptlml.report.start")]


def test_the_first_mention_of_each_name_in_the_text_is_linked():
    def literal(text):
        return f'<code class="docutils literal notranslate"><span class="pre">{text}</span></code>'

    text = (f"<h2>{literal('PPCA')}</h2><p><a href='x'>{literal('PPCA')}</a> {literal('PPCA')} {literal('PPCA')} "
            f"{literal('fit()')} {literal('model.fit')} {literal('PPCA.nothing')} {literal('mptlml.masks')}</p>")
    assert linked(page("1\n", text)) == [
        ("PPCA", "mptlml.models.ppca.PPCA"), ("fit()", "mptlml.training.fit"), ("mptlml.masks", "mptlml.masks")]


def anchor(name):
    """The id of an entry on the page."""
    return f"module-{name}" if inspect.ismodule(PUBLIC[name]) else name


# What was built ----------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def site(built_site):
    return {path: BeautifulSoup((built_site / f"{path}.html").read_text(encoding="utf-8"), "html.parser")
            for path in [book_api.PAGE, *(f"notebooks/{chapter.stem}" for chapter in CHAPTERS)]}


def test_every_public_name_has_its_entry(site):
    entries = {tag["id"] for tag in site[book_api.PAGE].select("[id]")}
    assert {anchor(name) for name, value in PUBLIC.items() if inspect.getdoc(value)} - entries == set()
    listed = {link.get_text() for link in site[book_api.PAGE].select(".api-names a")}
    assert listed == set(mptlml.__all__)


def test_every_chapter_links_the_names_that_it_uses(site):
    entries = {tag["id"] for tag in site[book_api.PAGE].select("[id]")}
    for chapter in CHAPTERS:
        soup = site[f"notebooks/{chapter.stem}"]
        links = soup.select("a.api-link")
        made = [link["href"].partition("#")[2] for link in links]
        assert set(made) <= entries
        assert all(link["href"].startswith("../book/api.html#") for link in links)
        for name, path in book_api.imported_names(chapter.read_text(encoding="utf-8")).items():
            entry = book_api.entry_of(path)
            if entry in PUBLIC:  # a constant has no entry of its own
                assert any(target == anchor(entry) or target.startswith(f"{entry}.") for target in made), (
                    f"{chapter.stem} imports {name} and does not use it")


def test_the_links_leave_the_code_as_it_is(site):
    """What the copy button takes from a page, its text, is the code of the chapter's cells."""
    for chapter in CHAPTERS:
        cells = {cell.source.strip() for cell in book_execute.read_chapter(chapter).cells if cell.cell_type == "code"}
        blocks = site[f"notebooks/{chapter.stem}"].select("div.cell_input pre")
        with_links = [block for block in blocks if block.select("a.api-link")]
        assert with_links
        assert [block.get_text() for block in with_links if block.get_text().strip() not in cells] == []
