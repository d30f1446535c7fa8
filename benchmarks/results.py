"""The stored results of the long runs: one way to write a file that is whole or not there."""

import csv
import os
import platform
from contextlib import contextmanager
from pathlib import Path

import torch

FOLDER = Path(__file__).parents[1] / "book" / "data"


@contextmanager
def new_results(name, command, fields):
    """A function that writes one line to book/data/NAME.csv, below the machine and the fields.

    The file changes once all is written: until then the lines stand in a file of the ending .part. Sets torch to one
    thread, as the first line says.
    """
    torch.set_num_threads(1)
    path = FOLDER / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# python -m benchmarks {command}; one thread of {os.cpu_count()} cores, {platform.system()} "
                   f"{platform.machine()}, Python {platform.python_version()}, torch "
                   f"{torch.__version__.split('+')[0]}\n")
        writer = csv.writer(file, lineterminator="\n")

        def write(line):
            writer.writerow(line)
            file.flush()

        write(fields)
        yield write
    unfinished.replace(path)
