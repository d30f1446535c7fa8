"""The pages `book/api*`, and links to them from names that the code of a page imports."""

import re
from contextlib import suppress
from functools import partial

from book_digest import imports
from docutils import nodes

# A name in highlighted code, perhaps of what stands before its dot, that is not a keyword
NAME = re.compile(
    r'(?:<span class="n">(\w+)</span><span class="o">\.</span>)?<span class="n">(\w+)</span>'
    r'(?!<span class="o">=</span>)'
)
PLAIN = re.compile(r'<span class="(?:pre|[nopw])">([^<]*)</span>')  # half of what code weighs


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
            out += [
                "\\ " + "".join(parts),
                "",
            ]
    return out


def link_code(app, pagename, templatename, context, doctree):
    """Link the names that a page imports from our packages; leave out what gives its code no colour."""
    if doctree is None or app.builder.name != "html":
        return
    known = {}
    for block in doctree.findall(nodes.literal_block):
        with suppress(SyntaxError):  # it is no Python
            known |= {
                name: source
                for name, source in imports(block.astext())
                if source.startswith("mptlml")
            }
    body = NAME.sub(partial(_linked, app, pagename, known), context["body"])
    context["body"] = PLAIN.sub(r"\1", PLAIN.sub(r"\1", body))  # one stands in another


def _linked(app, pagename, known, match):
    before, name = match[1], match[2]
    room, _, own = (
        f"{known.get(before, '')}.{name}" if before else known.get(name, "")
    ).rpartition(".")
    for full, entry in app.env.get_domain(
        "py"
    ).objects.items():  # a package shows what its modules define
        inside = full.startswith(f"{room}.") and entry.objtype in ("class", "function")
        if own and full.endswith(f".{own}" if inside else f".{room.rpartition('.')[2]}.{own}"):
            address = f"{app.builder.get_relative_uri(pagename, entry.docname)}#{entry.node_id}"
            span = f'<span class="n">{name}</span>'
            return match[0].removesuffix(span) + f'<a href="{address}">{span}</a>'
    return match[0]


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
    app.connect("autodoc-process-docstring", _describe)
    app.connect("autodoc-process-signature", _sign)
    app.connect("autodoc-skip-member", _skip)
    app.connect("object-description-transform", _keep_quotes)
    app.connect("html-page-context", link_code)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
