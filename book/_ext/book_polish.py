"""What the finished pages still need: true minus signs, small repairs, MathJax, moving figures, and a first page.

Each repair of the theme's and docutils' HTML is a pair (what stands there, what should), so that a screen reader and a
keyboard get along; `tests/test_site.py` notices when a new version makes one necessary or wrong. MathJax 3 comes from
the Python package `sphinx-mathjax-offline`: pages must typeset their equations with no connection. Of its 15 MB the
book needs one bundle and one folder of fonts.
"""

import re
import shutil
import zlib
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes

MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
BUNDLE, FONTS = "tex-chtml-full.js", "output/chtml/fonts/woff-v2"
MOVING = re.compile(r'<div class="moving" data-kind="([a-z]+)"')  # as mptlml.report.moving writes it
REPAIRS = (
    # The title in the sidebar stands outside all landmarks; the sidebar as a whole is one.
    ('<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">',
     '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar" role="navigation" aria-label="Book">'),
    # The label hides the words that one sees ("Code"), and says of every cell the same.
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    # A role that has been withdrawn, inside a list whose items it must not be.
    (' role="doc-biblioentry"', ""),
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),
    # The column of row names may have no heading, and an empty <th> is not allowed.
    ('<th class="head"><p></p></th>', "<td></td>"),
    # Every proof without a label gets the same id.
    (' id="proof"', ""),
)
PLAIN = re.compile(r'<span class="(?:n|p|w|pre)">([^<]*)</span>')  # in code, but of no colour of its own
DRAWING = re.compile(r'<svg(?![^>]* class=).*?</svg>', re.DOTALL)


def lighter(html: str) -> str:
    """A page without marks that nothing depends on, each style that its drawings repeat written once."""
    styles = {}

    def name(found):
        key = f"s{zlib.crc32(found[1].encode()):x}"  # the same on all pages, which the print puts into one
        styles[key] = found[1]
        return f' class="{key}"'

    html = PLAIN.sub(r"\1", PLAIN.sub(r"\1", html))  # they lie in each other
    html = DRAWING.sub(lambda found: re.sub(' style="([^"]*)"', name, found[0]), html)
    sheet = "".join(f".{key}{{{style}}}" for key, style in styles.items())
    return html.replace("<svg", f"<style>{sheet}</style><svg", 1) if sheet else html


def minus(text):
    """Numbers as people print them: with a true minus, and none before zero."""
    return re.sub(r"(?<![\w.])-(?=[\d.])", "−", re.sub(r"(?<![\w.])-(?=[0.]*(?![\d.]))", "", text))


def unbroken(text):
    """The text with no line ending before or after a ±."""
    return text.replace(" ±", "\u00a0±").replace("± ", "±\u00a0")  # markup stays markup, which a pattern makes text of


def _write_numbers(app, doctree, docname):
    """Glued numbers get true minus signs; no line ends before or after a ±, or between a formula and what closes it."""
    for node in doctree.findall(nodes.inline):
        if "pasted-text" in node["classes"]:
            node[:] = [nodes.Text(minus(node.astext()))]
    for text in list(doctree.findall(nodes.Text)):
        if "±" in text and not isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.math, nodes.raw)):
            text.parent.replace(text, nodes.Text(unbroken(text)))
    for formula in doctree.findall(nodes.math):
        after = formula.next_node(nodes.Text, descend=False, siblings=True)
        closing = re.match(r"[.,;:?!)]+", after or "")
        if closing and formula.parent.index(after) == formula.parent.index(formula) + 1:
            formula[:] = [nodes.Text(f"{formula.astext()}\\text{{{closing[0]}}}")]
            after.parent.replace(after, nodes.Text(after[closing.end():]))


def _add_scripts(app, pagename, templatename, context, doctree):
    kinds = sorted(set(MOVING.findall(context.get("body", ""))))
    if kinds:
        app.add_css_file("moving.css")
        for name in ("moving", *(f"moving-{kind}" for kind in kinds)):
            app.add_js_file(f"{name}.js", loading_method="defer")


def _finish(app, exception):
    if exception is None and app.builder.name == "html":
        folder, mathjax = Path(app.outdir), Path(app.outdir) / "_static" / "mathjax"
        shutil.copytree(MATHJAX / FONTS, mathjax / FONTS, dirs_exist_ok=True)
        shutil.copy2(MATHJAX / BUNDLE, mathjax)
        for path in folder.rglob("*.html"):
            html = path.read_text(encoding="utf-8")
            for before, after in REPAIRS:
                html = html.replace(before, after)
            path.write_text(html, encoding="utf-8")
        # Without it Sphinx would write one that has no title and asks the server for an icon.
        first = Path(__file__).with_name("first_page.html").read_text(encoding="utf-8").format(
            title=app.config.project, page=f"{app.config.root_doc}.html", icon=Path(app.config.html_favicon).name)
        (folder / "index.html").write_text(first, encoding="utf-8")


def _lighten(app, exception):
    if exception is None and app.builder.name == "html":
        for path in Path(app.outdir).rglob("*.html"):
            path.write_text(lighter(path.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app):
    app.connect("doctree-resolved", _write_numbers)
    app.connect("html-page-context", _add_scripts)
    app.connect("build-finished", _finish, priority=100)  # before sphinx-codeautolink, which writes the pages anew
    app.connect("build-finished", _lighten, priority=600)  # after it, for it needs the marks in code
    return {"parallel_read_safe": True, "parallel_write_safe": True}
