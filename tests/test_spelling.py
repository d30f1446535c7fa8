"""Words: codespell over everything, and British spelling in what readers read."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# British too, in the sense that they have here; an artifact is what GitHub calls a file that a workflow leaves
BOTH = {"artifact", "biased", "focused", "focusing", "licensed", "licensing", "practice", "program", "stories", "story"}

NOT_PROSE = re.compile(
    r"\A---\n.*?^---$"  # the front matter
    r"|^ *(`{3,}|~{3,}|:{3,})\{?(?:code-cell|python|bash|console|text|math|eval-rst)\b.*?^ *\1"  # code and equations
    r'|`[^`\n]*`|\$\$.*?\$\$|\$[^$]*\$|"[^"\n]{1,300}"|\]\([^)\s]*\)|https?://\S+', re.DOTALL | re.MULTILINE)


def british():
    """{American word: British one}, from the list that codespell brings for the other way round."""
    lines = (files("codespell_lib") / "data" / "dictionary_en-GB_to_en-US.txt").read_text().splitlines()
    pairs = [line.split("->") for line in lines]
    return {american.strip(" ,"): ours for ours, american in pairs if american.strip(" ,") not in BOTH}


def prose(path):
    """What a reader reads of a file: Markdown without code and equations, or a module's docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        strings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
        comments = [token.string for token in tokenize.generate_tokens(io.StringIO(text).readline)
                    if token.type == tokenize.COMMENT]
        text = "\n".join(strings + comments)
    return NOT_PROSE.sub(" ", text)


def american(text):
    """The American spellings in a text."""
    known = british()
    return sorted({word for word in re.findall(r"[A-Za-z]+", text) if word.lower() in known})


PAGES = [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").glob("*.md"),
         ROOT / "book" / "claims.yml"]
MODULES = [path for folder in ("mptlml", "tests", "benchmarks", "book/_ext") for path in (ROOT / folder).glob("*.py")]


def test_codespell_finds_nothing():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    done = subprocess.run([Path(sys.executable).with_name("codespell"), *names], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", sorted(PAGES + MODULES), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_spelling_is_british(path):
    assert american(prose(path)) == []


def test_american_spelling_is_seen_in_prose_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('---\na: color\n---\n# A center\n`color` $color$ "modeling" [x](color.md)\n'
                    "```{code-cell} ipython3\nplot(color=1)\n```\n:::{note}\nbehavior\n:::\n")
    assert american(prose(page)) == ["behavior", "center"]
    module = tmp_path / "module.py"
    module.write_text('"""A neighbor."""\ncolor = 1  # labeled\n\n\ndef color():\n    """Of `color`, optimized."""\n')
    assert american(prose(module)) == ["labeled", "neighbor", "optimized"]
