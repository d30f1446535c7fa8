"""The long runs behind Chapter 8.

linear_vae trains by each objective of `mptlml_book.linear_vae` for 1,000 passes over the
training rows, on a finer grid than the page has time for. A line per run: the objective's mean over
the first 20 steps, the log marginal likelihood of training and held-out images at the end in nats
per image, the 15% objective there (of the same masks for all runs of one seed). "optimum" continues
the exact run by L-BFGS; "... from optimum" starts there, with small steps on a still finer grid.
"optimum, diagonal", of the first seed alone, has in place of the log marginal likelihood the ELBO
of the best diagonal Gaussian posterior of each image, the plane of z turned so that this costs
least. It takes some two hours of one core.

linear_vae_page has the runs of the page, which runs the first seed itself, from all of their seeds.
A line for every five passes: the objective's mean over the five passes before, the log marginal
likelihood of the training images on the run's quick grid, and in the last line that of training and
held-out images by the rule that scores all runs; nats per image. It takes about two minutes.

linear_vae_scripts trains as the authors' public scripts do, with the objective, or the grid and the
start and optimiser that go with it, exchanged (`train_as_scripts`). A line per run: the log
marginal likelihood of both parts by the rule that scores all runs, and that of the training images
as the run's own grid reads it, 4 x 4 for the ELBO; nats per image. It takes about ten minutes.
"""

from itertools import product

import numpy as np

from . import linear_vae as study
from . import runs as results
from .linear_vae import LONG, OBJECTIVES, SCORING, BinaryImages, train
from .linear_vae_model import LinearVAE
from .runs import Table

DATA, SEEDS = ("mnist", "fashion-mnist", "digits"), range(5)
SCRIPTS_SEEDS = (4, 44, 444, 4444, 44444)  # theirs
FROM_OPTIMUM = dict(passes=100, spacing=0.12, rate=0.05)


def runs(data, seed):
    """The lines of all runs of one seed on one data set."""
    for scheme, passes, begun, lml, at_15 in trained(BinaryImages(data), seed):
        yield dict(
            data=data,
            scheme=scheme,
            seed=seed,
            passes=passes,
            begun=begun,
            train=lml[0],
            held_out=lml[1],
            at_15=at_15,
        )


def end(pictures, weight, bias, seed):
    """The log marginal likelihoods of both parts, and the 15% objective."""
    lml = study.mean_lml(pictures, pictures.model(weight, bias))
    return lml, study.score_at_15(pictures, weight, bias, seed=seed)


def trained(pictures, seed):
    """(scheme, passes, the objective at first, the ends of both parts, the 15% objective) of each run."""
    exact, *others = (train(scheme, pictures, seed=seed, **LONG) for scheme in OBJECTIVES)
    for scheme, run in zip(OBJECTIVES, (exact, *others), strict=True):
        begun = np.mean(run.history.objective[:20])
        yield scheme, LONG["passes"], begun, *end(pictures, run.weight, run.bias, seed)
    *optimum, steps = study.maximise(pictures, exact.weight, exact.bias)
    yield "optimum", steps, "", *end(pictures, *optimum, seed)
    if seed == 0:
        model = pictures.model(study.turn_for_diagonal(pictures, *optimum), optimum[1])
        parts = pictures.train, pictures.held_out
        elbo = [study.best_diagonal_elbo(model, part.double()).mean().item() for part in parts]
        yield "optimum, diagonal", steps, "", elbo, ""
    for scheme in ("uniform", "15%"):
        run = train(scheme, pictures, seed=seed, begin=optimum, **FROM_OPTIMUM)
        lml, at_15 = end(pictures, run.weight, run.bias, seed)
        yield f"{scheme}, from optimum", FROM_OPTIMUM["passes"], "", lml, at_15


def short_runs(data, objective, seed):
    """The lines of one run of the page."""
    pictures = BinaryImages(data)
    run = study.short_run(objective, pictures, seed=seed)
    values, at = run.history.objective, run.history.at
    ends = study.mean_lml(pictures, pictures.model(run.weight, run.bias))
    for before, step, lml in zip([0, *at], at, run.history.tracked["lml"], strict=False):
        train, held_out = ends if step == at[-1] else ("", "")
        yield dict(
            data=data,
            objective=objective,
            seed=seed,
            passes=step * study.PASSES // at[-1],
            seen=np.mean(values[before : max(1, step)]),
            lml=float(lml),
            train=train,
            held_out=held_out,
        )


def scripts_runs(data, grid, objective, seed):
    """The line of one run in the way of the scripts."""
    pictures = BinaryImages(data)
    # of all pixels
    weight, bias = study.train_as_scripts(objective, pictures, seed=seed, grid=grid)
    if grid == "shifted":  # there pixels that are never white stay as they were
        model, read = pictures.model(weight[pictures.used], bias[pictures.used]), ""
    else:
        weight, bias = weight.double(), bias.double()
        model, own = (
            LinearVAE(weight, bias, rule)
            for rule in (SCORING, study.scripts_rule(int(grid.split()[0])))
        )
        read = own.log_prob(pictures.train.double()).mean().item()
    train, held_out = study.mean_lml(pictures, model)
    yield dict(
        data=data,
        grid=grid,
        objective=objective,
        seed=seed,
        train=train,
        held_out=held_out,
        read=read,
    )


def scripts_units():
    """Five seeds of what the scripts do, two of the others; Fashion-MNIST on the scripts' grid alone."""
    for grid, objective in product(study.GRIDS[::-1], study.SCRIPTS):
        own = grid == "4 × 4" and objective in ("joint", "elbo")
        if grid == "4 × 4" or objective != "elbo":
            yield from (
                ("mnist", grid, objective, seed) for seed in SCRIPTS_SEEDS[: 5 if own else 2]
            )
    yield from (("fashion-mnist", "4 × 4", "joint", seed) for seed in SCRIPTS_SEEDS)
    yield from (("fashion-mnist", "4 × 4", "conditional", seed) for seed in SCRIPTS_SEEDS[:2])


TABLES = {
    name: Table(run, units, lambda data=data: map(BinaryImages, data))
    for name, run, units, data in (
        ("linear_vae", runs, lambda: product(DATA, SEEDS), DATA),
        ("linear_vae_page", short_runs, lambda: product(DATA, OBJECTIVES, SEEDS), DATA),
        ("linear_vae_scripts", scripts_runs, scripts_units, DATA[:2]),
    )
}


if __name__ == "__main__":
    results.main(TABLES)
