"""The library away from its book: what its wheel holds and imports; and which room may import which."""

import ast
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT

# What a room may import of our packages, besides itself.
LIBRARY = {"mptlml", "mptlml.models", "mptlml.text"}
ROOMS = {
    "mptlml": set(),
    "mptlml.models": {"mptlml"},
    "mptlml.text": {"mptlml"},
    "mptlml_book": set(),
    "mptlml_book.data": {"mptlml"},
    "mptlml_book.report": {"mptlml"},
    "mptlml_book": LIBRARY | {"mptlml_book.data"},
}
PACKAGE = ROOT / "mptlml"
MODULES = sorted(
    path for package in ("mptlml", "mptlml_book") for path in (ROOT / package).rglob("*.py")
)
BOOK_ONLY = {
    "matplotlib",
    "transformers",
    "tokenizers",
    "datasets",
    "huggingface_hub",
    "torchvision",
    "sklearn",
    "pandas",
    "IPython",
    "yaml",
    "mptlml_book",
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The wheel of a copy of the sources, unpacked; it and the source archive are fit to be published."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("away")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("mptlml", "mptlml_book"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    before = {path.relative_to(copy) for path in copy.rglob("*")}
    python = [sys.executable, "-m"]
    subprocess.run(
        [*python, "build", "--no-isolation", "--outdir", copy / "dist", copy], check=True
    )
    left = {path.relative_to(copy) for path in copy.rglob("*")} - before
    assert {path.parts[0] for path in left} == {"dist"}  # as after `pip install .`
    subprocess.run([*python, "twine", "check", "--strict", *(copy / "dist").iterdir()], check=True)
    with zipfile.ZipFile(*copy.glob("dist/*.whl")) as wheel:
        wheel.extractall(folder)
    return folder


def test_the_wheel_holds_the_package_alone(unpacked):
    [about] = unpacked.glob("*.dist-info")
    assert {path.name for path in unpacked.iterdir()} == {"mptlml", about.name}
    held = {path.relative_to(unpacked) for path in (unpacked / "mptlml").rglob("*.*")}
    assert held == {
        path.relative_to(ROOT) for path in PACKAGE.rglob("*.*") if "__pycache__" not in path.parts
    }
    assert (unpacked / "mptlml" / "py.typed").is_file() and list(about.rglob("LICENSE"))
    told = (about / "METADATA").read_text()
    assert set(re.findall(r"^Requires-Dist: (\w+)$", told, re.MULTILINE)) == {
        "torch",
        "numpy",
        "scipy",
        "tqdm",
    }


def test_importing_a_room_loads_no_other_and_no_optional_dependency(unpacked):
    for room in sorted(LIBRARY):
        code = f"import sys, {room}; print(mptlml.__file__, *sys.modules)"
        said = subprocess.check_output(
            [sys.executable, "-W", "error", "-c", code], cwd=unpacked, text=True
        )
        file, *modules = said.split()
        assert file.startswith(str(unpacked)) and BOOK_ONLY & set(modules) == set()
        assert ROOMS.keys() & set(modules) == {"mptlml", room}


def room_of(module):
    """The room of a module, by its name in dots."""
    return max(
        (room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len, default=None
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    here = room_of(".".join(parts[:-1]))
    if parts == ("mptlml", "__main__"):  # the command's other name
        here = "mptlml.text"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            base = [*parts[: len(parts) - node.level]] * bool(node.level) + [node.module] * bool(
                node.module
            )
            names = [".".join([*base, alias.name]) for alias in node.names]
        for name in names:
            assert room_of(name) in {None, here, *ROOMS[here]}, f"line {node.lineno}: {name}"
