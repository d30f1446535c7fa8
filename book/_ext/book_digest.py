"""Name what the outputs of a chapter depend on, in one digest per chapter: it runs again when that changes.

It covers the chapter's code; the modules of `mptlml` and `mptlml_book` that it imports, directly or
not, without their comments and docstrings; the pinned requirements and Python's version; the bands
of its own claims and for which data they were set; and, where it imports what reads data or
weights, those that are there. Text, captions, the wording of claims and all that makes pages of
outputs run nothing. The stored results that a chapter read are named by its outputs
(book_outputs.py).
"""

import ast
import hashlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

import nbformat
import yaml
from IPython.core.inputtransformer2 import TransformerManager
from myst_nb.core.read import read_myst_markdown_notebook

from mptlml_book.data import places

ROOT = Path(__file__).resolve().parents[2]
tree, from_yaml = cache(ast.parse), cache(yaml.safe_load)  # the same text is read once


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapters' Markdown sources, in order."""
    return sorted((root / "notebooks").glob("*.md"))


def read_chapter(path: Path, text: str | None = None) -> nbformat.NotebookNode:
    """A chapter (or other `text`) as the book's reader sees it, with the line where each cell begins."""
    return read_myst_markdown_notebook(
        text or path.read_text(encoding="utf-8"), add_source_map=True
    )


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells that run, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@cache
def code_of(text: str) -> str:
    """All code of a chapter's text, with %magic and !command as the calls that they stand for."""
    cells = code_cells(read_myst_markdown_notebook(text))
    return "\n".join(TransformerManager().transform_cell(cell.source) for cell in cells)


@cache
def imports(code: str, folder: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """(name here, what it stands for in dots) for each import of some code, or of a module in a folder."""
    found = []
    for node in ast.walk(tree(code)):
        if isinstance(node, ast.Import):
            found += [(alias.asname or alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = [*folder[: len(folder) + 1 - node.level]] * bool(node.level) + [
                node.module
            ] * bool(node.module)
            found += [
                (alias.asname or alias.name, ".".join([*source, alias.name]))
                for alias in node.names
            ]
    return found


class Package:
    """The code of our packages, {module: text}, and where the names that code imports are defined."""

    def __init__(self, root: Path) -> None:
        paths = {
            path: path.relative_to(root).with_suffix("").parts
            for path in root.glob("mptlml*/**/*.py")
        }
        names = {path: ".".join(parts).removesuffix(".__init__") for path, parts in paths.items()}
        self.code = {name: path.read_text(encoding="utf-8") for path, name in names.items()}
        self.folder = {name: paths[path][:-1] for path, name in names.items()}

    def defining(self, name: str) -> str:
        """The module that `name`, in dots, is or comes from, through re-exports; "" for none."""
        if not name or name in self.code:
            return name
        parent, _, last = name.rpartition(".")
        module = self.defining(parent)
        known = imports(self.code[module], self.folder[module]) if module else []
        return next((self.defining(source) for here, source in known if here == last), "") or module

    def taken(self, code: str, folder: tuple[str, ...] = ()) -> set[str]:
        """The modules that the code takes names from."""
        return {self.defining(source) for _, source in imports(code, folder)} - {""}

    def behind(self, code: str) -> list[str]:
        """All modules that the code imports, directly or not, by name."""
        found, new = set(), self.taken(code)
        while new:
            found |= new
            new = (
                set().union(*(self.taken(self.code[name], self.folder[name]) for name in new))
                - found
            )
        return sorted(found)


@cache
def without_words(text: str) -> str:
    """What a module's code does, without comments, docstrings and the layout of its lines."""
    module = ast.parse(text)
    for node in ast.walk(module):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(module)


def sampled(path: Path) -> str:
    """A file's size and a digest of sixteen parts of 4 kB, evenly spread: of all of it, up to 64 kB."""
    size, found = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        for part in range(16):
            file.seek(max(0, size - 4096) * part // 15)
            found.update(file.read(4096))
    return f"{size} {found.hexdigest()}"


def listing(folder: str | Path, *patterns: str) -> list[str]:
    """Names and samples of the files below a folder, wherever it lies and whenever they were written."""
    files = sorted(
        {path for pattern in patterns for path in Path(folder).glob(pattern) if path.is_file()}
    )
    return [f"{path.relative_to(folder).as_posix()} {sampled(path)}" for path in files]


def data_at_hand(modules: list[str]) -> list[str]:
    """What the loaders among the modules will find, and the network that MPTLML_MASKED_LM names."""
    found = []
    if "mptlml_book.data.images" in modules:
        found += listing(places.images(), "MNIST/raw/*-ubyte", "FashionMNIST/raw/*-ubyte")
    if "mptlml_book.data.text" in modules:
        name = os.environ.get("MPTLML_MASKED_LM", "")
        models = [
            f"models--{model.replace('/', '--')}/snapshots/**/*"
            for model in ("google-bert/*", name)
            if model
        ]
        found += listing(places.models(), *models) + listing(places.glue(), "**/*.arrow")
        found += [name, *(listing(name, "**/*") if name else [])]
    if "mptlml_book.real_network" in modules:
        found += [name for name in ("antiberty", "anarci") if importlib.util.find_spec(name)]
    return found


def digest(path: Path, root: Path = ROOT) -> str:
    """Hexadecimal digits for the sources behind a chapter, a hyphen, and digits for the data at hand."""
    package, code = Package(root), code_of(path.read_text(encoding="utf-8"))
    modules = package.behind(code)
    claims = from_yaml((root / "book" / "claims.yml").read_text(encoding="utf-8"))
    sources = [code, str(sys.version_info[:2])]
    sources += [
        f"{claim['id']} {claim['band']}" for claim in claims if claim["chapter"] == path.stem
    ]
    sources += [f"{name}\0{without_words(package.code[name])}" for name in modules]
    sources += [
        str(from_yaml((root / "book" / "data_sets.yml").read_text(encoding="utf-8")).get(path.stem))
    ]
    sources += [
        (root / name).read_text(encoding="utf-8")
        for name in ("requirements.txt", "constraints.txt")
    ]
    return "-".join(
        hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
        for parts in (sources, data_at_hand(modules))
    )
