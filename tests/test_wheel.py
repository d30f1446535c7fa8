"""The library away from its book: what its wheel holds, and what an import of it loads."""

import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT

LIGHT = ("mptlml", "mptlml.models", "mptlml.testing")
OPTIONAL = set(
    "matplotlib transformers tokenizers datasets torchvision sklearn pandas IPython yaml".split()
)
ELSEWHERE = OPTIONAL | {"mptlml_book", "mptlml.scoring"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The wheel of a copy of the sources, unpacked; it and the source archive are fit to be published."""
    copy, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("away")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("mptlml", "mptlml_book"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    before = {*copy.rglob("*")}
    python = [sys.executable, "-m"]
    subprocess.run(
        [*python, "build", "--no-isolation", "--outdir", copy / "dist", copy], check=True
    )
    left = {path.relative_to(copy).parts[0] for path in {*copy.rglob("*")} - before}
    assert left == {"dist"}  # as after `pip install .`
    subprocess.run([*python, "twine", "check", "--strict", *(copy / "dist").iterdir()], check=True)
    with zipfile.ZipFile(*copy.glob("dist/*.whl")) as wheel:
        wheel.extractall(folder)
    return folder


def test_the_wheel_holds_the_package_alone(unpacked):
    [about] = unpacked.glob("*.dist-info")
    assert {path.name for path in unpacked.iterdir()} == {"mptlml", about.name}
    held, ours = (
        {str(path.relative_to(root)) for path in (root / "mptlml").rglob("*.*")}
        for root in (unpacked, ROOT)
    )
    assert held == {name for name in ours if "__pycache__" not in name}
    assert (unpacked / "mptlml" / "py.typed").is_file() and list(about.rglob("LICENSE"))
    needed = re.findall(r"^Requires-Dist: (\w+)$", (about / "METADATA").read_text(), re.MULTILINE)
    assert {*needed} == {"torch", "numpy", "scipy", "tqdm"}


def test_an_import_loads_neither_the_tool_nor_an_optional_dependency(unpacked):
    code = f"import sys, {', '.join(LIGHT)}; print(mptlml.__file__, *sys.modules)"
    command = [sys.executable, "-W", "error", "-c", code]
    file, *modules = subprocess.check_output(command, cwd=unpacked, text=True).split()
    assert file.startswith(str(unpacked)) and ELSEWHERE & set(modules) == set()
