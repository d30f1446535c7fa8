"""What the finished pages still need: true minus signs, small repairs, MathJax, and the scripts of moving figures.

Each repair of the theme's and docutils' HTML is a pair (what stands there, what should), so that a
screen reader and a keyboard get along; `tests/test_site.py` notices when a new version makes one
necessary or wrong. MathJax 3 comes from the Python package `sphinx-mathjax-offline`: pages must
typeset their equations with no connection. Of its 15 MB the book needs one bundle, one extension
and one folder of fonts. Nor does a page load what it does not use: the theme's icons as a script,
beside the font that has them, and the index of the search.
"""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes

MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
BUNDLE, BOLD, FONTS = (
    "tex-chtml.js",
    "input/tex/extensions/boldsymbol.js",
    "output/chtml/fonts/woff-v2",
)
# as mptlml_book.report.moving writes it
MOVING = re.compile(r'<div class="moving" data-kind="([a-z]+)"')
# so many stand beside the page
NUMBERS = re.compile(r'<script type="application/json">([^<]{100000,})</script>')
NOTHING = re.compile(  # what drawings carry along and nothing shows
    r' transform="rotate\(-0 [^"]*"| font-family="’DejaVu Sans’, sans-serif"| stroke-linecap="square"'
    r'|<path d="[^"]*"(?: clip-path="[^"]*")? fill="none"/>'
)
# 1.5 MB, and 0.2 MB, of which the page of results has its own
UNUSED = r" *<script [^>]*/(?:fontawesome{})\.js[^>]*></script>\n"
TITLE = "Masked pre-training, in numbers"
REPAIRS = (
    # The title in the sidebar stands outside all landmarks; the sidebar as a whole is one.
    (
        '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">',
        '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar" role="navigation" aria-label="Book">',
    ),
    # The label hides the words that one sees ("Code"), and says of every cell the same.
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    # A role that has been withdrawn, inside a list whose items it must not be.
    (' role="doc-biblioentry"', ""),
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),
    # The column of row names may have no heading, and an empty <th> is not allowed.
    ('<th class="head"><p></p></th>', "<td></td>"),
    # The first page is the book's.
    (f"<title>{TITLE} &#8212; {TITLE}</title>", f"<title>{TITLE}</title>"),
    # Every proof without a label gets the same id.
    (' id="proof"', ""),
)


def minus(text):
    """Numbers as people print them: with a true minus, and none before zero."""
    return re.sub(r"(?<![\w.])-(?=[\d.])", "−", re.sub(r"(?<![\w.])-(?=[0.]*(?![\d.]))", "", text))


def unbroken(text):
    """The text with no line ending before or after a ± or ×."""
    for sign in "±×":  # markup stays markup, which a pattern makes text of
        text = text.replace(f" {sign}", f"\u00a0{sign}").replace(f"{sign} ", f"{sign}\u00a0")
    return text


def _write_numbers(app, doctree, docname):
    """True minus signs; no line ends beside ± or ×, or between a formula and what closes it."""
    for node in list(doctree.findall(nodes.inline)):
        if "pasted-text" in node["classes"]:
            node[:] = [nodes.Text(minus(node.astext()))]
        after = node.next_node(descend=False, siblings=True)
        # its mark comes last
        if "claim" in node and isinstance(after, nodes.Text) and after.startswith("%"):
            node += nodes.Text("%")
            after.parent.replace(after, nodes.Text(after[1:]))
    for text in list(doctree.findall(nodes.Text)):
        verbatim = isinstance(
            text.parent, (nodes.literal, nodes.literal_block, nodes.math, nodes.raw)
        )
        if re.search("[±×]", text) and not verbatim:
            text.parent.replace(text, nodes.Text(unbroken(text)))
    for formula in doctree.findall(nodes.math):
        _embrace(formula)


def _embrace(formula):
    """Move a bracket that opens before a formula, and signs that close it, into it."""
    place = formula.parent.index(formula)
    before = formula.parent[place - 1] if place else None
    if isinstance(before, nodes.Text) and before.endswith("("):
        formula[:] = [nodes.Text(f"\\text{{(}}{formula.astext()}")]
        before.parent.replace(before, nodes.Text(before[:-1]))
    after = formula.next_node(nodes.Text, descend=False, siblings=True)
    closing = re.match(r"[.,;:?!)]+", after or "")
    if closing and formula.parent.index(after) == place + 1:
        formula[:] = [nodes.Text(f"{formula.astext()}\\text{{{closing[0]}}}")]
        after.parent.replace(after, nodes.Text(after[closing.end() :]))


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
        for name in (BUNDLE, BOLD):
            (mathjax / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(MATHJAX / name, mathjax / name)
        for path in folder.rglob("*.html"):
            html = NOTHING.sub("", path.read_text(encoding="utf-8"))
            html = re.sub(UNUSED.format("" if path.stem == "search" else "|searchindex"), "", html)
            for before, after in REPAIRS:
                html = html.replace(before, after)
            for found in NUMBERS.findall(html):
                path.with_suffix(".js").write_text(f"Moving.data = {found};", encoding="utf-8")
                html = html.replace(f">{found}<", f' data-src="{path.stem}.js"><')
            path.write_text(html, encoding="utf-8")


def _write_again(app, env):
    """All pages, where a title, a label or a number is another now: each may show it."""
    titles = sorted((name, node.astext()) for name, node in env.titles.items())
    labels = sorted(map(str, env.domains["std"].labels.items()))
    before, env.book_shared = (
        getattr(env, "book_shared", None),
        repr(
            [titles, sorted(env.toc_secnumbers.items()), sorted(env.toc_fignumbers.items()), labels]
        ),
    )
    return [] if env.book_shared == before else list(env.found_docs)


def setup(app):
    app.connect("env-get-updated", _write_again)  # numbers are known then
    app.connect("doctree-resolved", _write_numbers)
    app.connect("html-page-context", _add_scripts)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
