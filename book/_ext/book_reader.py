"""The chapters as they are today, with the outputs that Make keeps in build/."""

from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapters' Markdown sources, in order."""
    return sorted((root / "notebooks").glob("*.md"))


def read_chapter(path: Path, text: str = "") -> NotebookNode:
    """A chapter (or other `text` of it) as the book's builder sees it, with the line where each cell begins."""
    text = text or path.read_text(encoding="utf-8")
    return read_myst_markdown_notebook(text, add_source_map=True)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that run, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed_chapter(path: Path, text: str = "") -> NotebookNode:
    """A chapter (or other `text` of it) with its outputs. Raises FileNotFoundError, ValueError: it has not run so."""
    kept = path.parents[1] / "build" / f"{path.stem}.ipynb"
    notebook, executed = read_chapter(path, text), nbformat.read(kept, as_version=4)
    for ours, theirs in zip(code_cells(notebook), code_cells(executed), strict=True):
        ours.outputs, ours.execution_count = theirs.outputs, theirs.execution_count
    notebook.metadata["language_info"] = executed.metadata["language_info"]
    return notebook
