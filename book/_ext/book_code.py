"""python book/_ext/book_code.py SOURCE ...: what each source does, without its words, in build/code/SOURCE.

A source is a module (of which comments, docstrings and layout are left out), a chapter (the code of its cells), a list
of requirements (without comments), any other file (its digest), or a folder, from which files may have gone. With
book/claims.yml each chapter has its bands in build/bands, and for which data they were set. A file is written only
where its text is another now: Make runs a chapter again when one that it depends on is newer.
"""

import ast
import hashlib
import re
import sys
from pathlib import Path

BANDS = {"book/claims.yml", "book/data_sets.yml"}
CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?:---\n.*?^---\n|(?::[^\n]*\n)*)(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def module(text: str) -> str:
    """What a module does."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return ast.dump(tree, indent=0)


def chapter(text: str) -> str:
    """The code of a chapter, cell by cell, without tags and captions."""
    return "\f\n".join(CELL.findall(text))


def requirements(text: str) -> str:
    """A list of requirements without comments and empty lines."""
    return "\n".join(re.findall(r"(?m)^[^#\s][^#\n]*[^#\s]", text))


def bands(book: Path) -> dict[str, str]:
    """{chapter: its bands and its data}. Raises ValueError: an entry of book/claims.yml that cannot be read."""
    import yaml

    from mptlml_book.report.claims import claims  # slow to load, and only here

    sets = yaml.safe_load((book / "data_sets.yml").read_text(encoding="utf-8"))
    found = {path.stem: f"{sets.get(path.stem)}\n" for path in Path("notebooks").glob("*.md")}
    for entry in claims(book / "claims.yml").values():
        if entry["chapter"] not in found:
            raise ValueError(f"claims.yml: {entry['id']} is of no chapter")
        found[entry["chapter"]] += f"{entry['id']} {entry['band']} {entry.get('reads')}\n"
    return found


def put(path: Path, text: str) -> None:
    """Write a file whose text is another now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main(names: list[str]) -> None:
    if (BANDS | {"notebooks"}).intersection(names):
        for stem, text in bands(Path("book")).items():
            put(Path("build", "bands", stem), text)
    for name in {*names} - BANDS:
        source, target = Path(name), Path("build", "code", name)
        if source.is_dir():
            for left in target.glob("*.*"):
                if not (source / left.name).exists():
                    left.unlink()
        elif how := {".py": module, ".md": chapter, ".txt": requirements}.get(source.suffix):
            put(target, how(source.read_text(encoding="utf-8")))
        else:
            put(target, hashlib.sha256(source.read_bytes()).hexdigest())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        sys.exit(f"{error}")
