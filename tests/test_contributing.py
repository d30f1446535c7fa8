"""What the repository tells those who carry on is true: its code runs, its versions agree, its files are there."""

import os
import re
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
    assert files and missing - {"notebooks/NN_slug.md"} == set()


def test_hooks_fetch_nothing_and_are_targets_of_the_makefile():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [repository["repo"] for repository in hooks] == ["local"]
    for hook in hooks[0]["hooks"]:
        assert hook["language"] == "system" and hook["pass_filenames"] is False
        assert hook["entry"].split()[0] == "make" and set(hook["entry"].split()[1:]) <= targets
