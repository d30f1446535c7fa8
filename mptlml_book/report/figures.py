"""Figures and tables: one style, one meaning per colour throughout the book, and the numbers behind the figures."""

import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from IPython import get_ipython
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from matplotlib_inline.backend_inline import set_matplotlib_formats
from scipy.optimize import isotonic_regression

from mptlml.curve import Estimate

from . import records
from .claims import number, value_text

# What is drawn has the colour of its role, here and in _static/moving-*.js: Okabe and Ito's, which colour-blind readers
# can distinguish
AREA = "#0072B2"  # the area and its curve, the LML, training by all sizes, masking; pale, what lies below the curve
ORDER = "#E69F00"  # one order, one token at a time, one mask
FIFTEEN = "#009E73"  # a fixed 15%, or another low rate
FORTY = "#CC79A7"  # a fixed 40%
RIVAL = "#D55E00"  # what these are set against: the ELBO, other bounds and recipes, what is wrong
HELD_OUT = "#56B4E9"  # held-out or other data
EXACT = "black"  # exact answers, theory
OTHER = "#767676"  # guide lines, weighted sizes (light blue would lie on the blue), and all else
TRUTH = dict(color=EXACT, linestyle="--", linewidth=1.2)
# Each way to hide tokens in training, wherever its runs are drawn
SCHEMES = {"all sizes": AREA, "weighted": OTHER, "40%": FORTY, "15%": FIFTEEN, "80/10/10": RIVAL}
LIGHT_TO_DARK = HELD_OUT, AREA, EXACT  # three settings of one thing
# At most so wide, in inches, is a single panel, so that its words can be read on a phone too
COLUMN = 5.0


def use_style() -> None:
    """One plot style. Figures are shown by `picture`, with ids that are the same at each run of the chapter."""
    shell = get_ipython()
    if shell is not None:
        set_matplotlib_formats()  # none of matplotlib's own
        shell.display_formatter.formatters["text/html"].for_type(
            Figure, lambda figure: picture(figure, _key())
        )
    plt.style.use(Path(__file__).with_name("book.mplstyle"))


def label_lines(axes: Axes, *, gap: float = 5.0) -> None:
    """Write the label of each line beside its right end, in its colour, in place of a legend.

    Labels that would overlap move apart; a label may have several lines of text. Lines without a
    label stay without. gap: points between a line and its label.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # of axes that are drawn
    figure.draw_without_rendering()  # the limits are final
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    ends = [_end(line) for line in lines]
    wanted = axes.transData.transform(ends)[:, 1] * 72 / figure.dpi  # in points
    upwards = wanted.argsort()
    heights = [1 + str(lines[k].get_label()).count("\n") for k in upwards]
    heights = 1.2 * mpl.rcParams["font.size"] * np.array(heights)
    stacked = heights.cumsum() - heights / 2  # where the middles would be, one label upon the other
    middles = isotonic_regression(wanted[upwards] - stacked).x + stacked
    for k, middle in zip(upwards, middles, strict=True):
        axes.annotate(
            str(lines[k].get_label()),
            ends[k],
            (gap, middle - wanted[k]),
            color=lines[k].get_color(),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )
        lines[k].set_label("_")


def _end(line: Line2D) -> np.ndarray:
    points = np.asarray(line.get_xydata())
    points = points[np.isfinite(points).all(1)]
    return points[points[:, 0].argmax()]


def moving(kind: str, data: dict[str, Any], still: Figure, alt: str, *, digits: int = 5) -> None:
    """Show a figure that readers can move without a kernel: on the site, book/_static/moving-KIND.js draws `data`.

    data: a dictionary of numbers, strings, lists, arrays and tensors; floats are rounded to
    `digits` decimals. still: the figure to show where no script runs (in print, in Jupyter); it is
    closed. alt: what it shows. Raises ValueError: a number that is not finite.
    """
    data = records.plain(data, lambda number: round(number, digits) + 0.0)  # no -0.0
    # no end of the script
    numbers = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    key = _key()
    shown = picture(still, key)
    records.display(
        HTML(f'''<div class="moving" data-kind="{kind}" id="{key}">
<div class="moving-still drawing" role="img" aria-label="{html.escape(alt)}">{shown}</div>
<script type="application/json">{numbers}</script></div>''')
    )


def picture(figure: Figure, key: str) -> str:
    """A figure, then closed, as HTML that fits a wide page and a phone. Its ids depend on `key`.

    Panels become pictures of their own, which stand side by side where there is room. An image, or
    a legend or title for all panels, keeps the figure in one piece.
    """
    places = {axes: axes.get_subplotspec() for axes in figure.axes}
    whole = figure.legends or figure.get_suptitle() or any(axes.images for axes in places)
    try:
        if not whole:
            if len(places) > 1:
                return _panels(figure, key, places)
            figure.set_figwidth(min(figure.get_figwidth(), COLUMN))
        return svg(figure, key)
    finally:
        plt.close(figure)


def _panels(figure: Figure, key: str, places: dict[Axes, Any]) -> str:
    """Each panel as an <svg>, in the order of reading; panels of a row are equally high and share its width."""
    for axes in places:
        axes.tick_params(labelleft=axes.yaxis.get_visible(), labelbottom=axes.xaxis.get_visible())
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    inches = figure.dpi_scale_trans.inverted()
    boxes = {axes: Bbox(inches.transform(axes.get_tightbbox() or axes.bbox)) for axes in places}
    made = ""
    for count, (axes, place) in enumerate(places.items()):
        for other in places:
            other.set_visible(other is axes)
        row = [boxes[one] for one in places if places[one].rowspan.start == place.rowspan.start]
        (left, right), (low, high) = boxes[axes].intervalx, Bbox.union(row).intervaly
        box = Bbox.from_extents(left, low, right, high).padded(0.02)
        drawn = svg(figure, f"{key}-{count}", bbox_inches=box)
        # a row of the page is wide enough for what was a row of the figure
        made += f'<div style="flex: {box.width:.2f} 1 {0.8 * box.width:.2f}in">{drawn}</div>'
    return f'<div class="panels">{made}</div>'


def svg(figure: Figure, key: str, **how: Any) -> str:
    """A matplotlib figure as an <svg> element, whose ids are those of no other key."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": key}):
        figure.savefig(buffer, format="svg", **how)
    # the style would hold for the whole page, names of groups for another drawing, and the metadata have a date;
    # letters are the page's, and the rest does not show
    left_out = r"""(?sx) \A.*?(?=<svg) | <(style|metadata).*?</\1> | [ ]id="[\w.]+_\d+" | \n[ ]*
        | ;[ ]font-family:[^;"]* | ;[ ]stroke-linecap:[ ]square | [ ]transform="rotate\(-0[ ][^"]*"
        | <path[ ]d="[^"]*"[ ]style="fill:[ ]none"/> | <g/>"""
    text = re.sub(left_out, "", buffer.getvalue())
    return re.sub(r"(\d\d\.\d|\.\d\d)\d+(?=[^<]*>)", r"\1", text)  # tenths of a point will do


def _key() -> str:
    """A name for the next picture of the chapter."""
    records.running.pictures += 1
    return f"c{records.running.name[:2]}-{records.running.pictures}"


def table(
    rows: Iterable[Sequence[Any]], header: Sequence[str], formats: Sequence[str] | None = None
) -> None:
    """Show rows as an HTML table; `formats` holds the format spec of each column ("" for strings)."""
    formats = formats or [""] * len(header)
    cells = [
        [
            number(value, spec) if spec else str(value)
            for value, spec in zip(row, formats, strict=True)
        ]
        for row in rows
    ]
    words = [any(cell[:1].isalpha() for cell in column) for column in zip(*cells, strict=True)]
    lines = [
        [
            f"<{tag}{' class=words' * word}>{html.escape(cell)}</{tag}>"
            for cell, word in zip(line, words, strict=True)
        ]
        for tag, line in [("th", header), *(("td", line) for line in cells)]
    ]
    head, *body = [f"<tr>{''.join(line)}</tr>" for line in lines]
    records.display(
        HTML(
            '<div class="table-wrapper"><table class="table">'
            f"<thead>{head}</thead><tbody>{''.join(body)}</tbody></table></div>"
        )
    )


def bracket(estimate: Estimate, digits: int = 3) -> str:
    """An Estimate as "mean ± stderr", with `digits` decimals, for tables."""
    numbers = {
        "value": estimate.mean,
        "stderr": estimate.stderr if estimate.stderr == estimate.stderr else None,
    }
    return value_text({"format": f".{digits}f"}, numbers)
