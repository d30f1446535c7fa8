"""What is asked of a page that is open in a browser. Each check takes a Playwright page and says what is wrong with it.

Beside each check stand ways to show the page, an article without fault, and faulty ones, to each of which the check
must object. test_site.py tries the checks on these articles and then on the built book.
"""

import io
import re
from itertools import product

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
EMPTY_WORDS = set("a an the of this image images figure picture plot graph chart diagram png svg output".split())
FOLDS = "article details:not(details details)"
COPIED = "div.cell_input"
MOVING = "article .moving"
CONTROLS = ":is(input, select, button):not([tabindex='-1']):visible"
KEYS = ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Enter", "Space")

ALT = "A blue curve that rises from the left to zero."
PICTURE = ("data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='300' height='200'>"
           "<rect width='300' height='200' fill='white'/><path d='M20 20h200v20h-200z'/></svg>")
SLIDER = """<style>@media print { input { display: none } }</style>
<div class="moving"><svg width="100" height="50"></svg><input type="range" max="3"><output>0</output></div>"""
WIRED = SLIDER + """<script>document.querySelector("input").oninput = event => {
document.querySelector("output").textContent = event.target.value }</script>"""
DRAGGED = """<div class="moving"><div class="moving-picture" tabindex="0"
onkeydown="this.lastElementChild.textContent = 7"
onpointermove="if (event.buttons) this.firstElementChild.setAttribute('class', event.clientX)">
<svg width="100" height="50"><rect class="handle" width="90" height="50" /></svg><p class="moving-tip"></p></div>
</div>"""
COPY = '<div class="cell_input"><pre>1 + 1</pre><button class="copybtn" onclick="navigator.clipboard.writeText({})">'

CHECKS = []  # (check, how the page is shown)
TWINS = []  # (check, how, article, whether the check objects)


def check(*hows, right, faulty):
    """Register a check, with the ways to show a page, and its articles."""
    def register(asked):
        for how in hows:
            CHECKS.append((asked, how))
            TWINS.extend((asked, how, article, article != right) for article in [right, *faulty])
        return asked
    return register


def show(page, how):
    """Show the page on a "screen" (light and wide), "dark", on a "phone" or in "print"."""
    colours = "dark" if how == "dark" else "light"
    page.emulate_media(media="print" if how == "print" else "screen", color_scheme=colours)
    page.wait_for_function("colours => (document.documentElement.dataset.theme ?? colours) === colours", arg=colours)
    size = PHONE if how == "phone" else DESKTOP
    if page.viewport_size != size:
        page.set_viewport_size(size)
        page.wait_for_timeout(400)  # the theme waits for the end of a resize before it looks what scrolls now


def markup(page, selector):
    """The beginnings of the elements that match."""
    return page.locator(selector).evaluate_all("found => found.map(it => it.outerHTML.slice(0, 160))")


@check("screen", "dark", "phone",
       right='<h1 id="a">1</h1><p id="b" style="color: #000; background: #fff">words</p>',
       faulty=['<h1 id="a">1</h1><p id="a"></p>',
               '<h1>1</h1><p style="color: #bbb; background: #fff">words</p>'])
def axe_violations(page):
    """What axe-core objects to, by its usual rules and those on repeated ids and on the size of buttons."""
    more = {name: {"enabled": True} for name in ("duplicate-id", "target-size")}
    options = {"resultTypes": ["violations"], "rules": more}
    found = Axe().run(page, context={"exclude": ["mjx-container"]}, options=options).response["violations"]
    return [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]]


@check("screen",
       right=f'<img alt="{ALT}" src="x"><div role="img" aria-label="{ALT}"><svg></svg></div>',
       faulty=["<svg></svg>", '<img alt="The plot of figure 1, 2, 3" src="x">'])
def poor_alts(page):
    """Pictures of the article whose alt text or label is missing, or has fewer than three words that say something."""
    found = page.evaluate("""() => [...document.querySelectorAll("article :is(img, svg, canvas, [role=img])")]
      .filter(picture => !picture.closest("[aria-hidden=true], [role=presentation], mjx-container, button")
                         && !picture.parentElement.closest("[role=img], svg"))
      .map(picture => [picture.outerHTML.slice(0, 160), picture.getAttribute("alt")
        ?? picture.getAttribute("aria-label") ?? picture.querySelector(":scope > title")?.textContent ?? ""])""")
    return [start for start, alt in found if len(set(re.findall("[a-z]{2,}", alt.lower())) - EMPTY_WORDS) < 3]


@check("screen",
       right='<a class="math"><mjx-container></mjx-container></a>',
       faulty=['<a class="math">\\(x</a>',
               '<a class="math"><mjx-container><mjx-merror>!</mjx-merror></mjx-container></a>'])
def tex_errors(page):
    """Formulas that MathJax stumbled over, or left as they were."""
    return markup(page, "mjx-merror, [data-mjx-error], .math:not(:has(mjx-container))")


def luminance(rgb):
    """Relative luminance (WCAG 2) of colours [..., 3] in 0..255."""
    part = np.asarray(rgb) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    """Contrast ratio (WCAG 2), from 1 to 21, of two luminances."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


@check("screen", "dark",
       right='<div style="background: #fff"><svg><text y="9">m</text></svg></div>',
       faulty=['<div style="background: #fff"><svg><text y="9" fill="#aaa">m</text></svg></div>'])
def pale_words(page):
    """Words of drawings with less than 4.5 : 1 between them and their ground; to these axe is blind."""
    found = page.locator("article svg text:visible").evaluate_all("""found => found.map(text => {
      const parts = colour => colour.match(/[\\d.]+/g).map(Number);
      let place = text, ground;
      do { ground = parts(getComputedStyle(place).backgroundColor); place = place.parentElement; }
      while (place && ground[3] === 0);
      return [text.outerHTML, ground.slice(0, 3), parts(getComputedStyle(text).fill).slice(0, 3)]; })""")
    return [text for text, *colours in found if contrast(*luminance(colours)) < 4.5]


@check("dark",
       right=f'<img src="{PICTURE}">',
       faulty=[f'<img style="filter: brightness(.4)" src="{PICTURE}">',
               f'<div style="background: #121212"><img src="{PICTURE.replace("white", "none")}"></div>'])
def pale_pictures(page):
    """Figures with less than 7 : 1 between their ground and the darkest of their lines, as the page shows them.

    Those of matplotlib hold black on white, so they need a light ground. Drawings with real <text> may follow the
    theme: there pale_words holds each text against what lies behind it.
    """
    faults = []
    for picture in page.locator("article :is(img, svg):not(mjx-container svg):not([aria-hidden=true])").all():
        box = picture.bounding_box()
        if box and box["width"] >= 150 and box["height"] >= 100 and not picture.locator("text").count():
            light = luminance(Image.open(io.BytesIO(picture.screenshot())).convert("RGB"))
            if contrast(np.median(light), np.quantile(light, 0.002)) < 7:
                faults.append(picture.evaluate("picture => picture.outerHTML.slice(0, 160)"))
    return faults


@check("screen", right='<a href="#">link</a>', faulty=['<a href="#" style="outline: none">link</a>'])
def unseen_focus(page):
    """What can be reached by Tab but looks the same with the focus as without."""
    page.keyboard.press("Tab")  # from here on the browser shows the focus as for someone with a keyboard
    return page.evaluate("""() => {
      const look = found => ["outlineStyle", "boxShadow", "backgroundColor", "borderColor", "textDecoration"]
        .map(name => getComputedStyle(found)[name]).join();
      const same = found => {
        document.activeElement.blur();
        const before = look(found);
        found.focus({preventScroll: true});
        return document.activeElement === found && look(found) === before; };
      return [...document.querySelectorAll("a[href], button, summary, input, select, [tabindex='0']")]
        .filter(found => found.checkVisibility({visibilityProperty: true}) && same(found))
        .map(found => found.outerHTML.slice(0, 160)); }""")


@check("screen",
       right="<details><summary>a</summary></details>",
       faulty=['<details><summary onclick="event.preventDefault()">a</summary></details>'])
def stuck_folds(page):
    """Folds that Enter does not open, or close."""
    state = "folds => folds.map(fold => fold.open)"
    before = page.locator(FOLDS).evaluate_all(state)
    for summary in page.locator(f"{FOLDS} > summary").all():
        summary.press("Enter")
    after = page.locator(FOLDS).evaluate_all(state)
    return [fold for fold, (one, other) in enumerate(zip(before, after, strict=True)) if one == other]


@check("screen", right=COPY.format("'1 + 1'"), faulty=[COPY.format("'>>> 1 + 1'")])
def wrong_copies(page):
    """What the copy buttons in sight copied that is not the code beside them, when pressed by keyboard."""
    pairs = []
    for cell in page.locator(f"{COPIED}:visible").all():
        page.evaluate("navigator.clipboard.writeText('')")
        cell.locator("button.copybtn").press("Enter")
        page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
        pairs.append((page.evaluate("navigator.clipboard.readText()"), cell.locator("pre").text_content()))
    return [copied for copied, code in pairs if copied.strip() != code.strip()]


@check("screen", right=WIRED, faulty=[SLIDER, WIRED.replace("<input", '<input tabindex="-1"')])
def deaf_to_keys(page):
    """Moving figures in which no key changes the readout from a control that Tab reaches."""
    def answers(figure, control, key):
        readout = figure.locator(".moving-readout, output").first
        before = readout.inner_text()
        control.press(key)
        page.wait_for_timeout(50)
        return readout.inner_text() != before

    return [place for place, figure in enumerate(page.locator(MOVING).all())
            if not any(answers(figure, *pair) for pair in product(figure.locator(CONTROLS).all(), KEYS))]


@check("screen", right=DRAGGED,
       faulty=[DRAGGED.replace("onpointermove", "onclick"), DRAGGED.replace("onkeydown", "oncut")])
def deaf_to_pointers(page):
    """Moving figures that stay as they are when something in them is dragged, or whose values no arrow key reads."""
    def answers(figure):
        handle = figure.locator(".handle").first
        handle.scroll_into_view_if_needed()
        left, top, width, height = handle.bounding_box().values()
        before = figure.locator("svg").first.evaluate("drawn => drawn.outerHTML")
        page.mouse.move(left + 0.2 * width, top + 0.3 * height)
        page.mouse.down()
        page.mouse.move(left + 0.9 * width, top + 0.7 * height, steps=3)
        page.mouse.up()
        moved = figure.locator("svg").first.evaluate("drawn => drawn.outerHTML") != before
        page.mouse.move(0, 0)
        figure.locator(".moving-picture").press("ArrowRight")
        return moved and figure.locator(".moving-tip").inner_text() != ""

    return [place for place, figure in enumerate(page.locator(f"{MOVING}:has(.handle:visible)").all())
            if not answers(figure)]


@check("phone",
       right='<p style="overflow: auto"><b style="padding: 0 900px">x</b></p>',
       faulty=['<p><b style="padding: 0 900px">x</b></p>'])
def sideways(page):
    """Whether the page is wider than its window."""
    wide, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return [f"{wide} in {window} px"] if wide > window else []


@check("print", right=SLIDER, faulty=[SLIDER.replace("display", "float"), SLIDER.replace("svg", "b")])
def left_on_paper(page):
    """Of a printed page: controls and bars that are left, and pictures that are not there."""
    return [
        *markup(page, f":is({MOVING} :is(input, select, button), .bd-sidebar-primary, .copybtn):visible"),
        *markup(page, f"{MOVING}:not(:has(:is(svg, img):visible))"),
        *markup(page, "article figure img:not(:visible):not(details:not([open]) img)"),
    ]
