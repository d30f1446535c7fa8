"""`{passport}` and `{status}`: which chapter makes each figure of the paper, with what; and what each chapter cost.

    ```{passport}        (the paper's figures and tables in one table, then each with a section; from book/figures.yml)
    ```
    ```{status}          (seconds, memory, versions, machine and data, as the chapters told them)
    ```

Both are filled when every page has been read (book_records).
"""

from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import relpath

import yaml
from book_records import MOST_MEGABYTES, later, link, paragraph, records, table
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


def read_figures(path: Path) -> list[dict]:
    """The entries of figures.yml, in the paper's order."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def claims_of(figure: dict, claims: list[dict]) -> list[dict]:
    """The claims that a figure names, by id or by a pattern such as `linvae-*-script`, in the order of its names."""
    return [claim for name in figure["claims"] for claim in claims if fnmatchcase(claim["id"], name)]


def command(figure: dict) -> str:
    """The line that makes a figure."""
    return f'make execute CHAPTERS="{figure["chapter"]}"'


def target(figure: dict) -> str:
    """The figure's place in the site, relative to its root."""
    return f"notebooks/{figure['chapter']}.html#{figure['anchor']}"


def sentence(phrase: str) -> str:
    return phrase[0].upper() + phrase[1:] + "."


def cost(chapter: dict) -> str:
    return f"{chapter['seconds']:.0f} s, {chapter['megabytes']:.0f} MB"


class Passport(SphinxDirective):
    def run(self):
        source = Path(self.env.srcdir) / "book" / "figures.yml"
        self.env.note_dependency(str(source))
        figures = read_figures(source)
        sections = []
        for figure in figures:
            section = nodes.section(ids=[f"passport-{figure['id']}"], names=[f"passport-{figure['id']}"])
            section += nodes.title("", figure["paper"])
            section += later(make=one_figure, figure=figure)
            sections.append(section)
        return [later(make=all_figures, figures=figures), *sections]


class Status(SphinxDirective):
    def run(self):
        return [later(make=status)]


def _to(docname):
    """Turns an address in the site into one relative to a page."""
    return lambda address: relpath(address, Path(docname).parent.as_posix())


def all_figures(app, docname, place):
    """Which chapter makes Figure N: one line each."""
    to, chapters = _to(docname), records(app)["chapters"]
    rows = [[paragraph(link(figure["paper"], f"#passport-{figure['id']}")),
             paragraph(link(chapters[figure["chapter"]]["title"], to(target(figure)))),
             paragraph(nodes.literal("", command(figure)))]
            for figure in place["figures"]]
    return table(("In the paper", "Made by", "Command"), rows, ["passport"], (17, 38, 45))


def one_figure(app, docname, place):
    """A figure's passport: our twin, its numbers beside the paper's, settings, command, data, cost."""
    to, found, figure = _to(docname), records(app), place["figure"]
    chapter = found["chapters"][figure["chapter"]]
    facts = [("With", [sentence(figure["settings"])]), ("What differs", [sentence(figure["differs"])]),
             ("Command", [nodes.literal("", command(figure)), f" ({cost(chapter)} for the whole chapter)"])]
    if figure["id"] in chapter["tables"]:
        rows = chapter["tables"][figure["id"]].count("\n") - 1
        data = link(f"{figure['id']}.csv", to(f"data/{figure['id']}.csv"))
        facts.append(("Data", [data, f", {rows} rows"]))
    listed = nodes.definition_list("", *(nodes.definition_list_item(
        "", nodes.term("", name), nodes.definition("", paragraph(*parts))) for name, parts in facts),
        classes=["facts"])
    twin = paragraph(sentence(figure["shows"]), " Our twin is in ", link(chapter["title"], to(target(figure))), ".")
    return [twin, *picture(app, docname, figure), numbers(figure, found["claims"], to), listed]


def picture(app, docname, figure):
    """The chapter's own picture, if the anchor is a figure, as a link to it."""
    doctree = app.env.get_doctree(f"notebooks/{figure['chapter']}")
    for found in doctree.findall(nodes.figure):
        if figure["anchor"] in found["ids"]:
            image = next(found.findall(nodes.image)).deepcopy()
            wrapped = nodes.reference("", "", image, refuri=_to(docname)(target(figure)), internal=True)
            return [nodes.container("", wrapped, classes=["twin"])]
    return []


def numbers(figure, claims, to):
    """The paper's numbers beside ours."""
    rows = [[paragraph(link(claim["statement"], to(f"book/scorecard.html#claim-{claim['id']}"))),
             claim["paper"] or "–", f"{claim['text']} {claim['unit'] or ''}".strip(),
             paragraph(nodes.inline("", claim["verdict"], classes=["verdict"]))]  # book_scorecard.py colours it
            for claim in claims_of(figure, claims)]
    return table(("What", "Paper", "Ours", "Verdict"), rows, ["numbers", "cards"], (52, 17, 18, 13))


def bar(share: float) -> nodes.raw:
    """A bar as long as a share of the largest value; it repeats a number that stands beside it."""
    text = f'<span class="bar" aria-hidden="true" style="width: {100 * share:.0f}%"></span>'
    return nodes.raw("", text, format="html")


def status(app, docname, place):
    """The table of costs, and on what the chapters ran."""
    to, chapters = _to(docname), records(app)["chapters"]
    longest = max(chapter["seconds"] for chapter in chapters.values()) or 1
    rows = [[paragraph(link(chapter["title"], to(f"notebooks/{stem}.html"))),
             paragraph(f"{chapter['seconds']:.0f}", bar(chapter["seconds"] / longest)),
             paragraph(f"{chapter['megabytes']:.0f}", bar(chapter["megabytes"] / MOST_MEGABYTES)),
             "; ".join(data_used(chapter)) or "none: rows are drawn from models"]
            for stem, chapter in chapters.items()]
    total = sum(chapter["seconds"] for chapter in chapters.values())
    rows.append(["All chapters", f"{total:.0f}", f"{max(c['megabytes'] for c in chapters.values()):.0f} at most", ""])
    costs = table(("Chapter", "Seconds", "Memory at its peak, MB", "Data"), rows, ["status", "cards"], (34, 18, 20, 28))
    settings = [chapter["setting"] for chapter in chapters.values() if chapter["setting"]]
    facts = [*merged(setting["versions"] for setting in settings).items(),
             *merged(setting["machine"] for setting in settings).items()]
    return [costs, paragraph("All of them ran with"), table(("What", "Which"), facts, ["setting"], (40, 60))]


def data_used(chapter):
    """The data a chapter read, and where a default stood in for real ones."""
    return [source + (" (a default: the real data were not at hand)" if note else "")
            for source, note in chapter["setting"].get("data", {}).items()]


def merged(settings):
    """{name: value}, of several settings; values that differ are listed."""
    found = {}
    for setting in settings:
        for name, value in setting.items():
            value = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
            if value not in found.setdefault(name, []):
                found[name].append(value)
    return {name: " or ".join(values) for name, values in found.items()}


def setup(app):
    app.setup_extension("book_records")
    app.add_directive("passport", Passport)
    app.add_directive("status", Status)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
