"""Write each chapter's source notebooks/x.md into its twin x.ipynb, without outputs: what `make pairs` runs.

A cell's id is a hash of its source, so that a new cell changes no other, and an edit that reached the twin alone (by an
editor without Jupytext) can be seen. Where the source has no such cell, both files stay, and the run says how to keep
either.
"""

import hashlib
import sys
from collections import Counter
from pathlib import Path

import jupytext
import nbformat
from book_code import put
from book_reader import ROOT, chapters
from jupytext.config import load_jupytext_config

FORMAT = "md:myst"


def digits(cell: nbformat.NotebookNode) -> str:
    """What the id of a cell begins with."""
    return hashlib.sha256(cell.source.strip().encode()).hexdigest()[:8]


def edited(twin: Path, source: nbformat.NotebookNode) -> str:
    """The first line of a cell that was edited in the twin alone; "" for none."""
    try:
        held = nbformat.read(twin, as_version=4).cells
    except (OSError, nbformat.reader.NotJSONError):  # no twin, or one with the marks of a merge
        return ""
    there = {digits(cell) for cell in source.cells}
    own = [cell for cell in held if digits(cell) not in {*there, cell.get("id", "")[:8]}]
    return next((cell.source.strip().split("\n")[0] for cell in own), "")


def pair(source: Path, config: object) -> str:
    """Write the twin, and the source as Jupytext writes it; or, where the twin was edited alone, say so."""
    twin, count = source.with_suffix(".ipynb"), Counter()
    text = jupytext.writes(jupytext.read(source, fmt=FORMAT, config=config), FORMAT, config=config)
    notebook = jupytext.reads(text, FORMAT, config=config)
    if line := edited(twin, notebook):
        return (
            f"{twin.name} holds a cell that {source.name} has not, which begins: {line}\n"
            f"  to keep what the notebook holds:  .venv/bin/jupytext --to {FORMAT} notebooks/{twin.name}\n"
            f"  to keep what the text holds:      rm notebooks/{twin.name}\n"
            "  and then make pairs. Where both were edited, copy these cells into the text first."
        )
    for cell in notebook.cells:
        name = digits(cell)
        cell["id"] = f"{name}-{count[name]}" if count[name] else name
        count[name] += 1
    del notebook.metadata["jupytext"]["text_representation"]
    notebook.metadata["jupytext"]["default_lexer"] = "ipython3"
    for path, said in ((twin, nbformat.writes(notebook) + "\n"), (source, text)):
        put(path, said)
    if source.stat().st_mtime < twin.stat().st_mtime:
        source.touch()  # a text that is older than its twin is not opened
    return ""


def main(root: Path = ROOT) -> str:
    """Write all twins; what was edited in a twin alone."""
    config = load_jupytext_config(str(root / "notebooks" / "x.md"))
    return "\n".join(filter(None, [pair(source, config) for source in chapters(root)]))


if __name__ == "__main__":
    sys.exit(main() or 0)
