"""What the repository tells those who carry on is true."""

import ast
import json
import re
from functools import cache
from importlib.metadata import distributions
from runpy import run_path

import book_digest
import jupytext
import nbformat
import pytest
import yaml
from conftest import ROOT, finished, text_of, write_files
from fakes import saved_network
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from traces import Trace

import mptlml
from mptlml_book import report
from mptlml_book.report.claims import claims

FINDINGS = """prop1-gaussian net-right-end net-area net-pll-gap nets-reactions-single
nets-reactions-area net-repair net-lookup net-lookup-chains""".split()


def blocks(name):
    """The Python blocks of a Markdown file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_model_in_one_file_obeys_the_laws(tmp_path, monkeypatch):
    model, test = blocks("CONTRIBUTING.md")
    write_files(tmp_path, {"urn.py": model, "test_urn.py": test})
    monkeypatch.syspath_prepend(tmp_path)
    obeys = run_path(tmp_path / "test_urn.py")["test_the_urn_obeys_the_laws"]
    assert [mark.args for mark in obeys.pytestmark] == [("num_tokens", [1, 6])]
    obeys(1)
    obeys(6)


def test_the_readme_shows_code_that_runs(capsys):
    """Its last two lines print the area with its error, and the exact value, which agree."""
    exec(blocks("README.md")[0], {})
    said = capsys.readouterr().out
    told = re.search(r"(-[\d.]+) \+- ([\d.]+)\ntensor\((-[\d.]+)", said)
    mean, error, exact = map(float, told.groups())
    assert 0 < error < 1 and abs(mean - exact) < 4 * error


def test_the_readme_scores_a_masked_language_model(tmp_path, capsys):
    """Of a small random network in place of BERT: an area with its error, a score, and a pair."""
    saved_network(tmp_path, "The cat sat on the mat. The cat sat on the hat.")
    exec(blocks("README.md")[1].replace("google-bert/bert-base-uncased", str(tmp_path)), {})
    said = capsys.readouterr().out
    assert re.match(r"-[\d.]+ \+- [\d.]+\ntensor\(\[-[\d.]+.*\n\[Comparison\(difference=", said)


def test_the_findings_of_the_readme_are_what_the_chapters_measured(built_site):
    claims = json.loads((built_site / "claims.json").read_text(encoding="utf-8"))["claims"]
    found = {claim["id"]: claim["text"] for claim in claims}
    opening = text_of("README.md").split("## Two commands")[0]
    assert re.findall(r"\*\*([−\d][^*%]*)%?\*\*", opening) == [found[id] for id in FINDINGS]


def test_the_readme_opens_with_the_picture_of_chapter_2(built_site, tmp_path):
    """Its pictures are the still of all orders, and say the same."""
    page = (built_site / "notebooks/02_proposition.html").read_text(encoding="utf-8")
    drawn = re.search('data-kind="orders".*?(<svg.*?</svg>)', page, re.DOTALL)[1]
    words = r">([^<>]+)</text>"
    for theme, filter in {"light": "none", "dark": "invert(.93) hue-rotate(180deg)"}.items():
        style = f"<style>svg {{ filter: {filter} }}</style>"
        new = tmp_path / f"hero-{theme}.svg"
        new.write_text(re.sub("(<svg.*?>)", rf"\1{style}", drawn, count=1) + "\n", encoding="utf-8")
        told = f"book/{new.name} is to be {new}"
        assert (ROOT / "book" / new.name).is_file(), told
        kept = re.findall(words, text_of(f"book/{new.name}"))
        assert kept == re.findall(words, drawn) != [], told


def test_a_scheme_has_its_colour_from_the_table():
    """No statement of a chapter names a scheme beside a colour of its own; the table has no colour twice."""
    assert len(set(report.SCHEMES.values())) == len(report.SCHEMES)
    scheme = re.compile(r"\b(15%|40%|80/10/10|UNIFORM|WEIGHTED|FORTY|FIFTEEN|uniform|random sizes)")
    colour = re.compile(r"report\.(BLUE|ORANGE|GREEN|RED|PURPLE|SKY)\b")
    for path in book_digest.chapters():
        for node in ast.walk(ast.parse(book_digest.code_of(path.read_text(encoding="utf-8")))):
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                said = ast.unparse(node)
                assert not (scheme.search(said) and colour.search(said)), f"{path.name}: {said}"


def test_stored_runs_on_images_say_which_they_read():
    """By digests that book/data_sets.yml puts in words."""
    known = yaml.safe_load(text_of("book/data_sets.yml"))
    for chapter, names in {
        "08_linear_vae": ("linear_vae", "linear_vae_page", "linear_vae_scripts"),
        "09_deep_vae": ("deep_vae", "deep_vae_annealed"),
    }.items():
        for name in names:
            head = text_of(f"book/data/{name}.csv")
            read = re.findall(r"^# read: .*MNIST.*, digest (\w+)$", head, re.MULTILINE)
            assert len(read) >= 2 and set(read) <= set(known[chapter])


def test_every_package_is_of_a_version_for_the_oldest_python():
    """Also what `make newest` brings, under whichever Python that runs: its pins are the next ones."""
    oldest = re.search(r"--python-version (\S+)", text_of("Makefile"))[1]
    assert f"Python 3.11 ({oldest} or later)" in text_of("book/howto.md")
    pins = re.findall("^([^#=]+)==", text_of("constraints.txt"), re.MULTILINE)
    asked = {
        canonicalize_name(found.name): found.metadata.get("Requires-Python", "")
        for found in distributions()
    }
    assert len(asked.keys() & set(pins)) > 150
    assert [name for name in pins if oldest not in SpecifierSet(asked.get(name, ""))] == []


def test_one_version():
    citation = yaml.safe_load(text_of("CITATION.cff"))
    version, released = mptlml.__version__, citation["date-released"]
    told = re.findall(r"(?m)^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"))
    assert told[0] == (citation["version"], str(released)) == (version, str(released))


def test_a_figures_cell_shows_nothing_but_the_figure():
    """A second output would be a second figure of its name; a claim in a sentence has its story there."""
    beside = re.compile(r"report\.(?:expect|not_run|data_used)\(|claim_on_\w+\(")
    found = []
    for path in book_digest.chapters():
        chapter = book_digest.read_chapter(path)
        own = {name for name, entry in claims().items() if entry["chapter"] == path.stem}
        told = re.findall(r"\{claim\}`([\w-]+)`", path.read_text(encoding="utf-8"))
        for cell in book_digest.code_cells(chapter):
            if "figure" in cell.metadata.get("mystnb", {}):
                named = own.intersection(re.findall(r'"([\w-]+)"', cell.source))
                found += [*beside.findall(cell.source), *(named - set(told))]
    assert found == []


@pytest.mark.parametrize("path", book_digest.chapters(), ids=lambda path: path.stem)
def test_a_chapter_has_its_twin_without_outputs(path):
    twin, source = nbformat.read(path.with_suffix(".ipynb"), as_version=4), jupytext.read(path)
    for cell in [*twin.cells, *source.cells]:
        cell.pop("id", None)
    for name in ("kernelspec", "myst"):
        assert twin.metadata[name] == source.metadata[name], "run `make pairs`"
    assert "language_info" not in twin.metadata
    assert twin.cells == source.cells, "run `make pairs`"


# The origin of values and bands -----------------------------------------------------------------------------------

BAND = re.compile(
    r"^(?:# )?- id: (\S+)\n(?:(?!(?:# )?- id:).*\n)*?(?:# )?  band: \[(.*)\]", re.MULTILINE
)


def git(*words):
    return finished("git", *words).stdout


def bands_of(commit):
    """{id: band} of the claims of a commit, those that wait for their chapter as comments among them."""
    found = BAND.findall(git("show", f"{commit}:book/claims.yml"))
    return {name: [*map(float, band.split(","))] for name, band in found}


@pytest.fixture(scope="module")
def behind():
    """{claim: the stored files behind its value}, as the chapters' code has it."""
    traced = {}
    for path in book_digest.chapters():
        ids = [name for name, entry in claims().items() if entry["chapter"] == path.stem]
        traced |= Trace(book_digest.code_of(path.read_text(encoding="utf-8")), ids).claims
    return traced


TRACED = """
def read(name):
    return report.stored(f"runs_{name}.csv")
runs, found = read("a"), {}
for id, value in [("first-a", runs), ("first-b", 2)]:
    report.claim(id, value)
found["x"], lines = runs.mean(), []
for row in found.items():
    lines.append(row)
claim("second", sum(lines))
if lines:
    runs = 3
    claim("third", runs)
claim("fourth", runs)
runs = 4
report.claim("fifth", max(lines for lines in [runs]))
report.glue("sixth", lines)
"""


def test_a_trace_follows_names_and_not_their_namesakes():
    """Through loops, functions, branches and items; a name bound anew, or inside a function, is another."""
    names = ["first-a", "first-b", "second", "third", "fourth", "fifth", "sixth"]
    runs = {"runs_*.csv"}
    assert Trace(TRACED, names).claims == {
        **dict.fromkeys(("first-a", "first-b", "second", "fourth"), runs),
        **dict.fromkeys(("third", "fifth"), set()),
    }


def test_claims_say_which_of_their_values_come_from_stored_runs(behind):
    """`run` in book/claims.yml; whether a build has a part in the value too, `both`, is for its reader to judge."""
    assert behind.keys() == claims().keys()
    wrong = [name for name, entry in claims().items() if ("run" in entry) != bool(behind[name])]
    assert not wrong, f"`run: stored` (or both) is missing, or has no stored file: {wrong}"


def test_the_history_shows_which_bands_came_before_their_runs(behind):
    """The commit that set a claim's band, as it is, lies before the first in which a chapter makes it.

    Where its value is read from stored files, the band lies before one of these as well.
    """
    if git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("the history is not here")
    bands = {name: entry["band"] for name, entry in claims().items()}
    log = "log", "--no-merges", "--full-history", "--reverse", "--topo-order"
    was_set, made = dict.fromkeys(bands, ""), {}
    for line in git(*log, "--format=%H %P", "--", "book/claims.yml").splitlines():
        commit, *parents = line.split()
        before = bands_of(parents[0]) if parents else {}
        for name, band in bands_of(commit).items():
            if bands.get(name) == band != before.get(name):
                was_set[name] = commit
    for part in git(*log, "--format=%x01%H", "-p", "-U0", "--", "notebooks/*.md").split("\x01")[1:]:
        added = " ".join(re.findall("(?m)^[+].*", part))
        for name in bands.keys() & set(re.findall(r'"([a-z0-9-]+)"', added)):
            made.setdefault(name, part[:40])

    def precedes(one, other):
        ancestor = finished("git", "merge-base", "--is-ancestor", one, other)
        return one != other and ancestor.returncode == 0

    @cache
    def was_stored(name):
        log = "log", "--no-merges", "--topo-order", "--format=%H"
        return git(*log, "--", f"book/data/{name}").split()[-1]

    def came_before(name):
        files = [path.name for one in behind[name] for path in (ROOT / "book/data").glob(one)]
        as_stored = [precedes(was_set[name], was_stored(file)) for file in files]
        return precedes(was_set[name], made.get(name, "")) and (not files or any(as_stored))

    before = [name for name, entry in claims().items() if entry["kind"] == "before"]
    wrong = [name for name in before if not came_before(name)]
    assert not wrong, f"no older than their chapters, so their kind is after: {', '.join(wrong)}"
