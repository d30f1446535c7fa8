"""The built site as a reader meets it: every page opened in a browser, from its folder as an offline reader does.

Each test steps aside, and says why, where there is no Chromium (CHROMIUM may name one) or no book built from these
sources. The checks are in browser_checks.py; each of them is first shown a faulty page, to which it must object.
"""

import json
import re
import sys
from pathlib import Path

import browser_checks as checks
import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_browser  # noqa: E402
import book_execute  # noqa: E402
import book_polish  # noqa: E402

SITE = ROOT / "_build" / "html"
WEIGHTS = ROOT / "_build" / "page_weights.json"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
HEAVIEST_PAGE = 2_500_000  # bytes a page needs beyond what all pages share: some ten seconds on a slow telephone line
HEAVIEST_SHARED = 4_500_000  # style, icons and MathJax, fetched once; uncompressed, as a folder holds them


def listed_pages():
    """The pages of the contents, and the one that Sphinx adds."""
    parts = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [parts["root"], *(page["file"] for part in parts["parts"] for page in part["chapters"]), "search"]


@pytest.fixture(scope="module")
def browser(chromium):
    with book_browser.chromium(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def reader(browser):
    """A browser session of its own, on a screen, in light colours, whose clipboard may be read."""
    context = browser.new_context(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(60_000)  # patience for a busy machine; nothing here waits that long otherwise
    yield context
    context.close()


@pytest.fixture(scope="module")
def site(built_site):
    return built_site


class Visit:
    """A page of the site that is open in the browser, with what happened while it loaded."""

    def __init__(self, context, path):
        self.page, self.requests, self.errors = context.new_page(), [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        settle(self.page)

    @property
    def files(self):
        """What the page loaded from the site's folder, as paths."""
        inside = {url.split("?")[0].split("#")[0] for url in self.requests if url.startswith(SITE.as_uri())}
        return {SITE / url.removeprefix(SITE.as_uri() + "/") for url in inside}


def settle(page):
    """Wait until the formulas are set, and let nothing fade in or out."""
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important }")
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    page.wait_for_timeout(150)  # the theme makes what scrolls reachable by keyboard a moment after loading


visited = {}  # {page: its Visit}, for what is said of all pages together


@pytest.fixture(scope="module", params=listed_pages())
def visit(request, reader, site):
    visit = visited[request.param] = Visit(reader, site / f"{request.param}.html")
    yield visit
    visit.page.close()


def in_theme(page, name):
    """Click the theme's own switch until the page is light or dark."""
    switch = page.locator("button.theme-switch-button").first
    for _ in range(3):
        if page.evaluate("document.documentElement.dataset.theme") == name:
            return
        switch.click()
    raise AssertionError(f"the switch does not lead to {name}")


def nothing(findings):
    """What a check found stands in the message, a line each."""
    assert not findings, "\n".join(["", *findings])


@pytest.fixture
def dark(visit):
    in_theme(visit.page, "dark")
    yield visit.page
    in_theme(visit.page, "light")


@pytest.fixture
def phone(visit):
    visit.page.set_viewport_size(PHONE)
    visit.page.wait_for_timeout(400)  # the theme waits for the end of a resize before it looks what scrolls now
    yield visit.page
    visit.page.set_viewport_size(DESKTOP)


# Every page --------------------------------------------------------------------------------------------------------

def test_a_page_loads_its_own_files_and_reports_no_error(visit):
    nothing([url for url in visit.requests if not url.startswith((SITE.as_uri(), "data:", "blob:"))])
    nothing(visit.errors)
    assert visit.page.title().strip()


def test_formulas_are_set(visit):
    nothing(checks.tex_errors(visit.page))


def test_pictures_say_what_they_show(visit):
    nothing(checks.poor_alts(visit.page))


def test_headings_and_ids_are_in_order(visit):
    nothing(checks.heading_faults(visit.page))
    nothing(checks.repeated_ids(visit.page))


def test_light_page_is_accessible(visit):
    nothing(checks.axe_violations(visit.page, leave_out=checks.LETTERS))
    nothing(checks.pale_words(visit.page))


def test_focus_is_seen(visit):
    nothing(checks.unseen_focus(visit.page))


def test_folded_code_opens_by_keyboard(visit):
    folds = visit.page.locator("article details:not(details details)").all()
    for fold in {id(fold): fold for fold in (*folds[:2], *folds[-1:])}.values():  # they are all made alike
        before = fold.evaluate("fold => fold.open")
        fold.locator("> summary").press("Enter")
        assert fold.evaluate("fold => fold.open") != before
        fold.locator("> summary").press("Enter")


def test_code_is_copied_as_it_stands(visit):
    """Held against the chapter's source, by a click and by the keyboard."""
    stem = Path(visit.page.url).stem
    buttons = [button for button in visit.page.locator("div.cell_input button.copybtn").all() if
               button.evaluate("button => button.parentElement.checkVisibility()")]
    if not buttons:
        pytest.skip("no code in sight on this page")
    cells = book_execute.read_chapter(ROOT / "notebooks" / f"{stem}.md").cells
    sources = [cell.source.strip() for cell in cells if cell.cell_type == "code"]
    for button, act in ((buttons[0], "click"), (buttons[-1], "press")):
        visit.page.evaluate("navigator.clipboard.writeText('')")
        button.click(force=True) if act == "click" else button.press("Enter")
        visit.page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
        assert visit.page.evaluate("navigator.clipboard.readText()").strip() in sources


def test_a_figure_that_moves_obeys_the_keyboard(visit):
    figures = visit.page.locator("article .moving").all()
    if not figures:
        pytest.skip("no moving figure on this page")
    nothing([fault for figure in figures for fault in checks.deaf_to_keys(visit.page, figure)])


def test_print_keeps_the_figures_and_leaves_the_controls(visit):
    visit.page.emulate_media(media="print")
    try:
        nothing(checks.print_faults(visit.page))
    finally:
        visit.page.emulate_media(media="screen")


def test_phone_page_does_not_scroll_sideways(phone):
    nothing(checks.sideways(phone))


def test_phone_page_is_accessible(phone):
    nothing(checks.axe_violations(phone, checks.WIDTH_RULES))


def test_dark_page_is_accessible(dark):
    nothing(checks.axe_violations(dark, checks.COLOUR_RULES, leave_out=checks.LETTERS))
    nothing(checks.pale_words(dark))


def test_figures_can_be_read_in_the_dark(dark):
    nothing(checks.pale_pictures(dark))


# The site as a whole -----------------------------------------------------------------------------------------------

def test_every_page_that_was_built_is_looked_at(site):
    built = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")
             if not path.relative_to(site).parts[0].startswith("_")}
    assert built - {"index"} == set(listed_pages())


def test_titles_differ(site):
    titles = [re.search(r"<title>(.*?)</title>", (site / f"{page}.html").read_text(encoding="utf-8"), re.DOTALL)[1]
              for page in listed_pages()]
    assert sorted({title for title in titles if titles.count(title) > 1}) == []


def test_no_page_is_heavy(site):
    """Leaves what each page weighs in _build/page_weights.json."""
    if set(visited) != set(listed_pages()):
        pytest.skip("only some of the pages were opened")
    loaded = {name: visit.files for name, visit in visited.items()}
    shared = set.intersection(*loaded.values())
    fonts = {path for files in loaded.values() for path in files if path.parts[-2].startswith("woff")}
    maths = {path for files in loaded.values() for path in files if "mathjax" in path.parts}
    common = shared | fonts | maths
    size = {path: path.stat().st_size for files in loaded.values() for path in files}
    weights = {name: sum(size[path] for path in files - common) for name, files in loaded.items()}
    total = sum(size[path] for path in common)
    WEIGHTS.write_text(json.dumps({"unit": "bytes", "shared by the pages": total, "each page beyond that": weights},
                                  indent=1) + "\n")
    assert {name: weight for name, weight in weights.items() if weight > HEAVIEST_PAGE} == {}
    assert total < HEAVIEST_SHARED


def test_search_finds_the_marginal_likelihood(reader, site):
    page = reader.new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/intro.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("marginal likelihood")
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    results.nth(4).wait_for()  # at least five
    results.first.click()
    page.wait_for_load_state()
    assert "search" not in Path(page.url.split("?")[0]).stem
    assert "marginal likelihood" in page.locator("article").inner_text().lower()
    page.close()


def test_a_newcomer_finds_what_holds_of_the_abstract(reader, site):
    """One click from the first page; then each row has a verdict, and links whose target comes into view."""
    page = reader.new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/intro.html")
    page.locator("article a[href*='abstract.html']").first.click()
    page.wait_for_load_state()
    rows = page.locator("article table tbody tr").all()
    assert len(rows) >= 6  # the abstract has six sentences
    assert [row.inner_text() for row in rows if not row.locator(".verdict").count()] == []
    targets = [row.locator("a").evaluate_all("links => links.map(link => link.href)") for row in rows]
    assert all(targets)
    missing = [target for target in sum(targets, []) if not has_anchor(target)]
    nothing(missing)
    page.goto(targets[-1][0])
    settle(page)
    anchor = page.locator(f"[id='{targets[-1][0].partition('#')[2]}']")
    assert anchor.evaluate("found => found.getBoundingClientRect().top < innerHeight")
    page.close()


def has_anchor(address):
    """Whether file://…page.html#anchor exists."""
    path, _, anchor = address.removeprefix("file://").partition("#")
    text = Path(path).read_text(encoding="utf-8") if Path(path).is_file() else ""
    return bool(text) and (not anchor or f'id="{anchor}"' in text)


# Each check objects to a faulty page, and to nothing else -----------------------------------------------------------

BLACK_ON_WHITE = ("data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='300' height='200'>"
                  "<rect width='300' height='200' fill='white'/><path d='M20 20h200v20h-200z'/></svg>")
UNGROUNDED = BLACK_ON_WHITE.replace("fill='white'", "fill='none'")
SLIDER = ('<div class="moving" id="m"><svg width="100" height="50" role="img" aria-label="x"></svg><input type="range" '
          'max="3" aria-label="P"><output>0</output></div>')
WIRED = SLIDER + ('<script>document.querySelector("input").oninput = event => '
                  '{ document.querySelector("output").textContent = event.target.value }</script>')


@pytest.fixture
def show(reader):
    """Open a page with this article."""
    page = reader.new_page()

    def write(article, style=""):
        page.set_content(f'<!doctype html><html lang="en"><head><title>Page</title><style>{style}</style></head>'
                         f"<body><main><article>{article}</article></main></body></html>")
        return page
    yield write
    page.close()


@pytest.mark.parametrize(("check", "good", "bad"), [
    (checks.poor_alts, '<img alt="A blue curve that rises to zero." src="x">', '<img alt="image" src="x">'),
    (checks.poor_alts, '<div role="img" aria-label="Three frames of a curve."><svg></svg></div>', "<svg></svg>"),
    (checks.poor_alts, '<svg><title>A blue curve that rises to zero.</title></svg>', "<img src='x'>"),
    (checks.tex_errors, '<span class="math"><mjx-container></mjx-container></span>', '<span class="math">\\(x</span>'),
    (checks.tex_errors, "", '<span class="math"><mjx-container><mjx-merror>!</mjx-merror></mjx-container></span>'),
    (checks.sideways, '<div style="overflow: auto"><div style="width: 3000px">x</div></div>',
     '<div style="width: 3000px">x</div>'),
    (checks.axe_violations, "<h1>One</h1><label>P <input></label>", "<h1>One</h1><input>"),
    (checks.axe_violations, "<h1>One</h1>", '<h1>One</h1><p style="color: #bbb; background: #fff">pale</p>'),
    (checks.heading_faults, "<h1>One</h1><h2>Two</h2><h3>Three</h3><h2>Four</h2>", "<h1>One</h1><h3>Three</h3>"),
    (checks.heading_faults, "<h1>One</h1>", "<h1>One</h1><h1>Again</h1>"),
    (checks.repeated_ids, '<p id="a"></p><p id="b"></p>', '<p id="a"></p><p id="a"></p>'),
    (checks.unseen_focus, '<a href="#">link</a><button>b</button>', '<a href="#" style="outline: none">link</a>'),
    (checks.pale_pictures, f'<img src="{BLACK_ON_WHITE}">',
     f'<img style="filter: brightness(.4)" src="{BLACK_ON_WHITE}">'),
    (checks.pale_pictures, f'<img style="background: #fff" src="{UNGROUNDED}">',
     f'<div style="background: #121212"><img src="{UNGROUNDED}"></div>'),
    (checks.pale_words, '<svg><text y="20" fill="#000">m</text></svg>', '<svg><text y="20" fill="#aaa">m</text></svg>'),
    (checks.pale_words, '<div class="highlight"><pre>a <span style="color: #060">b</span></pre></div>',
     '<div class="highlight" style="background: #444"><pre>a <span style="color: #060">b</span></pre></div>'),
    (lambda page: checks.deaf_to_keys(page, page.locator(".moving")), WIRED, SLIDER),
    (lambda page: checks.deaf_to_keys(page, page.locator(".moving")), WIRED,
     WIRED.replace("<input", '<input tabindex="-1"')),
])
def test_a_check_objects_to_what_is_faulty_and_to_nothing_else(show, check, good, bad):
    assert check(show(good)) == []
    assert check(show(bad)) != []


def test_the_check_for_print_objects_to_controls_and_to_a_missing_picture(show):
    page = show(SLIDER)
    page.emulate_media(media="print")
    assert len(checks.print_faults(page)) == 1
    page = show(SLIDER, "@media print { input { display: none } }")
    assert checks.print_faults(page) == []
    page = show(SLIDER, "@media print { svg, input { display: none } }")
    assert len(checks.print_faults(page)) == 1


@pytest.mark.parametrize(("alt", "generic"), [
    ("", True), ("image", True), ("Figure 3", True), ("../_images/6c3ae.svg", True), ("A curve.", True),
    ("The plot of the figure 1, 2, 3", True), ("A blue curve that rises to zero at D masks.", False),
])
def test_an_alt_text_has_to_say_something(alt, generic):
    assert checks.is_generic(alt) is generic


def test_a_page_that_fails_is_heard(reader, tmp_path):
    path = tmp_path / "page.html"
    path.write_text('<img src="missing.png"><script>console.error("on purpose"); thrown()</script>')
    visit = Visit(reader, path)
    visit.page.close()
    assert len(visit.errors) >= 3 and any("on purpose" in error for error in visit.errors)


def test_pages_are_repaired():
    """Each repair of book_polish.py finds what it is for, and leaves other text alone."""
    for before, after in book_polish.REPAIRS:
        assert book_polish.repair(f"<p>{before}</p>") == f"<p>{after}</p>"
    assert book_polish.repair("<p>text</p>") == "<p>text</p>"


def test_every_repair_is_still_needed(site):
    """A repair that a new version of the theme has made idle would stand in book_polish.py for nothing."""
    text = "".join(path.read_text(encoding="utf-8") for path in site.glob("*/*.html"))
    assert [after for _, after in book_polish.REPAIRS if after and after not in text] == []
    assert [before for before, _ in book_polish.REPAIRS if before in text] == []


def test_a_browser_is_found_by_its_name(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert book_browser.find_chromium({}) is None
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert book_browser.find_chromium({}) == str(program)
    assert book_browser.find_chromium({"CHROMIUM": str(program)}) == str(program)
    with pytest.raises(ValueError, match="not a program"):
        book_browser.find_chromium({"CHROMIUM": "no-such-browser"})
