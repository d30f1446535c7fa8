"""Texts from files: lines, tables, JSON lines or FASTA; plain or gzipped, or the standard input."""

import csv
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

STDIN = Path("-")
ENDINGS = {
    "csv": [".csv"],
    "tsv": [".tsv", ".tab"],
    "jsonl": [".jsonl", ".ndjson", ".json"],
    "fasta": [".fasta", ".fas", ".fa", ".faa", ".fna", ".ffn"],
}
FORMATS = ("lines", *ENDINGS)
FOREIGN = {  # how files begin that hold texts, but none that are read here
    r"@.*\n.+\n\+": "FASTQ",
    r"# STOCKHOLM|CLUSTAL|MUSCLE \(|PileUp|!!.._MULTIPLE|#NEXUS|\d+ +\d+\n|LOCUS  |ID   |HEADER  |data_\w+\n": "an "
    "alignment or an entry of a data bank",
    r"<[!?]|<(\w+)[^>]*>(?=[^\0]*</\1>)": "XML or HTML",
    r"\{\\rtf": "RTF",
    r"\\documentclass": "LaTeX",
    r"\|.*\|\n\|[ :|-]+\n": "a table of Markdown",
    r"WEBVTT|\d+\n\d\d:\d\d:": "subtitles",
    r"##fileformat=|@HD\t|@SQ\t": "VCF or SAM",
    r">(P1|F1|D[LC]|R[LC]|N[13]|XX);": "PIR, whose second lines are titles",
    r"# (sent_id|text|newdoc|global)\b": "CoNLL-U",
}
# What a line of a sequence holds: letters, gaps and stops.
SEQUENCE_LINE = re.compile(r"[A-Za-z*.~?\s-]*", re.ASCII)

LeftOut = Callable[[str], None]  # is told of what cannot be used; without it, that is a ValueError


class Text(NamedTuple):
    """A text, the line of its file on which it begins, from 1, and the name that FASTA gives it, if any.

    given: a text that stands before it, seen and not scored; beside: the other columns of its row;
    right: of a question's answers, which is right, from 1.
    """

    line: int
    text: str
    name: str | None = None
    given: str = ""
    beside: Mapping[str, Any] = {}
    right: int | None = None


@dataclass
class Source:
    """A file of texts, and how it is read.

    format: one of FORMATS; by default as its name ends, else as it begins. header: whether the
    first line of a table names its columns. quotes: whether quotes enclose cells between tabs, as
    between commas they do. left_out: is told of rows that cannot be used; say: of what was taken in
    one of several ways. counts: how many texts were `empty`. keys and known: the names of the
    texts' columns, and of all, once they are read.
    """

    path: Path
    format: str | None = None
    header: bool = True
    quotes: bool = False
    left_out: LeftOut | None = None
    say: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def texts(
        self, columns: Sequence[str] | None = None, *, count: int = 1, given: str | None = None
    ) -> list[tuple[Text, ...]]:
        """The texts of each row, one for each of `columns`, in order, without blanks at the end.

        columns: by their names, else by their numbers from 1; by default all, where there are
        `count`. given: the column of what stands before the texts of a row. A row whose only text
        is empty is left out. Raises ValueError: nothing to be read, no such column, one for two
        purposes, a row that does not fit, not UTF-8; OSError.
        """
        found: list[tuple[Text, ...]] = []
        keys: list[str] = []
        texts: list[Any]
        for line, name, cells in self._rows(columns is not None or count > 1):
            if not keys:
                self.known = [*cells]
                before = [self.named(given)] if given else []
                rest = [name for name in cells if name not in before]
                if not columns and count != len(rest):
                    self.named(None)
                self.keys = [self.named(column) for column in columns or rest]
                keys = self.keys + before
                if len({*keys}) < len(keys):
                    raise ValueError(f"{self.path}: {', '.join(keys)} names a column twice")
            texts = [cells.get(key) for key in keys]
            if wrong := [
                key for key, text in zip(keys, texts, strict=True) if not isinstance(text, str)
            ]:
                self.leave(f"line {line} of {self.path} has no text in {wrong[0]}")
                continue
            stands_before: str = texts.pop() if given else ""
            if len(texts) == 1 and not texts[0].strip():
                self.counts["empty"] += 1
                continue
            beside = {key: value for key, value in cells.items() if key not in keys}
            found.append(
                tuple(Text(line, text.rstrip(), name, stands_before, beside) for text in texts)
            )
        if not found:
            raise ValueError(f"{self.path} holds no text")
        return found

    def leave(self, message: str) -> None:
        """Tell of a row that cannot be used. Raises ValueError where nobody is to be told."""
        if self.left_out is None:
            raise ValueError(message)
        self.left_out(message)

    def named(self, column: str | None) -> str:
        """The name of a column that is meant by its name, or else by its number. Raises ValueError: none."""
        numbers = {str(place): name for place, name in enumerate(self.known, 1)}
        if column in self.known:
            return column
        if column not in numbers:
            names = [name if name == name.strip() != "" else repr(name) for name in self.known]
            if column is None:
                raise ValueError(
                    f"{self.path} has the columns {', '.join(names)}: say which is meant"
                )
            raise ValueError(f"{self.path} has no column {column!r}, but {', '.join(names)}")
        return numbers[column]

    def _rows(self, table: bool) -> Iterator[tuple[int, str | None, dict[str, Any]]]:
        """The line of each row, its name, and its cells by their columns; blank rows are counted."""
        content = _content(self.path)
        kind = self._format(content, table)
        if kind == "fasta":
            records = _sequences(self.path, content)
            yield from ((each.line, each.name, {"text": each.text}) for each in records)
        elif kind == "lines":
            yield from (
                (line, None, {"text": text})
                for line, text in enumerate(content.removesuffix("\n").split("\n"), 1)
            )
        else:
            read = _objects(self.path, content) if kind == "jsonl" else self._table(content, kind)
            yield from ((line, None, cells) for line, cells in read)

    def _format(self, content: str, table: bool) -> str:
        """One of FORMATS. Raises ValueError: a file that looks like another than its name says."""
        if self.format:
            return self.format
        ending = (
            self.path.with_suffix("") if self.path.suffix.lower() == ".gz" else self.path
        ).suffix
        named = next((kind for kind, known in ENDINGS.items() if ending.lower() in known), None)
        found = _looks_like(content)
        if found not in FORMATS or named not in (None, found) and found != "lines":
            raise ValueError(
                f"{self.path} looks like {found}{f', not {named}' if named and found in FORMATS else ''}: "
                f"say how it is to be read, by --format {', '.join(FORMATS)}"
            )
        if named is None and found == "lines" and table:
            first = content.lstrip().split("\n")[0]
            found = "csv" if "," in first and "\t" not in first else "tsv"
        if named is None and found != "lines":
            self.say(f"{self.path} is read as {found} (else say --format)")
        return named or found

    def _table(self, content: str, kind: str) -> Iterator[tuple[int, dict[str, str]]]:
        """The rows of a table that are not blank, whole. Raises ValueError: it is none, or a row is too long."""
        first = content.lstrip("\n").split("\n")[0]
        mark = "\t" if kind == "tsv" else "," if "," in first or ";" not in first else ";"
        quoted = kind == "csv" or self.quotes
        read = csv.reader(
            io.StringIO(content, newline=""),
            delimiter=mark,
            strict=True,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        )
        names: list[str] | None = None
        line, long, kept = 1, 0, 0
        try:
            for cells in read:
                start, line = line, read.line_num + 1
                if not any(cells):
                    continue
                if names is None:
                    names = [*cells] if self.header else [str(k) for k in range(1, len(cells) + 1)]
                    if len(set(names)) < len(names):
                        twice = next(name for name in names if names.count(name) > 1)
                        raise ValueError(
                            f"{self.path} has two columns {twice!r}: rename one, or say --no-header and numbers"
                        )
                    if self.header:
                        self.say(
                            f"{self.path}: line {start} names the columns {', '.join(names)} (else say --no-header)"
                        )
                        continue
                long += line - start > 1
                kept += any(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
                if any(cells[len(names) :]):
                    self.leave(
                        f"line {start} of {self.path} has {len(cells)} columns, not {len(names)}"
                    )
                    continue
                yield start, dict(itertools.zip_longest(names, cells[: len(names)]))
        except csv.Error as error:
            raise ValueError(f"{self.path} is no table: line {read.line_num}: {error}") from None
        if long:
            self.say(f"{self.path}: {long} rows go over several lines, between quotes")
        if kept and not quoted:
            self.say(
                f"{self.path}: quotes around cells of {kept} rows are read as they stand (else say --quotes)"
            )


def _looks_like(content: str) -> str:
    """What a file holds by how it begins: one of FORMATS, or in words what cannot be read."""
    first, *others = content.lstrip().split("\n", 1)
    for begins, words in FOREIGN.items():
        if re.match(begins, content.lstrip(), re.IGNORECASE):
            return words
    if first.startswith(">"):
        return "fasta"
    if first.startswith(("{", "[")):
        whole = _json(content)
        if isinstance(_json(first), dict) or whole and _are_objects(whole):
            return "jsonl"
        if isinstance(_json(first), list) or whole is not None:
            return "JSON, and neither one object per line nor a list of objects"
    tabs = {line.count("\t") for line in content.split("\n") if line.strip()}
    if others and len(tabs) == 1 and tabs != {0}:
        return "tsv"
    return "csv" if re.fullmatch(r'[\w".-]+(,[\w".-]+)+', first) else "lines"


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)  # NaN is a missing value
    except (ValueError, RecursionError):
        return None


def _objects(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of JSON lines, or of a list, by their places. Raises ValueError: a line that is none."""
    if content.lstrip().startswith("[") and _are_objects(_json(content)):
        yield from enumerate(_json(content), 1)
        return
    for line, text in enumerate(content.split("\n"), 1):
        if text.strip():
            cells = _json(text)
            if not isinstance(cells, dict):
                raise ValueError(f"line {line} of {path} is no object of JSON")
            yield line, cells


def _content(path: Path) -> str:
    """A whole file, whose lines end in \\n. Raises ValueError: no text in UTF-8, a damaged archive; OSError."""
    raw = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    try:
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        # without marks of the byte order, also of joined files
        text = raw.decode("utf-8").replace("\ufeff", "")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a damaged archive: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from None
    if "\0" in text:
        raise ValueError(f"{path} is not a text file in UTF-8: it holds characters of number 0")
    return re.sub("\r\n?", "\n", text)


def _sequences(path: Path, content: str) -> Iterator[Text]:
    """The records of FASTA, each by the first word after its >; lines of ; are comments.

    Raises ValueError: text before the first, what is no letter, gap or stop.
    """
    record = None
    for number, line in enumerate(content.split("\n"), 1):
        if line.startswith(">"):
            if record:
                yield record
            record = Text(number, "", next(iter(line[1:].split()), ""))
        elif line.strip() and not line.startswith(";"):
            if not record:
                raise ValueError(
                    f"line {number} of {path} is no FASTA: a sequence begins with a line of > and its name"
                )
            if wrong := SEQUENCE_LINE.sub("", line):
                raise ValueError(
                    f"line {number} of {path}: {wrong[0]!r} is no letter of a sequence"
                )
            record = record._replace(text=record.text + "".join(line.split()))
    if record:
        yield record
