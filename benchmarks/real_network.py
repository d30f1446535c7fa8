"""The long runs behind Chapter 13: python -m benchmarks real_network [PART ...]

The parts are repair, rates, longer, control, scratch, scores, after and guesses; without any, all of them.

repair: trains AntiBERTy further on germline genes of other species, by each scheme of
`mptlml_book.studies.real_network.SCHEMES` from several seeds, and scores human genes before and after. Writes
book/data/real_network_repair.csv, one line for each run, stage and gene: its score at each masking rate, nats per token
(the first, 1%, is the mean over several masks of one residue each), and the objective of the batch that follows.

rates: writes book/data/real_network_rates.csv, the same for one run of each scheme at each learning rate,
scored on other human genes. longer: writes book/data/real_network_longer.csv, the same as repair for twice as
many steps, each scheme at the rate after which the area on those other genes is the largest. control: writes
book/data/real_network_control.csv, the same for a fixed 15% at the rate that repair has, for so many steps
that it predicts as many residues as uniform sizes do there. scratch: writes book/data/real_network_scratch.csv,
the same for uniform sizes and the same network of random weights, for four times the steps at ten times the rate.

scores: writes book/data/real_network_scores.csv, one line for each of some genes, chains and mutants, in nats
per sequence: the area of its curve with the error of the masks, its pseudo-log-likelihood, left to right, the
sums along random orders, and the curve under each mask. Sequences of one length have their masks in common.

after: writes book/data/real_network_after.csv, one line for each seed of repair's uniform sizes and each of those genes
and chains: after training, left to right, and for a chain area, pseudo-log-likelihood and the score with all hidden.

guesses: writes book/data/real_network_guesses.csv, one line for each hidden residue of one gene, at several
mask sizes, before and after the first run of repair: the residues that the network finds most probable there,
their probabilities, and the log-probability of the true one.

Together they take some two hours of one core.
"""

from functools import cache, partial
from itertools import count

import numpy as np
import pandas as pd
import torch

from mptlml import random_orders
from mptlml.draws import seeded
from mptlml.text.masked_lm import MaskedLM
from mptlml.text.text_curves import RateCurve, spaced_sizes
from mptlml_book.studies import guessing
from mptlml_book.studies import real_network as study

from .results import FOLDER, write_results

SEEDS = (0, 1, 2)
LEARNING_RATES, SEED_OF_RATES = (5e-5, 1.5e-4, 5e-4), 100
REPAIR_FIELDS = ("scheme", "seed", "learning_rate", "step", "gene", "tokens", "objective",
                 *(f"at {rate:g}" for rate in study.RATES))
SCORES_FIELDS = ("name", "tokens", "area", "area_error", "pseudo_log_likelihood", "left_to_right", "orders",
                 "sizes", "curve")
AFTER_FIELDS = ("seed", "name", "tokens", "left_to_right", "area", "area_error", "pseudo_log_likelihood", "at 1")
GUESSES_FIELDS = ("network", "hidden", "place", "residue", "guesses", "chances", "score")
SHOWN_RATES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1)
NUM_SIZES, NUM_MASKS, NUM_ORDERS = 16, 4, 2
EQUAL_STEPS = 84  # of a fixed 15%: 14.4 of 96 residues each, as uniform sizes have 48.5 in each of 25


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


def repair(scheme, seed, learning_rate, num_steps, *, choosing=False, scratch=False):
    """The lines of one run, as REPAIR_FIELDS says; scratch: from random weights."""
    lm, sequences = study.load_network().lm, study.load_sequences()
    if scratch:
        lm = MaskedLM.random(lm.model.config, lm.tokenizer, seed=seed)
    stages = count(int(scratch))
    history = study.fine_tune(
        lm, sequences.trained, scheme, seed=seed, num_steps=num_steps, learning_rate=learning_rate,
        track={"curve": lambda: study.read_curve(lm, genes_of(choosing)) if next(stages) else before(choosing)})
    for step, curve in zip(history.at, history.tracked["curve"], strict=True):
        objective = history.objective[min(step, num_steps - 1)]
        for gene, tokens in enumerate(curve.lengths):
            yield (scheme, seed, f"{learning_rate:g}", step, gene, int(tokens), f"{objective:.3f}",
                   *(f"{score:.4f}" for score in curve.scores[:, gene]))


def chosen_rates():
    """{scheme: the learning rate after which the area on the genes for choosing is the largest, nats per sequence}."""
    runs = pd.read_csv(FOLDER / "real_network_rates.csv", comment="#")
    runs = runs[runs.step == study.NUM_STEPS]
    columns = runs[[f"at {rate:g}" for rate in study.RATES]].to_numpy().T
    areas = pd.Series(RateCurve(np.array(study.RATES), columns, runs.tokens.to_numpy()).row_areas, runs.index)
    return areas.groupby([runs.scheme, runs.learning_rate]).mean().unstack().idxmax(axis=1).to_dict()


def curve_of(lm, text):
    """The curve of a text, always under the same masks."""
    return lm.curve(text, spaced_sizes(len(lm.encode(text)), NUM_SIZES), num_masks=NUM_MASKS, generator=seeded(13))


def scores(name):
    """The one line of a sequence, as SCORES_FIELDS says."""
    lm, text = network(), study.scored()[name]
    length = len(lm.encode(text))
    curve = curve_of(lm, text)
    area = curve.area()
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


def after(seed):
    """The lines of one seed, as AFTER_FIELDS says."""
    lm = study.load_network().lm
    study.fine_tune(lm, study.load_sequences().trained, "uniform sizes", seed=seed)
    for name, text in study.scored().items():
        if name not in study.mutants():
            length = len(lm.encode(text))
            left = lm.chain_rule(text, torch.arange(length - 1, -1, -1)[None]).sum().item()
            more = [""] * 4
            if name in study.chains():
                curve = curve_of(lm, text)
                area, pseudo = curve.area(), lm.pseudo_log_likelihood([text]).item()
                more = [f"{value:.3f}" for value in (area.mean, area.stderr, pseudo, curve.mean[-1])]
            yield seed, name, length, f"{left:.3f}", *more


def guesses(text):
    """The lines of a gene under the network before and after its repair, as GUESSES_FIELDS says."""
    repaired, ids = study.load_network().lm, network().encode(text)
    study.fine_tune(repaired, study.load_sequences().trained, "uniform sizes", seed=0)
    views = {"before": network().at_length(len(ids)), "after": repaired.at_length(len(ids))}
    words = network().tokenizer.convert_ids_to_tokens(range(network().vocab_size))
    sizes = [round(rate * len(ids)) for rate in SHOWN_RATES]
    made = guessing.guesses(views, ids, words, sizes, generator=seeded(13))
    for step in made["steps"]:
        for n, name in enumerate(views):
            for k, place in enumerate(step["hidden"].tolist()):
                best, chances = step["guesses"][n, k], step["chances"][n, k]
                yield (name, len(step["hidden"]), place + 1, words[int(ids[place])], " ".join(words[w] for w in best),
                       " ".join(f"{chance:.3f}" for chance in chances), f"{step['scores'][n, k]:.3f}")


def main(*parts):
    if "repair" in parts or not parts:
        units = [(scheme, seed, study.LEARNING_RATE, study.NUM_STEPS) for scheme in study.SCHEMES for seed in SEEDS]
        write_results("real_network_repair", "real_network repair", REPAIR_FIELDS, repair, units)
    if "rates" in parts or not parts:
        units = [(scheme, SEED_OF_RATES, rate, study.NUM_STEPS) for scheme in study.SCHEMES for rate in LEARNING_RATES]
        run = partial(repair, choosing=True)
        write_results("real_network_rates", "real_network rates", REPAIR_FIELDS, run, units)
    if "longer" in parts or not parts:
        rates = chosen_rates()
        units = [(scheme, seed, rates[scheme], 2 * study.NUM_STEPS) for scheme in study.SCHEMES for seed in SEEDS]
        write_results("real_network_longer", "real_network longer", REPAIR_FIELDS, repair, units)
    if "control" in parts or not parts:
        units = [("fixed 15%", seed, study.LEARNING_RATE, EQUAL_STEPS) for seed in SEEDS]
        write_results("real_network_control", "real_network control", REPAIR_FIELDS, repair, units)
    if "scratch" in parts or not parts:
        units = [("uniform sizes", seed, 10 * study.LEARNING_RATE, 4 * study.NUM_STEPS) for seed in SEEDS]
        run = partial(repair, scratch=True)
        write_results("real_network_scratch", "real_network scratch", REPAIR_FIELDS, run, units)
    if "scores" in parts or not parts:
        units = [(name,) for name in study.scored()]
        write_results("real_network_scores", "real_network scores", SCORES_FIELDS, scores, units)
    if "after" in parts or not parts:
        units = [(seed,) for seed in SEEDS]
        write_results("real_network_after", "real_network after", AFTER_FIELDS, after, units)
    if "guesses" in parts or not parts:
        units = [(study.load_sequences().tested[0],)]
        write_results("real_network_guesses", "real_network guesses", GUESSES_FIELDS, guesses, units)
