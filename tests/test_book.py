"""The book around the chapters: what each depends on, how they are run and kept, the checks of pages, the built site."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_build  # noqa: E402
import book_checks  # noqa: E402
import book_digest  # noqa: E402
import book_execute  # noqa: E402
import book_outputs  # noqa: E402
from mptlml.report.records import MIME  # noqa: E402

SITE = ROOT / "_build" / "html"
CHAPTERS = book_execute.chapters()
EXECUTED = os.environ.get("BOOK_EXECUTED") == "1"  # set by `make test`, which executes the chapters first


# Pages load nothing from elsewhere, and say what their pictures show -----------------------------------------------

@pytest.mark.parametrize(("markup", "remote", "unnamed"), [
    ('<script src="https://cdn.example/x.js"></script>', 1, 0),
    ('<link rel="stylesheet" href="//fonts.example/css"><link rel="preconnect" href="https://fonts.example">', 2, 0),
    ('<img alt="A curve." src="a.png" srcset="a.png 1x, https://images.example/b.png 2x">', 1, 0),
    ('<svg aria-hidden="true"><image xlink:href="https://images.example/a.png"/></svg>', 1, 0),
    ('<object data="https://video.example/1"></object>', 1, 0),
    ('<div style="background: url(https://images.example/a.png)"></div>', 1, 0),
    ("""<style>@import 'https://fonts.example/css'; a { background: url("//images.example/a.png") }</style>""", 2, 0),
    ('<a href="https://arxiv.org/abs/2306.00520">the paper</a><link rel="canonical" href="https://book.example/">', 0, 0),
    ('<link rel="stylesheet" href="_static/custom.css"><img alt="A curve." src="data:image/png;base64,AAAA">', 0, 0),
    ('<script src="_static/x.js"></script><script>const a = "https://x.example"; // a word</script>', 0, 0),
    ('<svg xmlns:xlink="http://www.w3.org/1999/xlink" aria-label="x" role="img"><use xlink:href="#a"/></svg>', 0, 0),
    ("<pre>&lt;script src=https://x.example/&gt;</pre>", 0, 0),
    ("<style>/* url(https://x.example) */ a { background: url(a.png) }</style>", 0, 0),
    ('<img src="a.svg">', 0, 1), ('<img src="a.svg" alt="  ">', 0, 1),
    ('<img src="../_images/3f2a.svg" alt="../_images/3f2a.svg">', 0, 1),
    ('<svg viewBox="0 0 1 1"><path d="M0 0"/></svg>', 0, 1), ("<p>open<svg><g></g></svg>", 0, 1),
    ('<div role="img"></div>', 0, 1), ("<canvas></canvas>", 0, 1), ('<video src="a.mp4"></video>', 0, 1),
    ('<div aria-label="a group">text <img src="a.svg"></div>', 0, 1),
    ('<div role="img" aria-label="Frames."><p>x</div><img src="a.svg">', 0, 1),  # a label ends with its element
    ('<img src="a.svg" alt="A curve that rises."><img src="a.svg" alt="Curve saved as a.svg">', 0, 0),
    ('<svg role="img" aria-label="A curve."></svg><svg><title>A curve.</title><g/></svg>', 0, 0),
    ('<svg aria-hidden="true"/><span aria-hidden="true"><img src="a.svg"></span>', 0, 0),
    ('<div role="img" aria-label="Frames."><p>one<svg></svg><svg><g></svg></div>', 0, 0),
])
def test_a_page_that_loads_from_elsewhere_or_leaves_a_picture_unnamed_is_found(markup, remote, unnamed):
    found = book_checks.inspect_html(f"<html><article>{markup}</article></html>")
    assert tuple(map(len, found)) == (remote, unnamed)


def test_style_sheets_and_pages_of_a_site_are_inspected(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "page.html").write_text('<article><img src="//x.example/a.svg"></article>')
    (tmp_path / "fine.html").write_text("<article>nothing</article>")
    (tmp_path / "style.css").write_text("/* url(//y.example) */ @font-face { src: url('https://x.example/f.woff2') }")
    assert sorted(name for name, _ in book_checks.inspect_site(tmp_path)) == [
        "style.css", "sub/page.html", "sub/page.html"]


# A digest knows what its chapter depends on, and nothing else ------------------------------------------------------

EVERY = {path.stem[:2] for path in CHAPTERS}
EDITS = {  # file: (what is put in place of what, the chapters that run)
    "mptlml/models/deep_vae.py": (None, {"09"}),
    "mptlml/models/masked_lm.py": (None, {"10"}),
    "mptlml/models/shortfall.py": (None, {"11"}),
    "mptlml/models/hmm.py": (None, {"01", "11", "12"}),
    "mptlml/models/mixture.py": (None, {"01", "02"}),
    "mptlml/models/__init__.py": (None, set()),
    "mptlml/studies/linear_vae.py": (None, {"08"}),
    "mptlml/data/text.py": (None, {"10"}),
    "mptlml/score.py": (None, EVERY),
    "requirements.txt": (None, EVERY),
    "book/data/linear_vae.csv": (None, {"08"}),
    "book/claims.yml (a band)": (("band: [1.205", "band: [1.204"), {"01"}),
    "book/claims.yml (the words)": (("\n  statement: ", "\n  statement: So "), set()),
    "notebooks/05_training.md (code)": (("```{code-cell} ipython3\n", "```{code-cell} ipython3\n1 + 1\n"), {"05"}),
    "notebooks/05_training.md (text)": (("\n# ", "\nBefore the title.\n\n# "), set()),
    "notebooks/05_training.md (options of cells)": (("fig-training-left\n", "fig-left\n"), set()),
    "book/intro.md": (None, set()),
    "book/_ext/book_records.html": (None, set()),
    "book/_static/custom.css": (None, set()),
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the book's sources, and the digests of its chapters."""
    root = tmp_path_factory.mktemp("book")
    for folder in ("mptlml", "book", "notebooks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__", "*.ipynb"))
    for name in ("_config.yml", "requirements.txt"):
        shutil.copy(ROOT / name, root / name)
    return root, digests(root)


def digests(root):
    return {path.stem[:2]: book_digest.digest(path, root) for path in book_digest.chapters(root)}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_runs_the_chapters_that_depend_on_it_and_no_other(copied, name):
    root, before = copied
    change, expected = EDITS[name]
    path = root / name.split(" (")[0]
    text = path.read_text()
    edited = text.replace(*change, 1) if change else text + "\n# edited\n"
    assert edited != text
    try:
        path.write_text(edited)
        after = digests(root)
    finally:
        path.write_text(text)
    ran = {stem for stem in EVERY if after[stem] != before[stem]}
    print(f"{name}: {' '.join(sorted(ran)) or 'none'}")
    assert ran == expected


@pytest.fixture
def little_book(tmp_path, monkeypatch):
    """A project with a package, no chapters, and a reader who has no data."""
    for folder in ("mptlml/data", "mptlml/inner", "book", "notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("_config.yml", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {"__init__": "from .inner import deep as low\n", "score": "one = 1\n", "data/__init__": "",
                       "data/images": "three = 3\n", "data/text": "four = 4\n", "inner/deep": "two = 2\n",
                       "inner/__init__": "from .deep import two\nfrom ..score import one\n"}.items():
        (tmp_path / "mptlml" / f"{name}.py").write_text(text)
    (tmp_path / "book" / "claims.yml").write_text("[]\n")
    for name in ("MPTLML_DATA", "MPTLML_MASKED_LM", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def write_chapter(root, name, *cells):
    front = "---\nkernelspec:\n  display_name: Python 3 (ipykernel)\n  language: python\n  name: python3\n---\n"
    body = "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)
    path = root / "notebooks" / f"{name}.md"
    path.write_text(f"{front}\n# {name}\n{body}")
    return path


@pytest.mark.parametrize(("code", "modules"), [
    ("from mptlml.inner import one", ["mptlml.score"]),
    ("from mptlml import low", ["mptlml.inner.deep"]),
    ("import mptlml\nmptlml.low", ["mptlml.inner.deep"]),
    ("from mptlml import inner\ninner.two", ["mptlml.inner.deep"]),
    ("import mptlml.inner as i", ["mptlml.inner", "mptlml.inner.deep", "mptlml.score"]),
    ("import numpy\ndef later():\n    from mptlml.score import one", ["mptlml.score"]),
    ("not python", []),
])
def test_names_are_followed_to_the_modules_that_define_them(little_book, code, modules):
    assert book_digest.Package(little_book).behind(code) == modules


@pytest.mark.parametrize(("module", "file", "variable", "folder"), [
    ("images", "MNIST/raw/train-images-idx3-ubyte", "MPTLML_DATA", ".cache/mptlml"),
    ("text", "hub/models--google-bert--bert/snapshots/0/vocab.txt", "HF_HOME", ".cache/huggingface"),
    ("text", "datasets/nyu-mll___glue/cola/train.arrow", "HF_HOME", ".cache/huggingface"),
])
def test_the_digest_sees_the_data_at_hand_wherever_they_lie(little_book, monkeypatch, module, file, variable, folder):
    reads = write_chapter(little_book, "01_reads", f"from mptlml.data import {module}")
    other = write_chapter(little_book, "02_other", "from mptlml import score")
    without, unmoved = book_digest.digest(reads, little_book), book_digest.digest(other, little_book)
    place = little_book / "home" / folder / file
    place.parent.mkdir(parents=True)
    place.write_text("1234")
    found = book_digest.digest(reads, little_book)
    (little_book / "home").rename(little_book / "elsewhere")
    monkeypatch.setenv(variable, str(little_book / "elsewhere" / folder))
    assert book_digest.digest(reads, little_book) == found != without
    assert book_digest.digest(other, little_book) == unmoved


# The executor ------------------------------------------------------------------------------------------------------

def notebook_with(*outputs, count=1, source="1", tags=()):
    cell = nbformat.v4.new_code_cell(source, execution_count=count, outputs=list(outputs), metadata={"tags": [*tags]})
    return nbformat.v4.new_notebook(cells=[cell])


def record(**fields):
    return nbformat.v4.new_output("display_data", {MIME: fields, "text/plain": "a record"})


@pytest.mark.parametrize(("notebook", "complete"), [
    (notebook_with(), True),
    (notebook_with(source="  ", count=None), True),
    (notebook_with(count=None), False),
    (notebook_with(count=None, tags=["skip-execution"]), True),
    (notebook_with(nbformat.v4.new_output("error", ename="E")), False),
    (notebook_with(nbformat.v4.new_output("error", ename="E"), tags=["raises-exception"]), True),
])
def test_only_a_notebook_that_ran_to_its_end_counts(notebook, complete):
    assert book_execute.is_complete(notebook) is complete


def test_passed_chapters_are_kept_failed_ones_are_not(little_book, capfd):
    good = write_chapter(little_book, "01_good", "print(6 * 7)", "import os; print(os.path.basename(os.getcwd()))")
    bad = write_chapter(little_book, "02_bad", "print('before')", "raise RuntimeError('on purpose')")
    assert book_execute.execute([], jobs=2, root=little_book) == 1
    said = capfd.readouterr()
    assert "on purpose" in said.out and "failed: 02_bad" in said.err
    outputs = [cell.outputs[0].text for cell in book_digest.code_cells(book_execute.executed_chapter(good, little_book))]
    assert outputs[0] == "42\n" and outputs[1].startswith(".run-")
    assert book_execute.executed_chapter(bad, little_book) is None
    assert list(little_book.glob(".run-*")) == []
    assert book_execute.execute(["01_good"], jobs=2, root=little_book) == 0
    assert "nothing to execute" in capfd.readouterr().out
    assert book_execute.execute(["03_other"], jobs=1, root=little_book) == 2
    assert "03_other" in capfd.readouterr().err


def test_two_executions_at_once_run_a_chapter_once(little_book):
    write_chapter(little_book, "01_slow", f"import time; time.sleep(1); print(open('{little_book}/ran', 'a').write('x'))")
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import pathlib, book_execute; "
            "sys.exit(book_execute.execute([], 1, pathlib.Path(sys.argv[2])))")
    command = [sys.executable, "-c", code, str(ROOT / "book" / "_ext"), str(little_book)]
    both = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert (little_book / "ran").read_text() == "x"


@pytest.mark.parametrize(("after", "note", "kept"), [
    ("a-1", "a note", True), ("a-2", "", True), ("a-2", "digits stand in", False), ("b-1", "", False),
])
def test_outputs_count_only_for_the_sources_and_data_that_made_them(after, note, kept):
    notebook = notebook_with(record(kind="data", source="x", note=note))
    assert book_execute.holds(notebook, "a-1", after) is kept


def kept_chapter(root):
    """A chapter with outputs that are kept, and the file that keeps them."""
    path = write_chapter(root, "01_good", ":tags: [hide-input]\nprint(6 * 7)")
    notebook = book_execute.read_chapter(path, root)
    notebook.cells[-1].update(execution_count=1, outputs=[nbformat.v4.new_output("stream", text="42\n")])
    stored = book_outputs.place(path, book_digest.digest(path, root), root)
    book_outputs.keep(notebook, stored)
    return path, stored


def test_new_words_reach_the_page_without_a_run(little_book):
    path, _ = kept_chapter(little_book)
    path.write_text(path.read_text().replace("hide-input", "remove-input").replace("# 01", "# The\n\nText\n\n## 01"))
    *text, cell = book_execute.executed_chapter(path, little_book).cells
    assert "Text" in text[0].source and cell.metadata["tags"] == ["remove-input"] and cell.outputs[0].text == "42\n"


@pytest.mark.parametrize("damage", [lambda path: path.write_text(path.read_text()[:50]), lambda path: path.unlink()])
def test_torn_outputs_count_as_none(little_book, damage):
    path, stored = kept_chapter(little_book)
    damage(stored)
    assert book_execute.executed_chapter(path, little_book) is None


def test_only_the_last_few_outputs_are_kept(tmp_path):
    for number in range(book_outputs.KEPT + 2):
        path = tmp_path / f"{number}.ipynb"
        book_outputs.keep(notebook_with(), path)
        os.utime(path, (number, number))
    assert len(list(tmp_path.iterdir())) == book_outputs.KEPT and path.is_file()


def test_kernels_run_with_this_python_and_one_thread(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("MPTLML_DATA", "data")
    env = book_execute.quiet_environment()
    assert env["OMP_NUM_THREADS"] == "1" and "PYTHONPATH" not in env
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert os.path.isabs(env["MPTLML_DATA"])


def test_the_pages_are_made_anew_when_anything_they_show_changes(little_book):
    path = write_chapter(little_book, "01_good", "1")
    (little_book / "_toc.yml").write_text("format: jb-book\n")
    seen = {book_build.fingerprint(little_book)}
    for change in ("_toc.yml", "book/intro.md", "mptlml/score.py", path.relative_to(little_book)):
        with (little_book / change).open("a") as file:
            file.write("\n")
        seen.add(book_build.fingerprint(little_book))
    kept_chapter(little_book)
    seen.add(book_build.fingerprint(little_book))
    assert len(seen) == 6
    assert book_build.fingerprint(little_book) in seen


# What is written, and what was executed ----------------------------------------------------------------------------

def contents():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [parts["root"], *(page["file"] for part in parts["parts"] for page in part["chapters"])]


def test_every_page_is_in_the_contents_and_every_entry_exists():
    pages = {f"notebooks/{path.stem}" for path in CHAPTERS} | {
        f"book/{path.stem}" for path in (ROOT / "book").glob("*.md")}
    assert sorted(contents()) == sorted(pages)


# Set up once for the module, before a test hides the data that digests depend on.
@pytest.fixture(scope="module")
def executed():
    found = {path.stem: book_execute.executed_chapter(path) for path in CHAPTERS}
    if not EXECUTED and not all(found.values()):
        pytest.skip("chapters not executed for these sources: `make execute`, or `make test`")
    return found


def test_every_chapter_was_executed_and_a_name_is_glued_once_in_the_book(executed):
    assert [stem for stem, notebook in executed.items() if notebook is None] == []
    outputs = [output for notebook in executed.values() for cell in book_digest.code_cells(notebook)
               for output in cell.outputs]
    names = [output.metadata.scrapbook.name for output in outputs if "scrapbook" in output.get("metadata", {})]
    assert len(names) > 100 and sorted({name for name in names if names.count(name) > 1}) == []


# What was built ----------------------------------------------------------------------------------------------------

LEFT_RAW = re.compile(r"\{[a-z]+(?::[a-z]+)?\}`|\$[^$\n]{1,80}\$|\\\(|\\(?:frac|mathbf|sum|log)\b|\]\(#|:::")
BEGIN_END = re.compile(r"\\(begin|end)\{([a-z*]+)\}")


def tex_faults(tex):
    """What MathJax would stumble over: braces, environments, \\left without \\right, a role that was not filled in."""
    bare = re.sub(r"\\\\|\\[{}]", "", tex)
    depth, lowest = 0, 0
    for sign in bare:
        depth += (sign == "{") - (sign == "}")
        lowest = min(lowest, depth)
    faults = ["braces"] * bool(depth or lowest)
    begins, ends = ([name for what, name in BEGIN_END.findall(tex) if what == which] for which in ("begin", "end"))
    faults += ["environments"] * (sorted(begins) != sorted(ends))
    if len(re.findall(r"\\left(?![a-zA-Z])", tex)) != len(re.findall(r"\\right(?![a-zA-Z])", tex)):
        faults.append("left and right")
    return faults + ["a role inside maths"] * ("`" in tex)


@pytest.mark.parametrize(("tex", "faults"), [
    (r"\frac{1}{m} \left( \sum_{j \in \mathcal{M}} x_j \right)", []),
    (r"\{1, \dots, D\} \setminus \mathcal{M}", []),
    (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", []),
    (r"\frac{1}{m", ["braces"]), (r"m}{", ["braces"]),
    (r"\begin{aligned} a", ["environments"]), (r"\end{aligned}", ["environments"]),
    (r"\left( a", ["left and right"]), (r"x = {glue:text}`a:.2f`", ["a role inside maths"]),
])
def test_faulty_tex_is_found(tex, faults):
    assert tex_faults(tex) == faults


@pytest.fixture(scope="module")
def site(built_site):
    return {page: BeautifulSoup((SITE / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
            for page in contents()}


def test_the_site_loads_nothing_from_elsewhere_and_brings_its_own_mathjax(site):
    assert book_checks.inspect_site(SITE) == []
    assert (SITE / "_static" / "mathjax" / "tex-chtml-full.js").stat().st_size > 1e6
    assert any((SITE / "_static" / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))


def test_no_markup_is_left_raw_and_equations_are_well_formed(site):
    found = []
    for page, soup in site.items():
        found += [(page, fault) for part in soup.select("article .math") for fault in tex_faults(part.get_text())]
        article = BeautifulSoup(str(soup.find("article")), "html.parser")
        for part in article.select("pre, code, .math, script, style, svg"):
            part.extract()
        found += [(page, hit) for hit in LEFT_RAW.findall(article.get_text())]
    assert found == []


def test_links_inside_the_site_lead_somewhere(site):
    broken = []
    for page, soup in site.items():
        here = SITE / f"{page}.html"
        for link in soup.select("article a[href]"):
            target, _, anchor = link["href"].partition("#")
            path = (here.parent / target).resolve() if target else here
            if not re.match(r"[a-z]+:", target) and (not path.exists() or (
                    anchor and path.suffix == ".html" and f'"{anchor}"' not in path.read_text(encoding="utf-8"))):
                broken.append((page, link["href"]))
    assert broken == []
