"""The machine of the book: what runs when, how it ends, and what the pages show of the chapters' records."""

import copy
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import time
from contextlib import suppress

import book_reader
import book_records
import nbformat
import pandas as pd
import psutil
import pytest
import yaml
from conftest import ROOT, finished, text_of, write_files

from mptlml_book.report.claims import KINDS, RUNS, claims
from mptlml_book.report.records import MIME

PATIENCE = 600  # seconds for what takes ten when the machine is quiet
MAKE = "make --old-file=.venv/.ready --old-file=python".split()

# A book with the real machine, small packages, and no data ----------------------------------------------------

PLACES = "import pathlib, sys\nprint(*pathlib.Path('at hand').glob(f'{sys.argv[1]}*'))\n"
CLAIMS = """import yaml
def claims(path):
    return {entry["id"]: entry for entry in yaml.safe_load(path.read_text())}
"""
LITTLE = {
    **{name: text_of(name) for name in ("Makefile", "mptlml_book/report/depends.py")},
    **{f"book/_ext/{name}.py": text_of(f"book/_ext/{name}.py") for name in ("book_code", "book_run")},
    **dict.fromkeys(("mptlml_book/__init__.py", "mptlml_book/report/__init__.py"), ""),
    **dict.fromkeys(("mptlml_book/data/__main__.py", "mptlml_book/data/images.py"), ""),
    "mptlml_book/data/places.py": PLACES,
    "mptlml_book/report/claims.py": CLAIMS,
    "mptlml/part.py": '"""A part."""\nTWO = 2\n',
    "mptlml/__init__.py": "",
    "requirements.txt": "torch==2\n",
    "constraints.txt": "torch==2\n",
    "book/data/runs_a.csv": "1\n",
    "book/data_sets.yml": "{}",
    "book/claims.yml": "- {id: a, chapter: 01_good, band: [1, 2], statement: One}\n",
}


def chapter(name, *cells, note=()):
    """The source of a chapter, whose last cell closes it."""
    first, last = "from mptlml_book.report import depends", f"depends.write({name!r}, {[*note]})"
    code = "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in (first, *cells, last))
    return {f"notebooks/{name}.md": f"# {name}\n{code}"}


def little_book(root, *chapters):
    for files in (LITTLE, *chapters):
        write_files(root, files)
    (root / ".venv").symlink_to(sys.prefix)
    return root


def make(root, *words, **env):
    return finished(*MAKE, *words, cwd=root, env=os.environ | {"CI": ""} | env, timeout=PATIENCE)


EDITS_ITSELF = """from pathlib import Path
source = Path("../../notebooks/05_edited.md")
source.write_text(source.read_text().replace("= 1", "= 2"))
number = 1"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(book, what `make execute` said): one chapter raises, the kernel of one dies, one is edited meanwhile."""
    reads = "from mptlml import part\nfrom mptlml_book.data import images\nopen('../../book/data/runs_' + 'a.csv')"
    chapters = [
        chapter("01_good", ":tags: [hide-input]\nprint(6 * 7)", note=["digits stand in"]),
        chapter("02_bad", "raise RuntimeError('on purpose')"),
        chapter("03_dead", "import os; os.kill(os.getpid(), 9)"),
        chapter("04_reads", reads),
        chapter("05_edited", EDITS_ITSELF),
    ]
    root = little_book(tmp_path_factory.mktemp("book"), *chapters)
    return root, make(root, "execute")


def test_passed_chapters_are_kept_and_failed_ones_are_named(ran):
    root, done = ran
    assert done.returncode and "\x1b[" not in done.stderr
    assert "02_bad failed in the cell at line 7: RuntimeError: on purpose\n" in done.stderr
    assert "03_dead failed: its kernel died, as when memory runs out\n" in done.stderr
    kept = {path.stem for path in (root / "build").glob("*.ipynb")}
    assert kept == {"01_good", "04_reads", "05_edited"}
    good = book_reader.executed_chapter(root / "notebooks" / "01_good.md")
    assert good.cells[2].outputs[0].text == "42\n"
