"""The book as others meet it: its buttons, its notebooks far from home, and its archive."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import quote

import jupytext
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from conftest import ROOT

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


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The site, at a known address, of a book with one short chapter."""
    root = tmp_path_factory.mktemp("book")
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    config["sphinx"]["local_extensions"] = {"book_launch": str(ROOT / "book" / "_ext")}
    extensions = config["sphinx"]["config"]["extensions"]
    extensions[:] = [
        name for name in extensions if name == "book_launch" or not name.startswith("book_")
    ]
    (root / "_config.yml").write_text(yaml.safe_dump(config))
    (root / "_toc.yml").write_text(f"format: jb-book\nroot: {CHAPTER}\n")
    (root / "notebooks").mkdir()
    chapter = jupytext.read(ROOT / f"{CHAPTER}.md")
    chapter.metadata.pop("myst")
    chapter.cells = [
        nbformat.v4.new_markdown_cell("# One"),
        nbformat.v4.new_code_cell("6 * 7"),
        nbformat.v4.new_markdown_cell(DIRECTIVES),
    ]
    for suffix, form in ((".md", "md:myst"), (".ipynb", "ipynb")):
        jupytext.write(chapter, root / f"{CHAPTER}{suffix}", fmt=form)
    command = [Path(sys.executable).with_name("jupyter-book"), "build", "-q", root]
    known = {"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": "trunk"}
    subprocess.run(command, env=os.environ | known, check=True, capture_output=True)
    return root / "_build" / "html"


def test_a_page_that_is_passed_on_says_what_it_is(published):
    soup = BeautifulSoup((published / f"{CHAPTER}.html").read_text(), "html.parser")
    said = {tag["property"]: tag["content"] for tag in soup.select("meta[property]")}
    assert (
        said["og:title"] == "One"
        and said["og:url"] == f"https://some-one.github.io/some.book/{CHAPTER}.html"
    )
    folder, picture = said["og:image"].rsplit("/", 1)
    assert (
        folder == "https://some-one.github.io/some.book/_static"
        and (ROOT / "book" / "_static" / picture).is_file()
    )


def test_buttons_lead_to_downloads_and_where_the_book_is_kept(published):
    soup = BeautifulSoup((published / f"{CHAPTER}.html").read_text(), "html.parser")
    found = {
        link.get_text().strip(): link["href"]
        for link in soup.select(".article-header-buttons a[href]")
    }
    assert all(
        (published / "notebooks" / found.pop(kind)).resolve().is_file()
        for kind in (".md", ".ipynb")
    )
    assert found.pop("Open issue").startswith(f"{REPOSITORY}/issues/new")
    assert found == {
        "Binder": "https://mybinder.org/v2/gh/some-one/some.book/trunk?urlpath="
        + quote(
            f"git-pull?repo={quote(REPOSITORY, safe='')}&branch=gh-pages&urlpath="
            f"{quote(f'lab/tree/some.book/_sources/{CHAPTER}.ipynb', safe='')}",
            safe="",
        ),
        "Repository": REPOSITORY,
        "Suggest edit": f"{REPOSITORY}/edit/trunk/{CHAPTER}.md",
    }


def test_a_published_notebook_can_be_read_where_only_markdown_is_known(published):
    notebook = nbformat.read(published / "_sources" / f"{CHAPTER}.ipynb", as_version=4)
    top, *others = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    page = f"https://some-one.github.io/some.book/{CHAPTER}.html"
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
        formulas = [
            found
            for part in re.split(r"\n>? *\n", words)
            for found in re.findall(r"\$\$?[^$]+\$\$?", part)
        ]
        # the sign of a quotation would be part of it
        assert not any("\n>" in found for found in formulas), path.name
        shown = [
            output.data.get("text/html", "")
            for cell in notebook.cells
            for output in cell.get("outputs", [])
            if "data" in output
        ]
        first = BeautifulSoup("".join(shown), "html.parser").select("p > img:first-child")
        assert first and all(len(image["alt"].split()) > 5 for image in first), path.name
        assert "<svg" not in str(notebook.cells), path.name


def test_the_site_is_the_only_commit_of_its_branch(tmp_path):
    """Whatever the user's git ignores, and twice."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    bare, book = tmp_path / "bare", tmp_path / "book"
    (book / "_build" / "html" / "_static").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", book)
    (book / ".gitignore").write_text("_build\n")
    (book / "_build" / "html" / ".gitignore").write_text("*.js\n")
    (book / "_build" / "html" / "_static" / "a.js").write_text("1")
    subprocess.run(["git", "init", "--quiet", "--bare", bare], check=True)
    for words in (
        ["init", "--quiet"],
        ["add", "."],
        ["commit", "--quiet", "--message=One"],
        ["remote", "add", "origin", str(bare)],
    ):
        subprocess.run([*git, *words], cwd=book, check=True)
    who = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    for page in ("first", "second"):
        (book / "_build" / "html" / "index.html").write_text(page)
        subprocess.run(["make", "push"], cwd=book, env=os.environ | who, check=True)

    def said(*words, where=bare):
        return subprocess.check_output(["git", *words], cwd=where, text=True).strip()

    assert (
        said("log", "--format=%s", "gh-pages")
        == f"The site of {said('rev-parse', '--short', 'HEAD', where=book)}"
    )
    assert set(said("ls-tree", "-r", "--name-only", "gh-pages").split()) == {
        ".gitignore",
        ".nojekyll",
        "_static/a.js",
        "index.html",
    }
    assert (
        said("show", "gh-pages:index.html") == "second"
        and said("status", "--porcelain", where=book) == ""
    )


def test_what_runs_packages_cannot_write_and_what_can_write_runs_none():
    """In every workflow; the job that holds the token has git, make and the platform's own client."""
    writers = []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path.name
        for name, job in workflow["jobs"].items():
            steps = job["steps"]
            if "write" in job.get("permissions", {}).values():
                writers.append((path.stem, name))
                assert [step["run"].split()[:2] for step in steps if "run" in step] == [
                    ["gh", "run"],
                    ["make", "push"],
                ]
                assert [step["uses"].split("@")[0] for step in steps if "uses" in step] == [
                    "actions/checkout"
                ]
            else:
                [checkout] = [
                    step for step in steps if step.get("uses", "").startswith("actions/checkout@")
                ]
                assert checkout["with"]["persist-credentials"] is False, (path.name, name)
    assert writers == [("publish", "push")]


def test_binder_gets_what_a_reader_needs():
    lines = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    wanted = {re.split("[=[]", line)[0] for line in lines if re.match("[a-z]", line)}
    assert {
        "torch",
        "jupytext",
        "ipykernel",
        "nbgitpuller",
    } <= wanted and "-c ../constraints.txt" in lines
    assert not wanted & {
        "mypy",
        "ruff",
        "zizmor",
        "typos",
        "playwright",
        "twine",
        "jupyter-book",
        "pytest",
        "uv",
    }
    assert not any(line.startswith("-r") for line in lines)


def test_the_archive_holds_the_site_and_the_licences(tmp_path):
    names = ("index.html", "_sources/notebooks/01_one.ipynb", "data/fig1.csv", "claims.json")
    licences = ("LICENSE", "LICENSE-text", "CITATION.cff")
    for path in (tmp_path / "_build" / "html" / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in ("Makefile", *licences):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)  # whose own path may have spaces
    subprocess.run(["make", "--old-file=book", "archive"], cwd=tmp_path, check=True)
    with zipfile.ZipFile(tmp_path / "_build" / "mptlml-book.zip") as archive:
        held = {name for name in archive.namelist() if not name.endswith("/")}
    assert held == {f"mptlml-book/{name}" for name in (*names, *licences)}
    assert {path.name for path in (tmp_path / "_build").iterdir()} == {"html", "mptlml-book.zip"}
