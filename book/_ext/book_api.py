"""The package's names: their entries on the page `book/api`, and links to them from where a chapter first uses them.

The entries come from the docstrings through sphinx.ext.autodoc. The docstrings are plain text, in which `[N, D]` is a
shape, |M| a size and x_j a token, so each is turned into markup that shows it as it stands: nothing but `code` between
backticks and indented formulas have a meaning. On every other page, the first use of a name in code (after its import)
and its first mention in the text become links. No text changes, so the copy button still copies plain code.
"""

import ast
import html
import re
from importlib import import_module
from inspect import isclass, ismodule, isroutine
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

PAGE = "book/api"
PACKAGE = "mptlml"
CODE_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELL_OPTIONS = re.compile(r"\A(?:---\n.*?^---\n|(?::\w[^\n]*\n)+)", re.MULTILINE | re.DOTALL)

# A page's HTML, as Sphinx and Pygments write it
BLOCK = re.compile(r'(<div class="highlight-i?python3?[^"]*"><div class="highlight"><pre>)(.*?)(</pre>)', re.DOTALL)
NAME, DOT = r'<span class="n">(\w+)</span>', r'<span class="o">\.</span>'
IN_CODE = re.compile(
    r'<span class="kn">from</span>[^\n]*?(?:<span class="p">\(</span>.*?<span class="p">\)</span>|(?=\n|\Z))'  # skipped
    rf'|(?<!<span class="o">\.</span>)(?P<chain>{NAME}(?:{DOT}{NAME})*)(?!<span class="o">=</span>)', re.DOTALL)
IN_TEXT = re.compile(
    r"<h[1-6]\b.*?</h[1-6]>|<a\b.*?</a>|<pre\b.*?</pre>|<script\b.*?</script>"  # skipped
    r'|<code class="docutils literal notranslate"><span class="pre">(?P<chain>[\w.]+)(?:\(\))?</span></code>',
    re.DOTALL)


def plain_to_rst(lines: list[str]) -> list[str]:
    """A plain docstring as reStructuredText that shows it as it stands: paragraphs, `code`, indented formulas."""
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


def imported_names(source: str) -> dict[str, str]:
    """{name in the code: where it comes from} for all that a chapter's code cells import from the package."""
    found = {}
    for cell in CODE_CELL.findall(source):
        code = "\n".join("" if line.lstrip().startswith(("%", "!")) else line
                         for line in CELL_OPTIONS.sub("", cell).splitlines())
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
                found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {alias.asname or alias.name: alias.name for alias in node.names
                          if alias.name.split(".")[0] == PACKAGE and ("." not in alias.name or alias.asname)}
    return found


def entry_of(path: str) -> str | None:
    """Where what an import path such as mptlml.PPCA.fit names was defined: mptlml.gaussian.PPCA.fit. None: nowhere."""
    parts = path.split(".")
    try:
        value = import_module(parts[0])
        for part in parts[1:]:
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return None
    if ismodule(value):
        return value.__name__
    if isclass(value) or isroutine(value):
        return f"{value.__module__}.{value.__qualname__}"
    owner = entry_of(".".join(parts[:-1]))  # a property, say, belongs to its class
    return owner and f"{owner}.{parts[-1]}"


class Names(SphinxDirective):
    """`{api-names}`: what can be imported from the package itself, each name with a link to its entry."""

    def run(self):
        names = sorted(import_module(PACKAGE).__all__, key=str.lower)
        text = ", ".join(f"{{py:obj}}`{name} <{entry_of(f'{PACKAGE}.{name}')}>`" for name in names)
        found, messages = self.parse_inline(text + ".")
        return [nodes.paragraph("", "", *found, classes=["api-names"]), *messages]


class Links:
    """Links from one page: each entry once from its code, once from its text.

    names: {name on the page: import path}; address: {entry: address of it}. `made` lists (entry, "code" or "text").
    """

    def __init__(self, names: dict[str, str], address: dict[str, str]):
        self.names, self.address, self.made = names, address, []

    def add(self, body: str) -> str:
        """The page's HTML with its links."""
        body = BLOCK.sub(lambda m: m[1] + IN_CODE.sub(lambda n: self._link(n, "code"), m[2]) + m[3], body)
        return IN_TEXT.sub(lambda m: self._link(m, "text"), body)

    def _link(self, match, where):
        chain = match["chain"]
        if not chain:
            return match[0]
        parts = re.findall(r">(\w+)<", chain) if where == "code" else chain.split(".")
        if parts[0] not in self.names:
            return match[0]
        for length in range(len(parts), 0, -1):  # report.BLUE has no entry, and PPCA.fit(x).weight one for PPCA.fit
            entry = entry_of(".".join([self.names[parts[0]], *parts[1:length]]))
            if entry in self.address:
                break
        else:
            return match[0]
        if (where == "text" and length < len(parts)) or (entry, where) in self.made:
            return match[0]
        self.made.append((entry, where))
        spans = re.match(DOT.join([NAME] * length), chain)[0] if where == "code" else match[0]
        link = (f'<a class="api-link" href="{html.escape(self.address[entry])}" title="{entry}">{spans}</a>')
        return link + match[0][len(spans):]


def _describe(app, what, name, obj, options, lines):
    lines[:] = plain_to_rst(lines)


def _sign(app, what, name, obj, options, signature, returns):
    if getattr(obj, "_is_protocol", False) and isclass(obj):  # a protocol is not called
        return "", None


def _keep_quotes(app, domain, objtype, content):
    for node in content.findall(nodes.TextElement):
        node["support_smartquotes"] = False  # rows="sample" is code


def _add_links(app, pagename, templatename, context, doctree):
    if doctree is None or pagename == PAGE or app.builder.name != "html":
        return
    names = {PACKAGE: PACKAGE}
    if pagename.startswith("notebooks/"):
        names |= imported_names(Path(app.env.doc2path(pagename)).read_text(encoding="utf-8"))
    else:
        names |= {name: f"{PACKAGE}.{name}" for name in import_module(PACKAGE).__all__}
    page = app.builder.get_relative_uri(pagename, PAGE)
    entries = app.env.get_domain("py").objects
    address = {name: f"{page}#{entry.node_id}" for name, entry in entries.items() if entry.docname == PAGE}
    context["body"] = Links(names, address).add(context["body"])


def setup(app):
    app.add_directive("api-names", Names)
    app.connect("autodoc-process-docstring", _describe)
    app.connect("autodoc-process-signature", _sign)
    app.connect("object-description-transform", _keep_quotes)
    app.connect("html-page-context", _add_links)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
