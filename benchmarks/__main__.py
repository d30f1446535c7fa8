"""python -m benchmarks [NAME ...]: run benchmarks/NAME.py; without a name, the one for probabilistic PCA."""

import importlib
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py")
               if "\ndef main(" in path.read_text(encoding="utf-8"))

name, *words = sys.argv[1:] or ["gaussian"]
if name not in NAMES:
    sys.exit("python -m benchmarks [NAME], where NAME is one of: " + ", ".join(NAMES))
importlib.import_module(f"benchmarks.{name}").main(*words)
