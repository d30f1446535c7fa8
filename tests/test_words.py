"""The words of the book: what a chapter must have, how much code one meets at once, symbols, the abstract's page."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_execute  # noqa: E402

CHAPTERS = book_execute.chapters()
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}
MOST_LINES = 15  # of a cell that is not folded, blank lines aside
MOST_COLUMNS = 84  # what the page shows without scrolling
NOTATION = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
ABSTRACT = (ROOT / "book" / "abstract.md").read_text(encoding="utf-8")
SITE = ROOT / "_build" / "html"

every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in book_execute.read_chapter(path).cells if cell.cell_type == kind]


def prose(path):
    return "\n\n".join(cell.source for cell in cells(path, "markdown"))


# What a chapter must have ------------------------------------------------------------------------------------------

@every_chapter
def test_a_chapter_asks_its_question_in_the_first_paragraph(path):
    title, first = re.match(r"# ([^\n]+)\n\n(.+?)\n\n", prose(path), re.DOTALL).groups()
    assert not first.startswith(("#", ":::", "```", "("))
    assert re.search(r"\*\*[^*]*\?\*\*", first), f"{title}: no question in bold"


@every_chapter
def test_a_chapter_ends_with_what_was_found(path):
    headings = re.findall(r"^## (.+)$", prose(path), re.MULTILINE)
    assert headings[-2:] == ["Exercises", "What we found"]
    answer = prose(path).split("## What we found\n")[1]
    assert "{glue:text}" in answer, "an answer without a number"
    assert len(answer.split()) > 60


@every_chapter
def test_two_or_three_exercises_with_folded_solutions(path):
    exercises = prose(path).split("## Exercises\n")[1]
    asked = re.findall(r"^\*\*Exercise (\d)\.\*\*", exercises, re.MULTILINE)
    solved = re.findall(r"^:::\{dropdown\} Solution to exercise (\d)$", exercises, re.MULTILINE)
    assert asked == solved == [str(number + 1) for number in range(len(asked))]
    assert 2 <= len(asked) <= 3


@every_chapter
def test_no_wall_of_code(path):
    long = {}
    for cell in cells(path, "code"):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        if len(lines) > MOST_LINES and not FOLDED & set(cell.metadata.get("tags", [])):
            long[lines[0]] = len(lines)
    assert not long, f"fold or split the cells that begin so (lines): {long}"


@every_chapter
def test_code_fits_the_page(path):
    wide = [line for cell in cells(path, "code") for line in cell.source.splitlines() if len(line) > MOST_COLUMNS]
    assert not wide


@every_chapter
def test_numbers_that_are_glued_are_shown(path):
    """A key that no page shows is left over, or its number is typed."""
    sources = "\n".join(page.read_text(encoding="utf-8") for page in [*CHAPTERS, *(ROOT / "book").glob("*.md")])
    shown = set(re.findall(r"\{glue:text\}`(?:[^`:]*::)?([\w-]+)", sources))
    code = "\n".join(cell.source for cell in cells(path, "code"))
    keys = re.findall(r'report\.glue\(\s*"([\w-]+)"[,)]', code)
    assert sorted(set(keys) - shown) == []


# Symbols -----------------------------------------------------------------------------------------------------------

def maths(text):
    """The TeX of a page: displayed, labelled and inline."""
    text = re.sub(r"^```(?:python|bash).*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"```\{math\}(.*?)```", text, re.DOTALL) + re.findall(r"\$\$(.*?)\$\$", text, re.DOTALL)
    inline = re.findall(r"(?<![\\$])\$([^$]+?)\$", re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL))
    return [re.sub(r"\s+|\\[,;!]|:label:\s*\S+", "", tex) for tex in blocks + inline]


MATHS = {path.stem: maths(prose(path)) for path in CHAPTERS}
BOLD = r"\\(?:mathbf|mathcal|boldsymbol|mathrm|widehat|mathbb)\{\\?\w+\}"
LETTER = r"(?<![A-Za-z\\{])[A-Z](?![A-Za-z])"


def symbols(tex):
    """The letters of a formula that stand for something: bold, calligraphic, Greek, and capitals."""
    plain = re.sub(BOLD, " ", tex)
    greek = re.findall(r"\\(?:alpha|beta|delta|epsilon|eta|theta|lambda|mu|nu|pi|rho|sigma|tau)(?![a-z])", plain)
    return set(re.findall(BOLD, tex)) | set(greek) | set(re.findall(LETTER, plain))


def listed():
    """The first column of each row of the notation page, as TeX formulas."""
    rows = re.findall(r"^\| (\$.+?\$) \| ", NOTATION, re.MULTILINE)
    return [tex for row in rows for tex in maths(row)]


def test_every_symbol_that_is_listed_is_used():
    used = "\n".join(tex for page in MATHS.values() for tex in page)
    known = [re.split(r"=", tex)[0] for tex in listed()]
    unused = [tex for tex in known if not all(part in used for part in re.split(r",(?![^(]*\))", tex) if part)]
    assert len(known) > 30 and unused == []


def test_every_symbol_of_two_chapters_is_listed():
    """A letter of one chapter alone is said there; one that returns stands on the notation page."""
    chapters = {}
    for stem, page in MATHS.items():
        for symbol in set().union(*map(symbols, page)):
            chapters.setdefault(symbol, []).append(stem)
    known = set().union(*map(symbols, maths(NOTATION)))
    names = {r"\mathrm{ML}", r"\mathbf{I}", r"\mathrm{sigmoid}"}  # the identity matrix, and words
    missing = {symbol: where for symbol, where in chapters.items() if len(where) > 1 and symbol not in known | names}
    assert missing == {}


# The abstract, sentence by sentence --------------------------------------------------------------------------------

def verdict_rows():
    """[(what is said, its verdict, what shows it)] of the page's tables."""
    return re.findall(r"^\| (.+?) \| \[([\w ]+)\]\{\.verdict\} \| (.+) \|$", ABSTRACT, re.MULTILINE)


def test_the_abstract_is_taken_whole():
    numbers = re.findall(r"^\| \*\*(\d[ab]?)\.\*\*", ABSTRACT, re.MULTILINE)
    assert {number[0] for number in numbers} == set("123456")
    headings = re.findall(r"^### (\d[ab]?)\. ", ABSTRACT, re.MULTILINE)
    assert numbers == headings, "each line has its why"
    assert len(verdict_rows()) == ABSTRACT.count("]{.verdict}")


def test_a_line_that_was_computed_leads_to_where():
    names = "\n".join(path.read_text(encoding="utf-8") for path in CHAPTERS)
    for said, verdict, shown in verdict_rows():
        places = re.findall(r"\{numref\}`([\w-]+)`|\(#(cell-[\w-]+)\)", shown)
        assert places or verdict == "not tested", said
        for figure, cell in places:
            assert f"name: {figure}\n" in names if figure else f"({cell})=\n" in names, said


def test_the_claims_that_the_abstract_names_exist():
    claims = {claim["id"] for claim in yaml.safe_load((ROOT / "book" / "claims.yml").read_text(encoding="utf-8"))}
    named = set(re.findall(r"\(#claim-([\w-]+)\)", ABSTRACT))
    assert len(named) > 10 and named <= claims


def test_a_verdict_is_no_better_than_its_claims():
    """A line that says "reproduced" names no claim that came out worse."""
    claims = yaml.safe_load((ROOT / "book" / "claims.yml").read_text(encoding="utf-8"))
    verdicts = {claim["id"]: claim["verdict"] for claim in claims}
    for said, verdict, shown in verdict_rows():
        for id in re.findall(r"::([\w-]+)-value:s", shown):
            assert verdict != "reproduced" or verdicts[id] in ("reproduced", "new"), said
            assert verdict != "not reproduced" or verdicts[id] == "not reproduced", said


def test_links_of_the_built_page_lead_to_the_cells():
    if not (SITE / "book" / "abstract.html").is_file():
        pytest.skip("the site is not built: make book")
    page = BeautifulSoup((SITE / "book" / "abstract.html").read_text(encoding="utf-8"), "html.parser").article
    lines = [row for row in page.find_all("tr") if row.select(".verdict")]
    assert len(lines) == len(verdict_rows())
    for row in lines:
        for link in row.find_all("a"):
            file, _, anchor = link["href"].partition("#")
            target = (SITE / "book" / (file or "abstract.html")).resolve()
            assert anchor and f'id="{anchor}"' in target.read_text(encoding="utf-8"), link["href"]
