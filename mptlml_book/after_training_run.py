"""The long run behind Chapter 14, some twenty minutes of one core.

Trains networks of `mptlml_book.known_language` by four schemes for an eighth and for a half
of Chapter 11's steps, with the rates of that chapter, and one control: random weights. A line for
each network: what it is, what can be known of it before it is used, how far it is above the least
loss in every task and domain (`mptlml_book.after_training` says what each is, in nats per
sentence).
"""

from torch import Generator

from . import runs as results
from .after_training import afterwards, foretellers
from .known_language import NUM_STEPS, WORDS
from .known_language_run import network, seeds, tuned
from .runs import Table
from .transformer import MaskedTransformer

KINDS = "uniform sizes", "fixed 40%", "fixed 15%", "15%, 80/10/10"
RANDOM = "random weights"
SHORT, LONG, NUM_SEEDS = NUM_STEPS // 8, NUM_STEPS // 2, 10


def units():
    """(kind, num_steps, seed) of each network, seed by seed, so that what is done first is complete."""
    kinds = [(kind, steps) for steps in (LONG, SHORT) for kind in KINDS] + [(RANDOM, 0)]
    return [(*kind, seed) for seed in seeds(NUM_SEEDS) for kind in kinds]


def run(kind, num_steps, seed):
    """The one line of a network."""
    rate = tuned().get(kind, tuned()[KINDS[0]])
    if kind == RANDOM:
        net = MaskedTransformer(32, len(WORDS), generator=Generator().manual_seed(seed))
    else:
        net = network(kind, seed=seed, num_steps=num_steps, learning_rate=rate)
    yield dict(
        kind=kind,
        num_steps=num_steps,
        rate=rate,
        seed=seed,
        **foretellers(net, seed=seed),
        **afterwards(net, seed=seed),
    )


TABLES = {"after_training": Table(run, units)}


if __name__ == "__main__":
    results.main(TABLES)
