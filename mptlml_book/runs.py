"""The stored results of the long runs: tables that are whole or not there, and runs that can be taken up again."""

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from mptlml.files import replacing

FOLDER = Path(__file__).parents[1] / "book" / "data"
NETWORKS = FOLDER.parents[1] / "_build" / "networks"  # trained ones, which several tables read


class Table(NamedTuple):
    """A file of book/data: the lines that `run(*unit)` gives for each unit, and the data that the runs read.

    A line is {field: value}. Its first fields, as few as tell all lines apart, say what it is
    about; a unit begins with the name of its data, where it reads any.
    """

    run: Callable
    units: Callable
    read: Callable = tuple


def kept(name, make):
    """A network from its file in NETWORKS, or made and kept there."""
    file = NETWORKS / f"{name}.pt"
    if not file.exists():
        with torch.enable_grad():
            net = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as new:
            torch.save(net, new)
    return torch.load(file, weights_only=False)


def write(name, table):
    """Writes book/data/NAME.csv: at its head the machine, and the data with their source, size and digest.

    The lines of finished units stand in NAME.part until all are there, so a run that was killed
    goes on with the next one. Torch works on one thread. Exits with a message where NAME.part is of
    another machine, version or data.
    """
    head = (
        f"# python -m mptlml_book.{Path(sys.argv[0]).stem} {name}; one thread of {os.cpu_count()} "
        f"cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}\n"
    )
    head += "".join(
        f"# read: {data.source}, {data.size}, digest {data.digest}\n" for data in table.read()
    )
    part, lines = FOLDER / f"{name}.part", []
    begun, done = json.loads(part.read_text(encoding="utf-8")) if part.exists() else (head, {})
    if begun != head:
        sys.exit(f"{part} is of another run: remove it to start anew.\nthere: {begun}here:  {head}")
    units = list(table.units())
    if not units:
        sys.exit(f"{name}: the data or the networks that it needs are not at hand")
    for unit in units:
        key = ", ".join(map(str, unit))
        if key not in done:
            done[key] = lines_of(table, unit)
            with replacing(part) as new:
                new.write_text(json.dumps([head, done]), encoding="utf-8")
        lines += done[key]
        print(key, flush=True)
    save(name, head, pd.DataFrame(lines))
    part.unlink()


def check(name, table, seed):
    """Runs the units of a seed again, and says how many values are as stored; exits with 1 where some are not."""
    stored = pd.read_csv(FOLDER / f"{name}.csv", comment="#", dtype=str, keep_default_na=False)
    fields, other = list(stored), 0
    about = next(
        fields[:k] for k in range(1, len(fields)) if not stored.duplicated(fields[:k]).any()
    )
    for unit in [unit for unit in table.units() if seed in map(str, unit)]:
        lines = pd.DataFrame(lines_of(table, unit), columns=fields).fillna("").set_index(about)
        then = stored.set_index(about).loc[lines.index]
        same = sum(map(alike, then.to_numpy().flat, lines.to_numpy().flat))
        other += lines.size - same
        print(f"{name}, {', '.join(map(str, unit))}: {same} of {lines.size} as stored", flush=True)
    sys.exit(bool(other))


def save(name, head, lines):
    with replacing(FOLDER / f"{name}.csv") as new:
        new.write_text(head + lines.to_csv(index=False, lineterminator="\n"), encoding="utf-8")


def lines_of(table, unit):
    """What a unit gives, as text."""
    torch.set_num_threads(1)
    return [{field: text(value) for field, value in line.items()} for line in table.run(*unit)]


def text(value):
    """Numbers have seven digits, and those of a list spaces between."""
    if isinstance(value, list):
        return " ".join(map(text, value))
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def alike(old, new):
    """Whether two texts are the same, or numbers that agree to three digits."""
    try:
        return np.allclose(
            *(np.array(part.split(), float) for part in (old, new)), rtol=1e-3, atol=1e-3
        )
    except ValueError:
        return old == new


def main(tables):
    """The command of a study: no word lists its tables, NAME writes book/data/NAME.csv, NAME --check SEED checks it."""
    match sys.argv[1:]:
        case [name] if name in tables:
            write(name, tables[name])
        case [name, "--check", seed] if name in tables:
            check(name, tables[name], seed)
        case _:
            sys.exit("NAME [--check SEED], where NAME is one of: " + ", ".join(tables))
