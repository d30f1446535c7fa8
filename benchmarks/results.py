"""The stored results of the long runs: files that are whole or not there, and runs that can be taken up again."""

import csv
import io
import json
import os
import platform
import random
import sys
from itertools import takewhile
from operator import eq
from pathlib import Path

import torch

from mptlml.files import replacing

FOLDER = Path(__file__).parents[1] / "book" / "data"
repeated: list[str] = []  # in `python -m benchmarks repeat`, the week: one unit is run again in place of all


def write_results(name, command, fields, run, units, read=()):
    """Writes book/data/NAME.csv: the lines of `run(*unit)` for each of the units, below the machine, what the
    runs `read` (data with their source, size and digest) and the fields.

    The lines of finished units stand in NAME.part until all are there, so a run that was killed goes on with the next
    one. Torch works on one thread. Exits with a message where NAME.part is of another command, machine or version.
    """
    torch.set_num_threads(1)
    if repeated:
        return repeat(FOLDER / f"{name}.csv", run, units, read, repeated[0])
    head = (f"# python -m benchmarks {command}; one thread of {os.cpu_count()} cores, {platform.system()} "
            f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}\n")
    head += "".join(f"# read: {data.source}, {data.size}, digest {data.digest}\n" for data in read)
    part, lines = FOLDER / f"{name}.part", [fields]
    begun, done = json.loads(part.read_text(encoding="utf-8")) if part.exists() else (head, {})
    if begun != head:
        sys.exit(f"{part} is of another run: remove it to start anew.\nthere: {begun}here:  {head}")
    for unit in units:
        key = ", ".join(map(str, unit))
        if key not in done:
            done[key] = list(run(*unit))
            with replacing(part) as new:
                new.write_text(json.dumps([head, done]), encoding="utf-8")
        lines += done[key]
        print(key, flush=True)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(lines)
    with replacing(FOLDER / f"{name}.csv") as new:
        new.write_text(head + table.getvalue(), encoding="utf-8")
    part.unlink()


def repeat(path, run, units, read, week):
    """Run a unit, which the week chooses, again, and put its lines in the place of the stored ones.

    Units begin with the name of their data, where they read any: those whose data are others here are left out.
    """
    text = path.read_text(encoding="utf-8")
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    others = [data.source.lower() for data in read if data.digest not in head]
    units = [unit for unit in units if not any(other.startswith(str(unit[0])) for other in others)]
    unit = random.Random(f"{path.name} {week}").choice(units)
    fields, *stored = csv.reader(io.StringIO(text.removeprefix(head)))

    def place(line):
        """Where the stored line begins alike the furthest: a line's first fields say what it is."""
        alike = [len(list(takewhile(bool, map(eq, old, line)))) for old in stored]
        return alike.index(max(alike))

    lines = [list(map(str, line)) for line in run(*unit)]
    new = {place(line): line for line in lines}
    if len(new) < len(lines) or any(line[0] != stored[n][0] for n, line in new.items()):
        sys.exit(f"{path.name} has no lines for {unit}")
    same = sum(sum(map(eq, stored[n], line)) for n, line in new.items())
    numbers = len(lines) * len(fields)
    print(f"{path.name}: {', '.join(map(str, unit))}: {same} of {numbers} fields as stored", flush=True)
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([fields, *(new.get(n, old) for n, old in enumerate(stored))])
    with replacing(path) as file:
        file.write_text(head + table.getvalue(), encoding="utf-8")
