"""What the repository tells those who carry on is true: its code runs, its versions agree, its files are there."""

import os
import re
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


def run_elsewhere(model, test, folder):
    """Run the model's own test in a folder of its own, where of this repository only the package can be imported."""
    (folder / "site").mkdir()
    (folder / "site" / "mptlml").symlink_to(ROOT / "mptlml")
    (folder / "urn.py").write_text(model)
    (folder / "test_urn.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_urn.py"]
    return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder / "site")},
                          capture_output=True, text=True, check=False)


def test_the_model_in_one_file_obeys_the_laws(tmp_path):
    done = run_elsewhere(*blocks("CONTRIBUTING.md"), tmp_path)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_laws_see_a_slip_in_it(tmp_path):
    """The same file with one letter wrong: the answer at a masked token leaves out the zeros of the urn."""
    model, test = blocks("CONTRIBUTING.md")
    slip = model.replace("torch.where(x == 1, self.a + ones, self.b + zeros)",
                         "torch.where(x == 1, self.a + ones, self.a + zeros)")
    assert slip != model
    done = run_elsewhere(slip, test, tmp_path)
    assert done.returncode == 1 and "area_and_orders_give_log_prob" in done.stdout


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
    assert files and missing - {"notebooks/NN_slug.md"} == set()
