"""The long runs behind Chapter 11: each table trains networks and reads them against exact values.

A line for each network: what it is, and its readings in nats per row (`read_network` says what each
is). Networks are kept in _build/networks. In this order, since each needs the rates that the first
chooses:

    tuning   five schemes, four learning rates, three seeds of their own                         20 min
    schemes  five schemes, each with the rate that its own loss chose, ten seeds                 20 min
    carry    three of these, carried on with uniform sizes for a tenth of their steps             4 min
    stay     fixed 15% again, carried on at 15% for a tenth of its steps: the control of carry    2 min
    longer   the same three, with four times the steps, three seeds                              15 min
    targets  fixed 15% with 13/5 times the steps: as many words predicted as by fixed 40%         8 min
    words    fixed 15% with 33/10 times the steps: as many words predicted as by uniform sizes   10 min
    apart    13 words hidden, 5 of them predicted                                                 4 min
    area     the schemes for which the area chose another rate, with that rate, five seeds        5 min
    sixteen  uniform sizes and fixed 15% with sixteen times the steps, three seeds               25 min
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import pandas as pd

from . import known_language as study
from . import runs as results
from .runs import Table

RATES, TUNING_SEEDS, FIRST_SEED = (5e-3, 1e-2, 2e-2, 4e-2), (101, 102, 103), 11
CARRY_RATE = (
    3e-4  # the highest of 3e-4, 1e-3, 3e-3 at which uniform validation networks lose nothing
)
TWO, THREE = ("uniform sizes", "fixed 15%"), ("uniform sizes", "fixed 15%", "fixed 40%")


class Group(NamedTuple):
    """How many seeds, which schemes, how many times NUM_STEPS, along how many orders each network is read."""

    num_seeds: int
    schemes: Iterable[str]
    times: float = 1
    num_orders: int = 0


PLAN = {
    "tuning": Group(3, study.SCHEMES),
    "schemes": Group(10, study.SCHEMES, num_orders=16),
    "carry": Group(10, THREE),
    "stay": Group(10, ("fixed 15%",)),
    "longer": Group(3, THREE, 4),
    "targets": Group(10, ("fixed 15%",), 13 / 5, 16),
    "words": Group(10, ("fixed 15%",), 33 / 10, 16),
    "apart": Group(10, (study.HIDE_MORE,), num_orders=16),
    "area": Group(5, study.SCHEMES, num_orders=16),
    "sixteen": Group(3, TWO, 16, 16),
}


def seeds(number):
    return range(FIRST_SEED, FIRST_SEED + number)


def tuned(criterion="own"):
    """The best rate of each scheme over the seeds of tuning, by "gap" (the area) or by its "own" loss."""
    runs = pd.read_csv(results.FOLDER / "known_language_tuning.csv", comment="#")
    return (
        runs.pivot_table(criterion, "scheme", "rate")
        .loc[list(study.SCHEMES)]
        .idxmax(axis=1)
        .to_dict()
    )


def network(scheme, seed, **options):
    """A network of the study, from a file that its name describes; by default with the rate of its own loss."""
    options = (
        dict(seed=seed, num_steps=study.NUM_STEPS, learning_rate=None, **study.SMALL) | options
    )
    options["learning_rate"] = options["learning_rate"] or tuned()[scheme]
    words = [scheme.replace("/", "-"), *(f"{key} {value}" for key, value in options.items())]
    return results.kept(", ".join(words), lambda: study.pretrain(scheme, **options)[0])


def units(group):
    """The arguments of `run` for each network of a group, seed by seed: what is done first is complete."""
    number, schemes, times, _ = PLAN[group]
    num_steps = round(times * study.NUM_STEPS)
    if group == "tuning":
        return [
            (scheme, num_steps, rate, seed)
            for seed in TUNING_SEEDS
            for scheme in schemes
            for rate in RATES
        ]
    own, by_area = tuned(), tuned("gap")
    if group == "area":
        rates = {scheme: by_area[scheme] for scheme in schemes if by_area[scheme] != own[scheme]}
    else:
        rates = {scheme: own.get(scheme, own["fixed 15%"]) for scheme in schemes}
    return [
        (scheme, num_steps, rate, seed) for seed in seeds(number) for scheme, rate in rates.items()
    ]


def run(group, scheme, num_steps, rate, seed):
    """The one line of a network, trained and read as its group asks."""
    net = network(scheme, seed, num_steps=num_steps, learning_rate=rate)
    carried = num_steps // 10 if group in ("carry", "stay") else 0
    if carried:
        then = scheme if group == "stay" else "uniform sizes"
        net = study.carry_on(net, then, seed=seed, num_steps=carried, learning_rate=CARRY_RATE)
    found = study.read_network(net, scheme, seed=seed, num_orders=PLAN[group].num_orders)
    yield dict(
        scheme=scheme,
        num_tokens=32,
        **study.SMALL,
        num_steps=num_steps,
        rate=rate,
        seed=seed,
        carried=carried,
        **dict.fromkeys(("best order", "mixture", "spread"), "") | found,
    )


TABLES = {
    f"known_language_{group}": Table(partial(run, group), partial(units, group)) for group in PLAN
}


if __name__ == "__main__":
    results.main(TABLES)
