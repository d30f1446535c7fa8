"""The long run on the order that is chosen: five languages, six schemes, three budgets, eight ways to choose.

`mptlml_book.order` says what languages, schemes and readings are; what was foretold stands
in book/data/order_predictions.csv. A line for each network: KL in nats per row along each order,
and the part of the first four places. Each table needs the first one:

    order_tuning  rates for five schemes, by their own loss, on seeds of their own; never at an edge    0.6 h
    order_600     all schemes, five languages, ten seeds                                                2.3 h
    order_2400    the same with four times the steps, eight seeds: the predictions are about these      3.8 h
    order_half    uniform sizes and 15% in the chain at half the rates, 2,400 steps, eight seeds        0.3 h
    order_moved   the moved chain, beside visible words where the chain has them, networks from above   0.1 h
    order_near    three schemes, where heads start with their look at neighbours, as in Chapter 11      0.3 h
    order_words   fixed 15% with 33/10 times the steps: as many words predicted as by uniform sizes     0.8 h
    order_9600    four schemes in the chain, four seeds                                                 0.9 h
    order_best    the best of k orders and the mixture of k, beside the surest places: nats above log p 0.5 h

A network of "40%, then uniform" has the rate of a fixed 40%. No seed is that of a trial (11).
"""

from functools import cache, partial
from typing import NamedTuple

import pandas as pd
import torch

from mptlml import draws
from mptlml.masks import random_orders
from mptlml.score import chain_rule

from . import order as study
from . import runs as results
from .order import FIFTEEN, FORTY, LANGUAGES, SCHEMES, THEN, UNIFORM
from .runs import Table

RATES = 1.25e-3, 2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2
TUNING_SEEDS, FIRST_SEED, TUNING_STEPS = (121, 122), 21, 600
COUNTS = 1, 2, 4, 8, 16, 32, 64
TUNED = [scheme for scheme in SCHEMES if scheme != THEN]


class Group(NamedTuple):
    """Steps, how many seeds, which languages and schemes, how the heads start, and a factor of all rates."""

    num_steps: int
    num_seeds: int
    languages: tuple[str, ...] = tuple(LANGUAGES)
    schemes: tuple[str, ...] = SCHEMES
    distance: str = "flat"
    factor: float = 1.0


PLAN = {
    "600": Group(600, 10),
    "2400": Group(2400, 8),
    "near": Group(600, 10, ("chain",), (UNIFORM, FORTY, FIFTEEN), "near"),
    "words": Group(1980, 10, schemes=(FIFTEEN,)),
    "9600": Group(9600, 4, ("chain",), (UNIFORM, FORTY, FIFTEEN, THEN)),
    "half": Group(2400, 8, ("chain",), (UNIFORM, FIFTEEN), factor=0.5),
}


def tune(language, scheme):
    """A line for each rate tried and seed: from 0.01 and 0.02 on, until the best rate lies between two others."""
    losses = {}

    def loss(place):
        if place not in losses:
            losses[place] = [own(language, scheme, RATES[place], seed) for seed in TUNING_SEEDS]
        return sum(losses[place])

    best = 3 if loss(3) <= loss(4) else 4
    while 0 < best < len(RATES) - 1:
        near = min((best, best - 1, best + 1), key=loss)
        if near == best:
            break
        best = near
    for place in sorted(losses):
        for seed, value in zip(TUNING_SEEDS, losses[place], strict=True):
            yield dict(language=language, scheme=scheme, rate=RATES[place], seed=seed, loss=value)


def own(language, scheme, rate, seed):
    """How far a network is above the least value of its own loss, nats per row."""
    net = network(language, scheme, seed, TUNING_STEPS, rate)
    return -study.own_loss(net, LANGUAGES[language](), scheme, seed=seed)


def network(language, scheme, seed, num_steps, rate, distance="flat"):
    options = dict(seed=seed, num_steps=num_steps, learning_rate=rate, distance=distance)
    name = ", ".join([language, scheme, *(f"{key} {value}" for key, value in options.items())])
    return results.kept(f"order/{name}", lambda: study.train(language, scheme, **options))


@cache
def tuned():
    """The rate of each language and scheme."""
    runs = pd.read_csv(results.FOLDER / "order_tuning.csv", comment="#")
    loss = runs.groupby(["language", "scheme", "rate"])["loss"].mean().unstack()
    rates = loss.idxmin(axis=1).to_dict()
    return rates | {(language, THEN): rates[language, FORTY] for language in LANGUAGES}


def read(group, language, num_steps, seed):
    """A line for each scheme."""
    plan = PLAN[group]
    rates = {scheme: plan.factor * tuned()[language, scheme] for scheme in plan.schemes}
    nets = {
        scheme: network(language, scheme, seed, num_steps, rates[scheme], plan.distance)
        for scheme in plan.schemes
    }
    found = study.read_networks(nets, LANGUAGES[language](), seed=seed)
    for scheme in plan.schemes:
        yield dict(
            language=language,
            num_steps=num_steps,
            seed=seed,
            scheme=scheme,
            rate=rates[scheme],
            distance=plan.distance,
            **found[scheme],
        )


def beside_in_the_chain(num_steps, seed):
    """A line for each network of the moved chain: beside a visible word where the chain, not the page, has it."""
    truth = LANGUAGES["moved"]()
    x, tie = study.rows_and_ties(truth, seed)
    path = study.follow(study.beside_in(truth), truth, x, tie)[1]
    for scheme in (UNIFORM, FORTY, FIFTEEN, THEN):
        net = network("moved", scheme, seed, num_steps, tuned()["moved", scheme])
        gap = float(study.below(net, x, path).sum())
        yield dict(
            language="moved",
            num_steps=num_steps,
            seed=seed,
            scheme=scheme,
            **{"beside in the chain": gap},
        )


def best(scheme, seed):
    """A line for each number of orders; k = 0: the surest places, chosen by what is visible. 256 rows.

    The networks start as those of Chapter 11, with their look at neighbours.
    """
    truth = LANGUAGES["chain"]()
    net = network("chain", scheme, seed, 600, tuned()["chain", scheme], "near")
    generator = draws.seeded(seed, 4)
    x = truth.sample(256, generator=generator)
    orders = random_orders(truth.num_tokens, max(COUNTS), generator=generator)
    found = study.best_of(net, truth, x, orders, COUNTS)
    with torch.no_grad():
        sure = chain_rule(net, x, study.surest(net)).double().sum(-1)[0] - truth.log_prob(x)
    found[0] = 2 * (float(sure.mean()),)
    for count, (value, mixture) in sorted(found.items()):
        yield dict(scheme=scheme, seed=seed, k=count, best=value, mixture=mixture)


def units(group):
    """Seed by seed, so that what is done first is complete."""
    plan = PLAN[group]
    return [
        (language, plan.num_steps, FIRST_SEED + number)
        for number in range(plan.num_seeds)
        for language in plan.languages
    ]


TABLES = {
    "order_best": Table(
        best,
        lambda: [(scheme, FIRST_SEED + n) for n in range(5) for scheme in (UNIFORM, FIFTEEN)],
    ),
    "order_tuning": Table(
        tune, lambda: [(language, scheme) for language in LANGUAGES for scheme in TUNED]
    ),
    "order_moved": Table(
        beside_in_the_chain,
        lambda: [
            (plan.num_steps, FIRST_SEED + n)
            for plan in (PLAN["600"], PLAN["2400"])
            for n in range(plan.num_seeds)
        ],
    ),
    **{f"order_{group}": Table(partial(read, group), partial(units, group)) for group in PLAN},
}


if __name__ == "__main__":
    results.main(TABLES)
