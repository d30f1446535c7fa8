"""The built site as a reader meets it: every page opened in a browser, from its folder as an offline reader does.

The checks are in browser_checks.py. A test is skipped, and says why, where there is no Chromium or no built book.
"""

import re
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import book_polish
import browser_checks as checks
import pytest
import yaml
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
HEAVIEST_PAGE = 5_000_000  # bytes, the style, icons and MathJax that all pages share among them
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text())
PAGES = [TOC["root"], *(page["file"] for part in TOC["parts"] for page in part["chapters"]), "search"]


class Visit:
    """A page that is open in the browser, with what it asked for and what failed while it loaded."""

    def __init__(self, context, path):
        self.page, self.requests, self.errors = context.new_page(), [], []
        self.page.on("request", lambda request: self.requests.append(request.url.split("?")[0].split("#")[0]))
        self.page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        still = "*, *::before, *::after { transition: none !important; animation: none !important }"
        self.page.add_style_tag(content=still)
        self.page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
        self.page.wait_for_timeout(150)  # the theme makes what scrolls reachable by keyboard a moment after loading


@pytest.fixture(scope="module")
def reader(chromium):
    """A browser session of its own, on a screen, in light colours, whose clipboard may be read."""
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium) as browser:
        context = browser.new_context(viewport=checks.DESKTOP, color_scheme="light", reduced_motion="reduce")
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(60_000)  # patience for a busy machine; nothing here waits that long otherwise
        yield context


@pytest.fixture(scope="module", params=PAGES)
def visit(request, reader, built_site):
    visit = Visit(reader, built_site / f"{request.param}.html")
    yield visit
    visit.page.close()


def test_a_page_loads_its_own_files_and_reports_no_error(visit, built_site):
    assert [url for url in visit.requests if not url.startswith((built_site.as_uri(), "data:", "blob:"))] == []
    assert visit.errors == []
    files = {url.removeprefix(built_site.as_uri() + "/") for url in visit.requests if url.startswith("file:")}
    assert sum((built_site / name).stat().st_size for name in files) < HEAVIEST_PAGE


@pytest.mark.parametrize(("check", "how"), checks.CHECKS, ids=lambda value: getattr(value, "__name__", value))
def test_page(visit, check, how):
    checks.show(visit.page, how)
    assert check(visit.page) == []


@pytest.fixture(scope="module")
def soups(page):
    return {name: page(name) for name in PAGES}


def test_every_page_that_was_built_is_looked_at_and_has_a_title_of_its_own(soups, built_site):
    built = {path.relative_to(built_site).with_suffix("").as_posix() for path in built_site.rglob("*.html")}
    assert {page for page in built if not page.startswith("_")} == {*PAGES, "index"}
    assert len({soup.title.get_text() for soup in soups.values()}) == len(PAGES)


def test_a_page_is_light_beyond_what_all_pages_share(built_site):
    weights = {page: (built_site / f"{page}.html").stat().st_size for page in PAGES}
    heavy = {page for page, weight in weights.items() if weight - weights["search"] > 300_000}  # bytes; it has no text
    assert heavy <= {"book/passport"}  # every figure of the paper


def test_the_checks_meet_what_they_look_for(soups):
    for selector in (checks.FOLDS, checks.COPIED, checks.MOVING, ".math", "article svg", "article table"):
        assert any(soup.select(selector) for soup in soups.values()), selector


def test_solutions_are_folded_below_their_exercises(soups):
    for number, page in enumerate(sorted(page for page in PAGES if page.startswith("notebooks/")), 1):
        exercises = [name.get_text().strip() for name in soups[page].select(".exercise .caption-number")]
        folds = soups[page].select(".exercise + details:not([open]) > summary")
        assert exercises == [f"Exercise {number}.{place}" for place in range(1, len(folds) + 1)] != []
        assert [fold.get_text().strip() for fold in folds] == [f"Solution to {name}" for name in exercises]


def test_a_verdict_on_the_abstract_is_no_better_than_the_claims_it_names():
    claims = {claim["id"]: claim["verdict"] for claim in yaml.safe_load((ROOT / "book" / "claims.yml").read_text())}
    rows = re.findall(r".*\[reproduced\]\{\.verdict\}.*", (ROOT / "book" / "abstract.md").read_text())
    named = re.findall(r"\{claim\}`([\w-]+)`", "".join(rows))
    assert {claims[id] for id in named} | {"new"} == {"reproduced", "new"}


def test_every_repair_is_still_needed(built_site):
    text = "".join(path.read_text(encoding="utf-8") for path in built_site.rglob("*.html"))
    assert [after for _, after in book_polish.REPAIRS if after not in text] == []


def test_the_search_by_its_shortcut_finds_the_marginal_likelihood(reader, built_site):
    page = Visit(reader, built_site / f"{TOC['root']}.html").page
    page.keyboard.press("Control+k")
    page.keyboard.type("marginal likelihood")
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    results.nth(4).wait_for()  # at least five
    results.first.click()
    page.wait_for_url(lambda url: "search.html" not in url)
    assert "marginal likelihood" in page.locator("article").inner_text().lower()


@pytest.mark.parametrize(("query", "first"), [
    ("80/10/10", "notebooks/10_bert.html#bert-s-own-corruption-rule"), ("LML", "notebooks/"),
    ("score_curve", "book/api.html#mptlml.score.score_curve")])
def test_a_search_leads_to_a_section_where_it_is_marked(reader, built_site, query, first):
    page = Visit(reader, built_site / "search.html").page
    page.goto(f"{(built_site / 'search.html').as_uri()}?q={query}")
    page.locator(".search-summary", has_text="found").wait_for()
    found = [link.get_attribute("href") for link in page.locator("#search-results li a").all()]
    places = [address.startswith("notebooks/") - address.startswith("book/api") for address in found]
    assert found[0].startswith(first) and sum("#" in address for address in found) > len(found) / 2
    assert places[1:] == sorted(places[1:], reverse=True)  # all chapters, other pages, the API
    page.locator("#search-results li a").first.click()
    page.locator(".highlighted").first.wait_for(state="attached")
    marks = page.locator(".highlighted").all_text_contents()
    assert {mark.lower() for mark in marks} == {query.lower()}
    page.close()


@pytest.fixture(scope="module", params=[True, False], ids=["with script", "without"])
def record_reader(request, reader):
    """Whether a browser session runs scripts, and the session."""
    with reader.browser.new_context(viewport=checks.DESKTOP, java_script_enabled=request.param) as context:
        context.set_default_timeout(60_000)
        yield request.param, context


def test_the_scorecard_is_a_list_that_a_script_filters(record_reader, built_site):
    script, context = record_reader
    page = context.new_page()
    page.goto((built_site / "book" / "scorecard.html").as_uri())
    rows = page.locator("tr[data-verdict]")
    assert page.locator(".filters").is_visible() is script
    assert page.locator("tr[data-verdict]:visible").count() == rows.count()
    if script:
        page.locator("select[name=verdict]").select_option("partly")
        page.locator("select[name=chapter]").select_option("05_training")
        left = page.locator("tr[data-verdict]:visible").all()
        assert {(row.get_attribute("data-verdict"), row.get_attribute("data-chapter")) for row in left} == {
            ("partly", "05_training")}
        assert page.locator(".filters output").inner_text() == f"{len(left)} of {rows.count()} claims"
        assert page.locator("tr[data-of]:visible").count() == 1
    page.close()


def test_a_claim_leads_to_its_cell_opened_and_in_view(record_reader, built_site):
    script, context = record_reader
    page = context.new_page()
    page.goto((built_site / "book" / "scorecard.html").as_uri())
    page.locator("#claim-table1-p10 td:first-child > a").click()
    page.wait_for_url("**/04_convergence.html#claim-table1-p10")
    claim = page.locator("details#claim-table1-p10")
    claim.wait_for()
    if script:
        page.locator("details#claim-table1-p10[open]").wait_for()
    story = claim.locator("dl").is_visible()
    code = page.locator("div.cell:has(#claim-table1-p10) div.cell_input").first.is_visible()
    assert (story, code) == (script, script)
    if script:
        assert 0 <= claim.bounding_box()["y"] < checks.DESKTOP["height"]
    page.close()


def test_the_theme_switch_chooses_the_colours(reader, built_site):
    page = Visit(reader, built_site / f"{TOC['root']}.html").page
    modes = []
    for _ in range(3):
        page.locator(".theme-switch-button:visible").click()
        modes.append(page.locator("html").get_attribute("data-mode"))
    assert sorted(modes) == ["auto", "dark", "light"]


def test_every_link_inside_the_book_has_its_target(soups):
    ids = {f"/{page}.html": {tag["id"] for tag in soup.select("[id]")} for page, soup in soups.items()}
    for page, soup in soups.items():
        for link in soup.select("article a[href]"):
            target, anchor = urldefrag(urljoin(f"/{page}.html", link["href"]))
            if anchor and target.startswith("/"):
                assert anchor in ids[target], f"{page}: {link['href']}"


def visit_article(reader, folder, article):
    """A visit to a page with this article and nothing else."""
    path = folder / "page.html"
    path.write_text('<!doctype html><html lang="en"><head><title>Page</title></head>'
                    f"<body><main><article>{article}</article></main></body></html>", encoding="utf-8")
    return Visit(reader, path)


@pytest.mark.parametrize(("check", "how", "article", "objects"), checks.TWINS)
def test_a_check_objects_to_what_is_faulty_and_to_nothing_else(reader, tmp_path, check, how, article, objects):
    page = visit_article(reader, tmp_path, article).page
    checks.show(page, how)
    assert bool(check(page)) is objects
    page.close()


def test_a_page_that_fails_is_heard(reader, tmp_path):
    visit = visit_article(reader, tmp_path, '<script>console.error("purpose"); thrown()</script>'
                                            '<img src="https://nowhere.invalid/a.png">')
    assert len(visit.errors) >= 3 and any("purpose" in error for error in visit.errors)
    assert "https://nowhere.invalid/a.png" in visit.requests
