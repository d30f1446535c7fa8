"""The stored results of the long runs: tables that are whole or not there, and runs that can be taken up again."""

import json
import os
import platform
import random
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
        f"# python -m benchmarks {name}; one thread of {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}\n"
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


def repeat(name, table, week):
    """Runs a unit, which the week chooses, again, and puts its lines in the place of the stored ones.

    Units whose data are others here are left out.
    """
    path = FOLDER / f"{name}.csv"
    if not path.exists() or not list(table.units()):
        return print(
            f"{name}.csv: it, or the data or networks that it needs, is not at hand", flush=True
        )
    head = "".join(
        line for line in path.read_text(encoding="utf-8").splitlines(True) if line.startswith("#")
    )
    others = [data.source.lower() for data in table.read() if data.digest not in head]
    units = [
        unit
        for unit in table.units()
        if not any(other.startswith(str(unit[0])) for other in others)
    ]
    unit = random.Random(f"{name} {week}").choice(units)
    stored = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    fields = list(stored)
    about = next(
        fields[:k] for k in range(1, len(fields)) if not stored.duplicated(fields[:k]).any()
    )
    lines = pd.DataFrame(lines_of(table, unit), columns=fields).fillna("").set_index(about)
    stored = stored.set_index(about)
    if not lines.index.isin(stored.index).all():
        sys.exit(f"{name}.csv has no lines for {unit}")
    same = sum(map(alike, stored.loc[lines.index].to_numpy().flat, lines.to_numpy().flat))
    print(
        f"{name}.csv: {', '.join(map(str, unit))}: {same} of {lines.size} values as stored",
        flush=True,
    )
    stored.loc[lines.index] = lines
    save(name, head, stored.reset_index())


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
