"""The built site as a reader meets it: every page opened in a browser, from its folder as an offline reader does.

A test is skipped, and says why, where there is no Chromium or no built book.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import book_polish
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from conftest import DESKTOP, ROOT

TOC = yaml.safe_load((ROOT / "_toc.yml").read_text())
PAGES = [
    TOC["root"],
    *(page["file"] for part in TOC["parts"] for page in part["chapters"]),
    "search",
]
PHONE = {"width": 390, "height": 844}
AXE = {
    "resultTypes": ["violations"],
    "rules": {name: {"enabled": True} for name in ("duplicate-id", "target-size")},
}


class Visit:
    """A page that is open in the browser, with what it asked for and what failed while it loaded."""

    def __init__(self, context, path):
        self.page, self.requests, self.errors = context.new_page(), [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("requestfailed", lambda request: self.errors.append(f"failed: {request.url}"))
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(path.as_uri())
        still = "*, *::before, *::after { transition: none !important; animation: none !important }"
        self.page.add_style_tag(content=still)
        self.page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
        # the theme makes what scrolls reachable by keyboard a moment after loading
        self.page.wait_for_timeout(150)


@pytest.fixture(scope="module", params=PAGES)
def visit(request, reader, built_site):
    visit = Visit(reader, built_site / f"{request.param}.html")
    yield visit
    visit.page.close()


def show(page, how):
    """Show the page on a "screen" (light and wide), "dark", on a "phone" or in "print"."""
    colours = "dark" if how == "dark" else "light"
    page.emulate_media(media="print" if how == "print" else "screen", color_scheme=colours)
    page.wait_for_function(
        "colours => document.documentElement.dataset.theme === colours", arg=colours
    )
    size = PHONE if how == "phone" else DESKTOP
    if page.viewport_size != size:
        page.set_viewport_size(size)
        # the theme waits for the end of a resize before it looks what scrolls now
        page.wait_for_timeout(400)


def markup(page, selector):
    """The beginnings of the elements that match."""
    return page.locator(selector).evaluate_all(
        "found => found.map(it => it.outerHTML.slice(0, 160))"
    )


def test_a_page_loads_its_own_files_and_reports_no_error(visit, built_site):
    assert [
        url for url in visit.requests if not url.startswith((built_site.as_uri(), "data:", "blob:"))
    ] == []
    assert visit.errors == []


def test_a_page_loads_at_most_two_and_a_half_megabytes(visit):
    files = {Path(unquote(urlsplit(url).path)) for url in visit.requests if url.startswith("file:")}
    assert sum(file.stat().st_size for file in files) <= 2_500_000


@pytest.mark.parametrize("how", ["screen", "dark", "phone"])
def test_axe_objects_to_nothing(visit, how):
    show(visit.page, how)
    found = (
        Axe()
        .run(visit.page, context={"exclude": ["mjx-container"]}, options=AXE)
        .response["violations"]
    )
    assert [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]] == []


def test_formulas_are_typeset(visit):
    assert markup(visit.page, "mjx-merror, [data-mjx-error], .math:not(:has(mjx-container))") == []


def test_a_page_is_no_wider_than_a_phone(visit):
    show(visit.page, "phone")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_drawings_are_turned_round_in_the_dark(visit):
    for how in ("screen", "dark"):
        show(visit.page, how)
        filters = "found => found.map(drawn => getComputedStyle(drawn).filter !== 'none')"
        assert set(visit.page.locator(":is(.drawing svg, .moving-svg)").evaluate_all(filters)) <= {
            how == "dark"
        }


def test_moving_figures_answer_to_keys(visit):
    show(visit.page, "screen")
    for figure in visit.page.locator("article .moving").all():
        figure.scroll_into_view_if_needed()  # what is far away may not be alive yet
        readout = figure.locator(".moving-readout")
        said = readout.inner_text()
        figure.locator("input").first.press("ArrowRight")
        assert readout.inner_text() != said
        figure.locator(".moving-picture").press("ArrowRight")
        assert figure.locator(".moving-tip").inner_text()


def test_paper_has_pictures_and_no_controls(visit):
    show(visit.page, "print")
    moving = "article .moving"
    assert (
        markup(
            visit.page,
            f":is({moving} :is(input, select, button), .bd-sidebar-primary, .copybtn):visible",
        )
        == []
    )
    assert markup(visit.page, f"{moving}:not(:has(:is(svg, img):visible))") == []


def test_every_page_that_was_built_is_looked_at_and_has_a_title_of_its_own(page, built_site):
    built = {
        path.relative_to(built_site).with_suffix("").as_posix()
        for path in built_site.rglob("*.html")
    }
    assert {name for name in built if not name.startswith("_")} == {*PAGES, "index"}
    assert len({page(name).title.get_text() for name in PAGES}) == len(PAGES)


def test_every_picture_says_what_it_shows(page):
    for name in PAGES:
        for picture in page(name).select("article svg:not([aria-hidden], [aria-hidden] *)"):
            shown = picture.find_parent(role="img")
            assert shown and len(shown["aria-label"].split()) > 5, f"{name}: {str(picture)[:160]}"


def test_solutions_are_folded_below_their_exercises(page):
    for number, chapter in enumerate(
        sorted(name for name in PAGES if name.startswith("notebooks/")), 1
    ):
        exercises = [
            name.get_text().strip() for name in page(chapter).select(".exercise .caption-number")
        ]
        folds = page(chapter).select(".exercise + details:not([open]) > summary")
        assert (
            exercises == [f"Exercise {number}.{place}" for place in range(1, len(folds) + 1)] != []
        )
        assert [fold.get_text().strip() for fold in folds] == [
            f"Solution to {name}" for name in exercises
        ]


def test_a_verdict_on_the_abstract_is_no_better_than_the_claims_it_names():
    claims = {
        claim["id"]: claim["verdict"]
        for claim in yaml.safe_load((ROOT / "book" / "claims.yml").read_text())
    }
    abstract = (ROOT / "book" / "abstract.md").read_text()
    rows = re.findall(r".*\[reproduced\]\{\.verdict \.verdict-reproduced\}.*", abstract)
    named = re.findall(r"\{claim\}`([\w-]+)`", "".join(rows))
    assert {claims[id] for id in named} | {"new"} == {"reproduced", "new"}


def test_every_repair_is_still_needed(built_site):
    text = "".join(path.read_text(encoding="utf-8") for path in built_site.rglob("*.html"))
    assert [after for _, after in book_polish.REPAIRS if after not in text] == []


def test_the_game_hides_its_word_until_the_reader_guesses_and_nothing_plays_by_itself(
    reader, built_site
):
    moving = reader.browser.new_context(viewport=DESKTOP)  # this reader did not ask for less motion
    page = Visit(moving, built_site / f"{TOC['root']}.html").page
    game = page.locator("[data-kind=mask]")
    assert game.bounding_box()["y"] < DESKTOP["height"] / 2  # it is what the page begins with
    words, guess = game.locator(".moving-words"), game.get_by_role("group", name="Your guess")
    assert "dogs" not in words.inner_text()
    before = page.locator("article").inner_html()
    page.wait_for_timeout(2000)
    assert page.locator("article").inner_html() == before
    assert guess.locator("button").all_text_contents() == ["birds", "cats", "dogs"]
    guess.get_by_text("cats").press("Enter")
    assert "dogs 55%" in words.inner_text()
    assert "No: it was dogs" in game.locator(".moving-readout").inner_text()
    guess.get_by_text("Hide one more").press("Enter")
    assert words.locator("[aria-pressed=true]").all_inner_texts() == ["\xa0", "\xa0"]
    moving.close()


def test_shuffles_end_at_one_point_or_apart(reader, built_site):
    page = Visit(reader, built_site / f"{TOC['root']}.html").page
    picture = page.locator("[data-kind=orders]")
    said = picture.locator(".moving-readout")
    picture.get_by_text("Shuffle 200 times").press("Enter")
    assert picture.locator(".fan").count() == 200
    heights = "dots => [...new Set(dots.map((dot) => Math.round(dot.getAttribute('cy'))))].length"
    ends = picture.locator("circle.blue")
    assert ends.evaluate_all(heights) == 1
    assert "Every order ends at" in said.inner_text()
    picture.get_by_text("contradicts itself").press("Enter")
    assert ends.evaluate_all(heights) > 20
    assert "no single log p(x)" in said.inner_text()


def test_code_that_shows_nothing_stands_back(reader, built_site):
    page = Visit(reader, built_site / "notebooks" / "02_proposition.html").page
    cell = page.locator("div.cell:has(#measured-eq4-factor)")
    everywhere = page.locator(".show-code").first
    for button in (page.locator("section:has(#measured-eq4-factor) > .show-code").last, everywhere):
        assert not cell.is_visible()
        button.click()
        assert cell.locator("pre").first.is_visible()
        button.click()
    assert not page.locator("details.above-input > summary:visible").count()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("LML", "notebooks/"),
        ("ELBO", "notebooks/"),
        ("pseudolikelihood", "notebooks/07"),
        ("score_curve", "book/api.html#mptlml.score.score_curve"),
    ],
)
def test_a_search_by_its_shortcut_leads_to_where_it_is_marked(reader, built_site, query, first):
    page = Visit(reader, built_site / f"{TOC['root']}.html").page
    page.keyboard.press("Control+k")
    page.keyboard.type(query)
    page.keyboard.press("Enter")
    page.locator(".search-summary", has_text="found").wait_for()
    result = page.locator("#search-results li a").first
    assert result.get_attribute("href").startswith(first)
    result.click()
    page.wait_for_function("""() => [...document.querySelectorAll(".highlighted")].some((mark) => {
      const { top, bottom } = mark.getBoundingClientRect();
      return mark.checkVisibility() && top >= 0 && bottom <= innerHeight; })""")
    assert {
        mark.lower() for mark in page.locator(".highlighted:not(rect)").all_text_contents()
    } == {query.lower()}
    shown = 'Search.htmlToText(\'<div role="main">a <span class="math">x_j</span>b</div>\')'
    assert page.evaluate(shown) == "a b"  # what search quotes has no TeX


def test_a_claim_leads_to_its_sentence_its_story_and_its_cell(reader, built_site):
    page = Visit(reader, built_site / "book" / "scorecard.html").page
    page.locator("#claim-table1-p10 td:first-child > a").click()
    value = page.locator("button#claim-table1-p10")
    story = page.locator(f"#{value.get_attribute('popovertarget')}")
    story.locator("text=Band").wait_for()
    assert 0 <= value.bounding_box()["y"] < DESKTOP["height"]
    assert 0 <= story.bounding_box()["y"] < DESKTOP["height"] - story.bounding_box()["height"]
    page.keyboard.press("Escape")
    assert not story.is_visible()
    value.hover()
    story.wait_for()
    page.mouse.move(0, 0)
    story.wait_for(state="hidden")
    value.focus()
    page.keyboard.press("Enter")
    link = story.locator("a", has_text="in this cell")
    cell = page.locator(f"div.cell:has(#{link.get_attribute('href').split('#')[1]})")
    link.click()
    cell.locator("div.cell_input", has_text='report.claim(f"table1-p{P}"').wait_for()
    assert not story.is_visible()


def test_a_citation_and_a_link_to_a_figure_show_what_they_lead_to(reader, built_site):
    page = Visit(reader, built_site / "notebooks" / "06_area.html").page
    card = page.locator("article > .told")
    for link, told in (
        ("a[href*='references.html#']", "1931"),
        ("p a.reference[href^='#fig-']", "Figure 6."),
    ):
        page.locator(link).first.hover()
        card.locator(f"text={told}").first.wait_for()
        assert not card.locator("[id]").count()
        page.mouse.move(0, 0)
        card.wait_for(state="hidden")


def test_a_dark_page_with_folded_solutions_is_printed_light_and_open(reader, built_site):
    page = Visit(reader, built_site / "notebooks" / "02_proposition.html").page
    state = (
        "[document.documentElement.dataset.theme, "
        "...new Set(Array.from(document.querySelectorAll('details.sd-dropdown'), (fold) => fold.open))]"
    )
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    for event, expected in (("beforeprint", ["light", True]), ("afterprint", ["dark", False])):
        page.evaluate(f"dispatchEvent(new Event('{event}'))")
        assert page.evaluate(state) == expected


def test_every_link_inside_the_book_has_its_target(page):
    ids = {f"/{name}.html": {tag["id"] for tag in page(name).select("[id]")} for name in PAGES}
    for name in PAGES:
        for link in page(name).select("article a[href]"):
            target, anchor = urldefrag(urljoin(f"/{name}.html", link["href"]))
            if anchor and target.startswith("/"):
                assert anchor in ids[target], f"{name}: {link['href']}"
