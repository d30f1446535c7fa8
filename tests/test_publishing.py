"""The book as others meet it: its buttons, its notebooks far from home, its archive and its print."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import quote

import book_launch
import book_print
import jupytext
import matplotlib.pyplot as plt
import nbformat
import pytest
import yaml
from book_notebook import Page, readable
from bs4 import BeautifulSoup
from pypdf import PdfReader

from mptlml_book.report.figures import picture

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/some-one/some.book"
CHAPTER = "notebooks/01_masked_pretraining"
DIRECTIVES = """(here)=
## Two

```{math}
:label: eq-one
1 + 1 = 2
```

See {eq}`eq-one` and {ref}`the second section <here>`, [that](#here), $f[x](t)$.

:::{admonition} Note
:class: tip
A word.
:::

:::{prf:theorem} Two
:label: thm-two
Of $1 +
1$ is said:

$$
2 < 3
$$
:::"""


@pytest.mark.parametrize(("repository", "branch", "expected"), [
    (" ", "trunk", None),
    (REPOSITORY, "trunk", (REPOSITORY, "trunk")),
    (REPOSITORY + ".git/", "", (REPOSITORY, "main")),
    ("some-one/some.book", "", ValueError),
    (REPOSITORY, '"; import os', ValueError),
])
def test_the_address_comes_from_the_environment(repository, branch, expected, monkeypatch):
    monkeypatch.setenv("MPTLML_REPOSITORY", repository)
    monkeypatch.setenv("MPTLML_BRANCH", branch)
    with pytest.raises(ValueError, match="MPTLML_") if expected is ValueError else nullcontext():
        assert book_launch.address() == expected


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The site, at a known address, of a book with one short chapter."""
    root = tmp_path_factory.mktemp("book")
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    config["sphinx"]["local_extensions"] = {"book_launch": str(ROOT / "book" / "_ext")}
    extensions = config["sphinx"]["config"]["extensions"]
    extensions[:] = [name for name in extensions if name == "book_launch" or not name.startswith("book_")]
    (root / "_config.yml").write_text(yaml.safe_dump(config))
    (root / "_toc.yml").write_text(f"format: jb-book\nroot: {CHAPTER}\n")
    (root / "notebooks").mkdir()
    chapter = jupytext.read(ROOT / f"{CHAPTER}.md")
    chapter.metadata.pop("myst")
    chapter.cells = [nbformat.v4.new_markdown_cell("# One\n\nGet it, {{ clone }}."), nbformat.v4.new_code_cell("6 * 7"),
                     nbformat.v4.new_markdown_cell(DIRECTIVES)]
    for suffix, form in ((".md", "md:myst"), (".ipynb", "ipynb")):
        jupytext.write(chapter, root / f"{CHAPTER}{suffix}", fmt=form)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", root]
    known = {"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": "trunk"}
    subprocess.run(command, env=os.environ | known, check=True, capture_output=True)
    return root / "_build" / "html"


def test_a_page_can_say_where_to_clone_from(published):
    soup = BeautifulSoup((published / f"{CHAPTER}.html").read_text(), "html.parser")
    assert soup.select_one("article p code").get_text() == f"git clone --branch trunk {REPOSITORY}"


def test_a_page_that_is_passed_on_says_what_it_is(published):
    soup = BeautifulSoup((published / f"{CHAPTER}.html").read_text(), "html.parser")
    said = {tag["property"]: tag["content"] for tag in soup.select("meta[property]")}
    assert said["og:title"] == "One" and said["og:url"] == f"https://some-one.github.io/some.book/{CHAPTER}.html"
    folder, picture = said["og:image"].rsplit("/", 1)
    assert folder == "https://some-one.github.io/some.book/_static" and (ROOT / "book" / "_static" / picture).is_file()


def test_buttons_lead_to_downloads_and_where_the_book_is_kept(published):
    soup = BeautifulSoup((published / f"{CHAPTER}.html").read_text(), "html.parser")
    found = {link.get_text().strip(): link["href"] for link in soup.select(".article-header-buttons a[href]")}
    assert all((published / "notebooks" / found.pop(kind)).resolve().is_file() for kind in (".md", ".ipynb"))
    assert found.pop("Open issue").startswith(f"{REPOSITORY}/issues/new")
    assert found == {
        "Binder": "https://mybinder.org/v2/gh/some-one/some.book/trunk?urlpath=" + quote(
            f"git-pull?repo={quote(REPOSITORY, safe='')}&branch=gh-pages&urlpath="
            f"{quote(f'lab/tree/some.book/_sources/{CHAPTER}.ipynb', safe='')}", safe=""),
        "Colab": "https://colab.research.google.com/github/some-one/some.book/blob/gh-pages/_sources/"
                 f"{CHAPTER}.ipynb",
        "Repository": REPOSITORY,
        "Suggest edit": f"{REPOSITORY}/edit/trunk/{CHAPTER}.md",
    }


def test_a_published_notebook_can_be_read_where_only_markdown_is_known(published):
    notebook = nbformat.read(published / "_sources" / f"{CHAPTER}.ipynb", as_version=4)
    top, *others = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    page = f"https://some-one.github.io/some.book/{CHAPTER}.html"
    assert page in top and "Masked pre-training, in numbers" in top
    one, two = f"[(1)]({page}#equation-eq-one)", f"[the second section]({page}#here), [that]({page}#here)"
    assert others[-1].split("\n\n") == [
        "## Two", "$$\n1 + 1 = 2 \\tag{1}\n$$", f"See {one} and {two}, $f[x](t)$.", "> **Note**\n>\n> A word.",
        "> **Theorem 1 (Two)**\n>\n> Of $1 + 1$ is said:\n>\n> $$ 2 < 3 $$"]


@pytest.mark.parametrize(("alt", "form"), [("A & B", "{}"), ("", '<div role="img" aria-label="A &amp; B">{}</div>')])
def test_a_drawing_in_a_published_notebook_is_one_image_that_has_words(alt, form):
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    html = form.format(picture(figure, "key"))
    output = nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": "<HTML object>"})
    cell = nbformat.v4.new_code_cell("plot()", outputs=[output], metadata={"mystnb": {"image": {"alt": alt}}})
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})
    [shown] = readable(notebook, Page("", "", ROOT)).cells[1].outputs
    assert set(shown.data) == {"text/html", "text/plain"} and shown.data["text/plain"] == "A & B"
    [image] = BeautifulSoup(shown.data["text/html"], "html.parser").select("p > img")  # else JupyterLab stacks panels
    assert image["alt"] == "A & B" and image["src"].startswith("data:image/svg+xml;base64,")


def executed_notebooks():
    """What the buttons of the built site open, as far as the site is built."""
    return sorted((ROOT / "_build" / "html" / "_sources" / "notebooks").glob("*.ipynb"))


def test_no_role_and_no_directive_is_left_in_a_published_notebook(built_site):
    assert len(executed_notebooks()) == len(list((ROOT / "notebooks").glob("*.md")))
    for path in executed_notebooks():
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        left = r"\{[a-z:]+\}`|^:::|^```+\{|^:label:|^\([\w-]+\)="
        assert not re.findall(left, words, re.MULTILINE), path.name
        assert not re.findall(r"\]\((?!https?:)[\w#]", words), path.name
        formulas = [found for part in re.split(r"\n>? *\n", words) for found in re.findall(r"\$\$?[^$]+\$\$?", part)]
        assert not any("\n>" in found for found in formulas), path.name  # the sign of a quotation would be part of it
        assert "<svg" not in str(notebook.cells), path.name  # drawings are images


def test_a_published_notebook_installs_the_book_where_it_is_missing(published, tmp_path, monkeypatch):
    notebook = nbformat.read(published / "_sources" / f"{CHAPTER}.ipynb", as_version=4)
    install = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
    commands, folder = [], tmp_path / "mptlml-book"
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    exec(install, {})
    assert commands == []  # it is here
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(install, {})
    assert commands[0] == ["git", "clone", "--depth", "1", "--branch", "trunk", REPOSITORY, str(folder)]
    assert commands[1][-2:] == ["--editable", f"{folder}[book]"]
    folder.mkdir()
    exec(install, {})
    assert commands[2:] == commands[1:2]  # fetched once


def test_the_archive_holds_the_site_and_the_licences_and_leaves_the_print(tmp_path):
    names = ("index.html", "_sources/notebooks/01_one.ipynb", "data/fig1.csv", "claims.json")
    licences = ("LICENSE", "LICENSE-text", "CITATION.cff")
    for name in (*(f"_build/html/{name}" for name in names), "_build/mptlml-book.pdf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("Makefile", *licences):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)  # whose own path may have spaces
    subprocess.run(["make", "--old-file=book", "archive"], cwd=tmp_path, check=True)
    with zipfile.ZipFile(tmp_path / "_build" / "mptlml-book.zip") as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    assert held == {f"mptlml-book/{name}" for name in (*names, *licences)}
    assert {path.name for path in (tmp_path / "_build").iterdir()} == {"html", "mptlml-book.pdf", "mptlml-book.zip"}


PAGE = """<!doctype html><html><head><link rel="stylesheet" href="{up}print.css"></head><body>
<article class="bd-article"><section id="top"><h1>{title}<a class="headerlink">#</a></h1>
<p><a href="#later">below</a> <a href="{other}">there</a> <a href="https://example.org/">out</a>
<a href="data.csv">numbers</a></p>
<details class="hide above-input"><summary>Show the code</summary><div class="cell_input">CODE</div></details>
<details class="sd-dropdown"><summary>Solution</summary><p>SOLVED</p></details>
<div style="height: 30cm"></div><section id="later"><h2>Section</h2></section></section></article></body>"""


@pytest.fixture(scope="module", params=["all", "none"])
def printed(request, chromium, tmp_path_factory):
    """Which code cells were asked for, and the print of a book of two pages, each of two sheets."""
    site = tmp_path_factory.mktemp("print") / "html"
    (site / "sub").mkdir(parents=True)
    shutil.copy(ROOT / "book" / "_static" / "print.css", site)
    (site / "one.html").write_text(PAGE.format(up="", title="First", other="sub/two.html"))
    (site / "sub" / "two.html").write_text(PAGE.format(up="../", title="Second", other="../one.html#later"))
    config = {"title": "A book", "author": "Some", "html": {"extra_footer": "MIT"}}
    toc = {"root": "one", "parts": [{"caption": "A part", "chapters": [{"file": "sub/two"}]}]}
    book_print.write_print(chromium, site, site.parent / "book.pdf", request.param, config, toc)
    return request.param, PdfReader(site.parent / "book.pdf")


def test_a_browser_that_is_asked_for_must_be_there(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    with pytest.raises(ValueError, match="no-such-browser"):
        book_print.find_chromium()


def test_the_print_holds_all_but_what_only_a_screen_needs(printed):
    code, reader = printed
    text = [" ".join(page.extract_text().split()) for page in reader.pages]
    assert re.fullmatch("Contents First ?3 A part ?5 Second ?5 Section ?6", text[1])
    assert [page[:2] for page in text[2:]] == ["3F", "4F", "5S", "6S"]  # number and chapter stand in the margin
    whole = " ".join(text)
    words = ("SOLVED", "CODE", "Show the code", "#")
    assert [whole.count(word) for word in words] == [2, 2 * (code == "all"), 0, 0]


def test_bookmarks_and_links_of_the_print_lead_to_their_pages(printed):
    _, reader = printed
    first, part, (second, deeper) = reader.outline
    marks = [first, part, second, *deeper]
    assert [(mark.title, reader.get_destination_page_number(mark) + 1) for mark in marks] == [
        ("First", 3), ("A part", 5), ("Second", 5), ("Section", 6)]
    places = {name: reader.get_destination_page_number(place) + 1 for name, place in reader.named_destinations.items()}
    links = [(number, mark.get_object()) for number, page in enumerate(reader.pages, start=1)
             for mark in page.get("/Annots", [])]
    inside = sorted((number, places[link["/Dest"]]) for number, link in links if "/Dest" in link and number > 2)
    assert inside == [(3, 4), (3, 5), (5, 4), (5, 6)]
    assert {link["/A"]["/URI"] for _, link in links if "/A" in link} == {"https://example.org/"}
