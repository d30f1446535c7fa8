"""What the repository tells those who carry on is true."""

import json
import re
from functools import cache

import jupytext
import nbformat
import pytest
import yaml
from conftest import ROOT, finished, text_of
from fakes import saved_network

import mptlml
from mptlml_book.report.claims import claims

CHAPTERS = sorted(ROOT.glob("notebooks/*.md"))
FINDINGS = "fig1-right-scripts net-right-end nets-ranks-sound net-repair".split()


def blocks(name):
    """The Python blocks of a Markdown file."""
    return re.findall(r"(?ms)^```python\n(.*?)^```$", text_of(name))


def test_the_readme_shows_code_that_runs(capsys):
    """Its last two lines print the area with its error, and the exact value, which agree."""
    exec(blocks("README.md")[0], {})
    said = capsys.readouterr().out
    told = re.search(r"(-[\d.]+) \+- ([\d.]+)\ntensor\((-[\d.]+)", said)
    mean, error, exact = map(float, told.groups())
    assert 0 < error < 1 and abs(mean - exact) < 4 * error


def test_the_readme_scores_a_masked_language_model(tmp_path, capsys):
    """Of a small random network in place of BERT: an area with its error, and a score."""
    saved_network(tmp_path, "The cat sat on the mat. The cat sat on the hat.")
    exec(blocks("README.md")[1].replace("google-bert/bert-base-uncased", str(tmp_path)), {})
    said = capsys.readouterr().out
    assert re.match(r"-[\d.]+ \+- [\d.]+\ntensor\(\[-[\d.]+", said)


def test_the_findings_of_the_readme_are_what_the_chapters_measured(built_site, page):
    claims = json.loads((built_site / "claims.json").read_text(encoding="utf-8"))["claims"]
    found = {claim["id"]: claim["text"] for claim in claims}
    opening = text_of("README.md").split("## Two commands")[0]
    assert re.findall(r"\*\*([−\d][^*%]*)%?\*\*", opening) == [found[id] for id in FINDINGS]
    apart = re.search(r"up to \d+ nats", opening)[0]
    assert apart in page("notebooks/02_proposition").get_text()


def test_one_version():
    citation = yaml.safe_load(text_of("CITATION.cff"))
    version, released = mptlml.__version__, citation["date-released"]
    told = re.findall(r"(?m)^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", text_of("CHANGELOG.md"))
    assert told[0] == (citation["version"], str(released)) == (version, str(released))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_has_its_twin_without_outputs(path):
    twin, source = nbformat.read(path.with_suffix(".ipynb"), as_version=4), jupytext.read(path)
    for cell in [*twin.cells, *source.cells]:
        cell.pop("id", None)
    assert twin.metadata["kernelspec"] == source.metadata["kernelspec"], "run `make pairs`"
    assert twin.cells == source.cells, "run `make pairs`"


# The origin of bands

BAND = re.compile(
    r"^(?:# )?- id: (\S+)\n(?:(?!(?:# )?- id:).*\n)*?(?:# )?  band: \[(.*)\]", re.MULTILINE
)


def git(*words):
    return finished("git", *words).stdout


def bands_of(commit):
    """{id: band} of the claims of a commit, those that wait for their chapter as comments among them."""
    found = BAND.findall(git("show", f"{commit}:book/claims.yml"))
    return {name: [*map(float, band.split(","))] for name, band in found}


def test_the_history_shows_which_bands_came_before_their_runs():
    """The commit that set a claim's band, as it is, lies before the first in which a chapter makes it.

    Where its value is read from stored files, the band lies before one of these as well.
    """
    if git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("the history is not here")
    bands = {name: entry["band"] for name, entry in claims().items()}
    log = "log", "--no-merges", "--full-history", "--reverse", "--topo-order"
    was_set, made, seen = dict.fromkeys(bands, ""), {}, {}
    for line in git(*log, "--format=%H %P", "--", "book/claims.yml").splitlines():
        commit, *parents = line.split()
        before = bands_of(parents[0]) if parents else {}
        for name, band in bands_of(commit).items():
            if bands.get(name) == band != before.get(name, seen.get(name)):
                was_set[name] = commit
            seen[name] = band  # a claim that was away and is back kept its band
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
        files = claims()[name].get("reads", [])
        as_stored = [precedes(was_set[name], was_stored(file)) for file in files]
        return precedes(was_set[name], made.get(name, "")) and (not files or any(as_stored))

    before = [name for name, entry in claims().items() if entry["kind"] == "before"]
    wrong = [name for name in before if not came_before(name)]
    assert not wrong, f"no older than their chapters, so their kind is after: {', '.join(wrong)}"
