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

from .results import write_results

SEEDS = (1, 2, 3, 4, 5)
NUM_ROWS = 128  # rows scored at every size; eight times as many at the two single sizes
FIELDS = ("scheme", "seed", "gap", "gap_stderr", "gap_size_1", "gap_size_5", "seconds")


def line(scheme, seed):
    """The one line of a network; every network is scored on the same rows."""
    began = time.process_time()
    net, _ = pretrain(scheme, seed=seed)
    seconds = time.process_time() - began
    truth, generator = language(), torch.Generator().manual_seed(1000)
    x, shortfall = truth.sample(8 * NUM_ROWS, generator=generator), Shortfall(net, truth)
    area = score_curve(shortfall, x[:NUM_ROWS], share_masks=False, generator=generator).area(rows="sample")
    ends = score_curve(shortfall, x, [1, 5], share_masks=False, generator=generator).mean * truth.num_tokens
    yield scheme, seed, *(f"{gap:.4f}" for gap in (area.mean, area.stderr, *ends)), f"{seconds:.0f}"


def main():
    units = [(scheme, seed) for seed in SEEDS for scheme in SCHEMES]
    write_results("known_language", "known_language", FIELDS, line, units)
