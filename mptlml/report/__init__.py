"""What a chapter says of itself: claims, numbers for the text, one plot style, figures that move.

Nothing here needs the book's tools: on Binder or at home the same calls simply show their values.
"""

import csv
import html
import io
import itertools
import json
import math
import os
import platform
import re
import resource
import sys
import time
from functools import cache
from importlib import metadata
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import yaml
from IPython.display import HTML, display
from matplotlib_inline.backend_inline import set_matplotlib_formats

from ..checks import check_count
from ..data.images import sources_read

BOOK_FOLDERS = (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2])
CLAIMS_FILE = next((folder / "book" / "claims.yml" for folder in BOOK_FOLDERS
                    if (folder / "book" / "claims.yml").is_file()), Path("book/claims.yml"))


def stored(name):
    """The path of a file of stored results, book/data/NAME."""
    return CLAIMS_FILE.parent / "data" / name


VERDICTS = ("reproduced", "partly", "not reproduced", "new")
MOST_BYTES = 2 * 2**30  # what a Binder has
LIBRARIES = (
    "torch", "torchvision", "numpy", "scipy", "scikit-learn", "pandas", "matplotlib", "transformers", "datasets")

# Okabe and Ito's colours, told apart by colour-blind readers, each with one meaning throughout the book
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#767676")
TRUTH = dict(color="black", linestyle="--", linewidth=1.2)  # the exact LML
PAPER = dict(color=RED, marker="D", markersize=5, linestyle="none")  # a value the paper prints

_chapter = {}


class ClaimError(AssertionError):
    """A claim left the band that was set for it."""


@cache
def claims():
    """All claims of the book, {id: claim}, from book/claims.yml. Raises ValueError: an entry that is ill formed."""
    entries = yaml.safe_load(CLAIMS_FILE.read_text()) or []
    for entry in entries:
        missing = {"id", "chapter", "place", "statement", "band", "why", "verdict", "format"} - entry.keys()
        if missing or entry["verdict"] not in VERDICTS or not entry["band"][0] <= entry["band"][1]:
            raise ValueError(f"claim {entry.get('id')!r} is not well formed: missing {sorted(missing)}, or its verdict "
                             f"is none of {VERDICTS}, or its band is empty")
    known = {entry["id"]: entry for entry in entries}
    if len(known) < len(entries):
        raise ValueError("two claims share an id")
    return known


def glue(name, value):
    """Keep a number or a string under `name`, for {glue:text} on any page. Tensors and numpy scalars become floats."""
    _keep(name, "text/plain", repr(value.item() if hasattr(value, "item") else value))


def glue_figure(name, figure, alt):
    """Keep a figure under `name`, for {glue:any} on another page; `alt` says what it shows. The figure is closed."""
    _keep(name, "text/html", f'<div role="img" aria-label="{html.escape(alt)}">{_svg(figure, name)}</div>')


def _keep(name, mime, content):
    """The output that the book's builder, papermill and scrapbook read as a named value; it shows nothing itself."""
    prefix = "application/papermill.record/"
    display({prefix + mime: content}, raw=True, metadata={"scrapbook": {"name": name, "mime_prefix": prefix}})


def start(chapter):
    """Begin a chapter: one plot style, SVG figures, the clock."""
    _chapter.update(name=chapter, began=time.perf_counter(), checked={})
    set_matplotlib_formats("svg")
    mpl.rcParams.update({
        "figure.figsize": (7.0, 3.4), "figure.constrained_layout.use": True, "figure.facecolor": "white",
        "svg.hashsalt": chapter, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "grid.alpha": 0.25, "grid.linewidth": 0.6, "axes.titlesize": "medium", "legend.frameon": False,
        "lines.linewidth": 1.6, "font.size": 10.5,
        "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY]),
    })


def figure_data(key, columns):
    """Keep the numbers of a figure or table of the paper for the site, as the CSV file `<key>.csv`; shows nothing.

    key: lower case, such as "fig1-left", unique in the book. columns: {name: sequence of numbers or strings}, one value
    a row; None and NaN are left empty. Raises ValueError: no columns, columns of unequal length or of more than one
    dimension, a key that is no file name.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", key):
        raise ValueError(f"a figure's data need a key of lower-case letters, digits and hyphens, got {key!r}")
    values = {name: column.tolist() if hasattr(column, "tolist") else list(column) for name, column in columns.items()}
    values = {name: [v.item() if hasattr(v, "item") else v for v in column] for name, column in values.items()}
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{key}: a table needs columns of one length, got {lengths}")
    nested = [name for name, column in values.items() if any(isinstance(v, (list, tuple, dict)) for v in column)]
    if nested:
        raise ValueError(f"{key}: a column holds one value a row, {nested} hold more")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(values)
    writer.writerows([_cell(v) for v in row] for row in zip(*values.values(), strict=True))
    _keep(f"{key}-data", "text/csv", text.getvalue())


def _cell(value):
    """A value as a CSV file holds it: eight digits of a number, nothing for one that is missing."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.8g}"
    return "" if value is None else value


def claim(id, value, stderr=None, *, spread=None, seeds=None, cases=None):
    """Hold a measured value against the claim's band; glue `<id>-value`, `-verdict` and `-record`, and show them.

    stderr: the standard error of the value. spread: instead, a standard deviation that is shown behind the ±. seeds,
    cases: over how many seeds and how many cases (models, rows, masks, as `how` in book/claims.yml says) the value was
    taken; `how` shows each that is given, and no other, as {seeds} and {cases}.

    Raises ClaimError outside the band (or for NaN), KeyError for a claim that book/claims.yml does not list, ValueError
    for counts below 1 or that do not match `how`, and for a stderr or spread that is negative or not finite.
    """
    entry = claims()[id]
    if stderr is not None and spread is not None:
        raise ValueError(f"{id}: after the ± stands the standard error or the spread, not both")
    record = {"value": float(value), "stderr": stderr, "spread": spread, "seeds": seeds, "cases": cases}
    for name in ("seeds", "cases"):
        count = record[name]
        if (count is not None) != (f"{{{name}}}" in _how(entry)):
            raise ValueError(f"{id}: {name} = {count}, but `how` in book/claims.yml says {_how(entry)!r}")
        if count is not None:
            record[name] = check_count(count, f"{id}: {name}")
    low, high = entry["band"]
    text = format(record["value"], entry["format"])
    for name in ("stderr", "spread"):
        if record[name] is not None:
            record[name] = float(record[name])
            if not 0 <= record[name] < math.inf:
                raise ValueError(f"{id}: {name} must be finite and not negative, got {record[name]}")
            text += " ± " + format(record[name], entry["format"])
    if not low <= record["value"] <= high:  # NaN fails too
        raise ClaimError(f"{id}: {entry['statement']} Measured {text}, the band is [{low}, {high}] ({entry['why']})")
    _record(id, entry, text, entry["verdict"], record)


def not_run(id, reason):
    """Say that a claim could not be checked here, and why."""
    _record(id, claims()[id], "", "not run here", {"reason": reason})


def how_measured(entry, record):
    """The claim's `how` with the numbers of its record ({value, seeds, cases, ...} as glued), or why it was not run."""
    counts = {name: f"{record.get(name) or 0:,}" for name in ("seeds", "cases")}
    return record.get("reason") or _how(entry).format(**counts)


def _how(entry):
    return " ".join(entry.get("how", "").split())


def _record(id, entry, text, verdict, record):
    _chapter.setdefault("checked", {})[id] = (text, verdict)
    glue(f"{id}-value", text or "–")
    glue(f"{id}-verdict", verdict)
    _keep(f"{id}-record", "application/json", json.dumps(record))
    paper = f" · paper: {entry['paper']}" if entry.get("paper") else ""
    low, high = entry["band"]
    shown = f"{text} (band {low:g} to {high:g}{paper})" if text else record["reason"]
    story = {"Measured": how_measured(entry, record), "Unit": entry.get("unit"), "In the paper": entry["place"],
             "Why this band": " ".join(str(entry["why"]).split())}
    rows = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in story.items() if text)
    display(HTML(f'<details class="claim" id="claim-{id}"><summary><span class="verdict '
                 f'verdict-{verdict.replace(" ", "-")}">{verdict}</span> {html.escape(entry["statement"])} '
                 f"<b>{html.escape(shown)}</b></summary><dl>{rows}</dl></details>"))


def closing():
    """End a chapter: how many of its claims were checked, what it cost, and on what it ran.

    Raises ClaimError when a claim listed for the chapter was not checked; MemoryError above the 2 GB of a Binder.
    """
    chapter, checked = _chapter["name"], _chapter["checked"]
    listed = {id for id, entry in claims().items() if entry["chapter"] == chapter}
    if listed != set(checked):
        raise ClaimError(f"{chapter}: claims listed but not checked {sorted(listed - set(checked))}, "
                         f"checked but listed elsewhere {sorted(set(checked) - listed)}")
    seconds = time.perf_counter() - _chapter["began"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if peak > MOST_BYTES:
        raise MemoryError(f"{chapter} took {peak / 2**30:.2f} GB; a Binder has {MOST_BYTES / 2**30:.0f}")
    glue(f"{chapter}-seconds", seconds)
    glue(f"{chapter}-megabytes", peak / 2**20)
    _keep(f"{chapter}-setting", "application/json", json.dumps(_setting()))
    count = sum(verdict != "not run here" for _, verdict in checked.values())
    display(HTML(f'<p class="cost">{count} of {len(listed)} claims checked on this page, all inside their bands. '
                 f"It took {seconds:.0f} seconds and {peak / 2**20:.0f} MB at its peak.</p>"))


def _setting():
    """What a chapter ran on: {"versions": {library: version}, "machine": {...}, "data": {source: note}}.

    No name of a machine or a person, and no path.
    """
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # the text libraries are not needed for most chapters
            continue
    torch = sys.modules.get("torch")
    machine = {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count(),
               "gpu": bool(torch and torch.cuda.is_initialized())}
    return {"versions": versions, "machine": machine, "data": sources_read()}


def show_note(note):
    """A visible note where a default stands in for real data; nothing where there is no note."""
    if note:
        display(HTML(f'<div class="admonition warning data-note"><p class="admonition-title">Default data</p>'
                     f"<p>{html.escape(note)}</p></div>"))


def table(rows, header, caption, formats=None):
    """Rows as an HTML table with a caption; `formats` gives each column's format spec ("" for strings)."""
    formats = formats or [""] * len(header)
    # A value and its error stay on one line.
    cells = [[format(value, spec).replace(" ± ", "\u00a0±\u00a0") for value, spec in zip(row, formats, strict=True)]
             for row in rows]
    # Over the names of the rows there may be nothing to say, and a heading without words is none.
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' if name else "<td></td>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    display(HTML(f'<div class="table-wrapper"><table class="table"><caption>{html.escape(caption)}</caption>'
                 f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"))


MOVING = ("mask", "theorem", "convergence", "training", "rate")  # each has its script, book/_static/moving-KIND.js
MOST_MOVING = 180 * 1024  # bytes of a still and its numbers; with the scripts a moving figure stays below 200 kB
_figures = itertools.count(1)


def moving(kind, data, still, alt, caption="", *, digits=5, name=None):
    """A figure that readers move without a kernel: on the site, book/_static/moving-KIND.js draws it from `data`.

    kind: one of MOVING. data: a dictionary of numbers, strings, lists, arrays and tensors; floats are rounded to
    `digits` decimals. still: the matplotlib figure that stands in where no script runs (in print, in Jupyter); it is
    closed. alt: what the still shows. caption: plain text. name: keep it for {glue:any} on another page too. Raises
    ValueError: an unknown kind, a number that is not finite, or more bytes than MOST_MOVING.
    """
    if kind not in MOVING:
        raise ValueError(f"no figure of the kind {kind!r}: one of {MOVING}")
    numbers = json.dumps(_plain(data, digits), separators=(",", ":")).replace("<", "\\u003c")  # no end of the script
    key = f"{_chapter['name']}-moving-{next(_figures)}"
    picture = _svg(still, key)
    size = len(numbers.encode()) + len(picture.encode())
    if size > MOST_MOVING:
        raise ValueError(f"the moving figure {kind!r} has {size} bytes, at most {MOST_MOVING} are allowed")
    figure = f'''<figure class="moving" data-kind="{kind}" id="{key}">
<div class="moving-still" role="img" aria-label="{html.escape(alt)}">{picture}</div>
<figcaption>{html.escape(caption)}</figcaption>
<script type="application/json">{numbers}</script></figure>'''
    display(HTML(figure))
    if name is not None:
        _keep(name, "text/html", figure)


def _plain(value, digits):
    """Lists, dictionaries, strings and rounded numbers, as JSON knows them. Raises ValueError: not finite."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {str(name): _plain(part, digits) for name, part in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(part, digits) for part in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a moving figure can show finite numbers only, got {value}")
        return round(value, digits) + 0.0  # no -0.0
    return value


def _svg(figure, key):
    """A matplotlib figure as an <svg> element, whose ids begin with `key`: they must differ on a page. It is closed."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = re.search(r"<svg.*</svg>", buffer.getvalue(), re.DOTALL)[0]
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", svg)


def bracket(estimate, digits=3):
    """An Estimate as "mean ± stderr" with so many digits, for tables."""
    if math.isnan(estimate.stderr):
        return f"{estimate.mean:.{digits}f}"
    return f"{estimate.mean:.{digits}f} ± {estimate.stderr:.{digits}f}"
