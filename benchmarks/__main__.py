"""python -m benchmarks [NAME ...]: run benchmarks/NAME.py; without a name, the one for probabilistic PCA."""

import importlib
import sys

NAMES = ("gaussian", "linear_vae", "masked_lm", "linear_runs", "linear_page", "deep_vae", "known_language",
         "real_network", "after_training")

name, *words = sys.argv[1:] or NAMES[:1]
if name not in NAMES:
    sys.exit("python -m benchmarks [NAME], where NAME is one of: " + ", ".join(NAMES))
importlib.import_module(f"benchmarks.{name}").main(*words)
