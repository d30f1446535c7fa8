"""The search finds sections, and words of this book such as 80/10/10 and 15%. search.js ranks and shows them.

Sphinx indexes pages. Here a section, without the sections in it, stands in the index as a page named "PAGE#ID".
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.search.en import SearchEnglish


class Words(SearchEnglish):
    """English, in which shares and rates are words too."""

    _word_re = re.compile(r"\d+(?:/\d+)+|\d+%|\w+")
    js_splitter_code = r"var splitQuery = (query) => query.match(/\d+(?:\/\d+)+|\d+%|[\p{L}\p{N}_]+/gu) ?? [];"


def alone(section: nodes.section) -> nodes.section:
    """A copy of a section without the sections in it, and without code that is folded."""
    copy = section.deepcopy()
    for part in list(copy.findall(nodes.Element)):
        if part is not copy and (isinstance(part, nodes.section) or "hide" in part.get("classes", [])):
            part.parent.remove(part)
    return copy


class Sections:
    """The sections of all pages, as they are shown."""

    def __init__(self) -> None:
        self.found: dict[str, list[nodes.section]] = {}

    def collect(self, app, doctree, docname):
        self.found[docname] = [alone(section) for section in doctree.findall(nodes.section)]

    def index(self, app, exception):
        if exception is None and app.builder.name == "html":
            index, place = app.builder.indexer, 0
            index.prune([])  # whole pages
            for page in app.env.collect_relations():  # in the order of the book
                if page not in self.found:  # the page was not written again
                    app.env.get_and_resolve_doctree(page, app.builder)
                for section in self.found[page]:
                    name = f"{page}#{section['ids'][0]}" if section is not self.found[page][0] else page
                    index.feed(name, str(place), section[0].astext(), section)
                    place += 1
            with (Path(app.outdir) / "searchindex.js").open("w", encoding="utf-8") as file:
                index.dump(file, app.builder.indexer_format)


def setup(app):
    sections = Sections()
    app.add_search_language(Words)
    app.config.html_search_scorer = str(Path(__file__).with_name("search.js"))
    app.connect("doctree-resolved", sections.collect, priority=900)  # after all that changes what is shown
    app.connect("build-finished", sections.index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
