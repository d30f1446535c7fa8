"""The pages `book/api*`: an entry for each module of a package, from its docstrings."""

import pkgutil
import re
from importlib import import_module

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ENTRY = "### `{0}`\n\n```{{eval-rst}}\n.. automodule:: {0}\n   :members:\n```\n"


class Modules(SphinxDirective):
    """{modules} PACKAGE: an entry for each of its modules."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = import_module(self.arguments[0])
        found = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        names = [one.name for one in found if not one.ispkg and "__" not in one.name]
        text = "\n".join(map(ENTRY.format, names))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def plain_to_rst(lines: list[str]) -> list[str]:
    """A plain docstring as reStructuredText, in which only `code` and indented formulas are markup.

    Backticks alone mean code here (`default_role` in _config.yml), and code forgets the escapes.
    """
    text = "\n".join(lines)
    escaped = re.sub(
        r"(?m)^(?! {4}).*", lambda line: re.sub(r"[\\*_|:]", r"\\\g<0>", line[0]), text
    )
    return re.sub(r"\n\n(?= {4})", "\n\n::\n\n", escaped).splitlines()


def _describe(app, what, name, obj, options, lines):
    lines[:] = plain_to_rst(lines)


def _skip(app, what, name, obj, skip, options):
    # its class says what it holds
    return True if (obj.__doc__ or "").startswith("Alias for field number") else None


def setup(app):
    app.add_directive("modules", Modules)
    app.connect("autodoc-process-docstring", _describe)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
