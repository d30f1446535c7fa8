"""The stored results of the long runs: files that are whole or not there, and runs that can be taken up again."""

import csv
import io
import json
import os
import platform
import sys
from pathlib import Path

import torch

from mptlml.files import replacing

FOLDER = Path(__file__).parents[1] / "book" / "data"


def write_results(name, command, fields, run, units, read=()):
    """Writes book/data/NAME.csv: the lines of `run(*unit)` for each of the units, below the machine, what the runs
    `read` (data with their source, size and digest) and the fields.

    The lines of finished units stand in NAME.part until all are there, so a run that was killed goes on with the next
    one. Torch works on one thread. Exits with a message where NAME.part is of another command, machine or version.
    """
    torch.set_num_threads(1)
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
