"""What a chapter says of itself: claims, numbers for the text, data and cost, one plot style, figures that move.

Nothing here needs the book's tools: on Binder or at home the same calls simply show their values.
"""

from .book import stored
from .chapter import closing, data_used, start
from .claims import ClaimError, claim, not_run
from .figures import BLUE, GREEN, GREY, MOVING, ORANGE, PAPER, PURPLE, RED, SKY, TRUTH, glue_figure, moving
from .records import glue
from .tables import bracket, figure_data, table

__all__ = [
    "BLUE", "GREEN", "GREY", "MOVING", "ORANGE", "PAPER", "PURPLE", "RED", "SKY", "TRUTH", "ClaimError", "bracket",
    "claim", "closing", "data_used", "figure_data", "glue", "glue_figure", "moving", "not_run", "start", "stored",
    "table",
]
