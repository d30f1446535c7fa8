"""The output of a chapter: JSON records, each with a line of text for Jupyter, and named values for the prose.

The records, by kind:

    claim     id, value, stderr, spread, seeds, cases (null where not given), and other, where the data were not those
              of its band; or id, reason, where it was not run
    columns   key, columns: the numbers of a figure or table, [name, one value per row] each, null where one is missing
    data      source, size, digest, note, words: data that the chapter read; the note says what a stand-in replaces, the
              words (of book/data_sets.yml) whether the bands were set for them
    stored    file: a file of stored results, of book/data, that the chapter read
    unlike    says: a sentence of the chapter that does not hold on the data at hand
    cost      chapter, seconds, megabytes, versions {library: version}, machine {system, architecture, cores, gpu}
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from IPython.display import display

MIME = "application/vnd.mptlml+json"
NAMED = "application/papermill.record/"  # in front of a MIME type: a named value, as papermill and MyST-NB store it

# The chapter that this kernel runs, the time of its start, its records, the number of its pictures, and whether it read
# other data than those for which its bands were set.
running = SimpleNamespace(
    name="notebook", began=time.perf_counter(), records=[], pictures=0, other=False
)


def emit(kind: str, text: str, **fields: Any) -> None:
    """Display the record {"kind": kind, **fields}; Jupyter shows `text`. Raises ValueError: a number not finite."""
    record = {"kind": kind, **fields}
    json.dumps(record, allow_nan=False)
    running.records.append(record)
    display({MIME: record, "text/plain": text}, raw=True)


def plain(value: Any, rounded: Callable[[float], float]) -> Any:
    """Nested dictionaries, sequences, arrays and tensors as JSON values, floats rounded; NaN and infinity stay."""
    text = json.dumps(
        value, default=lambda part: part.tolist() if hasattr(part, "tolist") else list(part)
    )
    return json.loads(text, parse_float=lambda number: rounded(float(number)))


def glue(name: str, value: Any) -> None:
    """Keep a number or a string under `name`, for {glue:text} on any page; tensors and numpy scalars become numbers."""
    text = repr(value.item() if hasattr(value, "item") else value)
    display(
        {NAMED + "text/plain": text},
        raw=True,
        metadata={"scrapbook": {"name": name, "mime_prefix": NAMED}},
    )


def figure_data(key: str, columns: Mapping[str, Iterable[Any]]) -> None:
    """Emit the numbers of a figure or table of the paper, which the site offers as the CSV file `<key>.csv`.

    key: its id in book/figures.yml. columns: {name: sequence of numbers or strings} or a data
    frame, one value per row, numbers to eight digits; None and NaN are missing values. Raises
    ValueError: columns of unequal length, or an infinite number.
    """
    values = plain(dict(columns.items()), lambda number: float(f"{number:.8g}"))
    if len({len(column) for column in values.values()}) != 1:
        raise ValueError(f"{key}: columns must have one value per row and equal lengths")
    # Pairs keep the order of the columns: a notebook file would sort the keys of a dictionary.
    pairs = [
        [name, [None if value != value else value for value in column]]
        for name, column in values.items()
    ]
    emit("columns", f"numbers of {key}: {len(pairs[0][1])} rows", key=key, columns=pairs)
