"""PPCA trained from sixty starts by each of nine ways: the medians and tails of Chapter 5.

The settings are those of Fig. 2. Weights [S, D, K] of S starts are trained side by side, each
on masks of its own: Adam treats every number by itself, so each start ends as it would alone.

A line per set of rows and way of training, with 60 numbers each, in the order of SEEDS: how far the
LML of the rows lies below its maximum over all weights, and that of infinitely many such rows below
its own; nats per row. It takes some forty minutes of one core.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from mptlml import all_masks, fit, mean_score, random_masks
from mptlml.draws import randint
from mptlml.models import PPCA, SecondMoment

from . import runs
from .scripts_data import scripts_rows

# of the starts: the scripts' five, then 55 others
SEEDS = (4, 44, 444, 4444, 44444, *range(100, 155))
OWN, SCRIPTED = "model's own noise", "scripts' noise"  # the sets of rows
EMPTIED = (200, 400, 600)  # the epochs at which a run's optimiser forgets


class Way(NamedTuple):
    """sizes: of an epoch's masks, "uniform" for one of random size, "all" for every mask of two
    tokens, none for the exact gradient; memory: Adam's beta2; emptied: the epochs at which its
    memory is."""

    sizes: str | tuple[int, ...]
    memory: float = 0.999
    emptied: tuple[int, ...] = ()


WAYS = {
    "exact gradient": Way(()),
    "every size, ten masks": Way(tuple(range(1, 11))),
    "any size, one mask": Way("uniform"),
    "20%, one mask": Way((2,)),
    "20%, ten masks": Way((2,) * 10),
    "20%, ten masks, β₂ = 0.9": Way((2,) * 10, 0.9),
    "20%, all masks": Way("all"),
    "20%, all masks, β₂ = 0.9": Way("all", 0.9),
    "20%, all masks, memory emptied": Way("all", emptied=EMPTIED),
}


class RowSet(NamedTuple):
    """The second moment of a set of rows, and of infinitely many; the noise variance and the number of latents."""

    moment: SecondMoment
    population: SecondMoment
    noise: float
    num_latents: int


def rows_of(name: str) -> RowSet:
    """A set of rows by its name, as Chapter 5 draws them."""
    x, weight, noise = scripts_rows(2000, 10, 2, seed=1991)
    truth = PPCA(weight, noise)
    added = torch.tensor(noise**2)  # the scripts' noise adds its variance to every covariance
    if name == OWN:
        x = truth.sample(len(x), generator=torch.Generator().manual_seed(1991))
        added = noise * torch.eye(len(weight))
    return RowSet(
        SecondMoment.of(x),
        SecondMoment(truth.mean, weight @ weight.T + added),
        noise,
        weight.shape[1],
    )


def starting_weight(seed: int, num_tokens: int, num_latents: int) -> Tensor:
    """The scripts' initial weight [D, K]."""
    return torch.randn(
        num_tokens, num_latents, generator=torch.Generator().manual_seed(seed)
    ).double()


def train(name: str, way: Way, seeds: tuple[int, ...] = SEEDS, num_epochs: int = 1000) -> Tensor:
    """The weights [S, D, K] at the end of training on a set of rows from the starts of these seeds."""
    rows, generator = rows_of(name), torch.Generator().manual_seed(0)
    num_tokens = len(rows.moment.mean)
    starts = [starting_weight(seed, num_tokens, rows.num_latents) for seed in seeds]
    weight = torch.stack(starts).requires_grad_()

    def objective() -> Tensor:
        """The sum over the starts: each has its own gradient."""
        models = [PPCA(each, rows.noise) for each in weight]
        if not way.sizes:
            return torch.stack([model.mean_log_prob(rows.moment) for model in models]).sum()
        masks = masks_of(way, len(seeds), num_tokens, generator)
        pairs = zip(models, masks, strict=True)
        scores = [mean_score(model, rows.moment, own).mean() for model, own in pairs]
        return num_tokens * torch.stack(scores).sum()

    adam = partial(torch.optim.Adam, betas=(0.9, way.memory))
    for steps in np.diff([0, *way.emptied, num_epochs]).tolist():
        fit(objective, [weight], num_steps=steps, optimiser=adam)
    return weight.detach()


def masks_of(way: Way, num_starts: int, num_tokens: int, generator: Generator) -> Tensor:
    """The masks of an epoch [S, P, D]."""
    if way.sizes == "all":
        return all_masks(num_tokens, 2).expand(num_starts, -1, -1)
    if way.sizes == "uniform":
        sizes = 1 + randint(num_tokens, [num_starts, 1], None, generator)
    else:
        sizes = torch.tensor(way.sizes).expand(num_starts, -1)
    return random_masks(num_tokens, sizes, generator=generator)


def lost(name: str, weight: Tensor) -> tuple[list[float], list[float]]:
    """How far the LML is below its maximum over all weights, and that of infinitely many rows below its: nats [S]."""
    rows = rows_of(name)
    mean = torch.zeros_like(rows.moment.mean)
    found = []
    for moment in rows.moment, rows.population:
        best = PPCA.fit(moment, rows.num_latents, rows.noise, mean).mean_log_prob(moment)
        found.append([float(best - PPCA(w, rows.noise).mean_log_prob(moment)) for w in weight])
    return found[0], found[1]


def run(name: str, way: str) -> Iterator[dict]:
    """The line of one way on a set of rows."""
    rows, population = lost(name, train(name, WAYS[way]))
    yield dict(rows=name, way=way, lost=rows, lost_population=population)


TABLES = {"many_starts": runs.Table(run, partial(product, (OWN, SCRIPTED), WAYS))}

if __name__ == "__main__":
    runs.main(TABLES)
