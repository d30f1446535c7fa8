"""The machine of the book: what runs when, how it ends, and what the pages show of the chapters' records."""

import ast
import copy
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import time
from contextlib import suppress

import book_reader
import book_records
import book_student
import nbformat
import pandas as pd
import psutil
import pytest
import yaml
from conftest import ROOT, finished, text_of, write_files

from mptlml_book.report.claims import RUNS, claims
from mptlml_book.report.records import MIME

PATIENCE = 600  # seconds for what takes ten when the machine is quiet
MAKE = "make --old-file=.venv/.ready --old-file=python".split()

# A book with the real machine, small packages, and no data ----------------------------------------------------

PLACES = "import pathlib, sys\nprint(*pathlib.Path('at hand').glob(f'{sys.argv[1]}*'))\n"
CLAIMS = """import yaml
def claims(path):
    return {entry["id"]: entry for entry in yaml.safe_load(path.read_text())}
"""
LITTLE = {
    **{name: text_of(name) for name in ("Makefile", "mptlml_book/report/depends.py")},
    **{
        f"book/_ext/{name}.py": text_of(f"book/_ext/{name}.py")
        for name in ("book_code", "book_reader", "book_run")
    },
    **dict.fromkeys(("mptlml_book/__init__.py", "mptlml_book/report/__init__.py"), ""),
    **dict.fromkeys(("mptlml_book/data/__main__.py", "mptlml_book/data/images.py"), ""),
    "mptlml_book/data/places.py": PLACES,
    "mptlml_book/report/claims.py": CLAIMS,
    "mptlml/part.py": '"""A part."""\nTWO = 2\n',
    "mptlml/__init__.py": "",
    "requirements.txt": "torch==2\n",
    "constraints.txt": "torch==2\n",
    "book/data/runs_a.csv": "1\n",
    "book/data_sets.yml": "{}",
    "book/claims.yml": "- {id: a, chapter: 01_good, band: [1, 2], statement: One}\n",
}


def chapter(name, *cells, note=()):
    """The source of a chapter, whose last cell closes it."""
    first, last = "from mptlml_book.report import depends", f"depends.write({name!r}, {[*note]})"
    code = "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in (first, *cells, last))
    return {f"notebooks/{name}.md": f"# {name}\n{code}"}


def little_book(root, *chapters):
    for files in (LITTLE, *chapters):
        write_files(root, files)
    (root / ".venv").symlink_to(sys.prefix)
    return root


def make(root, *words, **env):
    return finished(*MAKE, *words, cwd=root, env=os.environ | {"CI": ""} | env, timeout=PATIENCE)


EDITS_ITSELF = """from pathlib import Path
source = Path("../../notebooks/05_edited.md")
source.write_text(source.read_text().replace("= 1", "= 2"))
number = 1"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(book, what `make execute` said): one chapter raises, the kernel of one dies, one is edited meanwhile."""
    reads = "from mptlml import part\nfrom mptlml_book.data import images\nopen('../../book/data/runs_' + 'a.csv')"
    chapters = [
        chapter("01_good", ":tags: [hide-input]\nprint(6 * 7)", note=["digits stand in"]),
        chapter("02_bad", "raise RuntimeError('on purpose')"),
        chapter("03_dead", "import os; os.kill(os.getpid(), 9)"),
        chapter("04_reads", reads),
        chapter("05_edited", EDITS_ITSELF),
    ]
    root = little_book(tmp_path_factory.mktemp("book"), *chapters)
    return root, make(root, "execute")


def test_passed_chapters_are_kept_and_failed_ones_are_named(ran):
    root, done = ran
    assert done.returncode and "\x1b[" not in done.stderr
    assert "02_bad failed in the cell at line 7: RuntimeError: on purpose\n" in done.stderr
    assert "03_dead failed: its kernel died, as when memory runs out\n" in done.stderr
    kept = {path.stem for path in (root / "build").glob("*.ipynb")}
    assert kept == {"01_good", "04_reads", "05_edited"}
    good = book_reader.executed_chapter(root / "notebooks" / "01_good.md")
    assert good.cells[2].outputs[0].text == "42\n"


def test_what_stands_in_for_data_is_told_at_the_end_and_may_be_refused(ran):
    root, _ = ran
    told = make(root, "execute", "CHAPTERS=01_good")
    assert told.returncode == 0 and "01_good runs" not in told.stdout
    assert told.stdout.endswith(
        "01_good: digits stand in\nmake data asks again once there is a connection\n"
    )
    assert make(root, "execute", "CHAPTERS=01_good", MPTLML_REQUIRE_DATA="1").returncode
    assert "stand in" not in make(root, "execute", "CHAPTERS=04_reads").stdout


def stale(root):
    """The chapters that would run."""
    prepared = make(root, "prepared")
    assert prepared.returncode == 0, prepared.stderr
    goals = [f"build/{stem}.ipynb" for stem in ("01_good", "04_reads")]
    return set(re.findall(r'"3 of 4: (\w+) runs"', make(root, "--dry-run", *goals).stdout))


EDITS = {  # file: (what is put in place of what, the chapters that run)
    "mptlml/part.py": ("TWO = 2", "TWO = 3", {"04_reads"}),
    "mptlml/part.py (words)": ('"""A part."""', '"""Another."""\n# so', set()),
    "mptlml_book/data/images.py": ("", "HERE = 1\n", {"04_reads"}),
    "book/data/runs_a.csv": ("1", "2", {"04_reads"}),
    "book/claims.yml (a band)": ("[1, 2]", "[1, 3]", {"01_good"}),
    "book/claims.yml (words)": ("One", "Two", set()),
    "book/data_sets.yml": ("{}", "{01_good: {0a: nine}}", {"01_good"}),
    "requirements.txt": ("2", "3", {"01_good", "04_reads"}),
    "requirements.txt (a comment)": ("torch", "# so\ntorch", set()),
    "notebooks/01_good.md (code)": ("6 * 7", "6 * 8", {"01_good"}),
    "notebooks/01_good.md (words)": ("# 01", "# So 01", set()),
    "notebooks/01_good.md (a tag)": ("hide-input", "hide-cell", set()),
    "images at hand": ("", "1", {"04_reads"}),
}


def test_an_edit_runs_the_chapters_that_depend_on_it_and_no_other(ran):
    """Also data that come; and back again, where nothing has run meanwhile, a chapter that was edited while it ran."""
    root, _ = ran
    assert stale(root) == set()
    for name, (old, new, runs) in EDITS.items():
        path, kept = root / name.split(" (")[0], root / "kept"
        path = path if name != "images at hand" else root / "at hand" / "images"
        path.parent.mkdir(exist_ok=True)
        existed = path.exists()
        text = path.read_text() if existed else ""
        assert old in text
        shutil.copytree(root / "build", kept)
        path.write_text(text.replace(old, new, 1))
        assert stale(root) == runs, name
        shutil.rmtree(root / "build")
        kept.rename(root / "build")
        path.write_text(text) if existed else path.unlink()
    (root / "book" / "data" / "runs_a.csv").unlink()
    assert stale(root) == {"04_reads"}


def at_work(processes):
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += [process] * (process.status() != psutil.STATUS_ZOMBIE)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signalled_twice_leaves_nothing_behind_and_the_next_run_goes_on(tmp_path, number):
    """As by an impatient Ctrl-C, or by `timeout`: what had passed is kept, and the lock is free."""
    slow = chapter("02_slow", "import time; open('began', 'w'); time.sleep(999)")
    root = little_book(tmp_path, chapter("01_quick", "1"), slow, {"book/claims.yml": "[]"})
    words = [*MAKE, "execute", "JOBS=1"]
    running = psutil.Popen(words, cwd=root, start_new_session=True, stdout=-3, stderr=-3)
    last = time.monotonic() + PATIENCE
    while not (root / "build" / "run" / "began").exists():
        assert running.poll() is None and time.monotonic() < last
        time.sleep(0.2)
    below = running.children(recursive=True)
    try:
        for _ in range(2):
            os.killpg(running.pid, number)
            time.sleep(0.25)
        last = time.monotonic() + 20
        while at_work([running, *below]) and time.monotonic() < last:
            time.sleep(0.2)
        assert len(below) > 4 and at_work([running, *below]) == []
    finally:
        for process in at_work([running, *below]):
            process.kill()
        running.wait(PATIENCE)
    with (root / "build" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert [path.stem for path in (root / "build").glob("*.ipynb")] == ["01_quick"]
    write_files(root, chapter("02_slow", "1"))
    done = make(root, "execute")
    assert (
        done.returncode == 0
        and "01_quick runs" not in done.stdout
        and "02_slow passed" in done.stdout
    )


def site_stamp(root, branch="main"):
    """The file that `make pages` would make, whose name is that of the address, where the pages are not made."""
    address = {"MPTLML_REPOSITORY": "https://github.com/one/book", "MPTLML_BRANCH": branch}
    done = make(root, "--dry-run", "pages", **address)
    found = re.search(r"touch (_build/\.site-\d+)$", done.stdout, re.MULTILINE)
    return found and found[1]


def test_the_pages_are_made_anew_when_anything_they_show_changes(tmp_path):
    """And for another address, which is never a command, neither to make nor to the shell."""
    root = little_book(tmp_path)
    write_files(root, {name: "" for name in ("_config.yml", "_toc.yml", "_build/x")})
    (root / site_stamp(root)).touch()
    before = {*root.rglob("*")}
    for name in (None, "_config.yml", "book/claims.yml", "mptlml/part.py"):
        if name:
            os.utime(root / name, (4e9, 4e9))  # seconds: a time to come
        assert bool(site_stamp(root)) == bool(name), name
        if name:
            os.utime(root / name, (1e9, 1e9))
    branches = "trunk", "$(shell touch one)", "'; touch two; '", "`touch three`"
    assert len({site_stamp(root, branch) for branch in branches} - {None}) == 4
    assert {*root.rglob("*")} == before


# What the chapters said ---------------------------------------------------------------------------------------

CLAIM = yaml.safe_load("""
{id: a, chapter: 01_one, kind: exact, place: Table 1, statement: "1 < 2, {value}.", paper: null, unit: nats,
 band: [1, 2], why: a law, verdict: new, format: .2f, how: "largest error over {cases} rows"}""")
COST = yaml.safe_load("""
{kind: cost, chapter: 01_one, seconds: 12.34, megabytes: 9, versions: {python: "3.11"},
 machine: {system: Linux, cores: 2}}""")


@pytest.fixture
def said(tmp_path):
    """What the pages are told of a book with one chapter, a claim that was checked, and one not run."""
    claims = [CLAIM, CLAIM | {"id": "b", "paper": "3", "run": "stored"}]
    records = [
        dict(kind="claim", id="a", value=1.5, stderr=0.1, spread=None, seeds=None, cases=4000),
        dict(kind="claim", id="b", reason="no data here"),
        dict(
            kind="data",
            source="digits",
            size="9 images",
            digest="0a",
            note="a < b",
            words="nine <images>",
        ),
        dict(kind="columns", key="fig1-left", columns=[["y", [1, 2]], ["x", [1e5, None]]]),
        COST,
    ]
    made = nbformat.v4
    outputs = [
        made.new_output("display_data", {MIME: record, "text/plain": ""}) for record in records
    ]
    notebook = made.new_notebook(cells=[made.new_code_cell("1", outputs=outputs)])
    notebook.metadata["language_info"] = {"name": "python"}
    text = "# One\n\nIt is {claim}`a`.\n\n```{code-cell} ipython3\n1\n```\n"
    files = {"book/claims.yml": yaml.safe_dump(claims), "book/figures.yml": "[]"}
    files["book/ledger.csv"] = "part"
    write_files(
        tmp_path,
        files | {"notebooks/01_one.md": text, "build/01_one.ipynb": nbformat.writes(notebook)},
    )
    return book_records.read_records(tmp_path)


def test_what_chapters_said_is_gathered_and_drawn(said, tmp_path):
    first, second = said["claims"]
    assert (first["how"], first["text"]) == ("largest error over 4,000 rows", "1.50 ± 0.10")
    assert (second["how"], second["verdict"]) == ("no data here", "not run here")
    assert second["statement"] == "Expected, but not run here: 1 < 2, 1 to 2 nats."
    source = tmp_path / "notebooks" / "01_one.md"
    cell = book_records.read_executed(source.read_text(), str(source)).cells[1]
    _, story, note, closing = [output.data["text/html"] for output in cell.outputs]
    assert "1 &lt; 2, 1 to 2 nats." in story and "a &lt; b" in note
    assert "1 of 2 claims" in closing and "(nine &lt;images&gt;; digest" in closing
    book_records.write_files(said, tmp_path)
    assert (tmp_path / "data" / "fig1-left.csv").read_text() == "y,x\n1,100000\n2,\n"


# What was built -----------------------------------------------------------------------------------------------

FIGURES = yaml.safe_load(text_of("book/figures.yml"))
WHEN = {"before": "set before the run", "after": "set after the run", "exact": "exact"}
LEFT_RAW = re.compile(
    r"\{[a-z]+(?::[a-z]+)?\}`|\$[^$\n]{1,80}\$|\\\(|\\(?:frac|mathbf|sum|log)\b|\]\(#|:::"
)


def plain(part):
    return part.get_text().replace("\u00a0", " ")


def test_no_markup_is_left_raw_on_a_page(built_site, page):
    for folder in ("book", "notebooks"):
        for path in (built_site / folder).glob("*.html"):
            article = copy.copy(
                page(f"{folder}/{path.stem}").body
            )  # a page that has moved is short
            for part in article.select("pre, code, .math, script, style, svg"):
                part.clear()
            assert LEFT_RAW.findall(article.get_text()) == [], path.name


def test_each_claim_is_on_its_chapter_and_on_the_scorecard(built_site, page):
    found = json.loads((built_site / "claims.json").read_text(encoding="utf-8"))
    assert [claim["id"] for claim in found["claims"]] == list(claims(ROOT / "book" / "claims.yml"))
    rows = {row["id"]: row for row in page("book/scorecard").select("tr[id]")}
    for claim in found["claims"]:
        name, anchor = claim["url"].split(".html#")
        value, row = page(name).find(id=anchor), rows[anchor]
        story = page(name).find(id=value.get("popovertarget", anchor))
        assert value.name == "details" or claim["text"] in plain(value), claim["id"]
        link = row.td.find("a", recursive=False)  # the number in the sentence
        assert link["href"] == f"../{claim['url']}" and link.get_text(), claim["id"]
        for part in (story, row):
            said = [link.get_text() for link in part.select("a.kind")]
            assert said == [WHEN[claim["kind"]], RUNS[claim["run"]]][: 1 + (claim["run"] != "here")]
            assert part.select_one(f".verdict-{claim['verdict'].replace(' ', '-')}"), claim["id"]
            assert claim["place"].replace("'", "’") in plain(part), claim["id"]
        assert claim["how"].replace("'", "’") in plain(story), claim["id"]
        assert page(name).find(id=claim["cell"]), claim["id"]


def test_a_passport_has_its_twin_numbers_and_data(page, built_site):
    passport, shown = page("book/passport"), set()
    for figure in FIGURES:
        name, anchor = f"notebooks/{figure['chapter']}", figure["anchor"]
        section = passport.find(id=f"passport-{figure['id']}").find_parent("section")
        assert section.select(f'a[href="../{name}.html#{anchor}"]')
        if anchor not in shown:  # a picture stands once
            places = section.select_one("div.twin"), page(name).find(id=anchor)
            ours, theirs = (str(place.select("svg, table")[-1]) for place in places)
            assert ours == theirs
        shown.add(anchor)
        table = pd.read_csv(built_site / "data" / f"{figure['id']}.csv")
        assert len(table) >= 4 and table.shape[1] > 1


def test_a_download_is_the_twin_with_a_cell_that_gets_what_it_imports(built_site):
    for source in book_reader.chapters():
        twin = source.with_suffix(".ipynb")
        places = twin, built_site / "_sources" / "notebooks" / twin.name
        plain, (first, *rest) = [nbformat.read(place, as_version=4).cells for place in places]
        assert rest == plain and "mptlml_book" in first.source


def names(cells, context):
    """The names that code stores, those of arguments among them, or loads."""
    tree = ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return {node.id for node in found if isinstance(node.ctx, context)} | (
        stored if context is ast.Store else set()
    )


def test_students_get_every_exercise_no_solution_and_code_that_does_without(tmp_path):
    book_student.write(tmp_path)
    for source in book_reader.chapters():
        path = tmp_path / f"{source.stem}.ipynb"
        cells = nbformat.read(path, as_version=4).cells
        text = "\n".join(cell.source for cell in cells)
        answers = re.findall(r"^# your answer to (\S+)$", text, re.MULTILINE)
        assert answers == re.findall(r"^:label: (ex-\S+)$", text, re.MULTILINE) != []
        assert "{solution" not in text
        kept = {cell.source for cell in cells}
        gone = [cell for cell in book_reader.read_chapter(source).cells if cell.source not in kept]
        assert not (names(gone, ast.Store) & names(cells, ast.Load)) - names(cells, ast.Store)
