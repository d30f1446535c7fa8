"""What is asked of a page that is open in a browser. Each check takes a Playwright page and says what is wrong with it.

test_site.py runs them over the built book, and over small faulty pages that each of them must object to.
"""

import io
import re

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
EMPTY_WORDS = set("a an the of this image figure picture plot graph chart diagram png svg output untitled".split())
# Thousands of small elements in few colours, on which axe would spend most of its time: pale_words looks at them.
LETTERS = [["mjx-container"], [".highlight pre > *"]]
FOLDS = "article details:not(details details)"
COPIED = "div.cell_input"
MOVING = "article .moving"
KEYS = ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Enter", "Space")
def markup(page, selector):
    """The beginnings of the elements that match."""
    return page.locator(selector).evaluate_all("found => found.map(it => it.outerHTML.slice(0, 160))")


def settle(page):
    """Wait until the formulas are set, and let nothing fade in or out."""
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important }")
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
    page.wait_for_timeout(150)  # the theme makes what scrolls reachable by keyboard a moment after loading


def show(page, how):
    """Show the page on a "screen" (light and wide), "dark", on a "phone" or in "print"."""
    colours = "dark" if how == "dark" else "light"
    page.emulate_media(media="print" if how == "print" else "screen", color_scheme=colours)
    page.wait_for_function("colours => (document.documentElement.dataset.theme ?? colours) === colours", arg=colours)
    size = PHONE if how == "phone" else DESKTOP
    if page.viewport_size != size:
        page.set_viewport_size(size)
        page.wait_for_timeout(400)  # the theme waits for the end of a resize before it looks what scrolls now


def poor_alts(page):
    """Pictures of the article whose alt text or label is missing, or has fewer than three words that say something."""
    found = page.evaluate("""() => [...document.querySelectorAll("article :is(img, svg, canvas, [role=img])")]
      .filter(picture => !picture.closest("[aria-hidden=true], [role=presentation], mjx-container, button")
                         && !picture.parentElement.closest("[role=img], svg"))
      .map(picture => [picture.outerHTML.slice(0, 100), picture.getAttribute("alt")
        ?? picture.getAttribute("aria-label") ?? picture.querySelector(":scope > title")?.textContent ?? ""])""")
    said = {(start, alt): {word for word in re.findall(r"[\w./-]+", alt.lower()) if word.strip(".").isalpha()}
            for start, alt in found}
    return [f"{alt!r}: {start}" for (start, alt), words in said.items() if len(words - EMPTY_WORDS) < 3]


def tex_errors(page):
    """Formulas that MathJax stumbled over, or left as they were."""
    return markup(page, "mjx-merror, [data-mjx-error], .math:not(:has(mjx-container))")


def sideways(page):
    """Whether the page is wider than its window."""
    wide, window = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return [f"{wide} in {window} px"] if wide > window else []


def left_on_paper(page):
    """Of a printed page: controls and bars that are left, and pictures that are not there."""
    return [
        *markup(page, f":is({MOVING} :is(input, select, button), .bd-sidebar-primary, .copybtn):visible"),
        *markup(page, f"{MOVING}:not(:has(:is(svg, img):visible))"),
        *markup(page, "article figure img:not(:visible):not(details:not([open]) img)"),
    ]


def luminance(rgb):
    """Relative luminance (WCAG 2) of colours [..., 3] in 0..255."""
    part = np.asarray(rgb, dtype=float) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def contrast(one, other):
    """Contrast ratio (WCAG 2), from 1 to 21, of two colours [3] in 0..255."""
    low, high = sorted([float(luminance(one)), float(luminance(other))])
    return (high + 0.05) / (low + 0.05)


def pale_words(page):
    """Code, formulas and the <text> of drawings with less than 4.5 : 1 between them and what lies behind them."""
    found = page.evaluate("""() => {
      const parts = colour => (colour.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
      const ground = found => { for (; found; found = found.parentElement) {
        const colour = parts(getComputedStyle(found).backgroundColor);
        if ((colour[3] ?? 1) > 0.99) return colour; } return [255, 255, 255]; };
      const pairs = {};
      for (const text of document.querySelectorAll(
          "article :is(.highlight pre, .highlight span, mjx-container, svg text)")) {
        if (!text.textContent.trim() || !text.checkVisibility()) continue;
        const style = getComputedStyle(text), colour = parts(text.closest("svg") ? style.fill : style.color);
        pairs[[colour, ground(text)]] ??= [colour, ground(text), text.outerHTML.slice(0, 120)];
      }
      return Object.values(pairs); }""")
    return [start for colour, ground, start in found if contrast(colour[:3], ground[:3]) < 4.5]


def pale_pictures(page, least=7):
    """Figures of the article that cannot be read in the page's present colours.

    Those of matplotlib hold black on white, so they need a light ground and dark lines on it. Drawings with real <text>
    may follow the theme: there pale_words holds each text against what lies behind it.
    """
    faults = []
    for picture in page.locator("article :is(img, svg):not(mjx-container svg):not([aria-hidden=true])").all():
        box = picture.bounding_box()
        if not box or box["width"] < 150 or box["height"] < 100 or picture.locator("text").count():  # an icon, say
            continue
        pixels = np.asarray(Image.open(io.BytesIO(picture.screenshot())).convert("RGB")).reshape(-1, 3)
        colours, counts = np.unique(pixels, axis=0, return_counts=True)
        dark = pixels[np.argsort(luminance(pixels))[len(pixels) // 500]]  # two pixels in a thousand are darker
        if contrast(colours[counts.argmax()], dark) < least:
            faults.append(picture.evaluate("picture => picture.outerHTML.slice(0, 120)"))
    return faults


def axe_violations(page):
    """What axe-core objects to, by its usual rules and those on repeated ids and on the size of buttons."""
    more = {name: {"enabled": True} for name in ("duplicate-id", "target-size")}
    options = {"resultTypes": ["violations"], "rules": more}
    found = Axe().run(page, context={"exclude": LETTERS}, options=options).response["violations"]
    return [f"{rule['id']}: {node['html'][:160]} ({' '.join(node['failureSummary'].split())[:200]})"
            for rule in found for node in rule["nodes"]]


def unseen_focus(page):
    """What can be reached by Tab but looks the same with the focus as without."""
    page.keyboard.press("Tab")  # from here on the browser shows the focus as for someone with a keyboard
    return page.evaluate("""() => {
      const look = found => { const style = getComputedStyle(found); return [style.outlineStyle === "none" ||
        style.outlineWidth === "0px" ? "" : style.outline, style.boxShadow, style.backgroundColor,
        style.borderColor, style.textDecoration].join("|"); };
      const faults = [];
      document.activeElement?.blur();
      for (const found of document.querySelectorAll(
          "a[href], button, summary, input, select, textarea, [tabindex='0']")) {
        if (!found.checkVisibility({visibilityProperty: true}) || found.disabled) continue;
        const before = look(found);
        found.focus({preventScroll: true});
        if (document.activeElement === found && look(found) === before) faults.push(found.outerHTML.slice(0, 120));
        found.blur();
      }
      return faults; }""")


def stuck_folds(page):
    """Folds that Enter does not open, or close."""
    faults = []
    for fold in page.locator(FOLDS).all():
        before = fold.evaluate("fold => fold.open")
        fold.locator("> summary").press("Enter")
        if fold.evaluate("fold => fold.open") == before:
            faults.append(fold.locator("> summary").inner_text())
        fold.evaluate("(fold, before) => { fold.open = before; }", before)
    return faults


def wrong_copies(page):
    """Copy buttons in sight that do not copy the code beside them, when they are pressed by keyboard."""
    faults = []
    for cell in page.locator(f"{COPIED}:visible").all():
        page.evaluate("navigator.clipboard.writeText('')")
        cell.locator("button.copybtn").press("Enter")
        page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
        copied, code = page.evaluate("navigator.clipboard.readText()"), cell.locator("pre").text_content()
        faults += [copied] if copied.strip() != code.strip() else []
    return faults


def deaf_to_keys(page):
    """Moving figures in which no key changes the readout, when one comes to their controls by Tab."""
    def turns(figure):
        readout = figure.locator(".moving-readout, output").first
        before = readout.inner_text()
        figure.evaluate("figure => { figure.tabIndex = -1; figure.focus(); }")  # as if one had just come to it
        for _ in figure.locator("input, select, button").all():
            page.keyboard.press("Tab")
            for key in KEYS if figure.evaluate("figure => figure.contains(document.activeElement)") else ():
                page.keyboard.press(key)
                page.wait_for_timeout(50)
                if readout.inner_text() != before:
                    return True
        return False
    return [figure.evaluate("it => it.outerHTML.slice(0, 120)") for figure in page.locator(MOVING).all()
            if not turns(figure)]
