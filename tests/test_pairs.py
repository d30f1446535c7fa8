"""Each chapter is a pair: x.md is the source, x.ipynb its twin with the same cells and no outputs (`make pairs`)."""

from pathlib import Path

import jupytext
import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def content(notebook):
    """What a twin must share with its source: kernel and cells, with their outputs (there are none in a source)."""
    cells = [{key: value for key, value in cell.items() if key != "id"} for cell in notebook.cells]
    return notebook.metadata["kernelspec"], "language_info" in notebook.metadata, cells


@pytest.mark.parametrize("stem", sorted({path.stem for path in NOTEBOOKS.iterdir() if path.is_file()}))
def test_the_twin_is_its_source_without_outputs(stem):
    source = jupytext.read(NOTEBOOKS / f"{stem}.md")
    assert content(nbformat.read(NOTEBOOKS / f"{stem}.ipynb", as_version=4)) == content(source), "run `make pairs`"
