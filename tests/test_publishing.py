"""The book as others meet it: what may write, what Binder gets, and the archive."""

import os
import re
import sys
import zipfile

import yaml
from conftest import ROOT, finished, text_of, write_files

WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob(".github/workflows/*.yml")
}


def test_the_site_is_the_only_commit_of_its_branch(tmp_path):
    """As the workflow pushes it: whatever the user's git ignores, and twice."""
    push = WORKFLOWS["publish"]["jobs"]["push"]["steps"][-1]["run"]
    people = {
        f"GIT_{role}_{what}": "a" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }

    def run(command, program="git"):
        done = finished(program, *command, cwd=tmp_path, env=os.environ | people)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    site = {".gitignore": "*.js\n", "_static/a.js": "1"}
    write_files(tmp_path / "_build" / "html", site)
    write_files(tmp_path, {".gitignore": "_build\nbare\n"})
    for words in (
        "init -q --bare bare",
        "init -q",
        "add .",
        "commit -q -m One",
        "remote add origin bare",
    ):
        run(words.split())
    for page in ("first", "second"):
        write_files(tmp_path / "_build" / "html", {"index.html": page})
        run(["-ec", push], "bash")
    run("fetch -q origin gh-pages".split())
    held = run("ls-tree -r --name-only FETCH_HEAD".split()).split()
    assert {*held} == {*site, ".nojekyll", "index.html"}
    assert run("rev-list --count FETCH_HEAD".split()) == "1"
    assert run("show FETCH_HEAD:index.html".split()) == "second"
    assert run("status --porcelain".split()) == ""


def test_binder_gets_what_a_reader_needs():
    lines = text_of(".binder/requirements.txt").splitlines()
    wanted = {re.split("[=[]", line)[0] for line in lines if re.match("[a-z]", line)}
    assert {*"torch jupytext ipykernel jupyterlab-myst".split()} <= wanted
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
