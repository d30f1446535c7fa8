"""The buttons that need to know where the book is kept, and notebooks that can be opened far from it.

    MPTLML_REPOSITORY=https://github.com/OWNER/NAME MPTLML_BRANCH=main make book

No source says where the book is kept: the address comes from these two variables, which the publishing workflow sets to
the repository that it runs in. With an address each chapter can be opened in Binder and Colab, and each page
in the repository; without one there are no such buttons. Either way a chapter can be downloaded as a notebook.

The notebooks of the site begin with a cell (colab_cell.py) that installs the package where it is missing, from that
address. They lie in `_sources/notebooks` of the site, hence on the branch that it is published from, where Colab finds
them. The notebooks of the repository need no such cell: who has it has the package.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import nbformat

SITE_BRANCH = "gh-pages"  # as in the Makefile's `publish`
CELL = Path(__file__).with_name("colab_cell.py")
UNKNOWN = 'REPOSITORY, BRANCH = "", ""'


class Address(NamedTuple):
    """Where the book is kept."""

    repository: str  # https://github.com/OWNER/NAME
    branch: str

    @property
    def path(self) -> str:
        """OWNER/NAME."""
        return "/".join(self.repository.rsplit("/", 2)[1:])


def address(environment: Mapping[str, str]) -> Address | None:
    """The address that the environment names, if it does. Raises ValueError: one that is not of that form."""
    repository = environment.get("MPTLML_REPOSITORY", "").strip().removesuffix("/").removesuffix(".git")
    branch = environment.get("MPTLML_BRANCH", "").strip() or "main"
    if not repository:
        return None
    if not re.fullmatch(r"https://github\.com/[A-Za-z0-9-]+/[A-Za-z0-9._-]+", repository):
        raise ValueError(f"MPTLML_REPOSITORY is {repository!r}; expected https://github.com/OWNER/NAME")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._/-]*", branch):
        raise ValueError(f"MPTLML_BRANCH is {branch!r}, which is no name of a branch")
    return Address(repository, branch)


def first_cell(place: Address | None) -> str:
    """The code of the cell that installs the package where it is missing."""
    code = CELL.read_text(encoding="utf-8").rstrip()
    if code.count(UNKNOWN) != 1:
        raise ValueError(f"{CELL.name} has no line {UNKNOWN!r} to write the address into")
    if place is None:
        return code
    return code.replace(UNKNOWN, f'REPOSITORY, BRANCH = "{place.repository}", "{place.branch}"')


def portable(notebook: nbformat.NotebookNode, place: Address | None) -> nbformat.NotebookNode:
    """The notebook with that cell before its first code cell, so that it runs where the package is missing."""
    cell = nbformat.v4.new_code_cell(first_cell(place), id="install", metadata={"cellView": "form"})
    where = next(number for number, other in enumerate(notebook.cells) if other.cell_type == "code")
    return nbformat.from_dict({**notebook, "cells": [*notebook.cells[:where], cell, *notebook.cells[where:]]})


def write_notebooks(root: Path, folder: Path, place: Address | None) -> list[Path]:
    """Write every chapter's notebook into the folder, able to run far from the book; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        notebook = portable(nbformat.read(path, as_version=4), place)
        nbformat.validate(notebook)
        nbformat.write(notebook, folder / path.name)
        written.append(folder / path.name)
    return written


def _set_options(app, config):
    place = address(os.environ)
    if place is not None:
        config.html_theme_options = config.html_theme_options | {
            "repository_url": place.repository,
            "repository_branch": place.branch,
            "use_repository_button": True,
            "use_edit_page_button": True,
            "use_issues_button": True,
            "launch_buttons": {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"},
        }


def _offer_notebook(app, pagename, templatename, context, doctree):
    """A chapter's download button offers its notebook; the theme does so by itself for a book with an address only."""
    if (Path(app.srcdir) / f"{pagename}.ipynb").is_file():
        context["ipynb_source"] = f"{pagename}.ipynb"


def _add_colab(app, pagename, templatename, context, doctree):
    """The theme would send Colab to the notebook beside the source, which does not know where its package is."""
    place = address(os.environ)
    for group in context.get("header_buttons", []):
        if place is not None and group.get("label") == "launch-buttons":
            group["buttons"].append({
                "type": "link", "text": "Colab", "tooltip": "Launch on Colab",
                "icon": "_static/images/logo_colab.png",
                "url": "https://colab.research.google.com/github/"
                       f"{place.path}/blob/{SITE_BRANCH}/_sources/{pagename}.ipynb",
            })


def _write(app, exception):
    if exception is None and app.builder.name == "html":
        write_notebooks(Path(app.srcdir), Path(app.outdir) / "_sources" / "notebooks", address(os.environ))


def setup(app):
    app.connect("config-inited", _set_options)
    app.connect("html-page-context", _offer_notebook)
    app.connect("html-page-context", _add_colab, priority=502)  # after the theme's own buttons
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
