"""What a chapter read, as a rule for Make, as compilers write it: in the file that BOOK_DEPENDS names, if it names one.

Code counts without its words (book/_ext/book_code.py), data outside the book by a list of what lies there.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("mptlml", "mptlml_book")
LISTS = {
    "mptlml_book.data.images": "images",
    "mptlml_book.data.text": "texts",
    "mptlml_book.networks": "networks",
}
_opened: set[Path] = set()


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _opened.add(Path(os.path.abspath(arguments[0])))


if "BOOK_DEPENDS" in os.environ:
    sys.addaudithook(_note)


def write(chapter: str, notes: Iterable[str]) -> None:
    """Write the rule: our modules that are loaded, our files that were opened, the lists of data that were in reach.

    Beside it lie the notes on what stands in for data.
    """
    if not (rule := os.environ.get("BOOK_DEPENDS")):
        return
    ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] in PACKAGES}
    code = {Path(module.__file__) for module in ours.values() if module.__file__}
    read = {path for path in _opened if path.suffix not in (".py", ".pyc")} | code
    names = sorted(str(path.relative_to(ROOT)) for path in read if path.is_relative_to(ROOT))
    files = [f"build/code/{name}" for name in names if (ROOT / "build" / "code" / name).is_file()]
    files += [f"build/{data}" for name, data in LISTS.items() if name in ours]
    gone = "".join(f"{name}:\n" for name in files)  # a file that is gone is one that changed
    needs = " \\\n  ".join([f"build/{chapter}.ipynb:", *files])
    Path(rule).write_text(f"{needs}\n{gone}", encoding="utf-8")
    told = "".join(f"{chapter}: {note}\n" for note in sorted(set(notes)))
    Path(rule).with_suffix(".note").write_text(told, encoding="utf-8")
