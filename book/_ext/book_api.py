"""The pages `book/api*`, made from the packages, and links to them from names that a page's code imports."""

import pkgutil
import re
import textwrap
from importlib import import_module

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

# A name in highlighted code, perhaps of what stands before its dot, that is not a keyword
NAME = re.compile(
    r'(?:<span class="n">(\w+)</span><span class="o">\.</span>)?<span class="n">(\w+)</span>'
    r'(?!<span class="o">=</span>)'
)
PLAIN = re.compile(r'<span class="(?:pre|[nopw])">([^<]*)</span>')  # half of what code weighs


class Modules(SphinxDirective):
    """{modules} PACKAGE: an entry for each of its modules, or for those that the content names."""

    required_arguments, has_content = 1, True

    def run(self) -> list[nodes.Node]:
        package = self.arguments[0]
        every = [each.name for each in pkgutil.iter_modules(import_module(package).__path__)]
        names = [f"{package}.{name}" for name in " ".join(self.content).split() or every]
        entry = "### `{0}`\n\n```{{eval-rst}}\n.. automodule:: {0}\n   :members:\n```\n"
        text = "\n".join(map(entry.format, names))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Names(SphinxDirective):
    """{names} PACKAGE ...: what each of them offers, as one would import it."""

    required_arguments, final_argument_whitespace = 1, True

    def run(self) -> list[nodes.Node]:
        text = ""
        for package in self.arguments[0].split():
            names = ", ".join(import_module(package).__all__)
            wrapped = textwrap.indent(textwrap.fill(names, 70), "    ")
            text += f"from {package} import (\n{wrapped},\n)\n"
        return [nodes.literal_block(text, text, language="python")]


def plain_to_rst(lines: list[str]) -> list[str]:
    """A plain docstring as reStructuredText, in which only `code` and indented formulas are markup."""
    out = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if paragraph.startswith("    "):
            out += [".. code-block:: text", "", *paragraph.splitlines(), ""]
        elif paragraph.strip():
            parts = re.split(r"`([^`]+)`", " ".join(paragraph.split()))  # text and code in turn
            parts[::2] = [re.sub(r"([\\*_|`:])", r"\\\1", text) for text in parts[::2]]
            parts[1::2] = [f"\\ ``{code}``\\ " for code in parts[1::2]]
            # a paragraph that starts with "- " or "1." is no list either
            out += ["\\ " + "".join(parts), ""]
    return out


def _describe(app, what, name, obj, options, lines):
    lines[:] = plain_to_rst(lines)


def _sign(app, what, name, obj, options, signature, returns):
    # it is not called
    return ("", None) if what == "class" and getattr(obj, "_is_protocol", False) else None


def _skip(app, what, name, obj, skip, options):
    # its class says what it holds
    return True if (obj.__doc__ or "").startswith("Alias for field number") else None


def _keep_quotes(app, domain, objtype, content):
    for node in content.findall(nodes.TextElement):
        node["support_smartquotes"] = False  # rows="sample" is code


def setup(app):
    app.add_directive("modules", Modules)
    app.add_directive("names", Names)
    app.connect("autodoc-process-docstring", _describe)
    app.connect("autodoc-process-signature", _sign)
    app.connect("autodoc-skip-member", _skip)
    app.connect("object-description-transform", _keep_quotes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
