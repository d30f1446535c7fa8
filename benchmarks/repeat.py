"""A random part of each long run again: python -m benchmarks repeat [WEEK]

The week (by default this one, such as 2026-48) chooses a seed or scheme of each stored run. Its lines are computed
anew, from the first step on, and take the place of those in book/data. `make execute` then holds the claims of the
chapters that read these files to their bands; `git checkout book/data` brings the stored files back.
"""

import tempfile
from datetime import date
from pathlib import Path

from . import (
    after_training,
    deep_vae,
    known_language,
    linear_page,
    linear_runs,
    masked_diffusion,
    real_network,
    results,
)


def main(week=""):
    year, number, _ = date.today().isocalendar()
    results.repeated.append(week or f"{year}-{number}")
    with tempfile.TemporaryDirectory() as folder:  # no network that lies there already is taken for a new one
        known_language.NETWORKS = after_training.NETWORKS = masked_diffusion.NETWORKS = Path(folder)
        for group in known_language.PLAN:
            known_language.main(group)
        for run in (linear_runs, linear_page, deep_vae, masked_diffusion, real_network, after_training):
            run.main()
        deep_vae.main("annealed")
