"""Small repairs to the pages that the theme and docutils write, so that a screen reader and a keyboard get along.

Each repair is a pair (what stands there, what should), applied to the finished HTML; `tests/test_site.py` notices when
a new version of the theme makes one necessary or wrong.
"""

from pathlib import Path

REPAIRS = (
    # The title in the sidebar stands outside all landmarks; the sidebar as a whole is one.
    ('<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">',
     '<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar" role="navigation" aria-label="Book">'),
    # The label hides the words that one sees ("Show the code"), and says of every cell the same.
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
    # A role that has been withdrawn, inside a list whose items it must not be.
    (' role="doc-biblioentry"', ""),
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),
    # Over the names of the rows there may be nothing to say, and a heading without words is none.
    ('<th class="head"><p></p></th>', "<td></td>"),
    # Every proof without a label gets the same id.
    (' id="proof"', ""),
)

# What a reader of the site's folder sees first. Without it Sphinx would write one that has no title and asks the server
# for an icon.
FIRST_PAGE = Path(__file__).with_name("first_page.html")


def repair(html: str) -> str:
    """The page with every repair made."""
    for before, after in REPAIRS:
        html = html.replace(before, after)
    return html


def _polish(app, exception):
    if exception is None and app.builder.name == "html":
        folder = Path(app.outdir)
        for path in folder.rglob("*.html"):
            if path.relative_to(folder).parts[0] != "_static":
                path.write_text(repair(path.read_text(encoding="utf-8")), encoding="utf-8")
        first = FIRST_PAGE.read_text(encoding="utf-8").format(
            title=app.config.project, page=f"{app.config.root_doc}.html", icon=Path(app.config.html_favicon).name)
        (folder / "index.html").write_text(first, encoding="utf-8")


def setup(app):
    app.connect("build-finished", _polish, priority=100)  # before the pages are checked
    return {"parallel_read_safe": True, "parallel_write_safe": True}
