"""python book/_ext/book_run.py STEM: run a chapter by `pytest --nbmake`, and keep it in build/ once it has passed.

What is kept is as old as the run's start, so that an edit meanwhile makes it out of date. A chapter that failed stays
in build/run, to be looked at, and is told by its traceback and a line on the cause. A signal ends all that was started.
"""

import os
import re
import signal
import sys
import time
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path

import nbformat
import pytest
from book_reader import read_chapter

FOLDER = Path("build", "run")
NBMAKE = (
    "--disable-plugin-autoload -p nbmake.pytest_plugin -p no:cacheprovider -c /dev/null --rootdir . "
    "--nbmake --overwrite --nbmake-timeout 3600"
)


def nbmake(stem: str) -> None:
    """Run the copy of a chapter, which notes what it reads."""
    os.chdir(FOLDER)
    os.environ["BOOK_DEPENDS"] = os.path.abspath(f"{stem}.d")
    with open(f"{stem}.log", "w", encoding="utf-8") as log, redirect_stdout(log):
        sys.exit(pytest.main([*NBMAKE.split(), f"{stem}.ipynb"]))


def passed(stem: str) -> bool:
    """Whether the copy of a chapter passes, in a process that ends with this one."""
    child = get_context("fork").Process(target=nbmake, args=[stem])
    try:
        child.start()
        child.join()
    finally:
        child.kill()  # its kernel looks every second whether it is still there
    return child.exitcode == 0


def why(stem: str, lines: list[int]) -> str:
    """The traceback of the cell that failed, and where and why in a line."""
    cells = nbformat.read(FOLDER / f"{stem}.ipynb", as_version=4).cells
    for cell, line in zip(cells, lines, strict=True):
        for error in cell.get("outputs", []):
            if error.output_type == "error":
                cause = f"line {line}: {error.ename}: {error.evalue}".splitlines()[0]
                return "\n".join([*error.traceback, f"{stem} failed in the cell at {cause}"])
    log = (FOLDER / f"{stem}.log").read_text(encoding="utf-8")
    died = "its kernel died, as when memory runs out"
    return f"{stem} failed: {died if 'Kernel died' in log else log}"


def main(stem: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for left in FOLDER.glob(f"{stem}.*"):
        left.unlink()
    begun, copy = time.time_ns(), FOLDER / f"{stem}.ipynb"
    notebook = read_chapter(Path("notebooks", f"{stem}.md"))
    lines = notebook.metadata.pop("source_map")
    nbformat.write(notebook, copy)
    if not passed(stem):
        sys.exit(re.sub(r"\x1b\[[\d;]*m", "", why(stem, lines)))  # without colours
    os.utime(copy, ns=(begun, begun))
    for path in (FOLDER / f"{stem}.d", FOLDER / f"{stem}.note", copy):
        path.replace(Path("build", path.name))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
