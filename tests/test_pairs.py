"""Each chapter is a pair: x.md is the source, x.ipynb its twin with the same cells and no outputs."""

from pathlib import Path

import jupytext
import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(NOTEBOOKS.glob("*.md"))


def differences(source, twin):
    """What a reader of the twin would find other than in the source, one line a difference."""
    found = []
    if len(source.cells) != len(twin.cells):
        found.append(f"{len(source.cells)} cells against {len(twin.cells)}")
    for place, (ours, theirs) in enumerate(zip(source.cells, twin.cells, strict=False)):
        for what in ("cell_type", "source", "metadata"):
            if ours[what] != theirs[what]:
                found.append(f"cell {place}: {what} differs: {ours[what]!r:.80} against {theirs[what]!r:.80}")
    if source.metadata.get("kernelspec") != twin.metadata.get("kernelspec"):
        found.append("kernelspec differs")
    return found


def leftovers(notebook):
    """Traces of a run, which do not belong in the repository."""
    code = [(place, cell) for place, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    found = [f"cell {place} has outputs" for place, cell in code if cell.outputs]
    found += [f"cell {place} has a count" for place, cell in code if cell.execution_count is not None]
    found += [f"cell {place} has timings" for place, cell in code if "execution" in cell.metadata]
    if "language_info" in notebook.metadata:
        found.append("language_info")
    return found


def test_there_are_chapters():
    assert SOURCES


def test_every_notebook_has_its_source():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == {path.stem for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_twin_has_the_same_cells_and_no_outputs(path):
    twin = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    assert differences(jupytext.read(path), twin) == [], "run `make pairs`"
    assert leftovers(twin) == [], "run `make pairs`"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_chapter_asks_for_the_same_kernel(path):
    assert jupytext.read(path).metadata["kernelspec"] == {
        "display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def test_a_difference_is_seen():
    source = jupytext.reads("# A\n\n```{code-cell} ipython3\n:tags: [hide-input]\n1 + 1\n```\n", fmt="md:myst")
    twin = jupytext.reads("# A\n\n```{code-cell} ipython3\n1 + 2\n```\n\nmore\n", fmt="md:myst")
    assert [line.split(":")[0] for line in differences(source, twin)] == ["2 cells against 3", "cell 1", "cell 1"]
    assert differences(source, source) == []


def test_the_traces_of_a_run_are_seen():
    cell = nbformat.v4.new_code_cell("1", execution_count=1, outputs=[nbformat.v4.new_output("stream", text="1")],
                                     metadata={"execution": {}})
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"language_info": {"name": "python"}})
    assert len(leftovers(notebook)) == 4
