"""What needs to know where the book is kept: buttons, and what is shown where somebody passes a page's address on.

    MPTLML_REPOSITORY=https://github.com/OWNER/NAME MPTLML_BRANCH=main make book

No source says where the book is kept. With these two variables the theme shows its buttons: Binder over each chapter,
repository, edit and issue everywhere. Without them there are downloads alone. Binder opens the chapter's twin; the
download is that twin with a first cell (first_cell.json) that gets what it imports where that is missing.
"""

import os
from html import escape
from pathlib import Path

from docutils import nodes


def _set_options(app, config):
    repository = os.environ.get("MPTLML_REPOSITORY", "").strip().removesuffix("/")
    repository = repository.removesuffix(".git")
    if repository:
        owner, name = repository.split("/")[-2:]
        config.html_baseurl = f"https://{owner.lower()}.github.io/{name}/"
        config.html_theme_options |= {
            "repository_url": repository,
            "repository_branch": os.environ.get("MPTLML_BRANCH") or "main",
            "use_repository_button": True,
            "use_edit_page_button": True,
            "use_issues_button": True,
            "launch_buttons": {
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


def _offer_twin(app, pagename, templatename, context, doctree):
    # the theme does so only where there is an address, and offers a copy with outputs then
    if Path(app.srcdir, f"{pagename}.ipynb").is_file():
        context["ipynb_source"] = f"{pagename}.ipynb"


def _describe(app, pagename, templatename, context, doctree):
    """What is shown of a page where somebody passes its address on."""
    site = app.config.html_baseurl
    if site and doctree:
        said = {
            "title": doctree.next_node(nodes.title).astext(),
            "description": next((meta["content"] for meta in doctree.findall(nodes.meta)), ""),
            "url": f"{site}{pagename}.html",
            "image": f"{site}_static/card.png",
        }
        for name, text in said.items():
            context["metatags"] += f'<meta property="og:{name}" content="{escape(text)}">\n'


def _write_downloads(app, exception):
    if exception is None and app.builder.name == "html":
        cell = Path(app.srcdir, "book/_ext/first_cell.json").read_text("utf-8")
        cell = cell.replace("ADDRESS", app.config.html_theme_options.get("repository_url", ""))
        for twin in Path(app.srcdir).glob("notebooks/*.ipynb"):
            text = twin.read_text("utf-8").replace("[", f"[{cell},", 1)
            Path(app.outdir, "_sources/notebooks", twin.name).write_text(text, "utf-8")


def setup(app):
    app.connect("config-inited", _set_options)
    app.connect("html-page-context", _offer_twin)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _write_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
