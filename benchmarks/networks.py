"""The long runs of networks that others trained (`mptlml_book.studies.networks`), some forty minutes together.

networks_reactions: RXNMapper and rxnfp on reactions from textbooks. networks_chains: Sapiens' two networks on the
heavy and the light chains of the table that MPTLML_ANTIBODIES names. networks_antiberty: AntiBERTy on some of these.
A line for each network and sequence, in nats per sequence: the area of its curve with the error of the masks, its
pseudo-log-likelihood, left to right, the sums along random orders, the curve under each mask, and at the rates
BELIEFS, under one mask each, the mean score per token that it expects (minus its entropy) and the one it gets.
Networks of one alphabet have the masks and the orders of a sequence in common.

networks_markov and networks_copying: the log-probability of each reaction under a Markov chain, and of each chain in
a model that copies from the other antibodies (`by_markov`, `by_copying`), each fitted to all others of its kind.

networks_recipes: Chapter 11's language, whose exact answers are known, learnt by a fixed 15%, 80/10/10, half left and
half random (from the start, and after a fixed 15%), and smoothed labels: a network's readings, and its right end.
"""

import os
import re
from functools import cache, partial

import torch

from mptlml import random_orders
from mptlml.draws import seeded
from mptlml.text.text_curves import spaced_sizes
from mptlml_book.studies import known_language
from mptlml_book.studies import networks as study
from mptlml_book.studies.real_network import guesses, spread_out

from .known_language import network as trained
from .known_language import seeds, tuned
from .results import Table

NUM_SIZES, NUM_MASKS, NUM_SOME = 16, 3, 12  # NUM_SOME chains of each kind for the large network
BELIEFS = (0.15, 0.5, 0.85, 1)
WEIGHTS = (1, 3, 10, 30)  # of by_markov
KEEPS, JUMPS = (0.8, 0.9, 0.95), (0.003, 0.01, 0.03)  # of by_copying

load = cache(study.load)


@cache
def chains():
    """The table of chains, empty where none is named."""
    return study.load_chains() if os.environ.get("MPTLML_ANTIBODIES") else study.Chains({})


def units(*networks, some=False):
    """Networks that are at hand, each with the names of its sequences: of chains, those of its kind."""
    for network in networks:
        texts = study.reactions() if network in ("RXNMapper", "rxnfp") else chains().texts
        kinds = (
            [network.split()[1]]
            if network.startswith("Sapiens")
            else ["heavy", "light"]
            if some
            else [""]
        )
        for kind in kinds if load(network) else []:
            names = [name for name in texts if name.endswith(kind)]
            for name in spread_out(names, NUM_SOME) if some and names else names:
                yield network, name


def scores(num_orders, network, name):
    """The one line of a sequence."""
    lm, text = load(network), (study.reactions() | chains().texts)[name]
    length = len(lm.encode(text))
    curve = lm.curve(
        text, spaced_sizes(length, NUM_SIZES), num_masks=NUM_MASKS, generator=seeded(13)
    )
    area = curve.area()
    ahead = torch.arange(length - 1, -1, -1)[None]
    orders = random_orders(length, num_orders, generator=seeded(13, 1)) if num_orders else ahead[:0]
    sums = lm.chain_rule(text, torch.cat([ahead, orders])).sum(-1).tolist()
    expects, gets = zip(*(belief(lm, text, rate) for rate in BELIEFS), strict=True)
    yield dict(
        network=network,
        name=name,
        tokens=length,
        area=area.mean,
        area_error=area.stderr,
        pseudo_log_likelihood=lm.pseudo_log_likelihood([text]).item(),
        left_to_right=sums[0],
        orders=sums[1:],
        sizes=curve.sizes.tolist(),
        curve=curve.scores.flatten().tolist(),
        expects=list(expects),
        gets=list(gets),
    )


def belief(lm, text, rate):
    """What the network expects of a text and what it gets, nats per hidden token, under one mask."""
    observed, answer = guesses(lm, text, rate, seeded(7))
    answer, true = answer[~observed].double(), lm.encode(text)[~observed]
    return (answer.exp() * answer).sum(1).mean().item(), answer.gather(
        1, true[:, None]
    ).mean().item()


def markov(weight):
    """The lines of one weight: each reaction under the chain of the others."""
    words = {name: re.findall(study.SMILES, text) for name, text in study.reactions().items()}
    for name in words:
        others = [text for other, text in words.items() if other != name]
        yield dict(
            weight=weight,
            name=name,
            tokens=len(words[name]),
            log_prob=study.by_markov(others, [words[name]], study.NUM_WORDS, weight)[0],
        )


def copying(kind, keep, jump):
    """The lines of one kind of chain: each under the copies of all others that are not the same."""
    texts = {name: text for name, text in chains().texts.items() if name.endswith(kind)}
    for name, text in texts.items():
        yield dict(
            kind=kind,
            keep=keep,
            jump=jump,
            name=name,
            tokens=len(text.split()),
            log_prob=study.by_copying(
                [other for other in texts.values() if other != text], text, keep, jump
            ),
        )


RECIPES = (
    "fixed 15%",
    "15%, 80/10/10",
    *known_language.RECIPES,
    f"then {known_language.RECIPES[0]}",
)


def recipe(name, times, seed):
    """The one line of a network trained by a recipe; all at the rate of fixed 15%, which none of them chose."""
    num_steps, rate = times * known_language.NUM_STEPS, tuned()["fixed 15%"]
    first, then = (
        ("fixed 15%", known_language.RECIPES[0]) if name.startswith("then") else (name, "")
    )
    net = trained(first, seed, num_steps=num_steps, learning_rate=rate)
    if then:
        net = known_language.carry_on(
            net, then, seed=seed, num_steps=num_steps // 2, learning_rate=rate / 10
        )
    yield dict(
        recipe=name,
        times=times,
        seed=seed,
        rate=rate,
        **known_language.read_network(net, "fixed 15%", seed=seed, num_orders=0),
        **known_language.read_right_end(net, seed=seed),
    )


TABLES = {
    f"networks_{name}": Table(*parts)
    for name, parts in {
        "reactions": (
            partial(scores, 2),
            lambda: sorted(units("RXNMapper", "rxnfp"), key=lambda unit: unit[1]),
        ),
        "chains": (
            partial(scores, 2),
            lambda: [*units("Sapiens heavy", "Sapiens light")],
            lambda: [chains()],
        ),
        "antiberty": (
            partial(scores, 0),
            lambda: [*units("AntiBERTy", some=True)],
            lambda: [chains()],
        ),
        "markov": (markov, lambda: [(weight,) for weight in WEIGHTS]),
        "copying": (
            copying,
            lambda: [
                (kind, keep, jump)
                for kind in ("heavy", "light")
                for keep in KEEPS
                for jump in JUMPS
                if chains().texts
            ],
            lambda: [chains()],
        ),
        "recipes": (
            recipe,
            lambda: [
                (name, times, seed) for times in (1, 4) for seed in seeds(5) for name in RECIPES
            ],
        ),
    }.items()
}
