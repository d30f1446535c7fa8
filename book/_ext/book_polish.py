"""What finished pages still need: true minus signs, unbroken numbers and formulas, MathJax, scripts of moving figures.

MathJax 3 comes from the Python package `sphinx-mathjax-offline`: pages must typeset their equations with no
connection. Of its 15 MB the book needs one bundle, one extension and one folder of fonts.
"""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes

MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
NEEDED = "tex-chtml.js", "input/tex/extensions/boldsymbol.js", "output/chtml/fonts/woff-v2/*"
# Left out: 1.5 MB of icons as a script, beside the font that has them; the index of the search, which its own page
# loads; what makes a list of references whose entries are no items of it, which axe calls critical; what gives code no
# colour, half of what it weighs.
SURPLUS = re.compile(
    r' *<script [^>]*(/fontawesome|\.\./searchindex)\.js[^>]*></script>\n| role="(doc-biblioentry|list)"|'
    r'<span class="(pre|[nopw])">(?P<kept>[^<]*)</span>'
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
        elif "claim" in node:  # its mark comes last
            _take_in(node, "%", "{}")
    for text in list(doctree.findall(nodes.Text)):
        verbatim = nodes.literal, nodes.literal_block, nodes.math, nodes.raw
        if not isinstance(text.parent, verbatim):
            text.parent.replace(text, nodes.Text(unbroken(text)))
    for formula in doctree.findall(nodes.math):
        _take_in(formula, "[.,;:?!)]+", r"\text{{{}}}")


def _take_in(node, signs, form):
    """Move signs that stand right after a node to its end."""
    after = node.next_node(descend=False, siblings=True)
    found = isinstance(after, nodes.Text) and re.match(signs, after)
    if found:
        node[:] = [nodes.Text(node.astext() + form.format(found[0]))]
        after.parent.replace(after, nodes.Text(after[found.end() :]))


def _add_scripts(app, pagename, templatename, context, doctree):
    # as mptlml_book.report.moving writes it
    kinds = set(re.findall(r'<div class="moving" data-kind="([a-z]+)"', context.get("body", "")))
    if kinds:
        app.add_css_file("moving.css")
        for name in ("moving", *(f"moving-{kind}" for kind in sorted(kinds))):
            app.add_js_file(f"{name}.js", loading_method="defer")


def _finish(app, exception):
    if exception is None and app.builder.name == "html":
        for source in (path for name in NEEDED for path in MATHJAX.glob(name)):
            target = Path(app.outdir) / "_static" / "mathjax" / source.relative_to(MATHJAX)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        for path in Path(app.outdir).rglob("*.html"):
            html = path.read_text(encoding="utf-8")
            path.write_text(SURPLUS.sub(r"\g<kept>", html), encoding="utf-8")


def _write_all(app, env):
    """All pages, whatever was edited: each may show a title, a label or a number of another."""
    return list(env.found_docs)


def setup(app):
    app.connect("env-get-updated", _write_all)
    app.connect("doctree-resolved", _write_numbers)
    app.connect("html-page-context", _add_scripts)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
