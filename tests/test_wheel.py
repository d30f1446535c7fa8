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

# What a room may import of the package, besides itself: the theorem stands first and needs none of the others.
ROOMS = {"theorem": set(), "models": {"theorem"}, "data": {"theorem"}, "report": {"theorem"},
         "studies": {"theorem", "models", "data"}}
BOOK_ONLY = {"matplotlib", "transformers", "torchvision", "sklearn", "pandas", "IPython", "yaml", "book"}
# Run with the wheel alone on the path: what importing a room brought along, of BOOK_ONLY and of the package.
AWAY = """
import sys
sys.path.insert(0, sys.argv[1])
import importlib, mptlml
importlib.import_module(sys.argv[2])
assert mptlml.__file__.startswith(sys.argv[1]), mptlml.__file__
print(mptlml.__version__, *{name.split(".")[0] for name in sys.modules}, *sys.modules)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the source archive, built without a connection from a copy of the sources."""
    copy, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    for path in [*ROOT.glob("*.*"), ROOT / "LICENSE"]:
        if path.is_file():
            shutil.copy(path, copy)
    for name in ("mptlml", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    """The wheel, unpacked into a folder of its own."""
    folder = tmp_path_factory.mktemp("away")
    with zipfile.ZipFile(*built.glob("*.whl")) as wheel:
        wheel.extractall(folder)
    return folder


def test_the_registry_would_take_both_archives(built):
    checked = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()],
                             capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and checked.stdout.count("PASSED") == 2, checked.stdout


def test_the_wheel_holds_the_package_alone(unpacked):
    [about] = unpacked.glob("*.dist-info")
    assert {path.name for path in unpacked.iterdir()} == {"mptlml", about.name}
    held = {path.relative_to(unpacked) for path in (unpacked / "mptlml").rglob("*.*")}
    assert held == {path.relative_to(ROOT) for path in PACKAGE.rglob("*.*") if "__pycache__" not in path.parts}
    assert (unpacked / "mptlml" / "py.typed").is_file() and list(about.rglob("LICENSE"))
    told = (about / "METADATA").read_text()
    assert set(re.findall(r"^Requires-Dist: (\w+)$", told, re.MULTILINE)) == {"torch", "numpy", "scipy", "tqdm"}


@pytest.mark.parametrize("room", ["mptlml", "mptlml.models"])
def test_the_library_needs_nothing_of_the_book(unpacked, tmp_path, room):
    done = subprocess.run([sys.executable, "-P", "-W", "error", "-c", AWAY, unpacked, room], cwd=tmp_path, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    version, *modules = done.stdout.split()
    assert BOOK_ONLY & set(modules) == set()
    assert f"Version: {version}" in next(unpacked.glob("*.dist-info/METADATA")).read_text().splitlines()
    others = {f"mptlml.{name}" for name in ROOMS} - {room}
    assert others & set(modules) == set()


def imported(path):
    """The rooms that a module of the package imports from, anywhere in it."""
    here = ("mptlml", *path.relative_to(PACKAGE).parent.parts)
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = list(here[: len(here) - node.level + 1]) if node.level else []
            names += [above + (node.module or "").split(".") * bool(node.module) + [alias.name] for alias in node.names]
    return {name[1] if name[1] in ROOMS else "theorem" for name in names if name[0] == "mptlml" and len(name) > 1}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    inner = path.relative_to(PACKAGE).parts[0]
    room = inner if inner in ROOMS else "theorem"
    assert imported(path) - {room} <= ROOMS[room]
