"""What a chapter reports: claims, numbers for the text, data and cost; and its tables, plot style and moving figures.

Nothing here needs the tools that build the book: on Binder or at home the same calls simply show
their values.
"""
# ruff: noqa: F401

from .chapter import closing, data_used, expect, free_memory, start
from .claims import ClaimError, claim, not_run, stored
from .figures import (
    AREA,
    EXACT,
    FIFTEEN,
    FORTY,
    HELD_OUT,
    LIGHT_TO_DARK,
    ORDER,
    OTHER,
    RIVAL,
    SCHEMES,
    TRUTH,
    bracket,
    label_lines,
    moving,
    table,
)
from .records import figure_data, glue
