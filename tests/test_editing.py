"""Chapters as they are edited: in a Jupyter server started as the page says, in a text editor, and without Jupytext."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import jupytext
import nbformat
import psutil
import pytest
from conftest import ROOT

NAME = "04_convergence"
TOLD = re.search(
    r"^\.venv/bin/jupyter lab (\S+)$", (ROOT / "book" / "howto.md").read_text(), re.MULTILINE
)[1]
PATIENCE = (
    600  # seconds in which a server starts or answers, which takes five when the machine is quiet
)
EDIT = "my_number = 41 + 1"


@pytest.fixture
def book(tmp_path):
    """A copy of one chapter, committed, with what `make pairs` runs."""
    root = tmp_path / "book"
    for name in ("notebooks", "mptlml", "mptlml_book"):
        (root / name).mkdir(parents=True)
    for path in (ROOT / "notebooks").iterdir():
        if path.stem == NAME or path.suffix == ".toml":
            shutil.copy2(path, root / "notebooks")
    for name in ("Makefile", "jupytext.toml"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, root)
    shutil.copytree(
        ROOT / "book" / "_ext", root / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / ".gitignore").write_text("_build\n.venv\n__pycache__\n")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message=One")
    return root


def git(root, *words):
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout


def pairs(root):
    """What `make pairs` says, and its status."""
    (root / ".venv").exists() or (root / ".venv").symlink_to(sys.prefix)
    words = [
        "make",
        "--no-print-directory",
        "--old-file=.venv/.ready",
        "--old-file=python",
        "pairs",
    ]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def both(root):
    """The two files of the chapter: the text, then its twin."""
    return [
        (root / "notebooks" / NAME).with_suffix(suffix).read_text() for suffix in (".md", ".ipynb")
    ]


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(root, *words):
    """ask(path, content) answers for a Jupyter server started in a folder: the contents of a file, or its saving."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = {"HOME": str(root.parent / "home"), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "server",
        *words,
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=known",
    ]
    log = root.parent / "log"
    with log.open("w") as file:
        running = psutil.Popen(command, cwd=root, env=home, stdout=file, stderr=file)
    try:
        last = time.monotonic() + PATIENCE
        while not answers(port):
            assert running.poll() is None and time.monotonic() < last, log.read_text()
            time.sleep(0.2)

        def ask(path, content=None):
            body = (
                content
                and json.dumps({"type": "notebook", "format": "json", "content": content}).encode()
            )
            address = f"http://127.0.0.1:{port}/api/contents/{path}"
            headers = {"Content-Type": "application/json", "Authorization": "token known"}
            request = urllib.request.Request(
                address, body, headers, method="PUT" if body else "GET"
            )
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE / 10) as answer:
                    return json.load(answer)["content"]
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from None

        yield ask
    finally:
        running.terminate()
        running.wait(PATIENCE)


PLACES = {"as the page says": ([TOLD], ""), "at the root": ([], "notebooks/")}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("suffix", [".ipynb", ".md"])
def test_an_edit_reaches_both_files_and_a_save_without_one_changes_neither(book, place, suffix):
    words, folder = PLACES[place]
    before = both(book)
    with served(book, *words) as ask:
        content = ask(f"{folder}{NAME}{suffix}")
        # as Lab does
        content["metadata"]["language_info"] = {
            "name": "python",
            "version": "3.11.7",
        }
        ask(f"{folder}{NAME}{suffix}", content)
        assert both(book) == before
        assert pairs(book) == (0, "") and both(book) == before
        time.sleep(1.5)  # more than the second by which a twin may be the newer one
        content = ask(f"{folder}{NAME}{suffix}")  # which opens after `make pairs` as well
        content["cells"].insert(3, nbformat.v4.new_code_cell(EDIT, id="new"))
        ask(f"{folder}{NAME}{suffix}", content)
    assert [text.count(EDIT) for text in both(book)] == [1, 1]
    assert pairs(book) == (0, "") and [text.count(EDIT) for text in both(book)] == [1, 1]


def test_an_edit_of_the_twin_alone_is_not_written_over(book):
    twin = book / "notebooks" / f"{NAME}.ipynb"
    notebook = nbformat.read(twin, as_version=4)
    notebook.cells.insert(3, nbformat.v4.new_code_cell(EDIT, id="new"))
    nbformat.write(notebook, twin)
    git(book, "add", ".")  # as before a commit
    text, edited = both(book)
    for later in ("", "\nA word more.\n"):  # also where the text was edited since
        (book / "notebooks" / f"{NAME}.md").write_text(text + later)
        status, said = pairs(book)
        assert status and both(book) == [text + later, edited]
        assert f"{NAME}.ipynb holds 1 cells that {NAME}.md has not" in said and EDIT in said
    (book / "notebooks" / f"{NAME}.md").write_text(text)
    keep, drop = re.findall(r"^ +to keep what .*: +(\S.*)$", said, re.MULTILINE)
    subprocess.run(keep, shell=True, cwd=book, check=True, capture_output=True)
    assert pairs(book) == (0, "") and [found.count(EDIT) for found in both(book)] == [1, 1]
    (book / "notebooks" / f"{NAME}.md").write_text(text)  # the text again as it was
    subprocess.run(drop, shell=True, cwd=book, check=True)
    assert pairs(book) == (0, "") and [found.count(EDIT) for found in both(book)] == [0, 0]


def test_a_cell_taken_out_of_the_twin_alone_does_not_come_back_unsaid(book):
    twin = book / "notebooks" / f"{NAME}.ipynb"
    for _ in range(2):  # what was committed tells, then what was written
        whole = both(book)
        notebook = nbformat.read(twin, as_version=4)
        line = notebook.cells.pop(3).source.strip().split("\n")[0]
        nbformat.write(notebook, twin)
        left = both(book)
        status, said = pairs(book)
        assert status and both(book) == left
        assert f"{NAME}.ipynb lacks 1 cells that {NAME}.md still has" in said and line in said
        twin.unlink()
        assert pairs(book) == (0, "") and both(book) == whole
        assert (book / "_build" / ".pairs.json").exists()


def test_a_text_may_be_edited_again_and_again(book):
    source = book / "notebooks" / f"{NAME}.md"
    text = source.read_text()
    for word in ("One", "Two", "Three"):
        source.write_text(f"{text}\n{word} more.\n")
        assert pairs(book) == (0, "")
        assert f"{word} more." in both(book)[1] and both(book)[1].count(" more.") == 1
    shutil.rmtree(book / "_build")
    source.write_text(text)  # the twin has a paragraph that was never committed
    assert pairs(book)[0] == 2


def test_a_twin_with_the_marks_of_a_merge_is_written_again(book):
    twin = book / "notebooks" / f"{NAME}.ipynb"
    written = twin.read_text()
    twin.write_text(written.replace("\n", "\n<<<<<<< HEAD\n", 1))
    assert pairs(book) == (0, "") and twin.read_text() == written


def test_the_twin_is_what_jupytext_would_write(book):
    text, twin = both(book)
    assert [cell.source for cell in jupytext.reads(text, "md:myst").cells] == [
        cell.source for cell in nbformat.reads(twin, as_version=4).cells
    ]
