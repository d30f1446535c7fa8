"""Give the pages that hold moving figures (`mptlml.report.moving`) their scripts and style, and no other page."""

import re

FIGURE = re.compile(r'<figure class="moving" data-kind="([a-z]+)"')


def scripts(body: str) -> list[str]:
    """The scripts that the moving figures of a page need, in the order in which they must run."""
    kinds = sorted(set(FIGURE.findall(body)))
    return ["moving.js", *(f"moving-{kind}.js" for kind in kinds)] if kinds else []


def _add(app, pagename, templatename, context, doctree):
    files = scripts(context.get("body", ""))
    for name in files:
        app.add_js_file(name, loading_method="defer")
    if files:
        app.add_css_file("moving.css")


def setup(app):
    app.connect("html-page-context", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
