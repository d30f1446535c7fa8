"""The spread over seeds behind Chapter 11: python -m benchmarks known_language

Trains each scheme of `mptlml.studies.known_language.SCHEMES` from SEEDS (the chapter itself uses seed 0) and writes
book/data/known_language.csv, one line for each network: its gap to the expected LML in nats per row with the standard
error, the same for D S(1) and D S(5), and the CPU seconds of its training. Twenty networks take six minutes of a core.
"""

import time

import torch

from mptlml import score_curve
from mptlml.models import Shortfall
from mptlml.studies.known_language import SCHEMES, language, pretrain

from .results import new_results

SEEDS = (1, 2, 3, 4, 5)
NUM_ROWS = 128  # rows scored at every size; eight times as many at the two single sizes
EVALUATION_SEED = 1000
FIELDS = ("scheme", "seed", "gap", "gap_stderr", "gap_size_1", "gap_size_5", "seconds")


def gaps(net):
    """(gap of the area with its standard error, of D S(1), of D S(5)), nats per row, on the same rows for every net."""
    truth, generator = language(), torch.Generator().manual_seed(EVALUATION_SEED)
    x = truth.sample(8 * NUM_ROWS, generator=generator)
    shortfall = Shortfall(net, truth)
    area = score_curve(shortfall, x[:NUM_ROWS], share_masks=False, generator=generator).area(rows="sample")
    ends = score_curve(shortfall, x, [1, 5], share_masks=False, generator=generator).mean * truth.num_tokens
    return area.mean, area.stderr, *ends


def main():
    with new_results("known_language", "known_language", FIELDS) as write:
        for seed in SEEDS:
            for scheme in SCHEMES:
                start = time.process_time()
                net, _ = pretrain(scheme, seed=seed)
                seconds = time.process_time() - start
                write([scheme, seed, *(f"{value:.4f}" for value in gaps(net)), f"{seconds:.0f}"])
                print(f"{scheme}, seed {seed}: {seconds:.0f} s", flush=True)
