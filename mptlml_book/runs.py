"""The stored results of the long runs: a study ends in its TABLES and, as a program, in `main(TABLES)`.

`python -m mptlml_book.order` lists the tables of that study, `... order NAME` writes
book/data/NAME.csv, and `... order NAME --check SEED` runs one seed of it again.
"""

import argparse
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

FOLDER = Path(__file__).parents[1] / "book" / "data"
NETWORKS = FOLDER.parents[1] / "_build" / "networks"  # trained ones, which several tables read
STUDY = f"mptlml_book.{Path(sys.argv[0]).stem}"  # that was called


class Table(NamedTuple):
    """A file of book/data: the lines that `run(*unit)` gives for each unit, and the data that the runs read.

    A line is {field: value}. Its first fields, as few as tell all lines apart, say what it is
    about. Data have a source, a size and a digest.
    """

    run: Callable[..., Iterable[Mapping[str, Any]]]
    units: Callable[[], Iterable[tuple]]
    read: Callable[[], Iterable[Any]] = tuple


def kept(name: str, make: Callable[[], Any]) -> Any:
    """A network, or what else takes long, from its file in NETWORKS, or made and kept there."""
    file = NETWORKS / f"{name}.pt"
    if not file.exists():
        with torch.enable_grad():
            net = make()
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(net, f"{file}.new")
        os.replace(f"{file}.new", file)
    return torch.load(file, weights_only=False)


def write(name: str, table: Table) -> None:
    """Writes book/data/NAME.csv: at its head the machine, and the data with their source, size and digest.

    The lines of finished units are kept until all are there, so a run that was killed goes on with
    the next one; those of another machine, version or data are not found again. Exits with a
    message where there is nothing to run.
    """
    head = (
        f"# python -m {STUDY} {name}; one thread of {os.cpu_count()} cores, {platform.system()} "
        f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}\n"
    )
    for data in table.read():
        head += f"# read: {data.source}, {data.size}, digest {data.digest}\n"
    part, lines = f"{name}.part", []
    for unit in tqdm([*table.units()], name, disable=None):
        digest = hashlib.sha256(f"{head}{unit}".encode()).hexdigest()
        lines += kept(f"{part}/{digest}", partial(_lines, table, unit))
    if not lines:
        sys.exit(f"{name}: the data or the networks that it needs are not at hand")
    new = FOLDER / f"{name}.new"
    new.write_text(head + pd.DataFrame(lines).to_csv(index=False), encoding="utf-8")
    os.replace(new, FOLDER / f"{name}.csv")
    shutil.rmtree(NETWORKS / part)


def check(name: str, table: Table, seed: str) -> None:
    """Runs the units of a seed again, and says how many values are as stored, numbers to three digits, but for seconds.

    Exits with 1 where some are not, and with a message where no unit has this seed.
    """
    units = [unit for unit in table.units() if seed in map(str, unit)]
    if not units:
        sys.exit(f"{name} has no seed {seed}")
    stored = pd.read_csv(FOLDER / f"{name}.csv", comment="#", dtype=str, keep_default_na=False)
    stored = stored.drop(columns="seconds", errors="ignore")
    fields = list(stored)
    about = next(
        fields[:k] for k in range(1, len(fields)) if not stored.duplicated(fields[:k]).any()
    )
    lines = [line for unit in tqdm(units, name, disable=None) for line in _lines(table, unit)]
    now = pd.DataFrame(lines, columns=fields).fillna("").set_index(about)
    then = stored.set_index(about).reindex(now.index, fill_value="")
    same = sum(map(_alike, then.to_numpy().flat, now.to_numpy().flat))
    print(f"{name}, seed {seed}: {same} of {now.size} values as stored")
    sys.exit(same < now.size)


def _lines(table: Table, unit: tuple) -> list[dict[str, str]]:
    """What a unit gives, as text; torch works on one thread."""
    torch.set_num_threads(1)
    return [{field: text(value) for field, value in line.items()} for line in table.run(*unit)]


def text(value: Any) -> str:
    """Numbers have seven digits, and those of a list spaces between."""
    if isinstance(value, list):
        return " ".join(map(text, value))
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _alike(old: str, new: str) -> bool:
    """Whether two texts are the same, or numbers that agree to three digits."""
    try:
        before, after = (np.array(part.split(), float) for part in (old, new))
        return np.allclose(before, after, rtol=1e-3, atol=1e-3)
    except ValueError:
        return old == new


def main(tables: Mapping[str, Table]) -> None:
    """The command of a study: no word lists its tables, NAME writes one, NAME --check SEED checks it.

    Runs are those of the study imported by its name: networks of classes of `__main__`, once kept,
    would open nowhere else.
    """
    parser = argparse.ArgumentParser(f"python -m {STUDY}", description=write.__doc__)
    parser.add_argument("name", choices=tables)
    parser.add_argument("--check", metavar="SEED", help="run the units of this seed again")
    told = parser.parse_args()
    table = import_module(STUDY).TABLES[told.name]
    if told.check:
        check(told.name, table, told.check)
    else:
        write(told.name, table)
