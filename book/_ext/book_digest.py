"""Name what the outputs of a chapter depend on: one digest a chapter, which changes when it must run, and only then.

It covers the chapter's code; the modules of `mptlml` that it imports, directly or not; the pinned requirements; the
bands of its own claims; the stored results that it names; and, where it imports `mptlml.data`, the data at hand. Text,
captions, the wording of claims and all that makes pages of the outputs run nothing.
"""

import ast
import copy
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
import yaml
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

ROOT = Path(__file__).resolve().parents[2]
RUN_TAGS = {"skip-execution", "raises-exception"}  # the tags of a cell that say how it runs
from_yaml = cache(yaml.safe_load)  # the same text is read once


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapters' Markdown sources, in order."""
    return sorted((root / "notebooks").glob("*.md"))


@cache
def parsed(text: str, settings: str) -> nbformat.NotebookNode:
    """Markdown as a notebook; settings: the text of _config.yml."""
    syntax = MdParserConfig(enable_extensions=set(from_yaml(settings)["parse"]["myst_enable_extensions"]))
    return read_myst_markdown_notebook(text, config=syntax, add_source_map=True)


def read_chapter(path: Path, root: Path = ROOT, text: str | None = None) -> nbformat.NotebookNode:
    """A chapter (or other `text` in its place) as the book's reader sees it, with the line at which each cell begins."""
    text = path.read_text(encoding="utf-8") if text is None else text
    return copy.deepcopy(parsed(text, (root / "_config.yml").read_text(encoding="utf-8")))


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells that run, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@cache
def names_used(code: str) -> tuple[list[ast.Import | ast.ImportFrom], dict[str, set[str]]]:
    """The imports of some code, and {name: its attributes in use}; none where it is no Python, for it will not run."""
    attributes = defaultdict(set)
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        nodes = []
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes[node.value.id].add(node.attr)
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)], attributes


class Package:
    """The code of `mptlml`, {module: text}, and where the names that some code imports from it are defined."""

    def __init__(self, root: Path) -> None:
        paths = {path: ".".join(path.relative_to(root).with_suffix("").parts) for path in root.glob("mptlml/**/*.py")}
        self.code = {name.removesuffix(".__init__"): path.read_text(encoding="utf-8") for path, name in paths.items()}
        self.packages = {name.rpartition(".")[0] for name in self.code}

    def imports(self, code: str, module: str) -> Iterator[tuple[str, str, str]]:
        """(name here, module it is taken from, its name there or "" for the module itself) for each import."""
        folder = module.split(".") if module in self.packages else module.split(".")[:-1]
        for node in names_used(code)[0]:
            source = ""
            if isinstance(node, ast.ImportFrom):
                above = folder[: len(folder) + 1 - node.level] if node.level else []
                source = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                place, name = (source, alias.name) if source else (alias.name, "")
                if place in self.code:
                    yield alias.asname or alias.name, place, name

    def defining(self, module: str, name: str) -> str:
        """The module that `name` of `module` comes from: re-exports are followed to their source."""
        if not name or f"{module}.{name}" in self.code:
            return f"{module}.{name}".rstrip(".")
        for here, source, there in self.imports(self.code[module], module):
            if here == name:
                return self.defining(source, there)
        return module

    def taken(self, code: str, module: str = "") -> set[str]:
        """The modules that the code takes names from; of a package, those behind the attributes that it uses."""
        found = set()
        for here, source, there in self.imports(code, module):
            place = self.defining(source, there)
            attributes = names_used(code)[1].get(here) if place in self.packages else None
            found |= {self.defining(place, attribute) for attribute in attributes or [""]}
        return found

    def behind(self, code: str) -> list[str]:
        """All modules that the code imports, directly or not, by name."""
        found, new = set(), self.taken(code)
        while new:
            found |= new
            new = set().union(*(self.taken(self.code[module], module) for module in new)) - found
        return sorted(found)


def listing(folder: str | Path, *patterns: str) -> list[str]:
    """Names and sizes below a folder (not where it lies), so that real data and a stand-in never share a digest."""
    files = sorted({path for pattern in patterns for path in Path(folder).glob(pattern) if path.is_file()})
    return [f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in files]


def data_at_hand(modules: list[str]) -> list[str]:
    """What the loaders among the modules will find, and the model that chapter 10 is pointed at."""
    found, said = [], os.environ.get
    cached = Path.home() / ".cache"
    if "mptlml.data.images" in modules:
        found += listing(said("MPTLML_DATA") or cached / "mptlml", "MNIST/raw/*-ubyte", "FashionMNIST/raw/*-ubyte")
    if "mptlml.data.text" in modules:
        home = Path(said("HF_HOME") or cached / "huggingface")
        found += listing(said("HF_HUB_CACHE") or home / "hub", "models--google-bert--*/snapshots/**/*")
        found += listing(said("HF_DATASETS_CACHE") or home / "datasets", "nyu-mll___glue/**/*.arrow")
        found += [said("MPTLML_MASKED_LM", "")]
    return found


def digest(path: Path, root: Path = ROOT) -> str:
    """Hexadecimal digits for the sources behind a chapter, a hyphen, and digits for the data at hand."""
    package, cells = Package(root), code_cells(read_chapter(path, root))
    code = "\n".join(cell.source for cell in cells)
    modules = package.behind(code)
    claims = from_yaml((root / "book" / "claims.yml").read_text(encoding="utf-8"))
    sources = [f"{cell.source}\0{sorted(RUN_TAGS & set(cell.metadata.get('tags', [])))}" for cell in cells]
    sources += [f"{claim['id']} {claim['band']}" for claim in claims if claim["chapter"] == path.stem]
    sources += [f"{name}\0{package.code[name]}" for name in modules]
    files = [root / "requirements.txt", root / "constraints.txt", *sorted((root / "book" / "data").glob("*.csv"))]
    sources += [f"{file.name}\0{file.read_text(encoding='utf-8')}" for file in files
                if file.is_file() and (file.suffix == ".txt" or file.name in code)]
    return "-".join(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
                    for parts in (sources, data_at_hand(modules)))
