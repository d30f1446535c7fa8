"""The book as others meet it: its buttons, its notebooks far from home, its archive and its print."""

import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from pypdf import PdfReader

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_archive  # noqa: E402
import book_launch  # noqa: E402
import book_print  # noqa: E402

REPOSITORY = "https://github.com/some-one/some.book"
PLACE = (REPOSITORY, "trunk")


@pytest.mark.parametrize(("environment", "expected"), [
    ({"MPTLML_REPOSITORY": " ", "MPTLML_BRANCH": "trunk"}, None),
    ({"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": "trunk"}, PLACE),
    ({"MPTLML_REPOSITORY": REPOSITORY + ".git/", "MPTLML_BRANCH": ""}, (REPOSITORY, "main")),
])
def test_the_address_comes_from_the_environment(environment, expected):
    assert book_launch.address(environment) == expected


@pytest.mark.parametrize(("repository", "branch"), [
    ("some-one/some.book", ""), ('https://github.com/some-one/book"; import os', ""), (REPOSITORY, "--upload-pack=x")])
def test_what_is_no_address_is_refused(repository, branch):
    with pytest.raises(ValueError, match="MPTLML_"):
        book_launch.address({"MPTLML_REPOSITORY": repository, "MPTLML_BRANCH": branch})


def test_no_source_says_where_the_book_is_kept():
    found = subprocess.run(["git", "grep", "-lE", r"github\.com/[A-Za-z0-9-]+/[a-z.-]*mptlml|[a-z]\.github\.io"],
                           cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout == ""


def run_cell(place, folder, monkeypatch):
    """Run the first cell of a published notebook where the package is missing, with pip stood in for; its commands."""
    book_launch.write_notebooks(ROOT, folder / "site", place)
    notebook = nbformat.read(folder / "site" / "01_masked_pretraining.ipynb", as_version=4)
    commands, real = [], subprocess.run

    def run(command, **options):
        commands.append(command)
        return real(command, **options) if command[0] == "git" else None

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", run)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr("importlib.util.find_spec", lambda name: None)
        exec(next(cell.source for cell in notebook.cells if cell.cell_type == "code"), {})
    return commands


def test_a_published_notebook_installs_the_book_where_it_is_missing(tmp_path, monkeypatch):
    kept = tmp_path / "kept"
    (kept / "mptlml").mkdir(parents=True)
    (kept / "mptlml" / "__init__.py").touch()
    git = ["git", "-C", str(kept), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "All of it"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.chdir(tmp_path)
    fetched, installed = run_cell((kept.as_uri(), "trunk"), tmp_path, monkeypatch)
    assert fetched[0] == "git" and (tmp_path / "mptlml-book" / "mptlml" / "__init__.py").is_file()
    assert installed[-2:] == ["--editable", f"{tmp_path / 'mptlml-book'}[book]"]
    assert run_cell((kept.as_uri(), "trunk"), tmp_path, monkeypatch) == [installed]  # fetched once
    with pytest.raises(ModuleNotFoundError, match="does not say where its book is kept"):
        run_cell(None, tmp_path, monkeypatch)


@pytest.mark.parametrize("place", [None, PLACE], ids=["without", "with"])
def test_buttons_and_downloads_with_and_without_an_address(place, tmp_path):
    for name in ("_static", "_ext"):
        shutil.copytree(ROOT / "book" / name, tmp_path / "book" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "book" / "references.bib", tmp_path / "book")
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    config["execute"] = {"execute_notebooks": "off"}
    for name in set(config["sphinx"]["local_extensions"]) - {"book_checks", "book_polish", "book_launch"}:
        del config["sphinx"]["local_extensions"][name]  # these show claims and figures, of which there are none here
        config["sphinx"]["config"]["extensions"].remove(name)
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/intro\nchapters:\n- file: notebooks/01_one\n")
    (tmp_path / "book" / "intro.md").write_text("# A book\n\nWords.\n")
    front = (ROOT / "notebooks" / "01_masked_pretraining.md").read_text().split("myst:")[0] + "---\n"
    chapter = jupytext.reads(f"{front}\n# A chapter\n\n```{{code-cell}} ipython3\n6 * 7\n```\n", fmt="md:myst")
    (tmp_path / "notebooks").mkdir()
    for suffix in ("md", "ipynb"):
        jupytext.write(chapter, tmp_path / "notebooks" / f"01_one.{suffix}", fmt="md:myst" if suffix == "md" else None)
    known = dict(zip(("MPTLML_REPOSITORY", "MPTLML_BRANCH"), place or ("", ""), strict=True))
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "-W", "--keep-going", tmp_path]
    done = subprocess.run(command, env=os.environ | known, text=True, check=False,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "_build" / "html"
    soup = BeautifulSoup((site / "notebooks" / "01_one.html").read_text(), "html.parser")
    found = {link.get_text().strip(): link["href"] for link in soup.select(".article-header-buttons a[href]")}
    assert all((site / "notebooks" / found.pop(kind)).resolve().is_file() for kind in (".md", ".ipynb"))
    assert ("Open issue" in found) == bool(place) and found.pop("Open issue", REPOSITORY).startswith(REPOSITORY)
    assert found == ({} if place is None else {
        "Binder": "https://mybinder.org/v2/gh/some-one/some.book/trunk?urlpath=lab/tree/notebooks/01_one.ipynb",
        "Colab": "https://colab.research.google.com/github/some-one/some.book/blob/gh-pages/_sources/notebooks/"
                 "01_one.ipynb", "Repository": REPOSITORY,
        "Suggest edit": f"{REPOSITORY}/edit/trunk/notebooks/01_one.md"})
    code = nbformat.read(site / "_sources" / "notebooks" / "01_one.ipynb", as_version=4).cells[1].source
    assert 'REPOSITORY, BRANCH = "{}", "{}"'.format(*known.values()) in code


def test_the_archive_holds_site_notebooks_data_and_licences(tmp_path):
    site, target = tmp_path / "html", tmp_path / "book.zip"
    for name in ("index.html", "_sources/notebooks/01_one.ipynb", "data/fig1.csv", "claims.json", ".buildinfo"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    book_archive.write_archive(site, target)
    first = target.read_bytes()
    for path in site.rglob("*"):
        os.utime(path, (1e9, 1e9))
    book_archive.write_archive(site, target)
    assert target.read_bytes() == first  # the same site, the same archive
    with zipfile.ZipFile(target) as archive:
        assert archive.namelist() == sorted(f"mptlml-book/{name}" for name in (
            "README.txt", "LICENSE", "LICENSE-text", "CITATION.cff", "notebooks/01_one.ipynb", "data/fig1.csv",
            "data/claims.json", "site/index.html", "site/_sources/notebooks/01_one.ipynb", "site/data/fig1.csv",
            "site/claims.json"))
    with pytest.raises(FileNotFoundError):
        book_archive.write_archive(site, target, root=tmp_path)  # there are no licences
    assert target.read_bytes() == first and not target.with_suffix(".part").exists()


@pytest.fixture
def python_random():
    """Playwright, as it starts, draws from Python's global generator, which no test may leave moved."""
    state = random.getstate()
    yield
    random.setstate(state)


PAGE = """<!doctype html><html><head><link rel="stylesheet" href="{up}print.css"></head><body><nav class="bd-links">
<p class="caption">A part</p><ul><li><a href="sub/two.html">Second</a></li></ul></nav>
<article class="bd-article"><section id="top"><h1>{title}<a class="headerlink">#</a></h1>
<p>Words of {title}. <a href="#later">below</a> <a href="{other}">there</a> <a href="https://example.org/">out</a>
<a href="data.csv">numbers</a></p>
<details class="hide above-input"><summary>Show the code</summary><div class="cell_input">CODE</div></details>
<details class="sd-dropdown"><summary>Solution</summary><p>SOLVED</p></details>
<div style="height: 30cm"></div><section id="later"><h2>Second heading</h2></section></section></article></body>"""


def flat(items, depth=0):
    """The bookmarks of a print as (depth, bookmark)."""
    for item in items:
        yield from flat(item, depth + 1) if isinstance(item, list) else [(depth, item)]


@pytest.mark.parametrize("code", ["all", "none"])
def test_the_print_has_contents_bookmarks_page_numbers_and_links(code, chromium, python_random, tmp_path):
    site, target = tmp_path / "html", tmp_path / "book.pdf"
    (site / "sub").mkdir(parents=True)
    shutil.copy(ROOT / "book" / "_static" / "print.css", site)
    (site / "index.html").write_text('<a href="one.html">')
    (site / "one.html").write_text(PAGE.format(up="", title="First", other="sub/two.html"))
    (site / "sub" / "two.html").write_text(PAGE.format(up="../", title="Second", other="../one.html#later"))
    config = {"title": "A book", "author": "Some", "html": {"extra_footer": "MIT"}}
    book_print.write_print(chromium, site, target, code, config)
    reader = PdfReader(target)
    text = [" ".join(page.extract_text().split()) for page in reader.pages]
    assert len(text) == 6 and reader.metadata.title == "A book"  # title, contents, and two pages each
    assert re.fullmatch("Contents First ?3 Second heading ?4 A part ?5 Second ?5 Second heading ?6", text[1]), text[1]
    assert [re.match(r"\d(?:First|Second)", page)[0] for page in text[2:]] == [  # the margin is read first
        "3First", "4First", "5Second", "6Second"]
    assert " ".join(text).count("SOLVED") == 2 and " ".join(text).count("CODE") == 2 * (code == "all")
    assert "Show the code" not in " ".join(text) and "#" not in " ".join(text)
    assert [(depth, mark.title, reader.get_destination_page_number(mark) + 1) for depth, mark in flat(reader.outline)
            ] == [(0, "First", 3), (1, "Second heading", 4), (0, "A part", 5), (1, "Second", 5),
                  (2, "Second heading", 6)]
    places = {name: reader.get_destination_page_number(place) + 1 for name, place in reader.named_destinations.items()}
    links = [(number, mark.get_object()) for number, page in enumerate(reader.pages, start=1)
             for mark in page.get("/Annots", [])]
    assert sorted((number, places[link["/Dest"]]) for number, link in links if "/Dest" in link and number > 2) == [
        (3, 4), (3, 5), (5, 4), (5, 6)]
    assert {link["/A"]["/URI"] for _, link in links if "/A" in link} == {"https://example.org/"}
