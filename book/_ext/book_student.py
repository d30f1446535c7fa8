"""Write each chapter as a notebook for a class, its solutions replaced by empty cells: what `make student` runs."""

import re
from pathlib import Path

import jupytext
import nbformat
from book_reader import ROOT, chapters

SOLUTION = re.compile(
    r"^:::\{solution(-start)?\} (\S+)\n.*?^:::(?(1)\{solution-end\}\n:::)$",
    re.MULTILINE | re.DOTALL,
)
ANSWER = r"```{code-cell} ipython3\n# your answer to \2\n```"


def without_solutions(text: str) -> str:
    """A chapter's source with a cell to write in where each solution stood."""
    return SOLUTION.sub(ANSWER, text)


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write the notebooks, x.ipynb each, into a folder; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in chapters(root):
        text = without_solutions(path.read_text(encoding="utf-8"))
        notebook = jupytext.reads(text, fmt="md:myst")
        del notebook.metadata["jupytext"]  # no pair: the notebook is the student's
        written.append(folder / f"{path.stem}.ipynb")
        nbformat.write(notebook, written[-1])
    return written


if __name__ == "__main__":
    made = write(ROOT / "_build" / "student")
    print(f"{len(made)} notebooks without solutions in {made[0].parent}")
