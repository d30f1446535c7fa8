"""Figures and tables: one style, one meaning per colour throughout the book, and the numbers behind the figures."""

import html
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from IPython.display import HTML
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch import Generator, Tensor

from ..checks import Sizes, check_sizes
from ..curve import Estimate
from ..masks import random_orders
from ..protocol import VocabularyModel
from . import records
from .claims import number, value_text

# Okabe and Ito's colours, which colour-blind readers can distinguish, each with one meaning throughout the book
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#767676")
TRUTH = dict(color="black", linestyle="--", linewidth=1.2)  # the exact LML
PAPER = dict(color=RED, marker="D", markersize=5, linestyle="none")  # a value the paper prints
# For each there is book/_static/moving-KIND.js
MOVING = ("mask", "theorem", "convergence", "training", "rate", "latent", "guesses")
MOST_MOVING = 180 * 1024  # bytes of a still and its numbers; with its scripts a moving figure stays below 200 kB


def use_style(chapter: str) -> None:
    """One plot style, and SVG figures whose ids are the same at each run of the chapter."""
    set_matplotlib_formats("svg")
    mpl.rcParams.update({
        "figure.figsize": (7.0, 3.4), "figure.constrained_layout.use": True, "figure.facecolor": "white",
        "svg.hashsalt": chapter, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.alpha": 0.25, "grid.linewidth": 0.6, "axes.titlesize": "medium", "legend.frameon": False,
        "lines.linewidth": 1.6, "font.size": 10.5,
        "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY]),
    })


def glue_figure(name: str, figure: Figure, alt: str) -> None:
    """Keep a figure under `name`, for {glue:any} on another page, and close it; `alt` describes it."""
    records.keep(name, "text/html", f'<div role="img" aria-label="{html.escape(alt)}">{svg(figure, name)}</div>')


def moving(kind: str, data: dict[str, Any], still: Figure, alt: str, caption: str, *, digits: int = 5,
           name: str | None = None) -> None:
    """Show a figure that readers can move without a kernel: on the site, book/_static/moving-KIND.js draws `data`.

    kind: one of MOVING. data: a dictionary of numbers, strings, lists, arrays and tensors; floats are rounded to
    `digits` decimals. still: the figure to show where no script runs (in print, in Jupyter); it is closed. alt: a
    description of the still. caption: plain text. name: keep the figure for {glue:any} on another page too. Raises
    ValueError: an unknown kind, a number that is not finite, or more bytes than MOST_MOVING.
    """
    if kind not in MOVING:
        raise ValueError(f"no figure of the kind {kind!r}: one of {MOVING}")
    data = records.plain(data, lambda number: round(number, digits) + 0.0)  # no -0.0
    numbers = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")  # no end of the script
    records.running.moving_figures += 1
    key = f"{records.running.name}-moving-{records.running.moving_figures}"
    picture = svg(still, key)
    size = len(numbers.encode()) + len(picture.encode())
    if size > MOST_MOVING:
        raise ValueError(f"the moving figure {kind!r} has {size} bytes, but at most {MOST_MOVING} are allowed")
    figure = f'''<figure class="moving" data-kind="{kind}" id="{key}">
<div class="moving-still" role="img" aria-label="{html.escape(alt)}">{picture}</div>
<figcaption>{html.escape(caption)}</figcaption>
<script type="application/json">{numbers}</script></figure>'''
    records.display(HTML(figure))
    if name is not None:
        records.keep(name, "text/html", figure)


def guesses(networks: Mapping[str, VocabularyModel], row: Tensor, vocabulary: Sequence[str], sizes: Sizes, *,
            generator: Generator, unit: str = "word", top: int = 3) -> dict[str, Any]:
    """Data for `moving("guesses", ...)`: what two networks guess of one row, the more of it is hidden.

    networks: {short name: network}; the figure says by how much the second's hidden tokens score above the first's.
    row [D]: token ids; vocabulary: the V words; sizes: how many tokens each step of the slider hides, along one order
    that is drawn from the generator; unit: what a token is called; top: how many guesses to keep for each token. Raises
    ValueError: not two networks, a vocabulary that is not theirs, a size not in 1..D.
    """
    sizes, of = check_sizes(sizes, len(row)), [net.vocab_size for net in networks.values()]
    if of != 2 * [len(vocabulary)]:
        raise ValueError(f"two networks with {len(vocabulary)} words, the vocabulary's, are compared, got {of}")
    observed = random_orders(len(row), 1, generator=generator).argsort(-1) >= sizes[:, None]  # [steps, D]
    rows = row.expand(observed.shape)
    with torch.no_grad():
        each = [net.vocabulary_log_prob(rows, observed) for net in networks.values()]  # [steps, D, V]
    answers = torch.stack(each)
    best = answers.topk(top)
    scores = answers.gather(-1, rows.long().expand(2, -1, -1)[..., None])[..., 0]
    return {"unit": unit, "vocabulary": vocabulary, "names": list(networks), "row": row.long(), "steps": [
        {"hidden": (~seen).nonzero()[:, 0], "guesses": best.indices[:, k, ~seen],
         "chances": best.values[:, k, ~seen].exp(), "scores": scores[:, k, ~seen]}
        for k, seen in enumerate(observed)]}


def svg(figure: Figure, key: str) -> str:
    """A matplotlib figure, then closed, as an <svg> element. Its ids begin with `key`, to be unique on a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", text[text.index("<svg"):].strip())


def table(rows: Iterable[Sequence[Any]], header: Sequence[str], caption: str,
          formats: Sequence[str] | None = None) -> None:
    """Show rows as an HTML table with a caption; `formats` holds the format spec of each column ("" for strings).

    Raises ValueError: a row whose length differs from the header's.
    """
    formats = formats or [""] * len(header)
    cells = [[number(value, spec) if spec else format(value).replace(" ± ", "\u00a0±\u00a0")  # on one line
              for value, spec in zip(row, formats, strict=True)] for row in rows]
    # The column of row names may have no heading, and an empty <th> is not allowed.
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' if name else "<td></td>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    records.display(HTML(
        f'<div class="table-wrapper"><table class="table"><caption>{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"))


def bracket(estimate: Estimate, digits: int = 3) -> str:
    """An Estimate as "mean ± stderr", with `digits` decimals, for tables."""
    numbers = {"value": estimate.mean, "stderr": estimate.stderr if estimate.stderr == estimate.stderr else None}
    return value_text({"format": f".{digits}f"}, numbers)
