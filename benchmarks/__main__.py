"""python -m benchmarks NAME: writes book/data/NAME.csv, a stored long run, or runs benchmarks/NAME.py.

python -m benchmarks repeat [WEEK] runs a random part of each long run again: the week (by default
this one, such as 2026-48) chooses a seed or scheme of each, whose new lines take the place of those
in book/data. `make execute` then holds the claims of the chapters that read these files to their
bands; `git checkout book/data` brings the stored files back.
"""

import importlib
import sys
import tempfile
from datetime import date
from pathlib import Path

PROGRAMS = "score_your_own", "tools"


def repeat(tables, week=""):
    week = week or "{}-{}".format(*date.today().isocalendar())
    # no network that lies there already is taken for a new one
    with tempfile.TemporaryDirectory() as folder:
        results.NETWORKS = Path(folder)
        for name, table in tables.items():
            results.repeat(name, table, week)


name, *words = sys.argv[1:] or [""]
if name in PROGRAMS:
    importlib.import_module(f"benchmarks.{name}").main(*words)
else:
    from . import results
    from .tables import TABLES

    if name == "repeat":
        repeat(TABLES, *words)
    elif name in TABLES:
        results.write(name, TABLES[name])
    else:
        sys.exit(
            "python -m benchmarks NAME, where NAME is one of: "
            + ", ".join(["repeat", *PROGRAMS, *TABLES])
        )
