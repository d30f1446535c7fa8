"""What is asked of a page that is open in a browser. Each check takes a Playwright page and says what is wrong with it.

test_site.py runs them over the built book, and over small faulty pages that each of them must object to.
"""

import io
import re

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

PICTURE_NAME = re.compile(r"\S+\.(?:svg|png|jpe?g|gif|webp)", re.IGNORECASE)
EMPTY_WORDS = set("a an the of this image figure picture plot graph chart diagram png svg output untitled".split())
SHORTEST_ALT = 20  # characters: "A rising blue curve." says something, less hardly can

# Of axe's rules, those whose answer depends on the colours, and those whose answer depends on the width
COLOUR_RULES = ("color-contrast", "link-in-text-block")
WIDTH_RULES = ("scrollable-region-focusable", "target-size")
# Thousands of small elements in few colours, on which axe would spend most of its time: pale_words looks at them.
LETTERS = ("mjx-container", ".highlight pre")

CONTRAST = """
  const parts = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = colour => colour.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = found => { for (; found; found = found.parentElement) {
    const colour = parts(getComputedStyle(found).backgroundColor);
    if (colour.length && (colour[3] ?? 1) > 0.99) return colour; } return [255, 255, 255]; };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
"""


def is_generic(alt):
    """True for a text that would tell nobody what a picture shows."""
    alt = " ".join(alt.split())
    words = set(re.findall(r"[a-z]+", alt.lower()))
    return len(alt) < SHORTEST_ALT or words <= EMPTY_WORDS or bool(PICTURE_NAME.fullmatch(alt))


def poor_alts(page):
    """Pictures of the article whose alt text or label is missing or says nothing."""
    found = page.evaluate("""() => [...document.querySelectorAll("article :is(img, svg, canvas, [role=img])")]
      .filter(picture => !picture.closest("[aria-hidden=true], [role=presentation], mjx-container, button")
                         && !picture.parentElement.closest("[role=img], svg"))
      .map(picture => [picture.outerHTML.slice(0, 100), picture.getAttribute("alt")
        ?? picture.getAttribute("aria-label") ?? picture.querySelector(":scope > title")?.textContent ?? ""])""")
    return [f"{alt!r}: {markup}" for markup, alt in found if is_generic(alt)]


def tex_errors(page):
    """Formulas that MathJax stumbled over, or left as they were."""
    return page.evaluate("""() => [
      ...[...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(found => "error: " + found.outerHTML),
      ...[...document.querySelectorAll(".math")].filter(found => !found.querySelector("mjx-container"))
        .map(found => "not set: " + found.textContent)].map(text => text.slice(0, 160))""")


def sideways(page):
    """What makes the page wider than its window, if it is."""
    return page.evaluate("""() => {
      const width = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth <= width) return [];
      const held = found => { for (let box = found.parentElement; box && box !== document.body; box = box.parentElement)
        if (getComputedStyle(box).overflowX !== "visible") return true; return false; };
      const wide = [...document.body.querySelectorAll("*")]
        .filter(found => found.getBoundingClientRect().right > width + 1 && !held(found));
      return [`${document.documentElement.scrollWidth} in ${width} px`,
              ...wide.slice(0, 5).map(found => found.outerHTML.slice(0, 120))]; }""")


def axe_violations(page, rules=None, leave_out=()):
    """What axe-core objects to; `rules` limits it to some of its rules, else all that are on by default."""
    options = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    context = {"exclude": [[selector] for selector in leave_out]} if leave_out else None
    found = Axe().run(page, context=context, options=options).response["violations"]
    return [f"{rule['id']}: {node['html'][:160]} ({' '.join(node['failureSummary'].split())[:200]})"
            for rule in found for node in rule["nodes"]]


def pale_words(page):
    """Code, formulas and the <text> of drawings with less than 4.5 : 1 between them and what lies behind them."""
    return page.evaluate(f"""() => {{ {CONTRAST}
      const found = new Set();
      for (const text of document.querySelectorAll(
          "article :is(.highlight pre, .highlight span, mjx-container, svg text)")) {{
        if (!text.textContent.trim() || !text.checkVisibility()) continue;
        const style = getComputedStyle(text), colour = text.closest("svg") ? style.fill : style.color;
        const measured = contrast(parts(colour), ground(text));
        if (measured < 4.5) found.add(`${{measured.toFixed(1)}} : 1 at ${{text.tagName}} ${{text.className.baseVal
          ?? text.className}} ${{colour}}, e.g. "${{text.textContent.slice(0, 30)}}"`);
      }}
      return [...found].slice(0, 20); }}""")


def heading_faults(page):
    """A page has one first heading, and below a heading comes the next level or a higher one."""
    headings = page.evaluate("""() => [...document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)")]
      .filter(heading => heading.checkVisibility())  // the theme keeps a second title for print
      .map(heading => [+heading.tagName[1], heading.textContent.trim()])""")
    firsts = [text for level, text in headings if level == 1]
    faults = [] if len(firsts) == 1 else [f"{len(firsts)} first headings: {firsts}"]
    for (before, _), (level, text) in zip([(0, ""), *headings], headings, strict=False):
        if level > before + 1:
            faults.append(f"level {level} after level {before}: {text}")
    return faults


def repeated_ids(page):
    """Ids that stand on the page twice: a link or a label can mean only one of them."""
    return page.evaluate("""() => { const seen = new Set(), twice = new Set();
      document.querySelectorAll("[id]").forEach(found => (seen.has(found.id) ? twice : seen).add(found.id));
      return [...twice]; }""")


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


def luminance(rgb):
    """Relative luminance (WCAG 2) of colours [..., 3] in 0..255."""
    part = np.asarray(rgb, dtype=float) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def picture_contrast(png):
    """Contrast in a screenshot between its commonest colour, its ground, and the darkest two in 1000 pixels."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3)
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    ground = float(luminance(colours[counts.argmax()]))
    return (ground + 0.05) / (float(np.quantile(luminance(pixels), 0.002)) + 0.05)


def pale_pictures(page, least=7):
    """Figures of the article that cannot be read in the page's present colours.

    Those of matplotlib hold black on white, so they need a light ground and dark lines on it. Drawings with real <text>
    may follow the theme: there pale_words holds each text against what lies behind it.
    """
    faults = []
    for picture in page.locator("article img, article svg:not(mjx-container svg):not([aria-hidden=true])").all():
        box = picture.bounding_box()
        if not box or box["width"] < 150 or box["height"] < 100:  # out of sight, an icon
            continue
        if picture.locator("text").count():
            continue
        contrast = picture_contrast(picture.screenshot())
        if contrast < least:
            markup = picture.evaluate("picture => picture.outerHTML.slice(0, 120)")
            faults.append(f"dark lines {contrast:.1f} : 1 on their ground: {markup}")
    return faults


def deaf_to_keys(page, figure):
    """What is wrong when someone comes to a moving figure by Tab and turns its first slider, box or button."""
    name = figure.get_attribute("data-kind") or figure.get_attribute("id") or "a moving figure"
    readout = figure.locator(".moving-readout, output").first
    if not readout.count():
        return [f"{name}: no readout"]
    figure.evaluate("figure => { figure.tabIndex = -1; figure.focus(); }")  # as if one had just come to it
    page.keyboard.press("Tab")
    reached = figure.evaluate("""figure => { figure.removeAttribute("tabindex"); const found = document.activeElement;
      return figure.contains(found) && found.matches("input, button, select"); }""")
    if not reached:
        return [f"{name}: Tab does not lead to a control"]
    before, controls = readout.inner_text(), figure.locator("input, select, button:not([disabled])").count()
    for _ in range(controls):
        kind = page.evaluate("document.activeElement.type")
        for key in {"range": ("ArrowRight", "ArrowLeft"), "number": ("ArrowUp",), "button": ("Enter",),
                    "checkbox": ("Space",), "select-one": ("ArrowDown", "ArrowUp")}.get(kind, ()):
            page.keyboard.press(key)
            page.wait_for_timeout(50)
            if readout.inner_text() != before:
                return []
        page.keyboard.press("Tab")
    return [f"{name}: no key changes the readout {before!r}"]


def print_faults(page):
    """On paper a moving figure shows a picture and no controls, and nothing of the theme's bars is left."""
    return page.evaluate("""() => {
      const seen = found =>
        found.checkVisibility({visibilityProperty: true}) && found.getBoundingClientRect().height > 1;
      const faults = [];
      for (const figure of document.querySelectorAll("article .moving")) {
        const name = figure.dataset.kind || figure.id;
        if (![...figure.querySelectorAll("svg, img")].some(seen)) faults.push(`${name}: no picture`);
        if ([...figure.querySelectorAll("input, select, button")].some(seen)) faults.push(`${name}: controls`);
      }
      for (const picture of document.querySelectorAll("article figure img"))
        if (!seen(picture) && !picture.closest("details:not([open])")) faults.push(`no picture: ${picture.alt}`);
      for (const bar of document.querySelectorAll(".bd-sidebar-primary, .bd-header-article, .copybtn"))
        if (seen(bar)) faults.push(`left on paper: ${bar.outerHTML.slice(0, 80)}`);
      return faults; }""")
