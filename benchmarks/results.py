"""The stored results of the long runs: one way to write a file that is whole or not there."""

import csv
import os
import platform
from contextlib import contextmanager

import torch


@contextmanager
def new_results(path, command, fields):
    """A function that writes one line to `path`, below the machine and the fields; `path` changes once all is written.

    Sets torch to one thread, as the first line says. Until the end the lines stand in a file of the ending .part.
    """
    torch.set_num_threads(1)
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
