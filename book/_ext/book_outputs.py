"""The outputs of the chapters as they are kept, and the records in them.

A chapter that ran to its end lies in _build/executed/STEM/DIGEST.ipynb, under the digest of what it ran from.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from book_digest import ROOT, code_cells, digest, read_chapter

from mptlml.report.records import MIME

KEPT = 4  # outputs kept of each chapter, newest first: going back to old sources is common


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; whoever asks for it meanwhile waits, in this process or another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def place(path: Path, state: str, root: Path = ROOT) -> Path:
    """Where the outputs of a chapter are kept for a digest."""
    return root / "_build" / "executed" / path.stem / f"{state}.ipynb"


def keep(notebook: nbformat.NotebookNode, target: Path) -> None:
    """Keep an executed chapter, and forget all but the last few of its older outputs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_text(nbformat.writes(notebook), encoding="utf-8")
    part.replace(target)  # so it is there whole or not at all
    for path in sorted(target.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        path.unlink()


def executed_chapter(path: Path, root: Path = ROOT, text: str | None = None) -> nbformat.NotebookNode | None:
    """The chapter as it is written today, with the outputs of its code; None where it has not run for its sources."""
    kept, notebook = place(path, digest(path, root), root), read_chapter(path, text)
    if not kept.is_file():
        return None
    executed = nbformat.read(kept, as_version=4)
    for ours, theirs in zip(code_cells(notebook), code_cells(executed), strict=True):
        ours.outputs, ours.execution_count = theirs.outputs, theirs.execution_count
    notebook.metadata["language_info"] = executed.metadata.get("language_info", {})
    return notebook


def records_of(notebook: nbformat.NotebookNode) -> list[dict]:
    """The records that a chapter emitted, in order."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [output["data"][MIME] for output in outputs if MIME in output.get("data", {})]
