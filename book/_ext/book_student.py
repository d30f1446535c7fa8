"""Write each chapter as a notebook for a class, its solutions replaced by empty cells: what `make student` runs."""

import re
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).parents[2]
SOLUTION = re.compile(
    r"^:::\{solution(-start)?\} (\S+)\n.*?^:::(?(1)\{solution-end\}\n:::)$",
    re.MULTILINE | re.DOTALL,
)
ANSWER = r"```{code-cell} ipython3\n# your answer to \2\n```"


def write(folder: Path) -> list[Path]:
    """Write the notebooks, x.ipynb each, into a folder; what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted(ROOT.glob("notebooks/*.md")):
        text = SOLUTION.sub(ANSWER, path.read_text(encoding="utf-8"))
        notebook = jupytext.reads(text, fmt="md:myst")
        del notebook.metadata["jupytext"]  # no pair: the notebook is the student's
        written.append(folder / f"{path.stem}.ipynb")
        nbformat.write(notebook, written[-1])
    return written


if __name__ == "__main__":
    made = write(ROOT / "_build" / "student")
    print(f"{len(made)} notebooks without solutions in {made[0].parent}")
