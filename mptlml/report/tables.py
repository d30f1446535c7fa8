"""Tables: shown ones, and the numbers of a figure or table of the paper, which the site offers as a file."""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..curve import Estimate
from .records import emit, plain, show


def table(rows: Iterable[Sequence[Any]], header: Sequence[str], caption: str,
          formats: Sequence[str] | None = None) -> None:
    """Show rows as an HTML table with a caption; `formats` gives each column's format spec ("" for strings).

    Raises ValueError: a row that is longer or shorter than `formats`, by default than the header.
    """
    formats = formats or [""] * len(header)
    # A value and its error stay on one line.
    cells = [[format(value, spec).replace(" ± ", "\u00a0±\u00a0") for value, spec in zip(row, formats, strict=True)]
             for row in rows]
    # Over the names of the rows there may be nothing to say, and a heading without words is none.
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' if name else "<td></td>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    show(f'<div class="table-wrapper"><table class="table"><caption>{html.escape(caption)}</caption>'
         f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def bracket(estimate: Estimate, digits: int = 3) -> str:
    """An Estimate as "mean ± stderr" with so many digits, for tables."""
    if math.isnan(estimate.stderr):
        return f"{estimate.mean:.{digits}f}"
    return f"{estimate.mean:.{digits}f} ± {estimate.stderr:.{digits}f}"


def figure_data(key: str, columns: Mapping[str, Iterable[Any]]) -> None:
    """Emit the numbers of a figure or table of the paper, which the site offers as the CSV file `<key>.csv`.

    key: lower case, such as "fig1-left", unique in the book. columns: {name: sequence of numbers or strings} or a data
    frame, one value per row, numbers to eight digits; None and NaN are missing values. Raises ValueError: no columns,
    columns of unequal length or of more than one dimension, an infinite number, a key that is no file name.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", key):
        raise ValueError(f"a figure's data need a key of lower-case letters, digits and hyphens, got {key!r}")
    values = plain(dict(columns.items()), lambda number: float(f"{number:.8g}"))
    lengths = {name: len(column) for name, column in values.items()}
    nested = [name for name, column in values.items() if any(isinstance(value, list | dict) for value in column)]
    if len(set(lengths.values())) != 1 or nested:
        raise ValueError(f"{key}: a table needs columns of one length, got {lengths}, and one value per row, which "
                         f"{nested} do not have")
    # Pairs, for a notebook's file sorts the keys of what it stores, and columns have an order.
    pairs = [[name, [None if value != value else value for value in column]] for name, column in values.items()]
    emit("columns", f"numbers of {key}: {max(lengths.values())} rows", key=key, columns=pairs)
