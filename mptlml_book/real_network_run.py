"""The long runs behind Chapter 13, some two hours of one core together.

real_network_repair: AntiBERTy trained further on germline genes of other species, by each scheme of
`mptlml_book.real_network.SCHEMES` from several seeds. A line for each run, stage and human
gene: its score at each masking rate, nats per token (the first, 1%, is the mean over several masks
of one residue each), and the objective of the batch that follows. rates: the same for one run of
each scheme at each learning rate, scored on other human genes. longer: for twice as many steps,
each scheme at the rate after which the area on those other genes is the largest. control: a fixed
15% at the rate of repair, for so many steps that it predicts as many residues as uniform sizes do
there. scratch: uniform sizes and the same network of random weights, for four times the steps at
ten times the rate.

real_network_scores: a line for each of some genes and chains, in nats per sequence: the area of its
curve with the error of the masks, its pseudo-log-likelihood, left to right, the sums along random
orders, and the curve under each mask. Sequences of one length have their masks in common. ahead:
the terms of left to right, by place.

real_network_lookup: no network, but the mixture of `by_genes`, from all training genes or from
those that one seed of repair reads. A line for each share of letters that it keeps and each gene or
chain: its score at each masking rate, nats per residue, and, from all genes, the terms of left to
right.

real_network_after: a line for each seed of repair's uniform sizes and each of those genes and
chains: after training, left to right, and for a chain area, pseudo-log-likelihood and the score
with all hidden.

real_network_guesses: a line for each hidden residue of one gene, at several mask sizes, before and
after the first run of repair: the residues that the network finds most probable there, their
probabilities, and the log-probability of the true one.

real_network_masks: for Chapter 2, a line for each of the 255 masks of eight residues, the whole
text: the log-probability of each hidden residue. Bit j of a mask's number says that residue j is
hidden.
"""

from functools import cache, partial
from itertools import count

import numpy as np
import pandas as pd
import torch

from mptlml import random_orders
from mptlml.draws import seeded
from mptlml.masked_lm import MaskedLM, spaced_sizes

from . import real_network as study
from . import runs as results
from .rates import RateCurve
from .runs import Table
from .toy_grammar import every_mask

SEEDS = (0, 1, 2)
KEEPS = 0.5, 0.6, 0.7, 0.8, 0.9  # shares of letters that the lookup keeps
LEARNING_RATES, SEED_OF_RATES = (5e-5, 1.5e-4, 5e-4), 100
COLUMNS = [f"at {rate:g}" for rate in study.RATES]
SHOWN_RATES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95, 1)
NUM_SIZES, NUM_MASKS, NUM_ORDERS = 16, 4, 2
EQUAL_STEPS = (
    84  # of a fixed 15%: 14.4 of 96 residues each, as uniform sizes have 48.5 in each of 25
)


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


def repair(
    scheme,
    seed,
    learning_rate=study.LEARNING_RATE,
    num_steps=study.NUM_STEPS,
    *,
    choosing=False,
    scratch=False,
):
    """The lines of one run; scratch: from random weights."""
    lm, stages = study.load_network().lm, count(int(scratch))
    if scratch:
        lm = MaskedLM.random(lm.model.config, lm.tokenizer, seed=seed)
    history = study.fine_tune(
        lm,
        study.load_sequences().trained,
        scheme,
        seed=seed,
        num_steps=num_steps,
        learning_rate=learning_rate,
        track={
            "curve": lambda: (
                study.read_curve(lm, genes_of(choosing)) if next(stages) else before(choosing)
            )
        },
    )
    for step, curve in zip(history.at, history.tracked["curve"], strict=True):
        for gene, tokens in enumerate(curve.lengths):
            yield dict(
                scheme=scheme,
                seed=seed,
                learning_rate=learning_rate,
                step=step,
                gene=gene,
                tokens=tokens,
                objective=history.objective[min(step, num_steps - 1)],
                **dict(zip(COLUMNS, curve.scores[:, gene].tolist(), strict=True)),
            )


def longer():
    """Units of `repair`: each scheme with the learning rate after which the area is the largest."""
    runs = pd.read_csv(results.FOLDER / "real_network_rates.csv", comment="#")
    runs = runs[runs.step == study.NUM_STEPS]
    curves = RateCurve(np.array(study.RATES), runs[COLUMNS].to_numpy().T, runs.tokens.to_numpy())
    areas = (
        pd.Series(curves.row_areas, runs.index).groupby([runs.scheme, runs.learning_rate]).mean()
    )
    rates = areas.unstack().idxmax(axis=1)
    return [
        (scheme, seed, rates[scheme], 2 * study.NUM_STEPS)
        for scheme in study.SCHEMES
        for seed in SEEDS
    ]


def areas_of(lm, text):
    """Fields of a text, and its curve, always under the same masks."""
    curve = lm.curve(
        text,
        spaced_sizes(len(lm.encode(text)), NUM_SIZES),
        num_masks=NUM_MASKS,
        generator=seeded(13),
    )
    area = curve.area()
    return dict(
        area=area.mean,
        area_error=area.stderr,
        pseudo_log_likelihood=lm.pseudo_log_likelihood([text]).item(),
    ), curve


def along(lm, text, *orders):
    """The terms along left to right and along the orders [Q, D], nats [Q + 1, D]."""
    ahead = torch.arange(len(lm.encode(text)) - 1, -1, -1)
    return lm.chain_rule(text, torch.stack([ahead, *orders]))


def sequence_line(name):
    """The one line of a sequence."""
    text = study.scored()[name]
    length = len(network().encode(text))
    fields, curve = areas_of(network(), text)
    orders = (
        random_orders(length, NUM_ORDERS, generator=seeded(13, 1)) if name in study.chains() else []
    )
    sums = along(network(), text, *orders).sum(-1).tolist()
    yield dict(
        name=name,
        tokens=length,
        **fields,
        left_to_right=sums[0],
        orders=sums[1:],
        sizes=curve.sizes.tolist(),
        curve=curve.scores.flatten().tolist(),
    )


def ahead(name):
    """The one line of a sequence: the terms of left to right, by place."""
    text = study.scored()[name]
    yield dict(name=name, places=along(network(), text)[0].flip(-1).tolist())


def lookup(texts, keep):
    """The lines of a mixture, of all training genes or of those that a seed reads."""
    some = study.load_sequences().trained
    some = some if texts == "all" else study.seen(some, texts)
    others = {
        f"{name} {k}": text
        for name, choosing in (("gene", False), ("choosing", True))
        for k, text in enumerate(genes_of(choosing))
    } | study.chains()
    found = (
        list(answer(some, [*others.values()], keep)) for answer in (study.looked_up, study.by_genes)
    )
    for name, curve, places in zip(others, *found, strict=True):
        ahead = places.tolist() if texts == "all" and name in study.scored() else ""
        yield dict(
            texts=texts,
            keep=keep,
            name=name,
            tokens=len(places),
            **dict(zip(COLUMNS, curve.tolist(), strict=True)),
            places=ahead,
        )


def trained(seed):
    """The network after `repair` by uniform sizes."""
    lm = study.load_network().lm
    study.fine_tune(lm, study.load_sequences().trained, "uniform sizes", seed=seed)
    return lm


def after(seed):
    """The lines of one seed."""
    lm = trained(seed)
    for name, text in study.scored().items():
        line = dict(
            seed=seed,
            name=name,
            tokens=len(lm.encode(text)),
            left_to_right=along(lm, text).sum().item(),
        )
        if name in study.chains():
            fields, curve = areas_of(lm, text)
            line |= fields | {"at 1": float(curve.mean[-1])}
        yield line


def guesses(gene):
    """The lines of a gene under the network before and after its repair."""
    lms, ids = {"before": network(), "after": trained(0)}, network().encode(gene)
    words = network().tokenizer.convert_ids_to_tokens(range(network().vocab_size))
    order = random_orders(len(ids), 1, generator=seeded(13))[0]
    for size in [round(rate * len(ids)) for rate in SHOWN_RATES]:
        hidden = order[:size].sort().values
        observed = torch.ones(len(ids), dtype=torch.bool).index_fill(0, hidden, False)
        for name, lm in lms.items():
            with torch.no_grad():
                answers = lm.at_length(len(ids)).vocabulary_log_prob(ids[None], observed[None])[0]
            for place, word, answer in zip(hidden, ids[hidden], answers[hidden], strict=True):
                best = answer.topk(3)
                yield dict(
                    network=name,
                    hidden=size,
                    place=int(place) + 1,
                    residue=words[word],
                    guesses=[words[w] for w in best.indices],
                    chances=best.values.exp().tolist(),
                    score=answer[word].item(),
                )


@torch.no_grad()
def masks(residues):
    """The lines of a short text."""
    lm, hidden = network(), every_mask(len(residues))
    ids = lm.encode(study.spaced(residues))
    answers = lm.at_length(len(ids)).conditional_log_prob(ids, ~hidden)
    for number in range(1, len(hidden)):
        scores = answers[number, hidden[number]].tolist()
        yield dict(residues=residues, mask=number, scores=scores)


TABLES = {
    f"real_network_{name}": Table(*parts)
    for name, parts in {
        "repair": (repair, lambda: [(scheme, seed) for scheme in study.SCHEMES for seed in SEEDS]),
        "rates": (
            partial(repair, choosing=True),
            lambda: [
                (scheme, SEED_OF_RATES, rate) for scheme in study.SCHEMES for rate in LEARNING_RATES
            ],
        ),
        "longer": (repair, longer),
        "control": (
            repair,
            lambda: [("fixed 15%", seed, study.LEARNING_RATE, EQUAL_STEPS) for seed in SEEDS],
        ),
        "scratch": (
            partial(repair, scratch=True),
            lambda: [
                ("uniform sizes", seed, 10 * study.LEARNING_RATE, 4 * study.NUM_STEPS)
                for seed in SEEDS
            ],
        ),
        "scores": (sequence_line, lambda: [(name,) for name in study.scored()]),
        "ahead": (ahead, lambda: [(name,) for name in study.scored()]),
        "lookup": (lookup, lambda: [(texts, keep) for texts in ("all", *SEEDS) for keep in KEEPS]),
        "after": (after, lambda: [(seed,) for seed in SEEDS]),
        "masks": (masks, lambda: [(study.EIGHT,)]),
        "guesses": (guesses, lambda: [(study.load_sequences().tested[0],)]),
    }.items()
}


if __name__ == "__main__":
    results.main(TABLES)
