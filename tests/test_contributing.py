"""What the repository tells those who carry on is true: its code runs, its versions agree, its files are there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import mptlml

ROOT = Path(__file__).parents[1]
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    """The Python blocks of a Markdown file."""
    return FENCED.findall((ROOT / name).read_text(encoding="utf-8"))


def contract_of(model, entry, folder):
    """Run the contract suite in a copy of the package with one more module, urn.py; returns the finished process."""
    for name in ("mptlml", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "mptlml" / "urn.py").write_text(model)
    suite = folder / "tests" / "test_contract.py"
    above, below = suite.read_text().split("\n\n@pytest.fixture(params=MODELS", 1)
    suite.write_text(f"{above}\n{entry}\n\n@pytest.fixture(params=MODELS{below}")
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "tests/test_contract.py", "-k", "Urn"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_model_in_one_file_passes_the_contract(tmp_path):
    model, entry = blocks("CONTRIBUTING.md")
    done = contract_of(model, entry, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    suite = (ROOT / "tests" / "test_contract.py").read_text()
    assert passed >= 2 * len(re.findall(r"^def test_", suite, re.MULTILINE))  # every law, for both entries


def test_the_contract_sees_a_slip_in_it(tmp_path):
    """The same file with one letter wrong: the answer at a masked token leaves out the zeros of the urn."""
    model, entry = blocks("CONTRIBUTING.md")
    slip = model.replace("torch.where(x == 1, self.a + ones, self.b + zeros)",
                         "torch.where(x == 1, self.a + ones, self.a + zeros)")
    assert slip != model
    done = contract_of(slip, entry, tmp_path)
    assert done.returncode == 1 and "test_area_over_all_masks_is_the_lml" in done.stdout


def test_the_readme_shows_code_that_runs():
    """Its last two lines print the area with its error, and the exact value: they agree within four errors."""
    [code] = blocks("README.md")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mean, error, exact = map(float, re.search(r"(-[\d.]+) \+- ([\d.]+)\ntensor\((-[\d.]+)", done.stdout).groups())
    assert 0 < error < 1 and abs(mean - exact) < 4 * error


def test_one_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    told = re.search(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert told.groups() == (mptlml.__version__, str(citation["date-released"]))
    assert citation["version"] == mptlml.__version__


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md"])
def test_targets_and_files_that_are_named_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(" ".join(re.findall(r"`make ([a-z ]+)", text) + re.findall(r"^    make ([a-z]+)", text, re.M)).split())
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named and named - targets == set()
    files = re.findall(r"`((?:mptlml|tests|book|notebooks|benchmarks)/[\w./-]+|[A-Z]+\.(?:md|cff)|_\w+\.yml)`", text)
    missing = {file for file in files if not (ROOT / file).exists()}
    assert files and missing - {"mptlml/urn.py", "notebooks/NN_slug.md"} == set()
