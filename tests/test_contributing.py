"""What the repository tells those who carry on is true: its code runs, its versions agree, its files are there."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    versions = re.findall(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(),
                          re.MULTILINE)
    assert versions[0] == ("Unreleased", "") and all(date for _, date in versions[1:])
    assert versions[1] == (project["version"], str(citation["date-released"]))
    assert citation["version"] == project["version"]


def test_the_citation_has_what_its_format_asks_for():
    """The required keys of the Citation File Format 1.2.0, and who wrote the paper."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= set(citation)
    assert citation["type"] in ("software", "dataset") and citation["license"] == "MIT"
    [paper] = citation["references"]
    assert {"authors", "title", "type"} <= set(paper)
    assert [author["family-names"] for author in paper["authors"]] == ["Moreno-Muñoz", "Recasens", "Hauberg"]


def test_both_licences_are_there():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "CC BY 4.0" in (ROOT / "LICENSE-text").read_text()


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "README.md"])
def test_targets_and_files_that_are_named_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(" ".join(re.findall(r"`make ([a-z ]+)", text) + re.findall(r"^    make ([a-z]+)", text, re.M)).split())
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named and named - targets == set()
    files = re.findall(r"`((?:mptlml|tests|book|notebooks|benchmarks)/[\w./-]+|[A-Z]+\.(?:md|cff)|_\w+\.yml)`", text)
    missing = {file for file in files if not (ROOT / file).exists()}
    assert files and missing - {"mptlml/urn.py", "notebooks/NN_slug.md"} == set()


def test_hooks_fetch_nothing_and_are_targets_of_the_makefile():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [repository["repo"] for repository in hooks] == ["local"]
    for hook in hooks[0]["hooks"]:
        assert hook["language"] == "system" and hook["pass_filenames"] is False
        assert hook["entry"].split()[0] == "make" and set(hook["entry"].split()[1:]) <= targets
