"""The medians and tails of Chapter 5: probabilistic PCA trained from sixty starts by each of nine ways.

A line per set of rows and way of training, with 60 numbers each, in the order of
`many_starts.SEEDS`: how far the LML of the rows lies below its maximum over all weights, and that
of infinitely many such rows below its own; nats per row. It takes some five minutes of one core.
"""

from . import many_starts as study
from . import runs as results
from .runs import Table


def run(name, way):
    rows, population = study.lost(name, study.train(name, study.WAYS[way]))
    yield dict(rows=name, way=way, lost=rows, lost_population=population)


def units():
    yield from ((name, way) for name in (study.OWN, study.SCRIPTED) for way in study.WAYS)


TABLES = {"many_starts": Table(run, units)}


if __name__ == "__main__":
    results.main(TABLES)
