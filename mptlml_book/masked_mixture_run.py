"""The runs behind the table of Chapter 1, three minutes of one core.

`mptlml_book.masked_mixture` says what is trained. A line for each run from one of twelve
starts: the log marginal likelihood of the training rows at its end, or at the start, nats per row.
"""

from . import masked_mixture as study
from . import runs as results
from .data.images import load_images
from .runs import Table


def run(data, seed):
    """The lines of all runs from one start."""
    rows, _ = study.split(load_images(data))
    history = study.by_em(rows, seed)
    ends = {
        scheme: study.train(scheme, rows, seed=seed).tracked["lml"][-1] for scheme in study.SCHEMES
    }
    for scheme, lml in (("start", history[0]), ("EM", history[-1]), *ends.items()):
        yield dict(data=data, seed=seed, scheme=scheme, lml=lml)


TABLES = {
    "masked_mixture": Table(
        run, lambda: [("digits", seed) for seed in range(1, 13)], lambda: [load_images("digits")]
    )
}


if __name__ == "__main__":
    results.main(TABLES)
