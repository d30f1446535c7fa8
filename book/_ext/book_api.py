"""The pages `book/api*`, and links to them from names in the text of others (sphinx-codeautolink links their code)."""

import re

from docutils import nodes
from sphinx.util.nodes import make_refnode

PAGE = "book/api"


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


def link_mentions(app, doctree, docname):
    """Link the first mention of each name that sphinx-codeautolink has found in code, here or on the API page."""
    if docname.startswith(PAGE) or app.builder.name != "html":
        return
    names = {name.code_str: name.resolved_location for page in (PAGE, docname)
             for block in app.env.sphinx_codeautolink_transforms.get(page, []) for name in block.names}
    entries = dict(app.env.get_domain("py").objects)
    for literal in list(doctree.findall(nodes.literal)):
        first, dot, rest = literal.astext().removesuffix("()").partition(".")
        name = names.get(first + dot + rest) or names.get(first, first) + dot + rest
        if name in entries and not isinstance(literal.parent, nodes.reference | nodes.title):
            entry = entries.pop(name)  # so a second mention is no link
            literal.replace_self(
                make_refnode(app.builder, docname, entry.docname, entry.node_id, literal.deepcopy(), name))


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
    app.connect("doctree-resolved", link_mentions)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
