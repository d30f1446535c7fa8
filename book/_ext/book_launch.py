"""The buttons that need to know where the book is kept, and notebooks that can be read far from it.

    MPTLML_REPOSITORY=https://github.com/OWNER/NAME MPTLML_BRANCH=main make book

No source says where the book is kept: with these two variables each chapter can be opened in
Binder, and each page in the repository; without them there are downloads alone. The notebooks of
the site, which all buttons open, can be read before they run (book_notebook.py).
"""

import os
import re
from html import escape
from pathlib import Path
from urllib.parse import quote

from docutils import nodes

BINDER = "https://mybinder.org/v2/gh/{path}/{branch}?urlpath="
PULL = "git-pull?repo={repository}&branch=gh-pages&urlpath={opened}"


def address() -> tuple[str, str] | None:
    """The repository and branch that the environment names, if it does."""
    repository = (
        os.environ.get("MPTLML_REPOSITORY", "").strip().removesuffix("/").removesuffix(".git")
    )
    return (
        (repository, os.environ.get("MPTLML_BRANCH", "").strip() or "main") if repository else None
    )


def site() -> str:
    """The address of the site that GitHub shows of the repository; empty where the environment names none."""
    owner, _, name = (address() or ("",))[0].removeprefix("https://github.com/").partition("/")
    return f"https://{owner.lower()}.github.io/{name}/" if owner else ""


def _set_options(app, config):
    if place := address():
        config.html_theme_options |= {
            "repository_url": place[0],
            "repository_branch": place[1],
            "use_repository_button": True,
            "use_edit_page_button": True,
            "use_issues_button": True,
            "launch_buttons": {
                "binderhub_url": "https://mybinder.org",
                "notebook_interface": "jupyterlab",
            },
        }


def _offer_notebook(app, pagename, templatename, context, doctree):
    if (Path(app.srcdir) / f"{pagename}.ipynb").is_file():
        context["ipynb_source"] = (
            f"{pagename}.ipynb"  # the theme does so only where there is an address
        )


def _launch(app, pagename, templatename, context, doctree):
    # The theme would open the notebook beside the source, which has no outputs.
    for group in context.get("header_buttons", []):
        if group.get("label") == "launch-buttons":
            repository, branch = address()
            path = repository.removeprefix("https://github.com/")
            opened = f"lab/tree/{path.partition('/')[2]}/_sources/{pagename}.ipynb"
            pull = PULL.format(repository=quote(repository, safe=""), opened=quote(opened, safe=""))
            [binder] = group["buttons"]
            binder["url"] = BINDER.format(path=path, branch=branch) + quote(pull, safe="")


def _describe(app, pagename, templatename, context, doctree):
    """What is shown of a page where somebody passes its address on."""
    told = [meta["content"] for meta in doctree.findall(nodes.meta)] if doctree else []
    title = re.sub("<[^>]*>", "", context.get("title", ""))
    said = {"og:type": "article", "og:site_name": app.config.html_title, "og:title": title}
    if told:
        said["og:description"] = told[0]
    if site():
        said |= {"og:url": f"{site()}{pagename}.html", "og:image": f"{site()}_static/card.png"}
    context["metatags"] = context.get("metatags", "") + "".join(
        f'<meta property="{name}" content="{escape(text, quote=True)}">\n'
        for name, text in said.items()
    )


def setup(app):
    app.connect("html-page-context", _describe)
    app.connect("config-inited", _set_options)
    app.connect("html-page-context", _offer_notebook)
    app.connect("html-page-context", _launch, priority=502)  # after the theme's own buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}
