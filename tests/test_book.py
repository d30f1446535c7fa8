"""The book around the chapters: what each depends on, how it is run and kept, its records, the built site."""

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from types import SimpleNamespace

import book_digest
import book_execute
import book_nbmake
import book_outputs
import book_records
import book_student
import jsonschema
import nbformat
import pandas as pd
import psutil
import pytest
import yaml
from conftest import ROOT, finished, text_of, write_files

from mptlml_book.data import places
from mptlml_book.report.claims import KINDS, RUNS, VERDICTS, claims, file_digest
from mptlml_book.report.records import MIME

SITE = ROOT / "_build" / "html"
CLAIMS = claims(ROOT / "book" / "claims.yml")
FIGURES = yaml.safe_load(text_of("book/figures.yml"))
SCHEMA = json.loads(book_records.SCHEMA.read_text())


def test_a_chapter_passes_under_nbmake():
    words = "-m pytest -q --nbmake notebooks/02_proposition.ipynb"
    done = finished(sys.executable, *words.split())
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-3000:]


def names(cells, context):
    """The names that code stores or loads."""
    tree = ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def test_students_get_every_exercise_no_solution_and_code_that_does_without(tmp_path):
    for path, source in zip(book_student.write(tmp_path), book_digest.chapters(), strict=True):
        cells = nbformat.read(path, as_version=4).cells
        whole = book_digest.read_chapter(source).cells
        text = "\n".join(cell.source for cell in cells)
        answers = re.findall(r"^# your answer to (\S+)$", text, re.MULTILINE)
        assert answers == re.findall(r"^:label: (ex-\S+)$", text, re.MULTILINE) != []
        assert "{solution" not in text
        kept = {cell.source for cell in cells}
        gone = [cell for cell in whole if cell.source not in kept]
        assert not (names(gone, ast.Store) & names(cells, ast.Load)) - names(cells, ast.Store)


# A digest knows what its chapter depends on, and nothing else -----------------------------------------------

EVERY = {path.stem[:2] for path in book_digest.chapters()}
ADDED, WORDS = "\nEDITED = 1\n", "\n# edited\n"
EDITS = {  # file: (what is added, or put in place of what; the chapters that run)
    "mptlml/models/hmm.py": (ADDED, {"01", "02", "11", "12", "14"}),
    "mptlml/models/deep_vae.py": (ADDED, {"09"}),
    "mptlml/models/__init__.py": (ADDED, set()),
    "mptlml_book/linear_vae.py": (ADDED, {"08"}),
    "mptlml/score.py": (ADDED, EVERY),
    "mptlml/score.py (a comment)": (WORDS, set()),
    "mptlml/score.py (a docstring)": (('"""The MPT curve of', '"""So: the MPT curve of'), set()),
    "requirements.txt": (WORDS, EVERY),
    "book/claims.yml (a band)": (("band: [-0.104", "band: [-0.105"), {"01"}),
    "book/claims.yml (the words)": (("\n  statement: ", "\n  statement: So "), set()),
    "book/data_sets.yml": (("the first 3,000", "the first 3000"), {"03"}),
    "notebooks/05_training.md (code)": (("\nreport.start(", "\n1 + 1\nreport.start("), {"05"}),
    "book/_ext/book_records.html": (WORDS, set()),
}


def digests(root):
    return {path.stem[:2]: book_digest.digest(path, root) for path in book_digest.chapters(root)}


def test_an_edit_runs_the_chapters_that_depend_on_it_and_no_other(tmp_path):
    for folder in ("mptlml", "mptlml_book", "book", "notebooks"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyc", "*.ipynb")
        )
    for name in ("requirements.txt", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    before, found = digests(tmp_path), {}
    for name, (change, _) in EDITS.items():
        path = tmp_path / name.split(" (")[0]
        text = path.read_text()
        path.write_text(text + change if isinstance(change, str) else text.replace(*change, 1))
        assert path.read_text() != text, name
        found[name] = {stem for stem, digest in digests(tmp_path).items() if digest != before[stem]}
        path.write_text(text)
    assert found == {name: expected for name, (_, expected) in EDITS.items()}


EMPTY = {  # a project with a package and no chapters, and the home of a reader who has no data
    **dict.fromkeys(("mptlml_book/data/images.py", "mptlml_book/data/text.py"), ""),
    **dict.fromkeys(("notebooks/.keep", "home/.keep", "requirements.txt", "constraints.txt"), ""),
    **{"book/claims.yml": "[]", "book/data_sets.yml": "{}", "book/figures.yml": "[]"},
}


@pytest.fixture
def little_book(tmp_path, monkeypatch):
    for name in places.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write_files(tmp_path, EMPTY)
    return tmp_path


def write_chapter(root, *cells, name="01_good"):
    path = root / "notebooks" / f"{name}.md"
    code = "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)
    path.write_text(f"# {name}\n{code}")
    return path


VOCABULARY = "models--google-bert--bert/snapshots/0/vocab.txt"
SENTENCES = "nyu-mll___glue/cola/train.arrow"


@pytest.mark.parametrize(
    "module, file, variable, folder",
    [
        ("images", "MNIST/raw/train-images-idx3-ubyte", "MPTLML_DATA", ".cache/mptlml"),
        ("text", f"hub/{VOCABULARY}", "HF_HOME", ".cache/huggingface"),
        ("text", f"datasets/{SENTENCES}", "HF_HOME", ".cache/huggingface"),
        ("text", VOCABULARY, "HF_HUB_CACHE", ".cache/huggingface/hub"),
        ("text", SENTENCES, "HF_DATASETS_CACHE", ".cache/huggingface/datasets"),
    ],
)
def test_the_digest_sees_the_data_at_hand_wherever_they_lie(
    little_book, monkeypatch, module, file, variable, folder
):
    reads = write_chapter(little_book, f"from mptlml_book.data import {module}")
    without = book_digest.digest(reads, little_book)
    write_files(little_book / "home" / folder, {file: "1234"})
    found = book_digest.digest(reads, little_book)
    (little_book / "home").rename(little_book / "elsewhere")
    monkeypatch.setenv(variable, str(little_book / "elsewhere" / folder))
    assert book_digest.digest(reads, little_book) == found != without
    place = little_book / "elsewhere" / folder / file
    os.utime(place, (1e9, 1e9))
    assert book_digest.digest(reads, little_book) == found
    place.write_text("1235")
    assert book_digest.digest(reads, little_book) != found


@pytest.mark.parametrize("size", [5_000, 60_000, 900_000])
def test_a_sample_of_a_file_sees_its_ends_and_all_of_a_small_one(tmp_path, size):
    path, content = tmp_path / "data", bytearray(size)
    path.write_bytes(content)
    before = book_digest.sampled(path)
    for place in (0, size - 1, size // 2 if size < 2**16 else 1000):
        content[place] = 1
        path.write_bytes(content)
        assert book_digest.sampled(path) != before
        content[place] = 0


STORED = sorted(path.name for path in (ROOT / "book" / "data").glob("*.csv"))
# a page reads the first, the run on orders the other
UNREAD = "tools.csv", "order_tuning.csv"
# what pages say of the kinds of band
WHEN = {"before": "set before the run", "after": "set after the run", "exact": "exact"}


@pytest.mark.parametrize("name", STORED)
def test_a_chapter_runs_again_when_a_stored_file_that_it_reads_has_changed(
    built_site, name, monkeypatch
):
    """Its outputs name what its code reads, also where the code puts the name together, as in f"runs_{name}.csv"."""
    asked = {
        path: re.findall(r'report\.stored\(f?"([^"]+)"', path.read_text(encoding="utf-8"))
        for path in book_digest.chapters()
    }
    plain = {path for path, files in asked.items() if name in files}
    fits = {
        path
        for path, files in asked.items()
        if any(fnmatchcase(name, re.sub(r"\{\w+\}", "*", one)) for one in files)
    }
    digest = lambda path: "0" if path.name == name else file_digest(path)  # noqa: E731
    monkeypatch.setattr(book_outputs, "file_digest", digest)
    reads = {path for path in book_digest.chapters() if book_outputs.executed_chapter(path) is None}
    assert plain <= reads <= fits
    assert bool(reads) == (name not in UNREAD)


# The executor -----------------------------------------------------------------------------------------------


def program(root):
    """The executor, laid into a project of its own, and what such a reader's terminal knows."""
    copy = shutil.copytree(ROOT / "book" / "_ext", root / "book" / "_ext") / "book_execute.py"
    env = {name: value for name, value in os.environ.items() if name not in places.VARIABLES}
    return [sys.executable, str(copy)], env | {"HOME": str(root / "home"), "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    """(project, what the executor said): of four chapters two pass, one raises, and the kernel of one dies."""
    root = tmp_path_factory.mktemp("book")
    write_files(root, EMPTY | {f"book/data/runs_{name}.csv": "1\n" for name in "ab"})
    (root / "data").mkdir()
    where = "import os; print(os.environ['MPTLML_DATA'])"
    write_chapter(root, ":tags: [hide-input]\nprint(6 * 7)", where)
    write_chapter(root, "raise RuntimeError('on purpose')", "2", name="02_bad")
    write_chapter(root, "import os; os.kill(os.getpid(), 9)", name="03_dead")
    reads = 'print([report.stored(f"runs_{name}.csv").read_text() for name in "a"])'
    write_chapter(root, "from mptlml_book import report", reads, name="04_reads")
    command, env = program(root)
    return root, finished(*command, cwd=root, env=env | {"MPTLML_DATA": "data"})


def test_passed_chapters_are_kept_failed_ones_are_not(run_once, capfd):
    root, done = run_once
    good, bad = (root / "notebooks" / f"{stem}.md" for stem in ("01_good", "02_bad"))
    assert done.returncode == 1 and "on purpose" in done.stderr
    assert "03_dead: its kernel died" in done.stderr and "\x1b[" not in done.stderr
    assert done.stderr.splitlines()[-2:] == [
        f"failed: {stem}, kept in build/chapters/{stem}.ipynb" for stem in ("02_bad", "03_dead")
    ]
    copies = root / "build" / "chapters"
    assert {path.name for path in copies.glob("*.ipynb")} == {"02_bad.ipynb", "03_dead.ipynb"}
    [error, *_] = book_digest.code_cells(nbformat.read(copies / "02_bad.ipynb", as_version=4))
    assert error.outputs[0].evalue == "on purpose"
    # what the page shows needs no run
    good.write_text(good.read_text().replace("hide-input", "hide-cell"))
    kept = book_execute.executed_chapter(good, root)
    assert book_digest.code_cells(kept)[0].metadata["tags"] == ["hide-cell"]
    said = [cell.outputs[0].text for cell in book_digest.code_cells(kept)]
    assert said == ["42\n", f"{root / 'data'}\n"]
    assert book_execute.executed_chapter(bad, root) is None
    assert book_execute.execute(["01_good"], jobs=2, root=root) == 0
    assert "nothing to execute" in capfd.readouterr().out
    assert book_execute.execute(["04_other"], jobs=1, root=root) == 2


def test_outputs_are_those_of_the_stored_results_that_were_read(run_once):
    """Also where the name of a file is put together; going back to what it held, they are found again."""
    root, _ = run_once
    runs, other = (root / "book" / "data" / f"runs_{name}.csv" for name in "ab")
    for path, text, kept in (
        (other, "1\n", True),
        (other, "2\n", True),
        (runs, "2\n", False),
        (runs, "1\n", True),
    ):
        path.write_text(text)
        assert bool(book_execute.executed_chapter(root / "notebooks/04_reads.md", root)) == kept
    runs.unlink()
    assert book_execute.executed_chapter(root / "notebooks/04_reads.md", root) is None


def ran(*records):
    """A notebook of one code cell that ran, and emitted records."""
    made = nbformat.v4
    outputs = [
        made.new_output("display_data", {MIME: record, "text/plain": "a record"})
        for record in records
    ]
    code = made.new_code_cell("1", execution_count=1, outputs=outputs)
    return made.new_notebook(cells=[made.new_markdown_cell("# A chapter"), code])


@pytest.mark.parametrize(
    "after, note, kept",
    [("a-2", "", "a-2"), ("a-2", "digits stand in", "a-1"), ("b-1", "", None)],
    ids=["fetched", "default", "edited"],
)
def test_outputs_are_kept_for_the_sources_and_data_that_made_them(
    little_book, monkeypatch, after, note, kept
):
    write_chapter(little_book, "1")
    notebook = ran({"kind": "data", "source": "x", "note": note})
    copy = little_book / "01_good.ipynb"
    notebook.metadata["digest"] = "a-1"
    nbformat.write(notebook, copy)
    monkeypatch.setattr(book_digest, "digest", lambda path, root: after)
    assert book_nbmake.keep_outputs(copy, little_book) == bool(kept) != copy.exists()
    found = [file.stem for file in little_book.glob("_build/executed/01_good/*")]
    assert found == [kept] * bool(kept)


def site_stamp(root, branch="main"):
    """The file that `make pages` would make, whose name is that of the address, where the pages are not made."""
    address = {"MPTLML_REPOSITORY": "https://github.com/one/book", "MPTLML_BRANCH": branch}
    done = finished("make", "--dry-run", "pages", cwd=root, env=os.environ | address)
    found = re.search(r"touch (_build/\.site-\d+)$", done.stdout, re.MULTILINE)
    return found and found[1]


def test_the_pages_are_made_anew_when_anything_they_show_changes(tmp_path):
    sources = """_config.yml _toc.yml book/claims.yml notebooks/01_one.md mptlml/score.py
        mptlml_book/x.py _build/records.json""".split()
    write_files(tmp_path, dict.fromkeys(sources, "") | {"Makefile": text_of("Makefile")})
    (tmp_path / site_stamp(tmp_path)).touch()
    assert site_stamp(tmp_path) is None
    for name in sources:
        os.utime(tmp_path / name, (4e9, 4e9))  # seconds: a time to come
        assert site_stamp(tmp_path), name
        os.utime(tmp_path / name, (1e9, 1e9))
    assert site_stamp(tmp_path, "trunk")


def test_an_address_is_never_a_command(tmp_path):
    """Neither to make nor to the shell; and another address is another site."""
    sources = dict.fromkeys(("_config.yml", "_toc.yml", "_build/records.json"), "")
    folders = dict.fromkeys(("book/x", "notebooks/x", "mptlml/x", "mptlml_book/x"), "")
    write_files(tmp_path, sources | folders | {"Makefile": text_of("Makefile")})
    before = {*tmp_path.rglob("*")}
    branches = "main", "$(shell touch one)", "'; touch two; '", "`touch three`"
    stamps = {site_stamp(tmp_path, branch) for branch in branches}
    assert len(stamps - {None}) == 4 and {*tmp_path.rglob("*")} == before


def all_run(stale, jobs, root, lock):
    """Instead of the executor's own: every chapter has run, and none has failed."""
    for path, digest in stale.items():
        book_outputs.keep(ran(), book_outputs.place(path, digest, root))
    return []


def test_two_executions_at_once_run_a_chapter_once_and_who_waits_says_so(
    little_book, monkeypatch, capsys
):
    runs = []
    write_chapter(little_book, "1")

    def run(*given):
        runs.append(given)
        time.sleep(0.3)
        return all_run(*given)

    monkeypatch.setattr(book_execute, "run", run)
    with ThreadPoolExecutor(2) as pool:
        ends = pool.map(lambda _: book_execute.execute([], 1, little_book), range(2))
        assert [*ends] == [0, 0]
    assert len(runs) == 1
    assert "waiting for another run in this folder to end" in capsys.readouterr().out


def test_pages_of_chapters_that_have_run_ask_for_no_data(little_book, monkeypatch):
    """`make book` has asked before, and would wait for the same answer twice; a chapter that is to run asks."""
    asked = []
    monkeypatch.setattr(book_execute, "fetch", lambda wanted, root: asked.append(len(wanted)))
    monkeypatch.setattr(book_execute, "run", all_run)

    def pages():
        book_records._run_and_read(SimpleNamespace(srcdir=little_book), SimpleNamespace())

    write_chapter(little_book, "1")
    assert book_execute.execute([], 1, little_book) == 0 and asked == [1]
    pages()
    assert asked == [1]
    write_chapter(little_book, "2", name="02_new")
    pages()
    assert asked == [1, 2] and book_execute.execute([], 1, little_book) == 0 and asked == [1, 2, 2]


def is_at_work(process):
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def name_of(process):
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


PATIENCE = 900  # seconds for what takes ten when the machine is quiet
PLAYED = """
import sys, psutil
sys.path.insert(0, {folder!r})
import book_execute
start = psutil.Popen
psutil.Popen = lambda command, **more: start(["sh", "-c", "sh -c 'sleep 999; true' & wait"], **more)
sys.exit(book_execute.main())
"""


def wait_for_sleep(running, below, also=lambda: True):
    """Until a process below a running one sleeps, and something else holds too; `below` is filled with them all."""
    last = time.monotonic() + PATIENCE
    while not (also() and any(name_of(one) == "sleep" for one in below)):
        assert time.monotonic() < last and running.poll() is None
        time.sleep(0.2)
        below[:] = running.children(recursive=True)


def test_a_killed_run_is_waited_for_until_its_chapters_have_ended(little_book):
    write_chapter(little_book, "import subprocess; subprocess.run(['sleep', '999'])")
    command, env = program(little_book)
    running, below = psutil.Popen(command, env=env), []
    try:
        wait_for_sleep(running, below)
        running.kill()
        running.wait()
        with (little_book / "_build" / ".execute.lock").open() as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        for process in filter(is_at_work, [running, *below]):
            process.kill()


@pytest.mark.parametrize("way", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_stopped_chapters_leave_what_had_passed_and_no_kernel(little_book, capfd, way):
    """By Ctrl-C, by a kill, by a closed terminal; the last line says what became of them.

    By Ctrl-C while pytest runs a kernel; by the others while a shell in its place runs a process below another.
    """
    quick = write_chapter(little_book, "1")
    slow = write_chapter(
        little_book, "import subprocess; subprocess.run(['sleep', '999'])", name="02_slow"
    )
    command, env = program(little_book)
    played = way != "SIGINT"
    if played:
        command[1:] = ["-c", PLAYED.format(folder=str(little_book / "book" / "_ext"))]
    running = psutil.Popen(
        [*command, "--jobs=1"],
        start_new_session=True,
        env=env,
        preexec_fn=partial(signal.signal, signal.Signals[way], signal.SIG_DFL),
    )
    below = []
    try:
        wait_for_sleep(
            running, below, lambda: played or book_execute.executed_chapter(quick, little_book)
        )
        os.killpg(running.pid, getattr(signal, way))
        assert running.wait(PATIENCE) == 130
    finally:  # whatever became of it, nothing is left to the next test
        left = [process for process in [running, *below] if is_at_work(process)]
        for process in left:
            process.kill()
    said = capfd.readouterr().err
    assert len(below) >= 3 and not left
    assert said.endswith("stopped; chapters that had passed are kept\n") and "Traceback" not in said
    assert bool(book_execute.executed_chapter(quick, little_book)) != played
    assert not book_execute.executed_chapter(slow, little_book)


@pytest.fixture
def installable(tmp_path):
    """What `make env` reads, in a folder of its own."""
    names = ["Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"]
    names += [path.relative_to(ROOT) for path in (ROOT / "book" / "_ext").glob("*.py")]
    folders = dict.fromkeys(("notebooks/x", "mptlml/x", "mptlml_book/x"), "")
    write_files(tmp_path, {name: text_of(name) for name in names} | folders)
    return tmp_path


@pytest.mark.parametrize(
    "words, ready, message",
    [
        ("env PYTHON=none", "", "none not found: install Python 3.11, 3.12 or 3.13"),
        ("env PYTHON=./old", "", "./old is Python 3.9: 3.11, 3.12 or 3.13 is needed"),
        ("env PYTHON=./new", "", ".venv is not of Python 3.13, but of 3.11: say rm -r .venv first"),
        ("publish", "", "MPTLML_REPOSITORY: is to be https://github.com/OWNER/NAME"),
        ("env", "/moved", ".venv was made in another folder, /moved: say rm -r .venv first"),
        ("env", "gone", "the Python that .venv was made with is gone: say rm -r .venv first"),
    ],
)
def test_make_says_at_once_what_it_cannot_do(installable, monkeypatch, words, ready, message):
    monkeypatch.delenv("MPTLML_REPOSITORY", raising=False)
    folder = ready if ready == "/moved" else installable.resolve()
    write_files(installable, {".venv/.ready": f"{folder}\n", ".venv/bin/.keep": ""})
    pythons = {"old": "3.9", "new": "3.13", ".venv/bin/python": "3.11"}
    if ready == "gone":
        del pythons[".venv/bin/python"]
    for name, version in pythons.items():
        (installable / name).write_text(f"#!/bin/sh\necho {version}\n")
        (installable / name).chmod(0o755)
    done = finished("make", *words.split(), cwd=installable)
    assert done.returncode and message in done.stdout + done.stderr


FAKE_PYTHON = """#!/bin/sh
case "$*" in
*book_lock.py*) exec {real} "$@";;
*version_info*) echo 3.11;;
*"-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;;
*"uv pip install"*) echo begun >> calls; sleep 2; echo done >> calls;;
esac
"""


def test_two_installations_at_once_are_one_and_a_changed_constraint_is_installed(installable):
    python = installable / "python"
    python.write_text(FAKE_PYTHON.format(real=sys.executable))
    python.chmod(0o755)

    def install(*_):
        return finished("make", "env", f"PYTHON={python}", cwd=installable)

    with ThreadPoolExecutor(2) as pool:
        done = [*pool.map(install, range(2))]
    assert [one.returncode for one in done] == [0, 0], done
    assert sum("waiting for another run in this folder to end" in one.stdout for one in done) == 1
    calls = installable / "calls"
    assert calls.read_text().split() == ["begun", "done"]
    assert (installable / ".venv/etc/jupyter/jupyter_server_config.py").resolve().is_file()
    assert install().returncode == 0 and calls.read_text().count("done") == 1
    later = time.time() + 2  # a file system may count in seconds
    os.utime(installable / "constraints.txt", (later, later))
    assert install().returncode == 0 and calls.read_text().count("done") == 2


# What the chapters said -------------------------------------------------------------------------------------

CLAIM = yaml.safe_load("""
{id: a, chapter: 01_one, kind: exact, place: Table 1, statement: "1 < 2, {value}.", paper: null, unit: nats,
 band: [1, 2], why: a law, verdict: new, format: .2f, how: "largest error over {cases} rows"}""")
COST = yaml.safe_load("""
{kind: cost, chapter: 01_one, seconds: 12.34, megabytes: 9, versions: {python: "3.11"},
 machine: {system: Linux, cores: 2}}""")


@pytest.fixture
def said(little_book):
    """What the pages are told of a book with a chapter that ran, one that did not, and a claim not run."""
    (little_book / "book" / "claims.yml").write_text(
        yaml.safe_dump([CLAIM, CLAIM | {"id": "b", "paper": "3", "run": "stored"}])
    )
    (little_book / "book" / "data_sets.yml").write_text('01_one: {"0a": nine <images>}')
    notebook = ran(
        dict(kind="claim", id="a", value=1.5, stderr=0.1, spread=None, seeds=None, cases=4000),
        {"kind": "claim", "id": "b", "reason": "no data here"},
        {"kind": "claim", "id": "b", "reason": "again"},
        {"kind": "data", "source": "digits", "size": "9 images", "digest": "0a", "note": "a < b"},
        {"kind": "columns", "key": "fig1-left", "columns": [["y", [1, 2]], ["x", [1e5, None]]]},
        COST,
    )
    path, _ = (write_chapter(little_book, "1", name=name) for name in ("01_one", "02_two"))
    book_outputs.keep(
        notebook, book_outputs.place(path, book_digest.digest(path, little_book), little_book)
    )
    book_outputs.gather(little_book)
    return book_records.read_records(little_book)


def test_what_chapters_said_is_gathered_and_drawn(said):
    first, second = said["claims"]
    assert first["how"] == "largest error over 4,000 rows"
    assert first["url"] == "notebooks/01_one.html#claim-a"
    assert (first["value"], first["text"], first["seconds"]) == (1.5, "1.50 ± 0.10", 12.34)
    assert second["value"] is None and second["verdict"] == "not run here"
    assert second["how"] == "no data here"
    assert second["statement"] == "Expected, but not run here: 1 < 2, 1 to 2 nats."
    claim = {"kind": "claim", "id": "a"}
    told = book_records.drawn(claim, said)
    assert "1 &lt; 2, 1.50\u00a0±\u00a00.10 nats." in told and '<span class="verdict' in told
    in_a_sentence = book_records.drawn(claim, said, "A sentence says {claim}`a`.")
    assert in_a_sentence == '<span id="measured-a"></span>'
    closing = book_records.drawn(COST, said)
    assert "1 of 2 claims" in closing and "under Linux with python 3.11." in closing
    assert "digits: 9 images (nine &lt;images&gt;; digest <code>0a</code>)" in closing
    assert "a &lt; b" in book_records.drawn({"kind": "data", "note": "a < b"}, said)
    assert said["problems"] == [
        "02_two has not run for its sources as they are, or not to report.closing()",
        "claim b was made 2 times",
    ]
    assert said["said"] == "1 checked, 1 needs data that this copy lacks"


def test_the_site_is_given_the_claims_and_the_numbers_of_figures(said, tmp_path):
    book_records.write_files(said, tmp_path)
    found = json.loads((tmp_path / "claims.json").read_text())
    jsonschema.validate(found, json.loads((tmp_path / found["$schema"]).read_text()))
    fields = SCHEMA["properties"]["claims"]["items"]["properties"]
    for name, words in (("verdict", VERDICTS), ("kind", KINDS), ("run", RUNS)):
        assert fields[name]["enum"] == list(words)
    assert found["summary"] == dict(
        claims=2,
        in_band=1,
        kinds={"exact": 2},
        runs={"here": 1, "stored": 1},
        verdicts={"new": 1, "not run here": 1},
    )
    assert (tmp_path / "data" / "fig1-left.csv").read_text() == "y,x\n1,100000\n2,\n"


# What was built ---------------------------------------------------------------------------------------------


def test_a_name_is_glued_once_in_the_book(built_site):
    chapters = book_records.read_records(ROOT)["chapters"].values()
    names = [name for chapter in chapters for name in chapter["glued"]]
    assert len(names) > 100 and len(names) == len(set(names))


LEFT_RAW = re.compile(
    r"\{[a-z]+(?::[a-z]+)?\}`|\$[^$\n]{1,80}\$|\\\(|\\(?:frac|mathbf|sum|log)\b|\]\(#|:::"
)
REMOTE = re.compile(
    r"""\b(?:src|srcset|poster)=["'](?:https?:)?//|(?:url\(|@import )\s*["']?(?:https?:)?//"""
)


def test_no_page_and_no_style_loads_from_elsewhere(built_site):
    """Also what no visit in a browser asks for: styles for print, pictures that wait to be scrolled to."""
    files = [path for path in built_site.rglob("*.*") if path.suffix in {".html", ".css"}]
    assert [path for path in files if REMOTE.search(path.read_text(encoding="utf-8"))] == []


def test_no_markup_is_left_raw_on_a_page(built_site, page):
    for folder in ("book", "notebooks"):
        for path in (built_site / folder).glob("*.html"):
            article = copy.copy(page(f"{folder}/{path.stem}").article)
            for part in article.select("pre, code, .math, script, style, svg"):
                part.clear()
            assert LEFT_RAW.findall(article.get_text()) == [], path.name


def test_each_claim_is_on_its_chapter_and_on_the_scorecard(page):
    found = json.loads((SITE / "claims.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, SCHEMA)
    assert [claim["id"] for claim in found["claims"]] == list(CLAIMS)
    rows = {row["id"]: row for row in page("book/scorecard").select("tr[id]")}
    for claim in found["claims"]:
        name, anchor = claim["url"].split(".html#")
        value, row = page(name).find(id=anchor), rows[anchor]
        story = page(name).find(id=value.get("popovertarget", anchor))
        assert value.name == "details" or claim["text"] in plain(value), claim["id"]
        link = row.td.find("a", recursive=False)  # the number in the sentence
        assert link["href"] == f"../{claim['url']}" and link.get_text(), claim["id"]
        verdict, place = claim["verdict"].replace(" ", "-"), claim["place"].replace("'", "’")
        for part in (story, row):
            kinds, runs = (
                [link.get_text() for link in part.select(f'a.kind[href$="#{name}"]')]
                for name in ("kinds", "runs")
            )
            assert part.select_one(f".verdict.verdict-{verdict}"), claim["id"]
            assert {*kinds} == {WHEN[claim["kind"]]}, claim["id"]
            assert runs == [RUNS[claim["run"]]] * (claim["run"] != "here"), claim["id"]
            assert place in plain(part), claim["id"]
        assert claim["how"].replace("'", "’") in plain(story), claim["id"]
        assert story.select(f'a[href$="scorecard.html#{anchor}"]')
        assert page(name).find(id=claim["cell"])


def test_the_scorecard_counts_the_claims_and_tells_their_kinds(page):
    verdicts = json.loads((SITE / "claims.json").read_text(encoding="utf-8"))["summary"]["verdicts"]
    not_run, other = (verdicts.get(name, 0) for name in ("not run here", "other data"))
    scorecard = page("book/scorecard")
    said = f"Claims: {len(CLAIMS) - not_run - other} checked" + f", {not_run} need" * bool(not_run)
    assert said in page("book/intro").get_text() and said in scorecard.get_text()
    legend = scorecard.find(id="kinds").find_next("ul").select("strong")
    assert [word.get_text() for word in legend] == list(KINDS)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure["id"])
def test_a_passport_has_its_twin_numbers_data_and_cost(figure, page):
    passport = page("book/passport")
    sections = {each["id"]: passport.find(id=f"passport-{each['id']}") for each in FIGURES}
    section = sections[figure["id"]].find_parent("section")
    name, anchor = f"notebooks/{figure['chapter']}", figure["anchor"]
    assert section.select(f'a[href="../{name}.html#{anchor}"]')
    first = next(other["id"] for other in FIGURES if other["anchor"] == anchor)  # shown once
    shown = sections[first].find_parent("section").select_one("div.twin")
    ours, theirs = (
        re.sub(' id="[^"]*"', "", str(place.select("svg, table")[-1]))
        for place in (shown, page(name).find(id=anchor))
    )
    assert ours == theirs
    assert len(section.select("table.numbers tbody tr")) >= len(figure["claims"])
    assert passport.get_text().count("make execute") == 1
    command = passport.select_one(f'tr:has(a[href="#passport-{figure["id"]}"]) code')
    assert figure["chapter"] in command.get_text()
    data = section.select_one(f'a[href="../data/{figure["id"]}.csv"]')
    table = pd.read_csv(SITE / "book" / data["href"], header=None)
    assert len(table) >= 5 and table.loc[0].is_unique and table.shape[1] > 1


def plain(part):
    return part.get_text().replace("\u00a0", " ")
