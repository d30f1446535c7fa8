"""Chapters as they are edited: in a Jupyter server started as the page says, in a text editor, and without Jupytext."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import book_pairs
import nbformat
import psutil
import pytest
from conftest import ROOT, text_of

NAME = "04_convergence"
TOLD = re.search(r"^\.venv/bin/jupyter lab (\S+)$", text_of("book/howto.md"), re.MULTILINE)[1]
PATIENCE = 600  # seconds in which a server answers, which takes five when the machine is quiet
EDIT = "my_number = 41 + 1"


@pytest.fixture
def book(tmp_path):
    """A copy of one chapter with its twin, and the settings of Jupytext."""
    (tmp_path / "notebooks").mkdir()
    for name in (f"{NAME}.md", "jupytext.toml"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path / "notebooks")
    assert book_pairs.main(tmp_path) == ""
    return tmp_path


def both(root):
    """The two files of the chapter: the text, then its twin."""
    path = root / "notebooks" / NAME
    return [path.with_suffix(suffix).read_text() for suffix in (".md", ".ipynb")]


def edited(root, change):
    """Change the twin's cells, as an editor without Jupytext does."""
    twin = root / "notebooks" / f"{NAME}.ipynb"
    notebook = nbformat.read(twin, as_version=4)
    change(notebook.cells)
    nbformat.write(notebook, twin)


def insert(cells):
    cells.insert(3, nbformat.v4.new_code_cell(EDIT, id="new"))


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(root, *words):
    """ask(path, content) answers for a Jupyter server started in a folder: the contents of a file, or its saving."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = {"HOME": str(root / "home"), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    words = [*words, "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    words += ["--ServerApp.port_retries=0", "--IdentityProvider.token=known"]
    command = [sys.executable, "-m", "jupyter", "server", *words]
    log = root / "log"
    with log.open("w") as file:
        running = psutil.Popen(command, cwd=root, env=home, stdout=file, stderr=file)

    def ask(path, content=None):
        said = {"type": "notebook", "format": "json", "content": content}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/contents/{path}",
            content and json.dumps(said).encode(),
            {"Content-Type": "application/json", "Authorization": "token known"},
            method="PUT" if content else "GET",
        )
        with urllib.request.urlopen(request, timeout=PATIENCE / 10) as answer:
            return json.load(answer)["content"]

    try:
        last = time.monotonic() + PATIENCE
        while not answers(port):
            assert running.poll() is None and time.monotonic() < last, log.read_text()
            time.sleep(0.2)
        yield ask
    finally:
        running.terminate()
        running.wait(PATIENCE)


@pytest.mark.parametrize("words, folder", [([TOLD], ""), ([], "notebooks/")], ids=["told", "root"])
def test_an_edit_reaches_both_files_and_a_save_without_one_changes_neither(book, words, folder):
    """In a server as the page says, and in one at the root, which has our settings in .venv."""
    with served(book, *words) as ask:
        for suffix in (".ipynb", ".md"):
            before = both(book)
            content = ask(f"{folder}{NAME}{suffix}")
            # as Lab does
            content["metadata"]["language_info"] = {"name": "python", "version": "3.11.7"}
            ask(f"{folder}{NAME}{suffix}", content)
            assert both(book) == before
            assert book_pairs.main(book) == "" and both(book) == before
            time.sleep(1.5)  # more than the second by which a twin may be the newer one
            content = ask(f"{folder}{NAME}{suffix}")  # which opens after `make pairs` as well
            insert(content["cells"])
            ask(f"{folder}{NAME}{suffix}", content)
            count = 1 + (suffix == ".md")
            assert [text.count(EDIT) for text in both(book)] == [count, count]
            assert book_pairs.main(book) == ""
            assert [text.count(EDIT) for text in both(book)] == [count, count]


def test_an_edit_of_the_twin_alone_is_not_written_over(book):
    edited(book, insert)
    source = book / "notebooks" / f"{NAME}.md"
    text, twin = both(book)
    for later in ("", "\nA word more.\n"):  # also where the text was edited since
        source.write_text(text + later)
        said = book_pairs.main(book)
        assert said and EDIT in said and both(book) == [text + later, twin]
    source.write_text(text)
    keep, drop = re.findall(r"^ +to keep what .*: +(\S.*)$", said, re.MULTILINE)
    (book / ".venv").symlink_to(sys.prefix)
    subprocess.run(keep, shell=True, cwd=book, check=True, capture_output=True)
    assert book_pairs.main(book) == "" and [found.count(EDIT) for found in both(book)] == [1, 1]
    source.write_text(text)  # the text again as it was: its own edit
    assert book_pairs.main(book) == "" and [found.count(EDIT) for found in both(book)] == [0, 0]
    edited(book, insert)
    subprocess.run(drop, shell=True, cwd=book, check=True)
    assert book_pairs.main(book) == "" and [found.count(EDIT) for found in both(book)] == [0, 0]


def test_a_new_cell_changes_one_id_and_equal_cells_are_told_apart(book):
    source = book / "notebooks" / f"{NAME}.md"
    cell = f"\n```{{code-cell}} ipython3\n{EDIT}\n```\n"
    ids = [set()]
    for _ in range(3):
        assert book_pairs.main(book) == ""
        cells = nbformat.reads(both(book)[1], as_version=4).cells
        ids.append({cell.id for cell in cells})
        assert ids[-2] < ids[-1] and len(ids[-1]) == len(cells)
        text = source.read_text()
        source.write_text(text.replace("\n```{code-cell}", f"{cell}\n```{{code-cell}}", 1))


def test_a_twin_with_the_marks_of_a_merge_is_written_again(book):
    written = both(book)
    twin = book / "notebooks" / f"{NAME}.ipynb"
    twin.write_text(written[1].replace("\n", "\n<<<<<<< HEAD\n", 1))
    assert book_pairs.main(book) == "" and both(book) == written
