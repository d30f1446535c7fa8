"""The long run behind Chapter 14, some twenty minutes of one core.

Trains networks of `mptlml_book.studies.known_language` by four schemes for an eighth and for a half of
Chapter 11's steps, with the rates of that chapter, and two controls: random weights, and training on shuffled
words. A line for each network: what it is, what can be known of it before it is used, how far it is above the
least loss in every task and domain (`mptlml_book.studies.after_training` says what each is, in nats per
sentence).

Training on shuffled words magnifies rounding: first weights that differ by 1e-7 of their size, or a
processor that adds in another order, change what such a network fills and writes by some tenths of a nat
per sentence. Networks of the other kinds come back to four digits.
"""

from torch import Generator

from mptlml.models import MaskedTransformer
from mptlml_book.studies.after_training import afterwards, foretellers
from mptlml_book.studies.known_language import NUM_STEPS, WORDS, pretrain

from .known_language import network, seeds, tuned
from .results import Table

KINDS = "uniform sizes", "fixed 40%", "fixed 15%", "15%, 80/10/10"
RANDOM, SHUFFLED = "random weights", "shuffled words"
SHORT, LONG, NUM_SEEDS = NUM_STEPS // 8, NUM_STEPS // 2, 10


def units():
    """(kind, num_steps, seed) of each network, seed by seed, so that what is done first is complete."""
    kinds = [(kind, steps) for steps in (LONG, SHORT) for kind in KINDS] + [(RANDOM, 0), (SHUFFLED, LONG)]
    return [(*kind, seed) for seed in seeds(NUM_SEEDS) for kind in kinds]


def run(kind, num_steps, seed):
    """The one line of a network."""
    scheme = kind if kind in KINDS else "uniform sizes"
    rate = tuned()[scheme]
    options = dict(seed=seed, num_steps=num_steps, learning_rate=rate)
    if kind == RANDOM:
        net = MaskedTransformer(32, len(WORDS), generator=Generator().manual_seed(seed))
    elif kind == SHUFFLED:
        net, _ = pretrain(scheme, shuffle=True, **options)
    else:
        net = network(scheme, **options)
    yield dict(kind=kind, num_steps=num_steps, rate=rate, seed=seed, **foretellers(net, scheme, seed=seed),
               **afterwards(net, seed=seed))


TABLES = {"after_training": Table(run, units)}
