"""Tables that are read and written in chunks, as frames of pandas whose index is the line of each row."""

import json
import sys
import warnings
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..extras import needs

with needs("score"):
    import pandas as pd

CHUNK = 64  # rows
KINDS = dict.fromkeys("fasta fa faa pep".split(), "fasta")
KINDS |= {kind: kind for kind in "txt csv tsv jsonl".split()}
MARKS: dict[str, Any] = dict(csv=dict(sep=","), tsv=dict(sep="\t", quoting=3))  # csv.QUOTE_NONE
LINES = dict(sep="\x1f", quoting=3, names=["text"])  # what separates units stands in no text


def kind_of(path: Path, asked: str | None = None) -> str:
    """What a file is. Raises ValueError: neither its suffix nor `asked` says it."""
    suffix = asked or path.name.removesuffix(".gz").rpartition(".")[2]
    if suffix not in KINDS:
        raise ValueError(f"{path}: {suffix!r} is none of {', '.join(KINDS)}: say --format")
    return KINDS[suffix]


def chunks(path: Path, kind: str) -> Iterator[pd.DataFrame]:
    """The rows of a file, CHUNK at a time; of - the standard input. Cells of CSV and TSV are strings.

    Its columns are those of the first chunk. Raises ValueError: what is not of this kind or not in
    UTF-8, and others later; OSError.
    """
    source: Any = sys.stdin if path == Path("-") else path
    warnings.simplefilter("error", pd.errors.ParserWarning)  # cells would be lost
    frames = pd.read_csv(
        source,
        **MARKS.get(kind, LINES),
        index_col=False,
        dtype=str,
        keep_default_na=False,
        skip_blank_lines=False,
        chunksize=CHUNK,
    )
    with frames:
        if kind in ("fasta", "jsonl"):
            texts = enumerate((text for frame in frames for text in frame.text), 1)
            objects = ((line, dict(json.loads(text))) for line, text in texts if text.strip())
            records, names = objects if kind == "jsonl" else _sequences(texts), None
            while some := dict(islice(records, CHUNK)):
                frame = pd.DataFrame(some.values(), [*some], dtype=object)
                names = names or [*frame]
                if new := {*frame} - {*names}:
                    raise ValueError(f"from line {min(some)} on there are new columns {new}")
                yield frame.reindex(columns=names)
        for frame in frames:
            yield frame.set_axis(frame.index + 1 + (kind in MARKS))


def _sequences(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Any]]:
    """The records of FASTA, by the line on which each begins; what stands before the first is one without a name."""
    begun, record = 1, dict(name="", text="")
    for line, text in chain(lines, [(0, ">")]):
        if text.startswith(">"):
            if any(record.values()):
                yield begun, record
            begun, record = line, dict(name=text[1:].strip(), text="")
        else:
            record["text"] += "".join(text.split())


def column(asked: str, names: list[str]) -> str:
    """The column of a name, or of a number from 1. Raises ValueError: none, or more than one."""
    found = [
        name
        for number, name in enumerate(names, 1)
        if asked in (name, str(number), name.removesuffix(".1"))  # as pandas calls a twin
    ]
    if len(found) != 1:
        raise ValueError(f"{asked!r} is the name or number of {len(found)} of the columns {names}")
    return found[0]


def write(frame: pd.DataFrame, path: Path, header: bool = True) -> None:
    """Append rows to a file, which begins with a header where it has one."""
    if kind_of(path) == "jsonl":
        frame.to_json(
            path, orient="records", lines=True, mode="a", double_precision=15, force_ascii=False
        )
    else:
        frame.to_csv(path, **MARKS[kind_of(path)], header=header, index=False, mode="a")
