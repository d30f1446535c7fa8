"""What a chapter emits: JSON records, each with a line of text for Jupyter, and named values for the prose.

The records, by kind:

    claim     id, value, stderr, spread, seeds, cases (null where not given); or id, reason, where it was not run
    columns   key, columns: the numbers of a figure or table, [name, one value per row] each, null where one is missing
    data      source, note: data that the chapter read; the note says what a default stands in for
    cost      chapter, seconds, megabytes, versions {library: version}, machine {system, architecture, cores, gpu}
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from IPython.display import display

MIME = "application/vnd.mptlml+json"
NAMED = "application/papermill.record/"  # in front of a MIME type: a named value, as papermill and MyST-NB store it

# The chapter that this kernel runs, when it began, its records, and how many of its figures move.
running = SimpleNamespace(name="notebook", began=time.perf_counter(), records=[], moving_figures=0)


def emit(kind: str, text: str, **fields: Any) -> None:
    """Display the record {"kind": kind, **fields}; `text` is what Jupyter shows. Raises ValueError: not finite."""
    record = {"kind": kind, **fields}
    json.dumps(record, allow_nan=False)
    running.records.append(record)
    display({MIME: record, "text/plain": text}, raw=True)


def plain(value: Any, rounded: Callable[[float], float]) -> Any:
    """Nested dictionaries, sequences, arrays and tensors as JSON knows them, floats rounded; NaN and infinity stay."""
    text = json.dumps(value, default=lambda part: part.tolist() if hasattr(part, "tolist") else list(part))
    return json.loads(text, parse_float=lambda number: rounded(float(number)))


def keep(name: str, mime: str, content: str) -> None:
    """Keep content of a MIME type under a name, for {glue:text} and {glue:any}; it shows nothing itself."""
    display({NAMED + mime: content}, raw=True, metadata={"scrapbook": {"name": name, "mime_prefix": NAMED}})


def glue(name: str, value: Any) -> None:
    """Keep a number or a string under `name`, for {glue:text} on any page. Tensors and numpy scalars become floats."""
    keep(name, "text/plain", repr(value.item() if hasattr(value, "item") else value))


def figure_data(key: str, columns: Mapping[str, Iterable[Any]]) -> None:
    """Emit the numbers of a figure or table of the paper, which the site offers as the CSV file `<key>.csv`.

    key: lower case, such as "fig1-left", unique in the book. columns: {name: sequence of numbers or strings} or a data
    frame, one value per row, numbers to eight digits; None and NaN are missing values. Raises ValueError: no columns,
    columns of unequal length or of more than one dimension, an infinite number, a key that is no file name.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", key):
        raise ValueError(f"a figure's data need a key of lower-case letters, digits and hyphens, got {key!r}")
    values = plain(dict(columns.items()), lambda number: float(f"{number:.8g}"))
    shapes = {name: np.shape(column) for name, column in values.items()}
    if [len(shape) for shape in set(shapes.values())] != [1]:
        raise ValueError(f"{key}: columns need one value per row, all as many rows, got the shapes {shapes}")
    # Pairs, for a notebook's file sorts the keys of what it stores, and columns have an order.
    pairs = [[name, [None if value != value else value for value in column]] for name, column in values.items()]
    emit("columns", f"numbers of {key}: {len(pairs[0][1])} rows", key=key, columns=pairs)
