"""Build the pages from executed chapters, from scratch, and only when something changed.

    python book/_ext/book_build.py          (what `make book` runs after executing the chapters)

Warnings are errors. A build over the remains of an older one can pass after one that failed; so the pages are always
built anew (the chapters are executed already, it takes seconds).
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from book_digest import ROOT, chapters, digest
from book_outputs import locked, place

STAMP = ".book-fingerprint"  # in _build: what the pages there were made from
ADDRESS = ("MPTLML_REPOSITORY", "MPTLML_BRANCH")  # the launch buttons lead there


def fingerprint(root: Path = ROOT) -> str:
    """A digest of all that the pages are made from, the outputs of the chapters included."""
    outputs = [place(path, digest(path, root), root) for path in chapters(root)]
    files = [root / "_config.yml", root / "_toc.yml", *chapters(root), *sorted((root / "mptlml").rglob("*.py"))]
    files += [path for path in sorted((root / "book").rglob("*")) if "__pycache__" not in path.parts]
    state = hashlib.sha256(repr([os.environ.get(name) for name in ADDRESS]).encode())
    for path in files + outputs:
        if path.is_file():
            state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


def is_current(root: Path = ROOT) -> bool:
    """Whether the pages in _build/html are those of today's sources and outputs."""
    stamp, index = root / "_build" / STAMP, root / "_build" / "html" / "index.html"
    return stamp.is_file() and stamp.read_text() == fingerprint(root) and index.is_file()


def build(root: Path = ROOT) -> int:
    """0 when the book is built, or was already."""
    if is_current(root):
        print("nothing has changed since the last build: _build/html/index.html")
        return 0
    out = root / "_build"
    for name in ("html", ".doctrees", "jupyter_execute"):
        shutil.rmtree(out / name, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", "-W", "--keep-going", str(root)]
    status = subprocess.run(command, cwd=root, check=False).returncode
    if status == 0:
        (out / STAMP).write_text(fingerprint(root))
    return status


if __name__ == "__main__":
    with locked(ROOT / "_build" / ".lock"):  # two builds at once would delete each other's pages
        sys.exit(build())
