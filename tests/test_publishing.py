"""The book as others meet it: its buttons, its notebooks far from home, and its archive."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import quote, unquote

import jupytext
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import ROOT, finished, soup_of, text_of, write_files

REPOSITORY = "https://github.com/some-one/some.book"
SITE = "https://some-one.github.io/some.book"
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


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The site, at a known address, of a book with one short chapter."""
    root = tmp_path_factory.mktemp("book")
    config = yaml.safe_load(text_of("_config.yml"))
    config["sphinx"]["local_extensions"] = {"book_launch": str(ROOT / "book" / "_ext")}
    extensions = config["sphinx"]["config"]["extensions"]
    extensions[:] = [name for name in extensions if not re.match("book_(?!launch)", name)]
    toc = f"format: jb-book\nroot: {CHAPTER}\n"
    write_files(root, {"_config.yml": yaml.safe_dump(config), "_toc.yml": toc, "notebooks/.x": ""})
    chapter = jupytext.read(ROOT / f"{CHAPTER}.md")
    chapter.metadata.pop("myst")
    one, two = map(nbformat.v4.new_markdown_cell, ("# One", DIRECTIVES))
    chapter.cells = [one, nbformat.v4.new_code_cell("6 * 7"), two]
    for suffix, form in ((".md", "md:myst"), (".ipynb", "ipynb")):
        jupytext.write(chapter, root / f"{CHAPTER}{suffix}", fmt=form)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", root]
    known = {"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": "trunk"}
    subprocess.run(command, env=os.environ | known, check=True, capture_output=True)
    return root / "_build" / "html"


def test_a_page_that_is_passed_on_says_what_it_is(published):
    tags = soup_of(published / f"{CHAPTER}.html").select("meta[property]")
    said = {tag["property"]: tag["content"] for tag in tags}
    assert said["og:title"] == "One" and said["og:url"] == f"{SITE}/{CHAPTER}.html"
    folder, picture = said["og:image"].rsplit("/", 1)
    assert folder == f"{SITE}/_static" and (ROOT / "book" / "_static" / picture).is_file()


def test_buttons_lead_to_downloads_and_where_the_book_is_kept(published):
    links = soup_of(published / f"{CHAPTER}.html").select(".article-header-buttons a[href]")
    found = {link.get_text().strip(): link["href"] for link in links}
    for kind in (".md", ".ipynb"):
        assert (published / "notebooks" / found.pop(kind)).resolve().is_file()
    assert found.pop("Open issue").startswith(f"{REPOSITORY}/issues/new")
    binder, _, way = unquote(found.pop("Binder")).partition("?urlpath=")
    assert binder == "https://mybinder.org/v2/gh/some-one/some.book/trunk"
    there = quote(f"lab/tree/some.book/_sources/{CHAPTER}.ipynb", safe="")
    repository = quote(REPOSITORY, safe="")
    assert way == f"git-pull?repo={repository}&branch=gh-pages&urlpath={there}"
    edit = f"{REPOSITORY}/edit/trunk/{CHAPTER}.md"
    assert found == {"Repository": REPOSITORY, "Suggest edit": edit}


def test_a_published_notebook_can_be_read_where_only_markdown_is_known(published):
    notebook = nbformat.read(published / "_sources" / f"{CHAPTER}.ipynb", as_version=4)
    top, *others = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    page = f"{SITE}/{CHAPTER}.html"
    assert page in top and "Masked pre-training, in numbers" in top
    one, two = (
        f"[(1)]({page}#equation-eq-one)",
        f"[the second section]({page}#here), [that]({page}#here)",
    )
    assert others[-1].split("\n\n") == [
        "## Two",
        "$$\n1 + 1 = 2 \\tag{1}\n$$",
        f"See {one} and {two}, $f[x](t)$.",
        "> **Note**\n>\n> A word.",
        "> **Theorem 1 (Two)**\n>\n> Of $1 + 1$ is said:\n>\n> $$ 2 < 3 $$",
    ]


def test_a_published_notebook_has_no_role_and_no_directive_and_its_drawings_are_images_with_words(
    built_site,
):
    paths = sorted((built_site / "_sources" / "notebooks").glob("*.ipynb"))
    assert len(paths) == len(list((ROOT / "notebooks").glob("*.md")))
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        words = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        left = r"\{[a-z:]+\}`|^:::|^```+\{|^:label:|^\([\w-]+\)="
        assert not re.findall(left, words, re.MULTILINE), path.name
        assert not re.findall(r"\]\((?!https?:)[\w#]", words), path.name
        for part in re.split(r"\n>? *\n", words):
            # the sign of a quotation would be part of the formula
            assert "\n>" not in " ".join(re.findall(r"\$\$?[^$]+\$\$?", part)), path.name
        shown = [
            output.data.get("text/html", "")
            for cell in notebook.cells
            for output in cell.get("outputs", [])
            if "data" in output
        ]
        first = BeautifulSoup("".join(shown), "html.parser").select("p > img:first-child")
        assert first and all(len(image["alt"].split()) > 5 for image in first), path.name
        assert "<svg" not in str(notebook.cells), path.name


def test_the_site_is_the_only_commit_of_its_branch(tmp_path, monkeypatch):
    """Whatever the user's git ignores, and twice."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "a@b")
    site = {".gitignore": "*.js\n", "_static/a.js": "1"}
    write_files(tmp_path / "_build" / "html", site)
    write_files(tmp_path, {"Makefile": text_of("Makefile"), ".gitignore": "_build\nbare\n"})

    def git(words):
        done = finished("git", *words.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    for words in (
        "init --quiet --bare bare",
        "init --quiet",
        "add .",
        "commit --quiet --message=One",
    ):
        git(words)
    git("remote add origin bare")
    for page in ("first", "second"):
        write_files(tmp_path / "_build" / "html", {"index.html": page})
        assert finished("make", "push", cwd=tmp_path).returncode == 0
    git("fetch --quiet origin gh-pages")
    assert git("log --format=%s FETCH_HEAD") == f"The site of {git('rev-parse --short HEAD')}"
    held = {*site, ".nojekyll", "index.html"}
    assert {*git("ls-tree -r --name-only FETCH_HEAD").split()} == held
    assert git("show FETCH_HEAD:index.html") == "second" and git("status --porcelain") == ""


def test_what_runs_packages_cannot_write_and_what_can_write_runs_none():
    """In every workflow; the job that holds the token has git, make and the platform's own client."""
    writers = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for name, job in workflow["jobs"].items():
            steps = job["steps"]
            run = [" ".join(step["run"].split()[:2]) for step in steps if "run" in step]
            used = [(step["uses"].split("@")[0], step) for step in steps if "uses" in step]
            checkouts = [step.get("with") for name, step in used if name == "actions/checkout"]
            if "write" in job.get("permissions", {}).values():
                writers.append((path.stem, name))
                assert run == ["gh run", "make push"] and len(used) == len(checkouts) == 1
            else:
                kept = [checkout["persist-credentials"] for checkout in checkouts]
                assert kept == [False], (path.name, name)
    assert writers == [("publish", "push")]


def test_binder_gets_what_a_reader_needs():
    lines = text_of(".binder/requirements.txt").splitlines()
    wanted = {re.split("[=[]", line)[0] for line in lines if re.match("[a-z]", line)}
    assert {*"torch jupytext ipykernel nbgitpuller".split()} <= wanted
    assert "-c ../constraints.txt" in lines and not any(line.startswith("-r") for line in lines)
    ours = "mypy ruff zizmor typos playwright twine jupyter-book pytest uv"
    assert wanted.isdisjoint(ours.split())


def test_the_archive_holds_the_site_and_the_licences(tmp_path):
    names = ("index.html", "_sources/notebooks/01_one.ipynb", "data/fig1.csv", "claims.json")
    licences = ("LICENSE", "LICENSE-text", "CITATION.cff")
    write_files(tmp_path / "_build" / "html", dict.fromkeys(names, ""))
    write_files(tmp_path, {name: text_of(name) for name in ("Makefile", *licences)})
    (tmp_path / ".venv").symlink_to(sys.prefix)  # whose own path may have spaces
    assert finished("make", "--old-file=book", "archive", cwd=tmp_path).returncode == 0
    with zipfile.ZipFile(tmp_path / "_build" / "mptlml-book.zip") as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    assert held == {f"mptlml-book/{name}" for name in (*names, *licences)}
    assert {path.name for path in (tmp_path / "_build").iterdir()} == {"html", "mptlml-book.zip"}
