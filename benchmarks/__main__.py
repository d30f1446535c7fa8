"""python -m benchmarks NAME [WORDS]: run benchmarks/NAME.py."""

import importlib
import sys

NAMES = ("build", "repeat", "linear_runs", "linear_page", "deep_vae", "known_language", "masked_diffusion", "passes",
         "real_network", "after_training", "score_your_own", "tools")

name, *words = sys.argv[1:] or [""]
if name not in NAMES:
    sys.exit("python -m benchmarks NAME, where NAME is one of: " + ", ".join(NAMES))
importlib.import_module(f"benchmarks.{name}").main(*words)
