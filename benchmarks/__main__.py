"""python -m benchmarks NAME [...]: run benchmarks/NAME.py; without a name, list what there is."""

import importlib
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))

if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
    sys.exit("python -m benchmarks NAME, where NAME is one of: " + ", ".join(NAMES))
importlib.import_module(f"benchmarks.{sys.argv[1]}").main(*sys.argv[2:])
