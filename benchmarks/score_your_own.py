"""The stored outputs of the page *Score your own network*: python -m benchmarks score_your_own

Runs the blocks of code of the page one after the other in an empty folder, and writes what they say
into the block of text that follows; the curve goes beside the page. About 10 minutes.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

PAGE = Path(__file__).parents[1] / "book" / "score_your_own.md"
BLOCK = re.compile(r"```(python|bash)\n(.*?)```\n(\n```text\n(.*?)```\n)?", re.DOTALL)


def said(kind, code, folder):
    """What a block of code prints in a folder, without the warnings."""
    words = ["-m", *shlex.split(code)] if kind == "bash" else ["-c", code]
    return subprocess.run(
        [sys.executable, *words], cwd=folder, text=True, stdout=subprocess.PIPE, check=True
    ).stdout


def told(folder, block):
    """The block and, where an output stood below it, today's."""
    kind, code, output, _ = block.groups()
    found = said(kind, code, folder)
    return f"```{kind}\n{code}```\n" + (f"\n```text\n{found.strip()}\n```\n" if output else "")


def main():
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(
            BLOCK.sub(partial(told, folder), PAGE.read_text(encoding="utf-8")), encoding="utf-8"
        )
        shutil.copy(Path(folder) / "curve.svg", PAGE.with_suffix(".svg"))
