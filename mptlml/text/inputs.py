"""Texts from files: one per line, a column of a table, or FASTA; plain or gzipped, or the standard input."""

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

STDIN = Path("-")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
FASTA = (".fasta", ".fas", ".fa", ".faa")

LeftOut = Callable[[str], None]  # is told of what cannot be used; without it, that is a ValueError


class Text(NamedTuple):
    """A text, the line of its file on which it begins, from 1, and the name that FASTA gives it, if any."""

    line: int
    text: str
    name: str | None = None


class Row(NamedTuple):
    """The line of its file on which a row of a table begins, and some of its cells."""

    line: int
    cells: list[str]


def check_list(texts: object) -> None:
    """Refuse one string, and what holds none, where texts are meant: ValueError."""
    if isinstance(texts, str):
        raise ValueError(f"give a list of texts, got the text {texts[:40]!r}")
    if not isinstance(texts, Iterable):
        raise ValueError(f"give a list of texts, got {type(texts).__name__}")


def read_texts(
    path: Path, column: str | None = None, *, header: bool = True, left_out: LeftOut | None = None
) -> list[Text]:
    """The texts of a file, in order, without blanks at the end; blank ones are left out.

    .csv and .tsv (and any file with `column`): a column, as `read_columns` has it. .fasta, .fas, .fa, .faa:
    sequences, their letters with spaces between. Else one text per line. Any of them may be gzipped. "-" is
    the standard input. Raises ValueError: nothing to be read, no such column, not UTF-8; OSError.
    """
    kind = _kind(path)
    if column is not None or kind in DELIMITERS:
        rows = read_columns(path, column and [column], header=header, left_out=left_out)
        found = [Text(row.line, row.cells[0]) for row in rows]
    elif kind in FASTA:
        found = list(_sequences(_content(path)))
    else:
        found = [Text(line, text) for line, text in enumerate(_content(path).split("\n"), 1)]
    found = [each._replace(text=each.text.rstrip()) for each in found if each.text.strip()]
    if not found:
        raise ValueError(f"{path} holds no text")
    return found


def read_columns(
    path: Path,
    columns: Sequence[str] | None,
    *,
    header: bool = True,
    left_out: LeftOut | None = None,
) -> Iterator[Row]:
    """Some columns of a table, row by row; blank rows are left out.

    columns: by their names in the first line, else by their numbers from 1. header: whether the first line
    names the columns. left_out: is told of rows that are too short. Raises ValueError as `read_texts`.
    """
    wanted = columns or []
    for count, (line, cells) in enumerate(_rows(path)):
        if count == 0:
            places = _places(path, wanted, cells, header)
            if header:
                continue
        if max(places) < len(cells):
            yield Row(line, [cells[place] for place in places])
            continue
        message = (
            f"line {line} of {path} has {len(cells)} columns, too few for {' and '.join(wanted)}"
        )
        if left_out is None:
            raise ValueError(message)
        left_out(message)


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a table that are not blank, whole. Raises ValueError: it is none."""
    delimiter, line = DELIMITERS.get(_kind(path), "\t"), 1
    rows = csv.reader(io.StringIO(_content(path), newline=""), delimiter=delimiter, strict=True)
    try:
        for cells in rows:
            if any(cells):
                yield Row(line, cells)
            line = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path} is no table: line {rows.line_num}: {error}") from None


def _places(path: Path, columns: Sequence[str], first: list[str], header: bool) -> list[int]:
    """Where in a row the columns are. Raises ValueError: one that there is not."""
    if header and columns and set(columns) <= set(first):
        return [first.index(column) for column in columns]
    if columns and all(column.isdecimal() and int(column) > 0 for column in columns):
        return [int(column) - 1 for column in columns]
    raise ValueError(f"{path} has the columns {', '.join(first)}: say which is meant")


def is_plain(path: Path) -> bool:
    """Whether a file has one text per line, by its name."""
    return _kind(path) not in (*DELIMITERS, *FASTA)


def _kind(path: Path) -> str:
    """The ending of a name that says what the file holds, such as .csv, also of x.csv.gz."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def _content(path: Path) -> str:
    """A whole file. Raises ValueError: not UTF-8, or a damaged archive; OSError."""
    raw = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    try:
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")  # with or without a mark of the byte order
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is a damaged archive: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from None


def _sequences(content: str) -> Iterator[Text]:
    """The records of FASTA, each by the first word after its >. Raises ValueError: text before the first."""
    record = Text(1, "")
    for number, line in enumerate(io.StringIO(content, newline=None), 1):
        if line.startswith(">"):
            yield record
            record = Text(number, "", next(iter(line[1:].split()), ""))
        elif record.name is None and line.strip():
            raise ValueError(
                f"line {number} is no FASTA: a sequence begins with a line of > and its name"
            )
        else:
            record = record._replace(text=f"{record.text} {' '.join(line.strip())}".strip())
    yield record
