"""The long runs behind Chapter 8: python -m benchmarks linear_runs

Trains the linear VAE by each objective of `mptlml_book.studies.linear_vae` for 1,000 passes over the training
rows, on a finer grid than the page has time for, and writes book/data/linear_vae.csv, one line per run: the
objective's mean over the first 20 steps, the log marginal likelihood of training and held-out images at the
end in nats per image, the 15% objective there (of the same masks for all runs of one seed). "optimum"
continues the exact run by L-BFGS; "... from optimum" starts there, with small steps on a still finer grid;
"scripts" train as the authors' public scripts do. One more line, of the first seed alone, stands at the
optimum: "optimum, diagonal" has, in place of the log marginal likelihood, the ELBO of the best diagonal
Gaussian posterior of each image, the plane of z turned so that this costs least. It takes some two hours of
one core.
"""

import sys

import numpy as np

from mptlml.models import LinearVAE
from mptlml_book.studies import linear_vae as study
from mptlml_book.studies.linear_vae import LONG, OBJECTIVES, BinaryImages, maximise, train

from .results import write_results

DATA, SEEDS = ("mnist", "fashion-mnist", "digits"), range(5)
FROM_OPTIMUM = dict(passes=100, spacing=0.12, rate=0.05)
FIELDS = ("data", "scheme", "seed", "passes", "begun", "train", "held_out", "at_15")


def runs(name, pictures, seed):
    """(scheme, passes or steps, {what else is known: begun}, weight, bias) of each run of one seed."""
    for scheme in OBJECTIVES:
        run = train(scheme, pictures, seed=seed, **LONG)
        if scheme == "exact":
            begin = run.weight, run.bias
        yield scheme, LONG["passes"], {"begun": np.mean(run.history.objective[:20])}, run.weight, run.bias
    *optimum, steps = maximise(pictures, *begin)
    yield "optimum", steps, {}, *optimum
    if seed == 0:
        yield "optimum, diagonal", steps, {}, study.turn_for_diagonal(pictures, *optimum), optimum[1]
    for scheme in ("uniform", "15%"):
        run = train(scheme, pictures, seed=seed, begin=optimum, **FROM_OPTIMUM)
        yield f"{scheme}, from optimum", FROM_OPTIMUM["passes"], {}, run.weight, run.bias
    for scheme in ("masked", "elbo"):
        yield f"scripts, {scheme}", study.SCRIPTS_STEPS, {}, *study.train_as_scripts(scheme, pictures, seed=seed)[:2]


def lines(name, seed):
    """The lines of all runs of one seed on one data set, as FIELDS says."""
    pictures = BinaryImages(name)
    for scheme, passes, known, weight, bias in runs(name, pictures, seed):
        if scheme.startswith("scripts"):  # weights of all pixels
            model = LinearVAE(weight.double(), bias.double(), study.SCORING)
        else:
            model = pictures.model(weight, bias)
            if scheme != "optimum, diagonal":
                known["at_15"] = study.score_at_15(pictures, weight, bias, seed=seed)
        if scheme == "optimum, diagonal":
            parts = pictures.train, pictures.held_out
            ends = [study.best_diagonal_elbo(model, part.double()).mean().item() for part in parts]
        else:
            ends = study.mean_lml(pictures, model)
        known |= dict(zip(("train", "held_out"), ends, strict=True))
        numbers = (f"{known[field]:.4f}" if field in known else "" for field in FIELDS[4:])
        yield name, scheme, seed, passes, *numbers


def main(*names):
    """names: data sets to run in place of all of DATA; their lines go to a file beside the results."""
    if unknown := set(names) - set(DATA):
        sys.exit(f"unknown data: {', '.join(sorted(unknown))}; there are {', '.join(DATA)}")
    units = [(name, seed) for name in names or DATA for seed in SEEDS]
    write_results("-".join(["linear_vae", *names]), " ".join(["linear_runs", *names]), FIELDS, lines, units,
                  map(BinaryImages, names or DATA))
