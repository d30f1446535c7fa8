"""The pages `book/api*`, and links to them from names that the code of a page imports."""

import pkgutil
import re
from contextlib import suppress
from functools import cache

from book_digest import imports
from docutils import nodes

PAGE = "book/api"
# A name in highlighted code with its attributes, that is neither an attribute itself nor a keyword
CHAIN = re.compile(r'(?<!<span class="o">\.</span>)<span class="n">(\w+)</span>'
                   r'((?:<span class="o">\.</span><span class="n">\w+</span>)*)(?!<span class="o">=</span>)')
PLAIN = re.compile(r'<span class="(?:pre|[nopw])">([^<]*)</span>')  # of names and signs: half of what code weighs


def plain_to_rst(lines: list[str]) -> list[str]:
    """A plain docstring, with `[N, D]` and x_j, as reStructuredText: only `code` and indented formulas are markup."""
    out = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        if paragraph.startswith("    "):
            out += [".. code-block:: text", "", *paragraph.splitlines(), ""]
        elif paragraph.strip():
            parts = re.split(r"`([^`]+)`", " ".join(paragraph.split()))  # text and code in turn
            parts[::2] = [re.sub(r"([\\*_|`:])", r"\\\1", text) for text in parts[::2]]
            parts[1::2] = [f"\\ ``{code}``\\ " for code in parts[1::2]]
            out += ["\\ " + "".join(parts), ""]  # a paragraph that starts with "- " or "1." is no list either
    return out


@cache
def defined(source: str) -> str:
    """Where a name is defined, or its module, in dots; "" for what has no such place, as a number."""
    value = pkgutil.resolve_name(source)
    if hasattr(value, "__path__") or hasattr(value, "__spec__"):
        return value.__name__
    return f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else ""


def imported(doctree) -> dict[str, str]:
    """{name: where it is defined} of what the code of a page imports from our packages."""
    names = {}
    for block in doctree.findall(nodes.literal_block):
        with suppress(SyntaxError):  # it is no Python
            names |= {here: defined(source) for here, source in imports(block.astext()) if source.startswith("mptlml")}
    return names


def link_code(app, pagename, templatename, context, doctree):
    """Link the names that a page imports, with their attributes, in its code; leave out what gives it no colour."""
    if doctree is None or app.builder.name != "html":
        return
    names, entries = imported(doctree), app.env.get_domain("py").objects

    def linked(match):
        parts = re.findall("<span.*?</span>", match[0])  # names, and the dots between them
        path = [names.get(match[1], ""), *re.findall(r">(\w+)<", match[2])]
        for count in range(len(path), 0, -1):
            if entry := entries.get(".".join(path[:count])):
                address = f"{app.builder.get_relative_uri(pagename, entry.docname)}#{entry.node_id}"
                end = 2 * count - 1
                return f'<a href="{address}">{"".join(parts[:end])}</a>{"".join(parts[end:])}'
        return match[0]

    context["body"] = PLAIN.sub(r"\1", PLAIN.sub(r"\1", CHAIN.sub(linked, context["body"])))  # one stands in another


def _describe(app, what, name, obj, options, lines):
    lines[:] = plain_to_rst(lines)


def _sign(app, what, name, obj, options, signature, returns):
    return ("", None) if what == "class" and getattr(obj, "_is_protocol", False) else None  # it is not called


def _keep_quotes(app, domain, objtype, content):
    for node in content.findall(nodes.TextElement):
        node["support_smartquotes"] = False  # rows="sample" is code


def setup(app):
    app.connect("autodoc-process-docstring", _describe)
    app.connect("autodoc-process-signature", _sign)
    app.connect("object-description-transform", _keep_quotes)
    app.connect("html-page-context", link_code)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
