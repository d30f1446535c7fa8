"""The package away from its book: what its wheel holds and imports; and which room may import which."""

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mptlml"

# What a room may import of the package, besides itself.
ROOMS = {
    "theorem": set(),
    "models": {"theorem"},
    "data": {"theorem"},
    "report": {"theorem"},
    "studies": {"theorem", "models", "data"},
    "__main__.py": {"theorem", "models"},
}
BOOK_ONLY = {"matplotlib", "transformers", "tokenizers", "datasets", "huggingface_hub", "torchvision", "sklearn",
             "pandas", "IPython", "yaml", "book"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The wheel of a copy of the sources, unpacked; it and the source archive are fit to be published."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("away")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(PACKAGE, copy / "mptlml", ignore=shutil.ignore_patterns("__pycache__"))
    python = [sys.executable, "-m"]
    subprocess.run([*python, "build", "--no-isolation", "--outdir", copy / "dist", copy], check=True)
    subprocess.run([*python, "twine", "check", "--strict", *(copy / "dist").iterdir()], check=True)
    with zipfile.ZipFile(*copy.glob("dist/*.whl")) as wheel:
        wheel.extractall(folder)
    return folder


def test_the_wheel_holds_the_package_alone(unpacked):
    [about] = unpacked.glob("*.dist-info")
    assert {path.name for path in unpacked.iterdir()} == {"mptlml", about.name}
    held = {path.relative_to(unpacked) for path in (unpacked / "mptlml").rglob("*.*")}
    assert held == {path.relative_to(ROOT) for path in PACKAGE.rglob("*.*") if "__pycache__" not in path.parts}
    assert (unpacked / "mptlml" / "py.typed").is_file() and list(about.rglob("LICENSE"))
    told = (about / "METADATA").read_text()
    assert set(re.findall(r"^Requires-Dist: (\w+)$", told, re.MULTILINE)) == {"torch", "numpy", "scipy", "tqdm"}


def test_the_library_needs_nothing_of_the_book(unpacked):
    """Nor one room of it another, nor any room an extra before it is needed."""
    rooms = ["mptlml", "mptlml.models", "mptlml.data.images, mptlml.data.text"]
    code = "import sys; " + "; ".join(f"import {room}; print(mptlml.__file__, *sys.modules)" for room in rooms)
    said = subprocess.check_output([sys.executable, "-W", "error", "-c", code], cwd=unpacked, text=True)
    known = {"theorem"}
    for line, new in zip(said.splitlines(), ("theorem", "models", "data"), strict=True):
        file, *modules = line.split()
        known |= {new}
        assert file.startswith(str(unpacked)) and BOOK_ONLY & set(modules) == set()
        assert {name for name in ROOMS if f"mptlml.{name}" in modules} <= known


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    text, parts = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).parts
    assert not re.search(r"^\s*(from|import) mptlml", text, re.MULTILINE)
    room = parts[0] if parts[0] in ROOMS else "theorem"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == len(parts):
            names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            assert {name if name in ROOMS else "theorem" for name in names} <= ROOMS[room] | {room}, node.lineno
