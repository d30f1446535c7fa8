"""The book around the chapters: its checks, its cache, its scorecard, and the built site where there is one."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from string import Formatter

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_build  # noqa: E402
import book_checks  # noqa: E402
import book_digest  # noqa: E402
import book_execute  # noqa: E402
import book_scorecard  # noqa: E402

SITE = ROOT / "_build" / "html"
CHAPTERS = book_execute.chapters()
CLAIMS = book_scorecard.read_claims(ROOT / "book" / "claims.yml")
EXECUTED = os.environ.get("BOOK_EXECUTED") == "1"  # set by `make test`, which executes the chapters first


# Pages load nothing from elsewhere, and say what their pictures show -----------------------------------------------

@pytest.mark.parametrize("markup", [
    '<script src="https://cdn.example/x.js"></script>',
    '<script src="//cdn.example/x.js"></script>',
    '<link rel="stylesheet" href="https://fonts.example/css">',
    '<link rel="preconnect" href="https://fonts.example">',
    '<img alt="A curve." src="http://images.example/a.png">',
    '<img alt="A curve." src="a.png" srcset="a.png 1x, https://images.example/b.png 2x">',
    '<iframe src="https://video.example/1"></iframe>',
    '<object data="https://video.example/1"></object>',
    '<svg aria-hidden="true"><image xlink:href="https://images.example/a.png"/></svg>',
    '<div style="background: url(https://images.example/a.png)"></div>',
    "<style>@import 'https://fonts.example/css';</style>",
    '<style>a { background: url("//images.example/a.png") }</style>',
])
def test_a_page_that_loads_from_elsewhere_is_found(markup):
    assert len(book_checks.inspect_html(f"<html><article>{markup}</article></html>")[0]) == 1


@pytest.mark.parametrize("markup", [
    '<a href="https://arxiv.org/abs/2306.00520">the paper</a>',
    '<link rel="canonical" href="https://book.example/">',
    '<link rel="stylesheet" href="_static/custom.css">',
    '<script src="_static/x.js"></script><script>const a = "https://x.example"; // a word</script>',
    '<img alt="A curve." src="data:image/png;base64,AAAA">',
    '<svg xmlns:xlink="http://www.w3.org/1999/xlink" aria-label="x" role="img"><use xlink:href="#a"/></svg>',
    "<pre>&lt;script src=https://x.example/&gt;</pre>",
    "<style>/* url(https://x.example) */ a { background: url(a.png) }</style>",
])
def test_a_page_that_loads_its_own_files_is_not(markup):
    assert book_checks.inspect_html(f"<html><article>{markup}</article></html>")[0] == []


@pytest.mark.parametrize("markup", [
    '<img src="a.svg">', '<img src="a.svg" alt="">', '<img src="a.svg" alt="  ">',
    '<img src="../_images/3f2a.svg" alt="../_images/3f2a.svg">',
    '<svg viewBox="0 0 1 1"><path d="M0 0"/></svg>',
    '<p>open<svg><g></g></svg>', '<div role="img"></div>', "<canvas></canvas>", '<video src="a.mp4"></video>',
    '<div aria-label="a group">text <img src="a.svg"></div>',
])
def test_a_picture_without_a_text_is_found(markup):
    assert len(book_checks.inspect_html(f"<html><article>{markup}</article></html>")[1]) == 1


@pytest.mark.parametrize("markup", [
    '<img src="a.svg" alt="A curve that rises.">', '<img src="a.svg" alt="Curve saved as a.svg">',
    '<svg role="img" aria-label="A curve."></svg>', "<svg><title>A curve.</title><g/></svg>",
    '<svg aria-hidden="true"/>',
    '<div role="img" aria-label="Frames."><p>one<svg></svg><svg><g></svg></div>',
    '<span aria-hidden="true"><img src="a.svg"></span>',
])
def test_a_picture_with_a_text_is_not(markup):
    assert book_checks.inspect_html(f"<html><article>{markup}</article></html>")[1] == []


def test_a_label_ends_with_its_element():
    text = '<article><div role="img" aria-label="Frames."><p>x</div><img src="a.svg"></article>'
    assert len(book_checks.inspect_html(text)[1]) == 1


def test_style_sheets_and_pages_of_a_site_are_inspected(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "page.html").write_text('<article><img src="//x.example/a.svg"></article>')
    (tmp_path / "fine.html").write_text("<article>nothing</article>")
    (tmp_path / "style.css").write_text("/* url(//y.example) */ @font-face { src: url('https://x.example/f.woff2') }")
    assert sorted(name for name, _ in book_checks.inspect_site(tmp_path)) == [
        "style.css", "sub/page.html", "sub/page.html"]


# The cache of outputs knows what the outputs depend on -------------------------------------------------------------

@pytest.fixture
def little_book(tmp_path):
    """A project with a package, claims and no chapters."""
    for folder in ("mptlml/inner", "book", "notebooks", "data"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("_config.yml", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "mptlml" / "score.py").write_text("one = 1\n")
    (tmp_path / "mptlml" / "inner" / "deep.py").write_text("two = 2\n")
    (tmp_path / "book" / "claims.yml").write_text("[]\n")
    (tmp_path / "data" / "images").write_text("1234")
    return tmp_path


def write_chapter(root, name, *cells):
    front = "---\nkernelspec:\n  display_name: Python 3 (ipykernel)\n  language: python\n  name: python3\n---\n"
    body = "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)
    path = root / "notebooks" / f"{name}.md"
    path.write_text(f"{front}\n# {name}\n{body}")
    return path


@pytest.mark.parametrize("name", ["mptlml/score.py", "mptlml/inner/deep.py", "mptlml/new.py", "requirements.txt",
                                  "book/claims.yml"])
def test_the_digest_changes_with_each_input(little_book, name):
    before = book_digest.digest(little_book)
    with (little_book / name).open("a") as file:
        file.write("# changed\n")
    assert book_digest.digest(little_book) != before


def test_the_digest_ignores_what_the_outputs_do_not_depend_on(little_book):
    before = book_digest.digest(little_book)
    (little_book / "README.md").write_text("words")
    (little_book / "mptlml" / "score.pyc").write_text("compiled")
    assert book_digest.digest(little_book) == before


@pytest.mark.parametrize(("variable", "inside"), [
    ("MPTLML_DATA", "images"),
    ("HF_HOME", "datasets/nyu-mll___glue/cola/train.arrow"),
    ("HF_HOME", "hub/models--google-bert--bert-base-uncased/snapshots/0/vocab.txt"),
])
def test_the_digest_sees_the_data_but_not_where_they_lie(little_book, variable, inside):
    def digest(folder):
        return book_digest.digest(little_book, {variable: str(little_book / folder)})

    without, before = book_digest.digest(little_book), digest("data")
    (little_book / "data").rename(little_book / "elsewhere")
    assert digest("elsewhere") == before
    added = little_book / "elsewhere" / inside
    added.parent.mkdir(parents=True, exist_ok=True)
    added.write_text("12345")
    assert digest("elsewhere") not in (before, without)


def test_the_digest_sees_the_stored_results_and_the_model_that_was_asked_for(little_book):
    before = book_digest.digest(little_book)
    assert book_digest.digest(little_book, {"MPTLML_MASKED_LM": "another"}) != before
    (little_book / "book" / "data").mkdir()
    (little_book / "book" / "data" / "stored.csv").write_text("1")
    assert book_digest.digest(little_book) != before


def test_sphinx_reads_the_cache_that_the_executor_fills(monkeypatch):
    class Config:
        nb_execution_cache_path = ""

    class App:
        srcdir = str(ROOT)

    book_digest._set_cache_path(App, Config)
    assert Config.nb_execution_cache_path == str(book_digest.cache_path())


# The executor ------------------------------------------------------------------------------------------------------

def code_cell(source="1", count=1, outputs=(), **metadata):
    return nbformat.v4.new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


@pytest.mark.parametrize(("cell", "complete"), [
    (code_cell(), True),
    (code_cell(source="  ", count=None), True),
    (code_cell(count=None), False),
    (code_cell(count=None, tags=["skip-execution"]), True),
    (code_cell(outputs=[nbformat.v4.new_output("error", ename="E")]), False),
    (code_cell(outputs=[nbformat.v4.new_output("error", ename="E")], tags=["raises-exception"]), True),
])
def test_only_a_notebook_that_ran_to_its_end_counts(cell, complete):
    assert book_execute.is_complete(nbformat.v4.new_notebook(cells=[code_cell(), cell])) is complete


def test_passed_chapters_are_kept_failed_ones_are_not(little_book, capfd):
    good = write_chapter(little_book, "01_good", "print(6 * 7)", "import os; print(os.path.basename(os.getcwd()))")
    bad = write_chapter(little_book, "02_bad", "print('before')", "raise RuntimeError('on purpose')")
    assert book_execute.execute([], jobs=2, root=little_book) == 1
    said = capfd.readouterr()
    assert "on purpose" in said.out and "failed: 02_bad" in said.err
    outputs = [cell.outputs[0].text for cell in book_execute.executed_chapter(good, little_book).cells
               if cell.cell_type == "code"]
    assert outputs[0] == "42\n" and outputs[1].startswith(".run-")
    assert book_execute.executed_chapter(bad, little_book) is None
    assert list(little_book.glob(".run-*")) == []
    assert book_execute.execute(["01_good"], jobs=2, root=little_book) == 0  # from the cache
    assert "nothing to execute" in capfd.readouterr().out
    (little_book / "mptlml" / "score.py").write_text("one = 1.5\n")
    assert book_execute.executed_chapter(good, little_book) is None


def test_an_unknown_chapter_is_named(little_book, capsys):
    write_chapter(little_book, "01_good", "1")
    assert book_execute.execute(["03_other"], jobs=1, root=little_book) == 2
    assert "03_other" in capsys.readouterr().err


def fill_cache(root, path):
    notebook = book_execute.read_chapter(path, root)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = 1, [nbformat.v4.new_output("stream", text="42\n")]
    cache = get_cache(book_digest.cache_path(root))
    cache.cache_notebook_bundle(CacheBundleIn(notebook, str(path)), check_validity=False)
    return cache


def test_a_new_caption_reaches_the_page_without_a_run(little_book, monkeypatch):
    monkeypatch.delenv("MPTLML_DATA", raising=False)
    path = write_chapter(little_book, "01_good", ":tags: [hide-input]\nprint(6 * 7)")
    fill_cache(little_book, path)
    path.write_text(path.read_text().replace("hide-input", "remove-input"))
    assert book_execute.execute([], jobs=1, root=little_book) == 0
    cell = book_execute.executed_chapter(path, little_book).cells[-1]
    assert cell.metadata["tags"] == ["remove-input"]
    assert cell.outputs[0].text == "42\n"


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_torn_entry_of_the_cache_counts_as_none(little_book, monkeypatch, damage):
    monkeypatch.delenv("MPTLML_DATA", raising=False)
    path = write_chapter(little_book, "01_good", "print(6 * 7)")
    cache = fill_cache(little_book, path)
    stored = next(cache.path.rglob("base.ipynb"))
    if damage == "cut":
        stored.write_text(stored.read_text()[:50])
    else:
        shutil.rmtree(stored.parent)
    assert book_execute.executed_chapter(path, little_book) is None
    with pytest.raises(KeyError):
        cache.match_cache_notebook(book_execute.read_chapter(path, little_book))


def test_only_the_last_few_states_of_the_sources_are_kept(tmp_path):
    folders = [tmp_path / str(number) for number in range(book_execute.KEPT_CACHES + 2)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        os.utime(folder, (number, number))
    book_execute.prune(folders[0])
    assert sorted(tmp_path.iterdir()) == sorted([folders[0], *folders[-book_execute.KEPT_CACHES + 1:]])


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
    fill_cache(little_book, path)
    seen.add(book_build.fingerprint(little_book))
    assert len(seen) == 6
    assert book_build.fingerprint(little_book) in seen


# The scorecard -----------------------------------------------------------------------------------------------------

def test_claims_are_grouped_by_chapter_in_order():
    claims = [{"id": "c", "chapter": "04_x"}, {"id": "a", "chapter": "02_y"}, {"id": "b", "chapter": "04_x"}]
    assert {chapter: [claim["id"] for claim in group] for chapter, group in
            book_scorecard.by_chapter(claims).items()} == {"02_y": ["a"], "04_x": ["c", "b"]}
    assert list(book_scorecard.by_chapter(claims)) == ["02_y", "04_x"]


def test_verdicts_are_counted_in_the_order_of_the_book():
    assert book_scorecard.count_verdicts(["new", "reproduced", "new", "odd"]) == [
        ("reproduced", 1), ("new", 2), ("odd", 1)]


def test_a_band_is_written_with_its_unit_and_reason():
    claim = {"band": [-60.345, 1e3], "unit": "nats a row", "why": "the printed\n  digits. "}
    assert book_scorecard.band_text(claim) == "-60.345 to 1000 nats a row: the printed digits."
    assert book_scorecard.band_text({"band": [2, 2], "unit": None, "why": "counting"}) == "exactly 2: counting."


def test_every_verdict_has_its_colour():
    style = (ROOT / "book" / "_static" / "custom.css").read_text()
    for verdict in book_scorecard.VERDICTS:
        assert f".{book_scorecard.badge_class(verdict)} {{" in style


def contrast(colour):
    """Contrast of white text on #rrggbb (WCAG 2)."""
    parts = [int(colour[place:place + 2], 16) / 255 for place in (1, 3, 5)]
    light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 1.05 / (0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] + 0.05)


def test_badges_can_be_read():
    style = (ROOT / "book" / "_static" / "custom.css").read_text()
    colours = re.findall(r"\.verdict-[a-z-]+ \{ background: (#[0-9a-f]{6}); \}", style)
    assert len(colours) == len(book_scorecard.VERDICTS)
    assert min(contrast(colour) for colour in colours) >= 4.5


# What is written: claims, contents, chapters, pins -----------------------------------------------------------------

def test_the_claims_are_well_formed():
    keys = {"id", "chapter", "place", "statement", "paper", "unit", "band", "why", "verdict", "format", "how"}
    stems = {path.stem for path in CHAPTERS}
    ids = [claim["id"] for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    for claim in CLAIMS:
        assert set(claim) == keys, claim["id"]
        assert not {part for _, part, _, _ in Formatter().parse(claim["how"])} - {None, "seeds", "cases"}, claim["id"]
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", claim["id"])
        assert claim["chapter"] in stems, claim["id"]
        assert claim["verdict"] in book_scorecard.VERDICTS[:-1], claim["id"]
        low, high = claim["band"]
        assert low <= high, claim["id"]
        assert claim["paper"] is None or isinstance(claim["paper"], str), claim["id"]
        assert format(1.0, claim["format"]) and claim["why"].strip() and claim["statement"].strip(), claim["id"]


def contents():
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [parts["root"], *(page["file"] for part in parts["parts"] for page in part["chapters"])]


def test_every_page_is_in_the_contents_and_every_entry_exists():
    pages = {f"notebooks/{path.stem}" for path in CHAPTERS} | {
        f"book/{path.stem}" for path in (ROOT / "book").glob("*.md")}
    assert sorted(contents()) == sorted(pages)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_starts_its_clock_and_closes_its_account(path):
    code = [cell.source for cell in book_execute.read_chapter(path).cells if cell.cell_type == "code"]
    assert any(f'report.start("{path.stem}")' in source for source in code)
    assert code[-1].strip().splitlines()[-1].startswith("report.closing()")


@pytest.mark.parametrize("path", [ROOT / "_config.yml", *CHAPTERS, *sorted((ROOT / "book").glob("*.md"))],
                         ids=lambda path: path.name)
def test_every_page_describes_itself(path):
    if path.suffix == ".md":
        front = yaml.safe_load(path.read_text().split("---\n")[1])
        description = front["myst"]["html_meta"]["description"]
        assert 10 < len(description) < 200 and not re.search(r"[$\\`]", description)
    else:
        assert yaml.safe_load(path.read_text())["execute"]["timeout"] == book_execute.CELL_SECONDS


def test_everything_that_is_installed_is_pinned():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    lines += (ROOT / "constraints.txt").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith(("#", "-"))]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert len({line.split("==")[0].lower() for line in lines}) == len(lines)


def test_binder_gets_the_cpu_builds_of_the_same_versions():
    pins = set((ROOT / "requirements.txt").read_text().split())
    binder = (ROOT / ".binder" / "requirements.txt").read_text().splitlines()
    builds = [line for line in binder if line.startswith("torch")]
    assert len(builds) == 2 and {build.removesuffix("+cpu") for build in builds} < pins
    assert all(build.endswith("+cpu") for build in builds)


# What was executed -------------------------------------------------------------------------------------------------

def glued(notebook):
    """The names that a chapter's outputs glue."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    names = [output.get("metadata", {}).get("scrapbook", {}).get("name") for output in outputs]
    return [name for name in names if name]


# The next fixture and `site` below serve the whole module: so they are set up before a test hides MPTLML_DATA, which is
# part of what names the cache.
@pytest.fixture(scope="module")
def executed():
    found = {path.stem: book_execute.executed_chapter(path) for path in CHAPTERS}
    if not EXECUTED and not all(found.values()):
        pytest.skip("chapters not executed for these sources: `make execute`, or `make test`")
    return found


def test_every_chapter_was_executed(executed):
    assert [stem for stem, notebook in executed.items() if notebook is None] == []


def test_every_claim_was_made_in_its_chapter_and_none_beside(executed):
    made = {(stem, name.removesuffix("-value")) for stem, notebook in executed.items() if notebook
            for name in glued(notebook) if name.endswith("-value")}
    assert made == {(claim["chapter"], claim["id"]) for claim in CLAIMS}


def test_a_name_is_glued_once_in_the_book(executed):
    names = [name for notebook in executed.values() if notebook for name in glued(notebook)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_chapter_needs_more_than_a_binder_has(executed):
    sizes = {}
    for stem, notebook in executed.items():
        for cell in notebook.cells:
            for output in cell.get("outputs", []):
                if output.get("metadata", {}).get("scrapbook", {}).get("name") == f"{stem}-megabytes":
                    sizes[stem] = json.loads(output["data"]["application/papermill.record/text/plain"])
    assert set(sizes) == {path.stem for path in CHAPTERS}
    assert max(sizes.values()) < 2048


# What was built ----------------------------------------------------------------------------------------------------

LEFT_RAW = re.compile(r"\{[a-z]+(?::[a-z]+)?\}`|\$[^$\n]{1,80}\$|\\\(|\\(?:frac|mathbf|sum|log)\b|\]\(#|:::")
BEGIN_END = re.compile(r"\\(begin|end)\{([a-z*]+)\}")


def tex_faults(tex):
    """What MathJax would stumble over: braces, environments, \\left without \\right, a role that was not filled in."""
    faults = []
    bare = re.sub(r"\\\\|\\[{}]", "", tex)
    depth = 0
    for sign in bare:
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            break
    if depth:
        faults.append("braces")
    open_environments = []
    for what, name in BEGIN_END.findall(tex):
        if what == "begin":
            open_environments.append(name)
        elif not open_environments or open_environments.pop() != name:
            faults.append(f"end of {name}")
    faults += [f"begin of {name}" for name in open_environments]
    if len(re.findall(r"\\left(?![a-zA-Z])", tex)) != len(re.findall(r"\\right(?![a-zA-Z])", tex)):
        faults.append("left and right")
    if "`" in tex or "glue:" in tex:
        faults.append("a role inside maths")
    return faults


@pytest.mark.parametrize(("tex", "faults"), [
    (r"\frac{1}{m} \left( \sum_{j \in \mathcal{M}} x_j \right)", []),
    (r"\{1, \dots, D\} \setminus \mathcal{M}", []),
    (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", []),
    (r"\frac{1}{m", ["braces"]), (r"m}{", ["braces"]),
    (r"\begin{aligned} a", ["begin of aligned"]), (r"\end{aligned}", ["end of aligned"]),
    (r"\left( a", ["left and right"]), (r"x = {glue:text}`a:.2f`", ["a role inside maths"]),
])
def test_faulty_tex_is_found(tex, faults):
    assert tex_faults(tex) == faults


@pytest.fixture(scope="module")
def site(built_site):
    return {page: BeautifulSoup((SITE / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
            for page in contents()}


def test_the_site_loads_nothing_from_elsewhere_and_names_its_pictures(site):
    assert book_checks.inspect_site(SITE) == []


def test_the_site_brings_its_own_mathjax(site):
    assert (SITE / "_static" / "mathjax" / "tex-chtml-full.js").stat().st_size > 1e6
    assert any((SITE / "_static" / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2").glob("*.woff"))


def test_equations_are_well_formed(site):
    faults = {(page, found.get_text()[:80], fault) for page, soup in site.items()
              for found in soup.select("article .math") for fault in tex_faults(found.get_text())}
    assert faults == set()


def test_no_markup_is_left_raw_on_a_page(site):
    found = []
    for page, soup in site.items():
        article = soup.find("article")
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
            if re.match(r"[a-z]+:", target):
                continue
            path = (here.parent / target).resolve() if target else here
            if not path.exists() or (anchor and path.suffix == ".html" and not re.search(
                    rf'(?:id|name)="{re.escape(anchor)}"', path.read_text(encoding="utf-8"))):
                broken.append((page, link["href"]))
    assert broken == []


def test_the_scorecard_shows_every_claim_with_its_verdict(site):
    rows = {row["id"]: row for row in site["book/scorecard"].select("table.scorecard tbody tr")}
    assert set(rows) == {f"claim-{claim['id']}" for claim in CLAIMS}
    for row in rows.values():
        badge = row.select_one(".verdict")
        assert badge.get_text() in book_scorecard.VERDICTS
        assert book_scorecard.badge_class(badge.get_text()) in badge["class"]
    summary = site["book/scorecard"].select_one(".scorecard-summary").get_text()
    assert summary.startswith(f"{len(CLAIMS)} claim")
