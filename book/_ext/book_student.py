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


def write(folder: Path) -> None:
    """Write the notebooks, x.ipynb each, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in chapters():
        text = SOLUTION.sub(ANSWER, path.read_text(encoding="utf-8"))
        notebook = jupytext.reads(text, fmt="md:myst")
        del notebook.metadata["jupytext"]  # no pair: the notebook is the student's
        nbformat.write(notebook, folder / f"{path.stem}.ipynb")


if __name__ == "__main__":
    write(ROOT / "_build/student")
    print("notebooks without solutions in _build/student")
