"""The built site as a reader meets it: every page opened in a browser, from its folder as an offline reader does.

The checks are in browser_checks.py. A test is skipped, and says why, where there is no Chromium or no built book.
"""

import re
import sys
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import browser_checks as checks
import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import book_browser  # noqa: E402
import book_polish  # noqa: E402

HEAVIEST_PAGE = 2_500_000  # bytes a page needs beyond what all pages share: some ten seconds on a slow telephone line
HEAVIEST_SHARED = 4_500_000  # style, icons and MathJax, fetched once; uncompressed, as a folder holds them
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text())
PAGES = [TOC["root"], *(page["file"] for part in TOC["parts"] for page in part["chapters"]), "search"]

# Each check is tried on one article that is right and one that is faulty, then on all pages.
ALT = "A blue curve that rises to zero."
BLACK_ON_WHITE = ("data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='300' height='200'>"
                  "<rect width='300' height='200' fill='white'/><path d='M20 20h200v20h-200z'/></svg>")
UNGROUNDED = BLACK_ON_WHITE.replace("fill='white'", "fill='none'")
SLIDER = ('<style>@media print { input { display: none } }</style><div class="moving">'
          '<svg width="100" height="50"></svg><input type="range" max="3"><output>0</output></div>')
WIRED = SLIDER + ('<script>document.querySelector("input").oninput = event => '
                  '{ document.querySelector("output").textContent = event.target.value }</script>')
COPY = '<div class="cell_input"><pre>1 + 1</pre><button class="copybtn" onclick="navigator.clipboard.writeText({})">'
WIDE = '<h1>1</h1><p style="overflow: auto" {}><b style="padding: 0 900px">x</b></p>'
CODE = '<div class="highlight" style="background: {}"><pre>a <span style="color: #060">b</span></pre></div>'
PALE = '<h1>One</h1><p style="color: {}; background: #fff">words</p>'
TWINS = [  # (check, how the page is shown, nothing wrong, something wrong)
    (checks.poor_alts, "screen", f'<img alt="{ALT}" src="x">', '<img alt="The plot of the figure 1, 2, 3" src="x">'),
    (checks.poor_alts, "screen", f'<div role="img" aria-label="{ALT}"><svg></svg></div>', "<svg></svg>"),
    (checks.poor_alts, "screen", f"<svg><title>{ALT}</title></svg>", '<img src="x" alt="../_images/curve-6c3ae.svg">'),
    (checks.tex_errors, "screen", '<a class="math"><mjx-container></mjx-container></a>', '<a class="math">\\(x</a>'),
    (checks.tex_errors, "screen", "", '<a class="math"><mjx-container><mjx-merror>!</mjx-merror></mjx-container></a>'),
    (checks.axe_violations, "screen", "<h1>1</h1><h2>2</h2><h3>3</h3><h2>2</h2>", "<h1>1</h1><h3>3</h3>"),
    (checks.axe_violations, "screen", '<h1 id="a">1</h1><p id="b"></p>', '<h1 id="a">1</h1><p id="a"></p>'),
    (checks.axe_violations, "screen", "<h1>One</h1><label>P <input></label>", "<h1>One</h1><input>"),
    (checks.axe_violations, "screen", PALE.format("#000"), PALE.format("#bbb")),
    (checks.axe_violations, "dark", PALE.format("#000"), PALE.format("#bbb")),
    (checks.pale_words, "screen", '<svg><text y="9">m</text></svg>', '<svg><text y="9" fill="#aaa">m</text></svg>'),
    (checks.pale_words, "dark", CODE.format("#fff"), CODE.format("#444")),
    (checks.pale_pictures, "dark", f'<img src="{BLACK_ON_WHITE}">',
     f'<img style="filter: brightness(.4)" src="{BLACK_ON_WHITE}">'),
    (checks.pale_pictures, "dark", f'<img style="background: #fff" src="{UNGROUNDED}">',
     f'<div style="background: #121212"><img src="{UNGROUNDED}"></div>'),
    (checks.unseen_focus, "screen", '<a href="#">link</a>', '<a href="#" style="outline: none">link</a>'),
    (checks.stuck_folds, "screen", "<details><summary>a</summary></details>",
     '<details><summary onclick="event.preventDefault()">a</summary></details>'),
    (checks.wrong_copies, "screen", COPY.format("'1 + 1'"), COPY.format("'>>> 1 + 1'")),
    (checks.deaf_to_keys, "screen", WIRED, SLIDER),
    (checks.deaf_to_keys, "screen", WIRED, WIRED.replace("<input", '<input tabindex="-1"')),
    (checks.sideways, "phone", WIDE.format(""), WIDE.replace("auto", "visible")),
    (checks.axe_violations, "phone", WIDE.format('tabindex="0"'), WIDE.format("")),
    (checks.left_on_paper, "print", SLIDER, SLIDER.replace("display", "float")),
    (checks.left_on_paper, "print", SLIDER, SLIDER.replace("svg", "b")),
    (checks.left_on_paper, "print", "", '<button class="copybtn">Copy</button>'),
]
CHECKS = list(dict.fromkeys((check, how) for check, how, _, _ in TWINS))


class Visit:
    """A page that is open in the browser, with what it asked for and what failed while it loaded."""

    def __init__(self, context, path):
        self.page, self.requests, self.errors = context.new_page(), [], []
        self.page.on("request", lambda request: self.requests.append(request.url.split("?")[0].split("#")[0]))
        self.page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        checks.settle(self.page)


@pytest.fixture(scope="module")
def reader(chromium):
    """A browser session of its own, on a screen, in light colours, whose clipboard may be read."""
    with book_browser.chromium(chromium) as browser:
        context = browser.new_context(viewport=checks.DESKTOP, color_scheme="light", reduced_motion="reduce")
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.set_default_timeout(60_000)  # patience for a busy machine; nothing here waits that long otherwise
        yield context


visited = {}  # {page: its Visit}, for what is said of all pages together


@pytest.fixture(scope="module", params=PAGES)
def visit(request, reader, built_site):
    visit = visited[request.param] = Visit(reader, built_site / f"{request.param}.html")
    yield visit
    visit.page.close()


def test_a_page_loads_its_own_files_and_reports_no_error(visit, built_site):
    assert [url for url in visit.requests if not url.startswith((built_site.as_uri(), "data:", "blob:"))] == []
    assert visit.errors == []


@pytest.mark.parametrize(("check", "how"), CHECKS, ids=lambda value: getattr(value, "__name__", value))
def test_page(visit, check, how):
    checks.show(visit.page, how)
    assert check(visit.page) == []


@pytest.fixture(scope="module")
def soups(built_site):
    return {page: BeautifulSoup((built_site / f"{page}.html").read_text(encoding="utf-8"), "html.parser")
            for page in PAGES}


def test_every_page_that_was_built_is_looked_at_and_has_one_title_of_its_own(soups, built_site):
    built = {path.relative_to(built_site).with_suffix("").as_posix() for path in built_site.rglob("*.html")}
    assert {page for page in built if not page.startswith("_")} == {*PAGES, "index"}
    assert len({soup.title.get_text() for soup in soups.values()}) == len(PAGES)
    assert {len(soup.select("main h1:not(#jb-print-docs-body h1)")) for soup in soups.values()} == {1}


def test_the_checks_meet_what_they_look_for(soups):
    for selector in (checks.FOLDS, checks.COPIED, checks.MOVING, ".math", "article svg", "article table"):
        assert any(soup.select(selector) for soup in soups.values()), selector


def test_solutions_are_folded_below_their_exercises(soups):
    for number, page in enumerate(sorted(page for page in PAGES if page.startswith("notebooks/")), 1):
        exercises = soups[page].select(".exercise .caption-number")
        folds = soups[page].select(".exercise + details:not([open]) > summary")
        names = [f"Exercise {number}.{place}" for place, _ in enumerate(exercises, 1)]
        assert names and [exercise.get_text().strip() for exercise in exercises] == names
        assert [fold.get_text().strip() for fold in folds] == [f"Solution to {name}" for name in names]


def test_a_verdict_on_the_abstract_is_no_better_than_the_claims_it_names():
    claims = {claim["id"]: claim["verdict"] for claim in yaml.safe_load((ROOT / "book" / "claims.yml").read_text())}
    abstract = (ROOT / "book" / "abstract.md").read_text()
    named = [id for row in abstract.splitlines() if "[reproduced]{.verdict}" in row
             for id in re.findall(r"\{claim\}`([\w-]+)`", row)]
    assert named
    assert {claims[id] for id in named} <= {"reproduced", "new"}


def test_every_repair_is_still_needed(soups, built_site):
    """A repair that a new version of the theme has made idle would stand in book_polish.py for nothing."""
    text = "".join((built_site / f"{page}.html").read_text(encoding="utf-8") for page in soups)
    assert [after for _, after in book_polish.REPAIRS if after and after not in text] == []
    assert [before for before, _ in book_polish.REPAIRS if before in text] == []


def test_no_page_is_heavy(built_site):
    if set(visited) != set(PAGES):
        pytest.skip("only some of the pages were opened")
    loaded = {name: {url for url in visit.requests if url.startswith("file:")} for name, visit in visited.items()}
    asked = set.union(*loaded.values())
    shared = set.intersection(*loaded.values()) | {url for url in asked if "/woff" in url or "/mathjax/" in url}
    size = {url: (built_site / url.removeprefix(built_site.as_uri() + "/")).stat().st_size for url in asked}
    weights = {name: sum(size[url] for url in urls - shared) for name, urls in loaded.items()}
    assert {name: weight for name, weight in weights.items() if weight > HEAVIEST_PAGE} == {}
    assert sum(size[url] for url in shared) < HEAVIEST_SHARED


def test_search_finds_the_marginal_likelihood(reader, built_site):
    page = reader.new_page()
    page.goto(f"{(built_site / 'search.html').as_uri()}?q=marginal+likelihood")
    results = page.locator("#search-results li a")
    results.nth(4).wait_for()  # at least five
    results.first.click()
    page.wait_for_url(lambda url: "search.html" not in url)
    assert "marginal likelihood" in page.locator("article").inner_text().lower()


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
    path.write_text(f'<!doctype html><html lang="en"><head><title>Page</title></head><body><main><article>{article}'
                    "</article></main></body></html>", encoding="utf-8")
    return Visit(reader, path)


@pytest.mark.parametrize(("check", "how", "right", "faulty"), TWINS)
def test_a_check_objects_to_what_is_faulty_and_to_nothing_else(reader, tmp_path, check, how, right, faulty):
    for article, objects in ((right, False), (faulty, True)):
        page = visit_article(reader, tmp_path, article).page
        checks.show(page, how)
        assert bool(check(page)) is objects


def test_a_page_that_fails_is_heard(reader, tmp_path):
    visit = visit_article(reader, tmp_path, '<img src="missing.png"><script>console.error("purpose"); thrown()</script>'
                                            '<img src="https://nowhere.invalid/a.png">')
    assert len(visit.errors) >= 4 and any("purpose" in error for error in visit.errors)
    assert "https://nowhere.invalid/a.png" in visit.requests
