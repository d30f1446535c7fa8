"""The runs behind the table of Chapter 1, which runs the first start itself: some fifteen minutes of one core.

`mptlml_book.studies.masked_mixture` says what is trained. A line for each run: where the log marginal likelihood
of the training rows ends, nats per row. Twelve starts; six of them are trained five times as long too.
"""

from mptlml_book.data.images import load_images
from mptlml_book.studies import masked_mixture as study

from .results import Table

SEEDS, LONG_SEEDS = range(1, 13), range(1, 7)


def units():
    return [("digits", study.STEPS, seed) for seed in SEEDS] + [("digits", study.LONG, seed) for seed in LONG_SEEDS]


def run(data, num_steps, seed):
    """The lines of all runs from one start."""
    rows, _ = study.split(load_images(data))
    if num_steps == study.STEPS:
        history = study.by_em(rows, seed)
        for scheme, lml in (("start", history[0]), ("EM", history[-1])):
            yield dict(num_steps=num_steps, seed=seed, scheme=scheme, lml=lml)
    for scheme in study.SCHEMES:
        lml = study.train(scheme, rows, seed=seed, num_steps=num_steps).tracked["lml"][-1]
        yield dict(num_steps=num_steps, seed=seed, scheme=scheme, lml=lml)


TABLES = {"masked_mixture": Table(run, units, lambda: [load_images("digits")])}
