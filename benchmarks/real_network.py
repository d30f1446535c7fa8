"""The long runs behind Chapter 13: python -m benchmarks real_network [repair | rates | longer | scores | guesses]

repair: trains AntiBERTy further on germline genes of other species, by each scheme of
`mptlml.studies.real_network.SCHEMES` from several seeds, and scores human genes before and after. Writes
book/data/real_network_repair.csv, one line for each run, stage and gene: its score at each masking rate, nats per token
(the first, 1%, is the mean over several masks of one residue each), and the objective of the batch that follows.

rates: writes book/data/real_network_rates.csv, the same for one run of each scheme at each learning rate, scored on
other human genes. longer: writes book/data/real_network_longer.csv, the same as repair for twice as many steps, each
scheme at the rate after which the area on those other genes is the largest.

scores: writes book/data/real_network_scores.csv, one line for each of some genes, chains and mutants, in nats per
sequence: the area of its curve with the error of the masks, its pseudo-log-likelihood, left to right, the sums along
random orders, and the curve under each mask. Sequences of one length have their masks in common.

guesses: writes book/data/real_network_guesses.csv, one line for each residue of one gene at several rates, before and
after the first run of repair: whether it is hidden, the residue that the network finds most probable there, its
probability, and that of the true one.

Together they take an hour and a quarter of one core.
"""

import time
from functools import cache, partial
from itertools import count

import numpy as np
import pandas as pd
import torch

from mptlml import random_orders
from mptlml.draws import seeded
from mptlml.models.text_curves import spaced_sizes
from mptlml.studies import real_network as study

from .results import FOLDER, write_results

SEEDS = (0, 1, 2)
LEARNING_RATES, SEED_OF_RATES = (5e-5, 1.5e-4, 5e-4), 100
REPAIR_FIELDS = ("scheme", "seed", "learning_rate", "step", "gene", "tokens", "objective",
                 *(f"at {rate:g}" for rate in study.RATES), "seconds")
SCORES_FIELDS = ("name", "tokens", "area", "area_error", "pseudo_log_likelihood", "left_to_right", "orders",
                 "sizes", "curve")
GUESSES_FIELDS = ("stage", "rate", "place", "residue", "hidden", "guess", "probability", "probability_of_truth")
SHOWN_RATES = (0.05, 0.5, 0.95)
NUM_SIZES, NUM_MASKS, NUM_ORDERS = 16, 4, 2


@cache
def network():
    """The network as it comes, to be read only."""
    return study.load_network().lm


@cache
def genes_of(choosing):
    """The human genes that are scored; others where the learning rate is chosen."""
    human = study.load_sequences().tested
    scored = study.spread_out(human, study.NUM_GENES)
    if not choosing:
        return scored
    return study.spread_out([gene for gene in human if gene not in scored], study.NUM_GENES // 2)


@cache
def before(choosing):
    """The curve of the network as it comes, the same for all runs."""
    return study.read_curve(network(), genes_of(choosing))


def repair(scheme, seed, learning_rate, num_steps, *, choosing=False):
    """The lines of one run, as REPAIR_FIELDS says."""
    began = time.process_time()
    lm, sequences = study.load_network().lm, study.load_sequences()
    stages = count()
    history = study.fine_tune(
        lm, sequences.trained, scheme, seed=seed, num_steps=num_steps, learning_rate=learning_rate,
        track={"curve": lambda: study.read_curve(lm, genes_of(choosing)) if next(stages) else before(choosing)})
    seconds = time.process_time() - began
    for step, curve in zip(history.at, history.tracked["curve"], strict=True):
        objective = history.objective[min(step, num_steps - 1)]
        for gene, tokens in enumerate(curve.lengths):
            yield (scheme, seed, f"{learning_rate:g}", step, gene, int(tokens), f"{objective:.3f}",
                   *(f"{score:.4f}" for score in curve.scores[:, gene]), f"{seconds:.0f}")


def chosen_rate(scheme):
    """The learning rate after which the area on the genes for choosing is the largest, nats per sequence."""
    runs = pd.read_csv(FOLDER / "real_network_rates.csv", comment="#")
    runs = runs[(runs.scheme == scheme) & (runs.step == study.NUM_STEPS)]
    edges = np.concatenate([[0.0], (np.array(study.RATES[1:]) + study.RATES[:-1]) / 2, [1.0]])
    areas = runs[[f"at {rate:g}" for rate in study.RATES]] @ np.diff(edges) * runs.tokens
    return float(areas.groupby(runs.learning_rate).mean().idxmax())


def scores(name):
    """The one line of a sequence, as SCORES_FIELDS says."""
    lm, text = network(), study.scored()[name]
    curve = lm.curves([text], partial(spaced_sizes, count=NUM_SIZES), num_masks=NUM_MASKS, generator=seeded(13))[0]
    area, length = curve.area(), curve.num_tokens
    pseudo = lm.pseudo_log_likelihood([text]).item()
    orders = []
    if name not in study.mutants():  # they are compared by area and pseudo-log-likelihood
        orders = [torch.arange(length - 1, -1, -1)]  # left to right
    if name in study.chains():
        orders += random_orders(length, NUM_ORDERS, generator=seeded(13, 1))
    sums = lm.chain_rule(text, torch.stack(orders)).sum(-1).tolist() if orders else [np.nan]
    yield (name, length, f"{area.mean:.3f}", f"{area.stderr:.3f}", f"{pseudo:.3f}", f"{sums[0]:.3f}",
           " ".join(f"{total:.3f}" for total in sums[1:]), " ".join(map(str, curve.sizes)),
           " ".join(f"{score:.4f}" for score in curve.scores.flatten()))


def guesses(stage):
    """The lines of the network "before" or "after" its repair, as GUESSES_FIELDS says."""
    lm, sequences = study.load_network().lm, study.load_sequences()
    if stage == "after":
        study.fine_tune(lm, sequences.trained, "uniform sizes", seed=0)
    text = sequences.tested[0]
    for rate in SHOWN_RATES:
        observed, answer = study.guesses(lm, text, rate, seeded(13, round(100 * rate)))
        best, word = answer.exp().max(-1)
        true = answer.gather(1, lm.encode(text)[:, None])[:, 0].exp()
        for place, residue in enumerate(text.split()):
            guess = lm.tokenizer.convert_ids_to_tokens(int(word[place]))
            yield (stage, rate, place + 1, residue, int(not observed[place]), guess, f"{best[place]:.3f}",
                   f"{true[place]:.4f}")


def main(*parts):
    if "repair" in parts or not parts:
        units = [(scheme, seed, study.LEARNING_RATE, study.NUM_STEPS) for scheme in study.SCHEMES for seed in SEEDS]
        write_results("real_network_repair", "real_network repair", REPAIR_FIELDS, repair, units)
    if "rates" in parts or not parts:
        units = [(scheme, SEED_OF_RATES, rate, study.NUM_STEPS) for scheme in study.SCHEMES for rate in LEARNING_RATES]
        run = partial(repair, choosing=True)
        write_results("real_network_rates", "real_network rates", REPAIR_FIELDS, run, units)
    if "longer" in parts or not parts:
        units = [(scheme, seed, chosen_rate(scheme), 2 * study.NUM_STEPS)
                 for scheme in study.SCHEMES for seed in SEEDS]
        write_results("real_network_longer", "real_network longer", REPAIR_FIELDS, repair, units)
    if "scores" in parts or not parts:
        units = [(name,) for name in study.scored()]
        write_results("real_network_scores", "real_network scores", SCORES_FIELDS, scores, units)
    if "guesses" in parts or not parts:
        units = [("before",), ("after",)]
        write_results("real_network_guesses", "real_network guesses", GUESSES_FIELDS, guesses, units)
