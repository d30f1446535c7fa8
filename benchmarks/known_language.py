"""The long runs behind Chapter 11: python -m benchmarks known_language GROUP [SEEDS]

Each group trains networks of `mptlml_book.studies.known_language` and writes
book/data/known_language_GROUP.csv, one line for each network: what it is, its readings against exact values
in nats per row (`read_network` says what each is). SEEDS: how many seeds (default: what PLAN says).
Networks are kept in _build/known_language, so that a group with more seeds trains the new ones
only. One after the other, since each needs the rates that the first chooses:

    tuning   five schemes, three learning rates, three seeds of their own                               15 minutes
    schemes  five schemes, each with the rate that its own loss chose, ten seeds                        20 minutes
    carry    three of these, carried on with uniform sizes for a tenth of their steps                    4 minutes
    stay     fixed 15% again, carried on at 15% for a tenth of its steps: the control of carry           2 minutes
    longer   the same three, with four times the steps                                                  45 minutes
    targets  fixed 15% with 13/5 times the steps: as many words predicted as by fixed 40%                8 minutes
    apart    13 words hidden, 5 of them predicted                                                        4 minutes
    area     the schemes for which the area chose another rate, with that rate                          10 minutes
    sixteen  uniform sizes and fixed 15% with sixteen times the steps, three seeds                      25 minutes
    scale    the same two: 15 times as many weights, four times as many tokens, both; two seeds         50 minutes
"""

import sys
from functools import partial

import pandas as pd

from mptlml_book.studies.known_language import (
    HIDE_MORE,
    LARGE,
    NUM_STEPS,
    SCHEMES,
    SMALL,
    carry_on,
    read_network,
    train_or_load,
)

from .results import FOLDER, write_results

NETWORKS = FOLDER.parents[1] / "_build" / "known_language"
RATES, TUNING_SEEDS, FIRST_SEED = (5e-3, 1e-2, 2e-2), (101, 102, 103), 11
CARRY_RATE = 3e-4  # on validation networks the highest of 3e-4, 1e-3, 3e-3 at which uniform networks lose nothing
TWO, THREE = ("uniform sizes", "fixed 15%"), ("uniform sizes", "fixed 15%", "fixed 40%")
PLAN = {  # seeds, schemes, how many times NUM_STEPS, orders along which each network is read
    "tuning": (3, SCHEMES, 1, 0),
    "schemes": (10, SCHEMES, 1, 16),
    "carry": (10, THREE, 1, 0),
    "stay": (10, ("fixed 15%",), 1, 0),
    "longer": (10, THREE, 4, 0),
    "targets": (10, ("fixed 15%",), 13 / 5, 16),
    "apart": (10, (HIDE_MORE,), 1, 16),
    "area": (10, SCHEMES, 1, 16),
    "sixteen": (3, TWO, 16, 16),
    "scale": (2, TWO, 1, 0),
}
CARRIED = ("carry", "stay")
READINGS = "gap", "size 1", "15%", "40%", "own", "left to right", "best order", "mixture", "spread", "curve"
FIELDS = ("scheme", "num_tokens", "width", "num_steps", "rate", "seed", "carried", *READINGS)
AT_128 = (1, 2, 4, 7, 10, 14, 19, 24, 30, 37, 44, 51, 58, 65, 72, 79, 86, 93, 100, 107, 114, 120, 125, 128)


def tuned(criterion):
    """The rate of each scheme with the best mean over the seeds of tuning, by "gap" (the area) or by "own"."""
    runs = pd.read_csv(FOLDER / "known_language_tuning.csv", comment="#")
    return runs.pivot_table(criterion, "scheme", "rate").loc[list(SCHEMES)].idxmax(axis=1).to_dict()


def units(group, num_seeds):
    """The arguments of `run` for each network of a group; seeds outside, so that what is done first is complete."""
    _, schemes, times, _ = PLAN[group]
    num_steps, seeds = round(times * NUM_STEPS), range(FIRST_SEED, FIRST_SEED + num_seeds)
    if group == "tuning":
        return [(scheme, num_steps, rate, seed)
                for seed in TUNING_SEEDS[:num_seeds] for scheme in schemes for rate in RATES]
    own, by_area = tuned("own"), tuned("gap")
    if group == "scale":
        small, large = SMALL["width"], LARGE["width"]
        return [(scheme, num_steps, own[scheme] * small / width, seed, num_tokens, width) for seed in seeds
                for num_tokens, width in ((128, small), (32, large), (128, large)) for scheme in schemes]
    if group == "area":
        rates = {scheme: by_area[scheme] for scheme in schemes if by_area[scheme] != own[scheme]}
    else:
        rates = {scheme: own.get(scheme, own["fixed 15%"]) for scheme in schemes}
    return [(scheme, num_steps, rate, seed) for seed in seeds for scheme, rate in rates.items()]


def run(group, scheme, num_steps, rate, seed, num_tokens=32, width=SMALL["width"]):
    """The one line of a network, trained and read as its group asks."""
    net = train_or_load(NETWORKS, scheme, seed=seed, num_steps=num_steps, learning_rate=rate, num_tokens=num_tokens,
                        width=width)
    carried = num_steps // 10 if group in CARRIED else 0
    if carried:
        then = scheme if group == "stay" else "uniform sizes"
        net = carry_on(net, then, seed=seed, num_steps=carried, learning_rate=CARRY_RATE)
    options = dict(num_rows=32, at=AT_128) if num_tokens == 128 else {}
    found = read_network(net, scheme, seed=seed, num_orders=PLAN[group][-1], **options)
    texts = {name: f"{value:.4f}" for name, value in found.items() if name != "curve"}
    texts["curve"] = " ".join(f"{value:.5f}" for value in found["curve"])
    about = scheme, num_tokens, width, num_steps, rate, seed, carried
    yield *about, *(texts.get(name, "") for name in READINGS)


def main(group="", num_seeds=None):
    if group not in PLAN:
        sys.exit("python -m benchmarks known_language GROUP [SEEDS], where GROUP is one of: " + ", ".join(PLAN))
    name, count = f"known_language_{group}", int(num_seeds or PLAN[group][0])
    write_results(name, f"known_language {group}", FIELDS, partial(run, group), units(group, count))
