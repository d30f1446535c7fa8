"""The long run behind Chapter 14: python -m benchmarks after_training [SEEDS]

Trains networks of `mptlml_book.studies.known_language` by four schemes for an eighth and for a half of
Chapter 11's steps, with the rates of that chapter, and two controls: random weights, and training on shuffled
words. Writes book/data/after_training.csv, one line for each network: what it is, what can be known of it
before it is used, how far it is above the least loss in every task and domain
(`mptlml_book.studies.after_training` says what each is, in nats per sentence). SEEDS: how many seeds, from
11 on. Networks are kept in _build/after_training, so that a run with more seeds trains the new ones only. A seed
takes about two minutes.
"""

from torch import Generator

from mptlml.models import MaskedTransformer
from mptlml_book.studies.after_training import DOMAINS, LABELLED, TUNING_NUMBERS, afterwards, foretellers
from mptlml_book.studies.known_language import NUM_STEPS, WORDS, pretrain, train_or_load

from .known_language import FIRST_SEED, tuned
from .results import FOLDER, write_results

NETWORKS = FOLDER.parents[1] / "_build" / "after_training"
KINDS = "uniform sizes", "fixed 40%", "fixed 15%", "15%, 80/10/10"
RANDOM, SHUFFLED = "random weights", "shuffled words"
SHORT, LONG, SEEDS = NUM_STEPS // 8, NUM_STEPS // 2, 10
ABOUT = "area gap", "S(1)", "S(5)", "own loss"
TASKS = [f"{task}, {name}" for name in DOMAINS for task in ("fill", "write", *(f"probe {n}" for n in LABELLED),
                                                            *(f"tune {n}" for n in TUNING_NUMBERS if name == "home"))]
FIELDS = ("kind", "num_steps", "rate", "seed", *ABOUT, *TASKS)


def units(num_seeds):
    """(kind, num_steps, seed) of each network, seed by seed, so that what is done first is complete."""
    kinds = [(kind, steps) for steps in (LONG, SHORT) for kind in KINDS] + [(RANDOM, 0), (SHUFFLED, LONG)]
    return [(*kind, seed) for seed in range(FIRST_SEED, FIRST_SEED + num_seeds) for kind in kinds]


def run(kind, num_steps, seed):
    """The one line of a network."""
    rate = tuned("own").get(kind, tuned("own")["uniform sizes"])
    if kind == RANDOM:
        net = MaskedTransformer(32, len(WORDS), generator=Generator().manual_seed(seed))
    elif kind == SHUFFLED:
        net, _ = pretrain("uniform sizes", seed=seed, num_steps=num_steps, learning_rate=rate, shuffle=True)
    else:
        net = train_or_load(NETWORKS, kind, seed=seed, num_steps=num_steps, learning_rate=rate)
    about = foretellers(net, kind if kind in KINDS else "uniform sizes", seed=seed)
    used = afterwards(net, seed=seed)
    values = [f"{about[name]:.4f}" for name in ABOUT] + [f"{used[name]:.5f}" for name in TASKS]
    yield kind, num_steps, rate, seed, *values


def main(num_seeds=SEEDS):
    write_results("after_training", "after_training", FIELDS, run, units(int(num_seeds)))
