"""Figures and tables: one style, one meaning per colour throughout the book, and the numbers behind the figures."""

import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from IPython import get_ipython
from IPython.display import HTML
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation
from matplotlib.transforms import Bbox
from matplotlib_inline.backend_inline import set_matplotlib_formats
from scipy.optimize import isotonic_regression
from scour import scour

from mptlml.curve import Estimate

from . import records
from .claims import number, value_text

# Okabe and Ito's colours, which colour-blind readers can distinguish, each with one meaning throughout the book
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#767676",
)
# Each way to hide tokens in training, wherever its runs are drawn
SCHEMES = {"all sizes": BLUE, "weighted": PURPLE, "40%": ORANGE, "15%": GREEN, "80/10/10": RED}
GRID = "#E2E2E2"
TRUTH = dict(color="black", linestyle="--", linewidth=1.2)  # the exact LML
PAPER = dict(color=RED, marker="D", markersize=5, linestyle="none")  # a value the paper prints
# Words are darker than the lines that they name. In the dark custom.css turns light and dark round, and keeps the hue.
WORDS = {
    BLUE: BLUE,
    ORANGE: "#8A5D00",
    GREEN: "#00714F",
    RED: "#B04A00",
    PURPLE: "#974A73",
    SKY: "#1B6EA3",
    GREY: "#666666",
}
NARROW = 3.75  # inches: a phone's column, with letters of the size that they have beside it on a wide page
# Of a drawing, for scour: coordinates to four digits, short ids, and nothing that does not show
LIGHT = [
    "--set-precision=4",
    "--create-groups",
    "--indent=none",
    "--no-line-breaks",
    "--enable-id-stripping",
    "--shorten-ids",
]


def use_style(chapter: str) -> None:
    """One plot style. Figures are shown by `picture`, with ids that are the same at each run of the chapter."""
    shell = get_ipython()
    if shell is not None:
        set_matplotlib_formats()  # none of matplotlib's own
        shell.display_formatter.formatters["text/html"].for_type(
            Figure, lambda figure: picture(figure, _key())
        )
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 3.4),
            "figure.constrained_layout.use": True,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "svg.hashsalt": chapter,
            "svg.fonttype": "none",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.6,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "xtick.minor.size": 0,
            "ytick.minor.size": 0,
            "xtick.major.pad": 6,
            "ytick.major.pad": 6,
            "axes.titlesize": "medium",
            "axes.titlelocation": "left",
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "font.size": 10.5,
            "font.sans-serif": ["DejaVu Sans"],
            "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY]),
        }
    )


def label_lines(axes: Axes, *, gap: float = 5.0) -> None:
    """Write the label of each line beside its right end, in its colour, in place of a legend.

    Labels that would overlap move apart; a label may have several lines of text. Lines without a
    label stay without. gap: points between a line and its label.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # of axes that are drawn
    figure.draw_without_rendering()  # the limits are final
    pixels = figure.dpi / 72  # per point
    found = []
    for line in axes.get_lines():
        points = np.asarray(line.get_xydata())
        points = points[np.isfinite(points).all(1)]
        if len(points) and not str(line.get_label()).startswith("_"):
            end = points[points[:, 0].argmax()]
            found.append(
                (axes.transData.transform(end)[1] / pixels, str(line.get_label()), line, end)
            )
    found.sort(key=lambda entry: entry[0])
    middles = _apart(np.array([at for at, *_ in found]), [label for _, label, *_ in found])
    for (at, label, line, end), middle in zip(found, middles, strict=True):
        axes.annotate(
            label,
            end,
            (gap, middle - at),
            color=line.get_color(),
            textcoords="offset points",
            va="center",
            annotation_clip=False,
        )
        line.set_label("_")


def _apart(wanted: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Where labels stand without overlap, nearest to the heights at which they are wanted, in points."""
    heights = np.array(
        [1.2 * mpl.rcParams["font.size"] * (1 + label.count("\n")) for label in labels]
    )
    stacked = heights.cumsum() - heights / 2  # where the middles would be, one label upon the other
    return isotonic_regression(wanted - stacked).x + stacked if labels else wanted


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
    """A figure, then closed, as HTML that fits a wide page and a phone. Its ids begin with `key`.

    Panels become pictures of their own, which stand side by side where there is room; a figure with
    one panel is drawn a second time for a phone. An image, or a legend or title for all panels,
    keeps it in one piece.
    """
    _write_plain_logs(figure)
    places = {axes: axes.get_subplotspec() for axes in figure.axes}
    whole = bool(figure.legends or figure.get_suptitle() or any(axes.images for axes in places))
    try:
        if whole or None in places.values():
            return svg(figure, key)
        if len(set(places.values())) > 1:
            return _panels(figure, key, places)
        wide, height = svg(figure, key), figure.get_figheight()
        figure.set_size_inches(NARROW, height)
        return f'<div class="wide">{wide}</div><div class="narrow" hidden>{svg(figure, f"{key}-n")}</div>'
    finally:
        plt.close(figure)


def _write_plain_logs(figure: Figure) -> None:
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if type(axis.get_major_formatter()) is LogFormatterSciNotation:
            axis.set_major_formatter(_PlainLog())
            axis.set_minor_formatter(_PlainLog(labelOnlyBase=False))


def _panels(figure: Figure, key: str, places: dict[Axes, Any]) -> str:
    """Each panel as an <svg>, in the order of reading; panels of a row are equally high and share its width."""
    for axes in places:
        axes.tick_params(labelleft=axes.yaxis.get_visible(), labelbottom=axes.xaxis.get_visible())
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    inches = figure.dpi_scale_trans.inverted()
    extent = {axes: Bbox(inches.transform(axes.get_tightbbox() or axes.bbox)) for axes in places}
    boxes = {
        place: Bbox.union([extent[axes] for axes in places if places[axes] == place])
        for place in places.values()
    }
    made = []
    for count, place in enumerate(
        sorted(boxes, key=lambda place: (place.rowspan.start, place.colspan.start))
    ):
        for axes in places:
            axes.set_visible(places[axes] == place)
        row = [boxes[other] for other in boxes if other.rowspan.start == place.rowspan.start]
        whole = Bbox.union(row)
        box = Bbox.from_extents(boxes[place].x0, whole.y0, boxes[place].x1, whole.y1).padded(0.02)
        share = box.width / sum(other.width for other in row)
        made.append(
            f'<div style="flex: {box.width:.2f} 1 calc({100 * share:.1f}% - 1rem)">'
            f"{svg(figure, f'{key}-{count}', bbox_inches=box)}</div>"
        )
    return f'<div class="panels">{"".join(made)}</div>'


def svg(figure: Figure, key: str, **how: Any) -> str:
    """A matplotlib figure as an <svg> element whose ids begin with `key`."""
    buffer = io.StringIO()
    figure.savefig(
        buffer,
        format="svg",
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        **how,
    )
    # it would hold for the whole page
    text = re.sub("<style.*?</style>", "", buffer.getvalue(), flags=re.DOTALL)
    text = re.sub(r"(<text[^>]*\bfill: )(#\w{6})", _word, text)
    text = scour.scourString(text, scour.parse_args([*LIGHT, f"--shorten-ids-prefix={key}-"]))
    text = re.sub(r'( [xy]="-?\d*\.\d\d)\d+', r"\1", text)  # what scour leaves long
    text = text.replace("xlink:href=", "href=").replace(' font-size="10.5px"', "")
    return text[text.index("<svg") :].replace("<svg", '<svg font-size="10.5px"', 1)


def _word(found: re.Match[str]) -> str:
    colour = found[2].upper()
    pale = colour[1:3] == colour[3:5] == colour[5:] and colour > WORDS[GREY]
    return found[1] + (WORDS[GREY] if pale else WORDS.get(colour, colour))


class _PlainLog(LogFormatterSciNotation):
    """Ticks of a logarithmic axis: 0.01, 1, 10; or all as powers, where it goes beyond 10⁻⁴ or 10⁵."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        if not super().__call__(x, pos):
            return ""
        assert self.axis is not None  # of a tick that is drawn
        low, high = self.axis.get_view_interval()
        plain = x in (0, 1) or high < 1e5 and not 0 < low <= 1e-4
        return f"{x:,.5g}" if plain else number(x, ".0e").removeprefix("1 × ")


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
            number(value, spec)
            if spec
            else format(value).replace(" ± ", "\u00a0±\u00a0")  # on one line
            for value, spec in zip(row, formats, strict=True)
        ]
        for row in rows
    ]
    kinds = [
        ' class="words"' if all(cell[:1].isalpha() for cell in column) else ""
        for column in zip(*cells, strict=True)
    ]
    head, body = (
        _table_row(header, "th", kinds),
        "".join(_table_row(row, "td", kinds) for row in cells),
    )
    records.display(
        HTML(
            '<div class="table-wrapper"><table class="table">'
            f"<thead>{head}</thead><tbody>{body}</tbody></table></div>"
        )
    )


def _table_row(cells: Sequence[str], tag: str, kinds: Sequence[str]) -> str:
    # The column of row names may have no heading, and an empty <th> is not allowed.
    tags = [tag if cell else "td" for cell in cells]
    return (
        "<tr>"
        + "".join(
            f"<{tag}{kind}>{html.escape(cell)}</{tag}>"
            for cell, tag, kind in zip(cells, tags, kinds, strict=True)
        )
        + "</tr>"
    )


def bracket(estimate: Estimate, digits: int = 3) -> str:
    """An Estimate as "mean ± stderr", with `digits` decimals, for tables."""
    numbers = {
        "value": estimate.mean,
        "stderr": estimate.stderr if estimate.stderr == estimate.stderr else None,
    }
    return value_text({"format": f".{digits}f"}, numbers)
