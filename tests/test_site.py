"""The built site as a reader meets it, in a browser, from its folder as an offline reader does.

A test is skipped, and says why, where there is no Chromium or no built book.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from conftest import DESKTOP, text_of

from mptlml_book.report.claims import claims

TOC = yaml.safe_load(text_of("_toc.yml"))
PAGES = [
    TOC["root"],
    *(page["file"] for part in TOC["parts"] for page in part["chapters"]),
    "search",
]
CONFIG = yaml.safe_load(text_of("_config.yml"))["sphinx"]["config"]
MOVED = CONFIG["html_context"]["moved"]
PHONE = {"width": 390, "height": 844}
KINDS = TOC["root"], "notebooks/02_proposition", "book/scorecard", "book/references"

# What is wrong with a page, in words
LOOK = """() => {
  const found = (selector) => [...document.querySelectorAll(selector)];
  const tex = found("mjx-merror, [data-mjx-error], .math:not(:has(mjx-container))");
  const drawn = found("article svg:not([aria-hidden], [aria-hidden] *, button *)");
  const mute = drawn.filter((it) => !(it.closest("[role=img]")?.ariaLabel.split(" ").length > 5));
  const wide = document.documentElement.scrollWidth > innerWidth ? [document.documentElement] : [];
  return [...tex, ...mute, ...found("article img:not([alt])"), ...wide].map((it) => it.outerHTML.slice(0, 160));
}"""
AXE = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
DRAWN = ":is(.drawing svg, .moving-svg)"
TURNED = "found => found.map(drawn => getComputedStyle(drawn).filter !== 'none')"


def visit(page, path):
    """Open a file, and wait until its formulas are set."""
    page.goto(path.as_uri())
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    return page


@pytest.fixture
def opened(context, built_site):
    """opened("book/intro") is a page of the site in the browser."""
    context.set_default_timeout(60_000)  # patience for a busy machine
    return lambda name: visit(context.new_page(), built_site / f"{name}.html")


def test_all_pages_in_one_visit_each(context, built_site):
    """Nothing fails or comes from elsewhere, formulas are set, pictures have words, and a phone shows it all."""
    requests, wrong = [], []
    context.on("request", lambda request: requests.append(request.url))
    context.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    context.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    page = context.new_page()
    for name in PAGES:
        requests.clear()
        page.set_viewport_size(PHONE)
        page.emulate_media(media="screen", color_scheme="light")
        visit(page, built_site / f"{name}.html")
        wrong += page.evaluate(LOOK)
        files = {Path(unquote(urlsplit(url).path)) for url in requests if url.startswith("file:")}
        numbers = page.locator(".moving script").all_text_contents()  # for what moves, and no more
        weight = sum(file.stat().st_size for file in files) - sum(map(len, numbers))
        assert weight <= 2_500_000, name
        inside = built_site.as_uri(), "data:", "blob:"
        wrong += [url for url in requests if not url.startswith(inside)]
        assert set(page.locator(DRAWN).evaluate_all(TURNED)) <= {False}, name
        for figure in page.locator("article .moving").all():
            figure.scroll_into_view_if_needed()
            readout = figure.locator(".moving-readout")
            said = readout.inner_text()
            figure.locator("input").first.press("ArrowRight")
            assert readout.inner_text() != said, name
            figure.locator(".moving-picture").press("ArrowRight")
            assert figure.locator(".moving-tip").inner_text(), name
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
        assert set(page.locator(DRAWN).evaluate_all(TURNED)) <= {True}, name
        page.emulate_media(media="print")
        controls = page.locator("article .moving :is(input, select, button):visible")
        stills = page.locator("article .moving:has(:is(svg, img):visible)")
        assert not controls.count() and stills.count() == page.locator("article .moving").count()
        assert wrong == [], name


@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing_serious(opened, name):
    """In light colours, in the dark, and on a phone."""
    page = opened(name)
    still = "*, *::before, *::after { transition: none !important; animation: none !important }"
    page.add_style_tag(content=still)
    for colours, size in (("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)):
        page.emulate_media(color_scheme=colours)
        page.set_viewport_size(size)
        page.wait_for_timeout(500)  # the theme looks what scrolls now
        found = Axe().run(page, context={"exclude": ["mjx-container"]}, options=AXE)
        assert [
            f"{rule['id']}: {rule['nodes'][0]['html'][:160]}"
            for rule in found.response["violations"]
            if rule["impact"] in ("serious", "critical")
        ] == [], (colours, size)


def test_every_page_that_was_built_is_looked_at_and_has_a_title_of_its_own(page, built_site):
    built = {
        path.relative_to(built_site).with_suffix("").as_posix()
        for path in built_site.rglob("*.html")
    }
    assert {name for name in built if not name.startswith("_")} == {*PAGES, *MOVED, "index"}
    assert len({page(name).title.get_text() for name in PAGES}) == len(PAGES)


def test_solutions_are_folded_below_their_exercises(page):
    for chapter in (name for name in PAGES if name.startswith("notebooks/")):
        exercises = page(chapter).select(".exercise")
        folds = page(chapter).select(".exercise + details:not([open]) > summary")
        assert len(exercises) == len(folds) > 0


def test_a_verdict_on_the_abstract_is_no_better_than_the_claims_it_names():
    reproduced = r".*\[reproduced\]\{\.verdict \.verdict-reproduced\}.*"
    rows = re.findall(reproduced, text_of("book/abstract.md"))
    named = re.findall(r"\{claim\}`([\w-]+)`", "".join(rows))
    assert {claims()[id]["verdict"] for id in named} | {"new"} == {"reproduced", "new"}


def test_the_first_page_asks_at_once_and_four_guesses_can_agree(opened):
    page = opened(TOC["root"])
    page.set_viewport_size(PHONE)
    handles = page.locator("[data-kind=contradict] input")
    last = handles.nth(3).bounding_box()
    assert last["y"] + last["height"] < PHONE["height"]
    said = page.locator("[data-kind=contradict] .moving-readout")
    assert "12 in 100" in said.inner_text() and "28 in 100" in said.inner_text()
    for _ in range(80 - 34):
        handles.nth(3).press("ArrowLeft")
    assert "You have a log-probability" in said.inner_text()


def test_the_game_hides_its_word_until_the_reader_guesses(opened):
    game = opened("notebooks/01_masked_pretraining").locator("[data-kind=mask]")
    words, guess = game.locator(".moving-words"), game.get_by_role("group", name="Your guess")
    assert "dogs" not in words.inner_text()
    assert guess.locator("button").all_text_contents() == ["birds", "cats", "dogs"]
    guess.get_by_text("cats").press("Enter")
    assert "dogs 55%" in words.inner_text()
    assert "No: it was dogs" in game.locator(".moving-controls").inner_text()
    guess.get_by_text("Hide one more").press("Enter")
    assert words.locator("[aria-pressed=true]").all_inner_texts() == ["\xa0", "\xa0"]


def test_a_search_by_its_shortcut_leads_to_where_it_is_marked(opened):
    page = opened(TOC["root"])
    page.keyboard.press("Control+k")
    page.keyboard.type("score_curve")
    page.keyboard.press("Enter")
    page.locator(".search-summary", has_text="found").wait_for()
    result = page.locator("#search-results li a").first
    assert result.get_attribute("href").startswith("book/api.html#mptlml.score.score_curve")
    result.click()
    page.wait_for_function("""() => [...document.querySelectorAll(".highlighted")].some((mark) => {
      const { top, bottom } = mark.getBoundingClientRect();
      return mark.checkVisibility() && top >= 0 && bottom <= innerHeight; })""")


def test_a_claim_leads_to_its_sentence_its_story_and_its_cell(opened):
    page = opened("book/scorecard")
    page.locator("#claim-table1-p10 td:first-child > a").click()
    value = page.locator("button#claim-table1-p10")
    story = page.locator(f"#{value.get_attribute('popovertarget')}")
    story.locator("text=Band").wait_for()
    assert 0 <= value.bounding_box()["y"] < DESKTOP["height"]
    assert 0 <= story.bounding_box()["y"] < DESKTOP["height"] - story.bounding_box()["height"]
    page.keyboard.press("Escape")
    assert not story.is_visible()
    value.focus()
    page.keyboard.press("Enter")
    link = story.locator("a", has_text="in this cell")
    cell = page.locator(f"div.cell:has(#{link.get_attribute('href').split('#')[1]})")
    link.click()
    cell.locator("div.cell_input", has_text='report.claim(f"table1-p{P}"').wait_for()
    assert not story.is_visible()


def test_an_old_address_leads_on(context, built_site, page):
    for name, target in MOVED.items():
        there, _, anchor = target.partition("#")
        visitor = context.new_page()
        visitor.goto((built_site / f"{name}.html").as_uri())
        visitor.wait_for_url(f"**/{target}")
        assert not anchor or page(f"notebooks/{there[:-5]}").select(f"#{anchor}")


def test_every_link_inside_the_book_has_its_target(page):
    ids = {f"/{name}.html": {tag["id"] for tag in page(name).select("[id]")} for name in PAGES}
    for name in PAGES:
        for link in page(name).select("article a[href]"):
            target, anchor = urldefrag(urljoin(f"/{name}.html", link["href"]))
            if anchor and target.startswith("/"):
                assert anchor in ids[target], f"{name}: {link['href']}"
