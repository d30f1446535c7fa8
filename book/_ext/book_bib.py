"""Keep book/references.bib tidy, and in step with what the pages cite.

    python book/_ext/book_bib.py            (make bib: writes the file in its one form, then checks the citations)

One form: entries in the order of their keys, fields in one order, values in braces and wrapped, names aligned. pybtex
reads the file, with the values as they are written; a key that occurs twice is an error.
"""

import re
import sys
import textwrap
from pathlib import Path

from pybtex.database.input.bibtex import LowLevelParser
from pybtex.exceptions import PybtexError

ROOT = Path(__file__).parents[2]
FIELDS = ("author", "title", "journal", "booktitle", "publisher", "institution", "volume", "number", "pages", "year",
          "doi", "url", "note")
CITATION = re.compile(r"\{cite(?::[a-z]+)?\}`([^`]+)`")
WIDTH = 118


def tidy(text: str) -> str:
    """The one form of a BibTeX file. Raises ValueError: not BibTeX, a key or field twice, a field that has no place."""
    try:
        commands = list(LowLevelParser(text))
    except PybtexError as error:
        raise ValueError(f"the bibliography cannot be read: {error}") from error
    entries = {}
    for kind, (key, fields) in commands:
        names = [name.lower() for name, _ in fields]
        unknown = sorted(set(names) - set(FIELDS))
        if key in entries or unknown or len(set(names)) < len(names):
            raise ValueError(f"{key}: the key or a field occurs twice, or fields have no place here: {unknown}")
        values = {name: " ".join("".join(parts).split()) for name, (_, parts) in zip(names, fields, strict=True)}
        entries[key] = kind.lower(), {name: values[name] for name in FIELDS if name in values}
    head = text[: text.index("@")] if commands else text
    return head + "\n".join(_entry(kind, key, fields) for key, (kind, fields) in sorted(entries.items()))


def _entry(kind, key, fields):
    width = max(map(len, fields))
    lines = [textwrap.fill(f"  {name:{width}} = {{{value}}}", WIDTH, subsequent_indent=" " * (width + 6),
                           break_long_words=False, break_on_hyphens=False) for name, value in fields.items()]
    return f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}\n"


def cited(root: Path = ROOT) -> set[str]:
    """The keys that the pages cite."""
    pages = [*(root / "notebooks").glob("*.md"), *(root / "book").glob("*.md")]
    return {key.strip() for page in pages for keys in CITATION.findall(page.read_text(encoding="utf-8"))
            for key in keys.split(",")}


def faults(text: str, keys: set[str]) -> list[str]:
    """Keys that are cited and not listed, and the other way round."""
    listed = {key for _, (key, _) in LowLevelParser(text)}
    return [f"{key} is cited and not in the bibliography" for key in sorted(keys - listed)] + [
        f"{key} is in the bibliography and cited nowhere" for key in sorted(listed - keys)]


def main(root: Path = ROOT) -> int:
    path = root / "book" / "references.bib"
    text = path.read_text(encoding="utf-8")
    try:
        tidied = tidy(text)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if tidied != text:
        path.write_text(tidied, encoding="utf-8")
        print(f"{path.relative_to(root)} was put in order")
    found = faults(tidied, cited(root))
    print("\n".join(found) or "every citation has its entry, every entry its citation")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
