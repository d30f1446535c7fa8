"""The house: how large each room may be, in tokens of Python, and which room may name which."""

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import book_reader
import pytest
from conftest import ROOT, finished, text_of

# Whoever raises a number says in that commit what it buys.
AT_MOST = {
    "mptlml": 18_000,
    "mptlml/scoring": 6_000,
    "mptlml_book": 43_500,
    "book/_ext": 5_500,
    "tests": 58_000,
    "all": 131_000,
}
LINES = {"Makefile": 110, "CONTRIBUTING.md": 80}
WORDLESS = "COMMENT NL NEWLINE INDENT DEDENT ENDMARKER ENCODING".split()
FILES = [
    name
    for name in finished("git", "ls-files", "-co", "--exclude-standard").stdout.split()
    if (ROOT / name).is_file()
]


def tokens(text):
    return sum(
        tokenize.tok_name[token.type] not in WORDLESS
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def test_no_room_holds_more_than_it_may():
    """Comments and the layout of lines are free; a string is one token, whatever it says."""
    assert tokens('"""One."""\nif x:  # so\n    y = f(2)\n') == 10
    found = Counter()
    for name in FILES:
        if name.endswith(".py"):
            room = max((room for room in AT_MOST if name.startswith(f"{room}/")), key=len)
            found[room] += tokens(text_of(name))
    found["all"] = found.total()
    assert {room: count for room, count in found.items() if count > AT_MOST[room]} == {}


@pytest.mark.parametrize("name", LINES)
def test_what_is_read_at_once_is_short(name):
    assert len(text_of(name).splitlines()) <= LINES[name]


def imported(code, folder):
    """The dotted names that some code imports; a relative one begins at its folder."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(folder.parts[: len(folder.parts) - node.level + 1]) if node.level else []
            base += [node.module] if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


def code_of(name):
    """The code of a module, or of a chapter."""
    if name.endswith(".py"):
        return text_of(name)
    cells = book_reader.code_cells(book_reader.read_chapter(ROOT / name))
    lines = "\n".join(cell.source for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


def names(room, other):
    """Which files of a room import from another one."""
    return [
        name
        for name in FILES
        if name.startswith(room)
        and name.endswith((".py", ".md"))
        and any(
            f"{it}.".startswith(f"{other}.") for it in imported(code_of(name), Path(name).parent)
        )
    ]


def test_imports_point_one_way():
    """The tool and the book see the library; the library sees neither, and the book not the tool."""
    by_library = names("mptlml/", "mptlml.scoring")
    assert [name for name in by_library if "/scoring/" not in name] == ["mptlml/__main__.py"]
    assert names("mptlml/", "mptlml_book") == []
    for room in ("mptlml_book/", "notebooks/", "book/_ext/"):
        assert names(room, "mptlml.scoring") == []
    assert len(names("notebooks/", "mptlml_book")) == len(book_reader.chapters())


def test_a_figure_names_the_roles_of_its_colours():
    """`report.AREA`, not "blue"; white and none are no line's."""
    raw = r"""(?i)colou?r=["'][^wn]|["'.](?:#\w{6}|C\d|tab:|black|blue|orange|green|red|grey|purple|sky)\b"""
    assert re.findall(raw, "".join(map(code_of, map(str, book_reader.chapters())))) == []


def test_a_chapter_needs_those_that_it_refers_back_to():
    """Those that *You need* names, and those that these need, are the earlier chapters that the text refers to."""
    known, texts = {}, {path.stem: path.read_text() for path in book_reader.chapters()}
    label = r"(?m)(?:name: |label: |^\()([\w-]+)"
    home = {name: stem for stem in texts for name in (stem, *re.findall(label, texts[stem]))}
    for stem, text in texts.items():
        line = "".join(re.findall(r"\*\*You need.*", text))
        named, used = (
            {home.get(name, stem) for name in re.findall(r"`(?:[^`]*<)?([\w-]+)>?`", part)}
            for part in (line, text.replace(line, ""))
        )
        known[stem] = named.union(*map(known.get, named))
        assert named <= used and known[stem].issuperset(other for other in used if other < stem)
