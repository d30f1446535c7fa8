"""The book as others meet it: its buttons, its notebooks far from home, its workflows, its archive and its print."""

import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote

import jupytext
import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from pypdf import PdfReader

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_archive  # noqa: E402
import book_browser  # noqa: E402
import book_build  # noqa: E402
import book_execute  # noqa: E402
import book_launch  # noqa: E402
import book_newest  # noqa: E402
import book_print  # noqa: E402
import book_publish  # noqa: E402

REPOSITORY = "https://github.com/some-one/some.book"
ADDRESS = book_launch.Address(REPOSITORY, "trunk")


# Where the book is kept --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("environment", "expected"), [
    ({}, None),
    ({"MPTLML_REPOSITORY": " ", "MPTLML_BRANCH": "trunk"}, None),
    ({"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": "trunk"}, ADDRESS),
    ({"MPTLML_REPOSITORY": REPOSITORY + ".git", "MPTLML_BRANCH": ""}, book_launch.Address(REPOSITORY, "main")),
    ({"MPTLML_REPOSITORY": REPOSITORY + "/"}, book_launch.Address(REPOSITORY, "main")),
])
def test_the_address_comes_from_the_environment(environment, expected):
    assert book_launch.address(environment) == expected


@pytest.mark.parametrize("environment", [
    {"MPTLML_REPOSITORY": "some-one/some.book"},
    {"MPTLML_REPOSITORY": "https://github.com/some-one"},
    {"MPTLML_REPOSITORY": 'https://github.com/some-one/book"; import os'},
    {"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": "--upload-pack=x"},
    {"MPTLML_REPOSITORY": REPOSITORY, "MPTLML_BRANCH": 'a" b'},
])
def test_what_is_no_address_is_refused(environment):
    with pytest.raises(ValueError, match="MPTLML_"):
        book_launch.address(environment)


def test_no_source_says_where_the_book_is_kept():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    text = [ROOT / name for name in listed.stdout.split("\0") if name.endswith((".md", ".yml", ".toml", ".cff", ".py"))]
    assert [path.name for path in text if path != Path(__file__) and path.is_file()
            and re.search(r"github\.com/[\w-]+/[\w.-]*mptlml|\.github\.io", path.read_text(encoding="utf-8"))] == []


def test_the_pages_are_made_anew_for_another_address(monkeypatch):
    monkeypatch.delenv("MPTLML_REPOSITORY", raising=False)
    without = book_build.fingerprint()
    monkeypatch.setenv("MPTLML_REPOSITORY", REPOSITORY)
    assert book_build.fingerprint() != without


# Notebooks that run far from the book ------------------------------------------------------------------------------

def test_every_published_notebook_is_the_chapter_behind_one_and_the_same_cell(tmp_path):
    written = book_launch.write_notebooks(ROOT, tmp_path, ADDRESS)
    assert [path.stem for path in written] == [path.stem for path in book_execute.chapters()]
    for path in written:
        published = nbformat.read(path, as_version=4)
        code = [place for place, cell in enumerate(published.cells) if cell.cell_type == "code"]
        added = published.cells.pop(code[0])
        assert added.source == book_launch.first_cell(ADDRESS)
        assert published.cells == nbformat.read(ROOT / "notebooks" / path.name, as_version=4).cells


def run_cell(place, monkeypatch, missing=True, pip=0):
    """Run the cell as a kernel without the package would, with pip stood in for; the commands that it ran."""
    commands, real = [], subprocess.run

    def run(command, **options):
        commands.append(command)
        if command[0] == "git":
            return real(command, **options)
        return subprocess.CompletedProcess(command, pip).check_returncode()

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "path", list(sys.path))
    if missing:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(book_launch.first_cell(place), {})
    return commands


@pytest.fixture
def far_away(tmp_path, monkeypatch):
    """A folder with nothing in it, and a repository to fetch from."""
    kept, here = tmp_path / "kept", tmp_path / "here"
    (kept / "mptlml").mkdir(parents=True)
    here.mkdir()
    (kept / "mptlml" / "__init__.py").write_text("")
    git = ["git", "-C", str(kept), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "All of it"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.chdir(here)
    return book_launch.Address(kept.as_uri(), "trunk")


def test_the_first_cell_does_nothing_where_the_package_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    for place in (None, ADDRESS):
        assert run_cell(place, monkeypatch, missing=False) == []
    assert list(tmp_path.iterdir()) == [] and sys.path == before


def test_the_first_cell_fetches_the_book_and_installs_it(far_away, monkeypatch):
    commands = run_cell(far_away, monkeypatch)
    assert [command[0] for command in commands] == ["git", sys.executable]
    assert Path("mptlml-book/mptlml/__init__.py").is_file()
    assert sys.path[0] == str(Path("mptlml-book").resolve())
    assert commands[1][-2:] == ["--editable", sys.path[0]]
    assert [command[0] for command in run_cell(far_away, monkeypatch)] == [sys.executable]  # fetched once


def test_the_first_cell_says_what_went_wrong(far_away, monkeypatch):
    with pytest.raises(ModuleNotFoundError, match="does not say where its book is kept"):
        run_cell(None, monkeypatch)
    with pytest.raises(RuntimeError, match="could not be installed from .*kept: is there a connection"):
        run_cell(far_away, monkeypatch, pip=1)
    nowhere = far_away._replace(repository=far_away.repository + "-not")
    shutil.rmtree("mptlml-book")
    with pytest.raises(RuntimeError, match="could not be installed from .*kept-not"):
        run_cell(nowhere, monkeypatch)
    assert list(Path().iterdir()) == []


# The buttons of a page ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def little_site(tmp_path_factory):
    """A function that builds a book of three pages with our configuration, with an address or without."""
    root = tmp_path_factory.mktemp("book")
    for name in ("_static", "_ext"):
        shutil.copytree(ROOT / "book" / name, root / "book" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "book" / "references.bib", root / "book")
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    needed = {"book_digest", "book_checks", "book_mathjax", "book_launch"}
    for name in set(config["sphinx"]["local_extensions"]) - needed:
        del config["sphinx"]["local_extensions"][name]  # these show claims and figures, of which there are none here
        config["sphinx"]["config"]["extensions"].remove(name)
    (root / "_config.yml").write_text(yaml.safe_dump(config))
    (root / "book" / "intro.md").write_text("# A book\n\nWords.\n")
    (root / "book" / "other.md").write_text("# Another page\n\nMore words.\n")
    (root / "notebooks").mkdir()
    front = (ROOT / "notebooks" / "01_masked_pretraining.md").read_text().split("myst:")[0] + "---\n"
    chapter = root / "notebooks" / "01_one.md"
    chapter.write_text(f"{front}\n# A chapter\n\n```{{code-cell}} ipython3\n6 * 7\n```\n")
    jupytext.write(jupytext.read(chapter), chapter.with_suffix(".ipynb"))
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/intro\nchapters:\n"
                                   "  - file: notebooks/01_one\n  - file: book/other\n")

    def build(**environment):
        env = {name: value for name, value in book_execute.quiet_environment(root).items()
               if name not in ("MPTLML_REPOSITORY", "MPTLML_BRANCH")} | environment
        shutil.rmtree(root / "_build" / "html", ignore_errors=True)
        command = [Path(sys.executable).with_name("jupyter-book"), "build", "--all", "-W", "--keep-going", root]
        done = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return root

    return build


def buttons(path):
    """Where the buttons over a page lead, {text: address}; those that run a script are left out."""
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
    found = {}
    for link in soup.select(".article-header-buttons a[href]"):
        found[link.get_text().strip()] = link["href"]
    return found


def install_cell(site):
    """The first code of the chapter's published notebook."""
    notebook = nbformat.read(site / "_sources" / "notebooks" / "01_one.ipynb", as_version=4)
    return next(cell.source for cell in notebook.cells if cell.cell_type == "code")


PAGES = ("book/intro", "book/other", "notebooks/01_one")


def test_without_an_address_pages_offer_downloads_alone(little_site):
    root = little_site()
    site = root / "_build" / "html"
    for page in PAGES:
        found = buttons(site / f"{page}.html")
        assert set(found) == ({".md", ".ipynb"} if page.startswith("notebooks") else {".md"})
        assert all((site / page).parent.joinpath(target).resolve().is_file() for target in found.values())
    assert 'REPOSITORY, BRANCH = "", ""' in install_cell(site)


def test_with_an_address_every_button_leads_to_a_file_that_is_there(little_site):
    root = little_site(MPTLML_REPOSITORY=REPOSITORY, MPTLML_BRANCH="trunk")
    site = root / "_build" / "html"
    places = {  # where each button leads, and the folder that this place is made from
        "Binder": (r"https://mybinder\.org/v2/gh/some-one/some\.book/trunk\?urlpath=lab/tree/(.*)", root),
        "Colab": (r"https://colab\.research\.google\.com/github/some-one/some\.book/blob/gh-pages/(.*)", site),
        "Suggest edit": (re.escape(REPOSITORY) + "/edit/trunk/(.*)", root),
    }
    for page in PAGES:
        found = buttons(site / f"{page}.html")
        chapter = page.startswith("notebooks")
        assert set(found) == {"Repository", "Open issue", "Suggest edit", ".md"} | (
            {"Binder", "Colab", ".ipynb"} if chapter else set())
        assert found["Repository"] == REPOSITORY
        assert found["Open issue"].startswith(REPOSITORY + "/issues/new?title=")
        assert page in unquote(found["Open issue"])
        for name, (pattern, folder) in places.items():
            if name in found:
                led = re.fullmatch(pattern, found[name])
                assert led and (folder / led[1]).is_file(), found[name]
        assert all((site / page).parent.joinpath(found[name]).resolve().is_file() for name in found if name[0] == ".")
    assert f'REPOSITORY, BRANCH = "{REPOSITORY}", "trunk"' in install_cell(site)


# What the workflows run --------------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))


def jobs(path):
    """(the workflow, its jobs' names, one job) for every job of a workflow."""
    workflow = yaml.safe_load(path.read_text())
    return [(workflow, name, job) for name, job in workflow["jobs"].items()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_step_of_a_workflow_is_a_target_that_one_can_make_at_home(path):
    commands = [step["run"] for _, _, job in jobs(path) for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        program, *words = re.sub(r"\$\{\{.*?\}\}", "x", command).split()
        assert program == "make"
        assert {word for word in words if "=" not in word} <= TARGETS, command
        assert all(re.search(rf"^{word.split('=')[0]} \?=", MAKEFILE, re.MULTILINE) for word in words if "=" in word)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_do_no_more_than_they_need_and_end_by_themselves(path):
    for workflow, name, job in jobs(path):
        assert workflow["permissions"] == {"contents": "read"} and "group" in workflow["concurrency"]
        pushes = any("publish" in step.get("run", "") for step in job["steps"])
        assert job.get("permissions", {}) == ({"contents": "write"} if pushes else {}), name
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
            if "checkout" in step.get("uses", "") and not pushes:
                assert step["with"]["persist-credentials"] is False


def test_the_makefile_says_what_its_targets_do_and_declares_them():
    declared = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    assert declared == TARGETS
    assert TARGETS - {"help"} == set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE)) - {"help"}


def test_the_checking_machine_runs_what_the_readme_says():
    readme, script = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    commands = re.findall(r"^    (make \w+)", readme, re.MULTILINE)[:2]  # the others are for readers
    assert commands == ["make book", "make test"]
    assert re.findall(r"^make \w+", script, re.MULTILINE) == commands


# The next pins -----------------------------------------------------------------------------------------------------

def test_the_pins_are_loosened_and_made_anew():
    requirements = (ROOT / "requirements.txt").read_text()
    loose = book_newest.loosened(requirements)
    assert "==" not in loose and "jupyter-book<2\n" in loose and "\n-e .\n" in loose
    names = re.findall(r"^([A-Za-z][\w.-]*)==", requirements, re.MULTILINE)
    versions = {name.upper().replace("-", "_"): f"9.{place}" for place, name in enumerate(names)}
    versions |= {"TORCH": "9.9.1+cpu", "Other_One": "1.0", "pip": "99", "mptlml": "0.1.0"}
    pins, rest = book_newest.pinned(loose, versions)
    assert re.findall(r"^([A-Za-z][\w.-]*)==", pins, re.MULTILINE) == names
    assert "\ntorch==9.9.1\n" in pins and rest == "Other_One==1.0\n"
    assert len(pins.splitlines()) == len(requirements.splitlines())
    assert book_newest.pinned(pins, versions) == (pins, rest)


def test_the_binder_follows_the_pins(tmp_path, monkeypatch):
    (tmp_path / ".binder").mkdir()
    for name in ("requirements.txt", "constraints.txt", ".binder/requirements.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for what in ("loosen", "pin"):
        monkeypatch.setattr(sys, "argv", ["book_newest.py", what])
        assert book_newest.main() == 0
    for name in ("requirements.txt", ".binder/requirements.txt"):  # here the newest versions are those installed
        assert Path(name).read_text() == (ROOT / name).read_text()
    assert Path("constraints.txt").read_text().splitlines()[0] == (ROOT / "constraints.txt").read_text().splitlines()[0]


# The site on its branch --------------------------------------------------------------------------------------------

def test_publishing_pushes_the_site_and_nothing_else(tmp_path, monkeypatch):
    kept, work = tmp_path / "kept.git", tmp_path / "work"
    site = work / "_build" / "html"
    (site / "_static").mkdir(parents=True)
    (work / ".gitignore").write_text("_build/\n")
    (site / "index.html").write_text("one")
    (site / "_static" / "a.css").write_text("two")

    def git(*command, folder=work):
        return subprocess.run(["git", "-C", str(folder), *command], check=True, text=True, capture_output=True).stdout

    for name, value in {"NAME": "A. Name", "EMAIL": "a@b.c"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    subprocess.run(["git", "init", "-q", "--bare", str(kept)], check=True)
    for command in (["init", "-q", "-b", "main"], ["remote", "add", "origin", str(kept)], ["add", "."],
                    ["commit", "-q", "-m", "Sources"]):
        git(*command)
    before = git("status", "--porcelain"), git("ls-files")
    first = book_publish.publish(site, work)
    assert git("ls-tree", "-r", "--name-only", "gh-pages", folder=kept).split() == [
        ".nojekyll", "_static/a.css", "index.html"]
    assert book_publish.publish(site, work) == first  # the same site, the same commit
    (site / "_static" / "a.css").unlink()
    assert book_publish.publish(site, work) != first
    assert git("ls-tree", "-r", "--name-only", "gh-pages", folder=kept).split() == [".nojekyll", "index.html"]
    assert git("rev-list", "--count", "gh-pages", folder=kept) == "1\n"
    assert (git("status", "--porcelain"), git("ls-files")) == before
    with pytest.raises(subprocess.CalledProcessError):
        book_publish.publish(site, work, remote=str(tmp_path / "not-there"))


def test_nothing_is_published_without_an_address(monkeypatch, capsys):
    monkeypatch.delenv("MPTLML_REPOSITORY", raising=False)
    monkeypatch.setattr(book_publish, "publish", None)
    assert book_publish.main() == 1
    assert "MPTLML_REPOSITORY" in capsys.readouterr().err


# One file for those without a connection ---------------------------------------------------------------------------

@pytest.fixture
def bare_site(tmp_path):
    """A folder that looks like a built site."""
    site = tmp_path / "html"
    for name, text in {"index.html": "a book", "_sources/notebooks/01_one.ipynb": "{}", "data/fig1.csv": "a\n1\n",
                       "claims.json": "[]", ".buildinfo": "today", "notebooks/01_one.html": "a chapter"}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    return site


def test_the_archive_holds_site_notebooks_data_and_licences(bare_site, tmp_path):
    target = tmp_path / "book.zip"
    assert book_archive.write_archive(bare_site, target) == 12
    with zipfile.ZipFile(target) as archive:
        names = [name.removeprefix("mptlml-book/") for name in archive.namelist()]
        assert names == sorted(names) and archive.testzip() is None
        assert set(names) == {
            "README.txt", "LICENSE", "LICENSE-text", "CITATION.cff", "notebooks/01_one.ipynb", "data/fig1.csv",
            "data/claims.json", "site/index.html", "site/_sources/notebooks/01_one.ipynb", "site/data/fig1.csv",
            "site/claims.json", "site/notebooks/01_one.html"}
        for name in re.findall(r"^(\S+[/\w])  ", book_archive.README, re.MULTILINE):
            assert any(found.startswith(name) for found in names), name


def test_the_same_site_gives_the_same_archive(bare_site, tmp_path):
    archives = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for target in archives:
        book_archive.write_archive(bare_site, target)
        for path in bare_site.rglob("*"):
            os.utime(path, (1e9, 1e9))
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_an_archive_is_written_whole_or_not_at_all(bare_site, tmp_path):
    target = tmp_path / "book.zip"
    target.write_text("the last one")
    with pytest.raises(FileNotFoundError):
        book_archive.write_archive(bare_site, target, root=tmp_path)  # there are no licences
    assert target.read_text() == "the last one" and not target.with_suffix(".part").exists()
    with pytest.raises(ValueError, match="make book"):
        book_archive.write_archive(tmp_path, target)


@pytest.fixture
def python_random():
    """Playwright, as it starts, draws from Python's global generator, which no test may leave moved."""
    state = random.getstate()
    yield
    random.setstate(state)


def test_the_archive_opens_from_its_folder_with_search_and_equations(chromium, built_site, python_random, tmp_path):
    book_archive.write_archive(built_site, tmp_path / "book.zip")
    with zipfile.ZipFile(tmp_path / "book.zip") as archive:
        archive.extractall(tmp_path)
    site = tmp_path / "mptlml-book" / "site"
    with book_browser.chromium(chromium) as browser:
        reader = browser.new_context(offline=True)
        page = reader.new_page()
        page.goto((site / "index.html").as_uri())
        page.wait_for_selector("article h1")
        page.goto((site / "notebooks" / "02_proposition.html").as_uri())
        page.wait_for_function("document.querySelectorAll('mjx-container').length > 20", timeout=30_000)
        assert page.locator("mjx-merror").count() == 0
        page.goto((site / "search.html").as_uri() + "?q=marginal+likelihood")
        page.locator("#search-results li a").nth(11).wait_for(timeout=30_000)  # they come one by one
        found = [link.get_attribute("href") for link in page.locator("#search-results li a").all()]
        page.goto((site / found[0].partition("?")[0].partition("#")[0]).as_uri())
        assert "marginal likelihood" in page.locator("article").inner_text().lower()


# The book in print -------------------------------------------------------------------------------------------------

PAPER = """<!doctype html><html><head><link rel="stylesheet" href="{style}"></head><body>
<div class="bd-header">HEADER</div><article class="bd-article"><section id="top">
<h1>{title}<a class="headerlink">#</a></h1>
<p>Words of {title}. <a href="#later">below</a> <a href="{other}">there</a> <a href="https://example.org/">out</a>
<a href="data.csv">numbers</a></p>
<details class="hide above-input"><summary>Show the code</summary>
<div class="cell_input"><pre>code = 1</pre></div></details>
<details class="sd-dropdown"><summary>Solution</summary><p>SOLVED</p></details>
<div style="height: 30cm"></div><section id="later"><h2>Second heading</h2><aside class="margin">NOTE</aside>
<p>The end.</p></section></section></article></body></html>"""


@pytest.fixture(scope="module")
def printed(chromium, tmp_path_factory):
    """A book of two pages, printed with all of its code and with none: {code: the print}."""
    root = tmp_path_factory.mktemp("print")
    site = root / "html"
    (root / "_toc.yml").write_text("format: jb-book\nroot: one\nparts:\n- caption: A part\n  chapters:\n"
                                   "  - file: sub/two\n")
    shutil.copy(ROOT / "_config.yml", root)
    style = (ROOT / "book" / "_static" / "print.css").as_uri()
    for name, title, other in (("one", "First", "sub/two.html"), ("sub/two", "Second", "../one.html#later")):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / f"{name}.html").write_text(PAPER.format(title=title, other=other, style=style))
    found = {}
    for code in book_print.CODE:
        target = root / f"{code}.pdf"
        target.write_text("the last one")
        book_print.write_print(chromium, site, target, code, root)
        found[code] = PdfReader(target)
    assert not list(root.glob("*.part"))
    return found


def words(reader):
    return " ".join(" ".join(page.extract_text() for page in reader.pages).split())


def test_the_print_has_solutions_and_margin_notes_but_no_buttons(printed):
    for code, reader in printed.items():
        text = words(reader)
        assert text.count("SOLVED") == text.count("NOTE") == 2 and "HEADER" not in text and "Show the code" not in text
        assert text.count("code = 1") == (2 if code == "all" else 0)


def test_the_print_counts_its_pages_and_lists_them(printed):
    reader = printed["all"]
    assert len(reader.pages) == 6  # title, contents, and two pages each
    assert [page.extract_text().split()[-1] for page in reader.pages[2:]] == ["3", "4", "5", "6"]
    contents = " ".join(reader.pages[1].extract_text().split())
    assert re.search(r"First 3 A part Second 5", contents)
    assert all(abs(page.mediabox.width - 595) < 1 and abs(page.mediabox.height - 842) < 1 for page in reader.pages)
    assert reader.metadata.title == yaml.safe_load((ROOT / "_config.yml").read_text())["title"]


def test_the_print_has_bookmarks(printed):
    def flat(items, depth=0):
        for item in items:
            if isinstance(item, list):
                yield from flat(item, depth + 1)
            else:
                yield depth, item.title, printed["all"].get_destination_page_number(item) + 1

    assert list(flat(printed["all"].outline)) == [
        (0, "First", 3), (1, "Second heading", 4), (0, "A part", 5), (1, "Second", 5), (2, "Second heading", 6)]


def test_links_of_the_print_lead_into_the_print_or_out_of_it_but_not_to_this_machine(printed):
    reader = printed["all"]
    numbers = {page.indirect_reference.idnum: number for number, page in enumerate(reader.pages, start=1)}
    leads = []
    for number, page in enumerate(reader.pages, start=1):
        for mark in page.get("/Annots", []):
            mark = mark.get_object()
            leads.append((number, numbers[mark["/Dest"][0].idnum] if "/Dest" in mark else mark["/A"]["/URI"]))
    out = "https://example.org/"
    assert sorted(leads, key=str) == sorted([(2, 3), (2, 5), (3, 4), (3, 5), (3, out), (3, 1),
                                             (5, 6), (5, 3), (5, out), (5, 1)], key=str)


def test_without_a_browser_the_print_says_so(monkeypatch, capsys):
    monkeypatch.setattr(book_print, "find_chromium", lambda: None)
    monkeypatch.setattr(sys, "argv", ["book_print.py"])
    assert book_print.main() == 1
    assert "needs a Chromium" in capsys.readouterr().err
