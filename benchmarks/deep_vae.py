"""The long runs behind Chapter 9: python -m benchmarks deep_vae

Trains each scheme of `mptlml_book.studies.deep_vae` as PLAN says and writes book/data/deep_vae.csv, one line per
network and step: the objective (mean of the 50 steps before; at step 0, of the first 25), the estimated log marginal
likelihood of the same 100 training and 100 held-out images in nats per image, the share of these images whose effective
sample size is below 10, the CPU seconds of the training so far, and, where the long runs on DETAILED end, the estimate
of each of the 200 images. All of it takes about forty minutes of one core.
"""

import copy
import math
import time

import numpy as np
import torch

from mptlml_book.studies.deep_vae import LONG_RUN, SCORED, SHORT_RUN, VARIANTS, WEIGHTED, images, mean_lml, train

from .results import write_results

SEEDS, DETAILED = (11, 12, 13), "mnist"
BOTH, LONG = ("elbo", "recursion"), (0, 300, 600, 1200, 1800, 2400, LONG_RUN)
PLAN = (  # data, noise held (None: learned), the steps that make a line, the last one ending the run, schemes
    ("mnist", None, LONG, BOTH),
    ("fashion-mnist", None, LONG, BOTH),
    ("mnist", 1.0, (600,), BOTH + tuple(WEIGHTED)),
    ("mnist", None, (SHORT_RUN,), BOTH + tuple(VARIANTS)),
)
FIELDS = ("data", "noise", "scheme", "num_steps", "seed", "step", "objective", "train", "held_out", "low", "seconds",
          "images")


def lines(data, noise, steps, scheme, seed):
    """The lines of one training, one for each of the steps."""
    rows, held_out, _ = images(data)
    began = time.process_time()
    track = {"network": lambda vae: (copy.deepcopy(vae), time.process_time() - began)}
    _, history = train(scheme, rows, seed=seed, num_steps=steps[-1], noise=noise, track=track,
                       track_every=math.gcd(*steps))
    about = data, "learned" if noise is None else noise, scheme, steps[-1], seed
    for step, (vae, seconds) in zip(history.at, history.tracked["network"], strict=True):
        if step in steps:
            window = history.objective[:25] if step == 0 else history.objective[max(0, step - 50):step]
            (train_score, first), (held_score, second) = (mean_lml(vae, x[:SCORED]) for x in (rows, held_out))
            low = (torch.cat([first, second]) < 10).double().mean()
            each = torch.cat([train_score, held_score]) if data == DETAILED and step == LONG_RUN else []
            yield (*about, step, f"{np.mean(window):.4f}", f"{train_score.mean():.3f}", f"{held_score.mean():.3f}",
                   f"{low:.3f}", f"{seconds:.0f}", " ".join(f"{value:.1f}" for value in each))


def main():
    units = [(data, noise, steps, scheme, seed)
             for data, noise, steps, schemes in PLAN for seed in SEEDS for scheme in schemes]
    read = [part for data in ("mnist", "fashion-mnist") for part in images(data)[2]]
    write_results("deep_vae", "deep_vae", FIELDS, lines, units, read)
