"""What a chapter says of itself: claims, numbers for the text, data and cost, one plot style, figures that move.

Nothing here needs the book's tools: on Binder or at home the same calls simply show their values.
"""

from .chapter import closing, data_used, start
from .claims import ClaimError, claim, not_run, stored
from .figures import BLUE, GREEN, GREY, ORANGE, PAPER, PURPLE, RED, SKY, TRUTH, bracket, glue_figure, moving, table
from .records import figure_data, glue

__all__ = [
    "BLUE", "GREEN", "GREY", "ORANGE", "PAPER", "PURPLE", "RED", "SKY", "TRUTH", "ClaimError", "bracket", "claim",
    "closing", "data_used", "figure_data", "glue", "glue_figure", "moving", "not_run", "start", "stored", "table",
]
