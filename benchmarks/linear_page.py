"""The short runs of Chapter 8 from all of their seeds: python -m benchmarks linear_page

The page itself runs the first seed of each objective. Writes book/data/linear_vae_page.csv, a line for every
five passes of each run: the objective's mean over the five passes before, the log marginal likelihood of the
training images on the run's quick grid, and in the last line that of training and held-out images by the rule
that scores all runs; nats per image. It takes about two minutes.
"""

import numpy as np

from mptlml_book.studies import linear_vae as study

from .linear_runs import DATA, SEEDS
from .results import write_results

FIELDS = ("data", "objective", "seed", "passes", "seen", "lml", "train", "held_out")


def lines(name, objective, seed):
    """The lines of one run, as FIELDS says."""
    pictures = study.BinaryImages(name)
    run = study.short_run(objective, pictures, seed=seed)
    values, at = run.history.objective, run.history.at
    ends = [f"{end:.4f}" for end in study.mean_lml(pictures, pictures.model(run.weight, run.bias))]
    for before, step, lml in zip([0, *at], at, run.history.tracked["lml"], strict=False):
        known = ends if step == at[-1] else ["", ""]
        seen = np.mean(values[before:max(1, step)])
        yield name, objective, seed, step * study.PASSES // at[-1], f"{seen:.4f}", f"{lml:.4f}", *known


def main():
    units = [(name, objective, seed) for name in DATA for objective in study.OBJECTIVES for seed in SEEDS]
    write_results("linear_vae_page", "linear_page", FIELDS, lines, units, map(study.BinaryImages, DATA))
