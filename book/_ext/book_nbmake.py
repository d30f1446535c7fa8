"""What `pytest --nbmake` says while it runs chapters for the book, and that it keeps each one that passes.

A plugin of pytest, for the copies of chapters that book_execute.py has written into build/chapters.
"""

import os
import re
import sys
from pathlib import Path

import pytest


class Told:
    """In place of pytest's own report: which chapter begins, and how it ends."""

    def __init__(self, root: Path) -> None:
        self.root, self.begun, self.count = root, 0, 0

    def pytest_xdist_node_collection_finished(self, node, ids):
        self.count = len(ids)

    def pytest_runtest_logstart(self, nodeid, location):
        self.begun += 1
        print(f"{self.begun} of {self.count}: {Path(location[0]).stem}", flush=True)

    def pytest_runtest_logreport(self, report):
        if report.when != "call":
            return
        copy = Path(self.root, "build", "chapters", Path(report.fspath).name)
        if report.failed:
            print(f"{copy.stem}: {_told(report.longreprtext)}", file=sys.stderr)
        elif keep_outputs(copy, self.root):
            print(f"{copy.stem} passed in {report.duration:.0f} s", flush=True)
        else:
            print(
                f"{copy.stem}: its sources changed while it ran, its outputs are not kept",
                file=sys.stderr,
            )

    def pytest_collectreport(self, report):
        if report.failed:
            print(report.longreprtext, file=sys.stderr)


def _told(error: str) -> str:
    """What went wrong, in colour on a terminal only; nbmake tells a dead kernel by a traceback of its own."""
    if "Kernel died" in error:
        return "its kernel died, as when memory runs out"
    return error if sys.stderr.isatty() else re.sub(r"\x1b\[[\d;]*m", "", error)


def keep_outputs(copy: Path, root: Path) -> bool:
    """Keep an executed copy's outputs under the digest of what it ran from, in its place.

    Returns False, and leaves the copy where it is, where the chapter's sources have changed since.
    """
    import nbformat  # here, for the workers need none of these, which take seconds to load
    from book_digest import digest
    from book_outputs import keep, place, records_of

    notebook = nbformat.read(copy, as_version=4)
    path = root / "notebooks" / f"{copy.stem}.md"
    before, after = notebook.metadata.pop("digest"), digest(path, root)
    if before.split("-")[0] != after.split("-")[0]:
        return False
    # A chapter may have fetched its data. One that took a default instead is kept as one that found none.
    stands_in = any(record.get("note") for record in records_of(notebook))
    keep(notebook, place(path, before if stands_in else after, root))
    copy.unlink()
    return True


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # as each worker's has
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Told(Path(os.environ["BOOK_ROOT"])))
