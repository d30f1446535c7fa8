"""Probabilistic PCA: time per mask and peak memory beside the direct method, and how the time grows.

The column "arithmetic" is the time of the same matrix products, roots and inverses, done bare in the same run: what
stands above it is for drawing masks, masking, sums and logarithms.
"""

import json
import subprocess
import sys

import numpy as np
import torch

from mptlml import mean_score, summarise

from .direct import direct_scores
from .measure import arithmetic, covariance_of, direct, draw_masks, make_case, ours, peak_bytes, seconds_a_mask

# (N, D, K), masks per size for ours, masks in all for the direct method
CASES = [
    ((100, 50, 2), 100, 200),
    ((2000, 10, 2), 1000, 200),
    ((1000, 200, 50), 3, 40),
    ((100, 512, 2), 3, 40),
]
METHODS = {"ours": ours, "direct": direct, "arithmetic": arithmetic}
BASE = dict(N=400, D=64, K=4, P=40)  # where growth is measured, one number moved at a time
GROWTH = {"N": (100, 800, 6400, 51_200), "D": (32, 64, 128, 256), "K": (2, 4, 8, 16, 32), "P": (10, 40, 160, 640)}


def measure_alone(number, name):
    """In a process of its own: {"seconds": per mask, "bytes": at the peak} of one method on one case."""
    done = subprocess.run([sys.executable, "-m", "benchmarks", "gaussian", str(number), name],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def alone(number, name):
    shape, *counts = CASES[number]
    count = counts[name == "direct"]
    METHODS[name](*make_case(5, 4, 2), 1)  # load every library first: they are not the method's memory
    model, x = make_case(*shape)
    peak = peak_bytes(lambda: METHODS[name](model, x, count))
    print(json.dumps({"seconds": seconds_a_mask(METHODS[name], model, x, count), "bytes": peak}))


def difference(shape):
    """The largest difference of the two methods' scores over some masks, nats per token."""
    model, x = make_case(*shape)
    masks = draw_masks(model.num_tokens, 20)
    scores = mean_score(model, summarise(model, x), masks)
    return (scores - direct_scores(x, model.mean, covariance_of(model), masks)).abs().max().item()


def compare():
    print("One mask, all rows: microseconds of processor time, and megabytes at the peak of the whole run\n")
    print(f"{'N':>5} {'D':>4} {'K':>3} {'direct us':>10} {'ours us':>9} {'times':>6} {'arithmetic us':>14} "
          f"{'direct MB':>10} {'ours MB':>8} {'largest difference':>19}")
    for number, (shape, *_) in enumerate(CASES):
        by_name = {name: measure_alone(number, name) for name in METHODS}
        one, other, bare = (by_name[name]["seconds"] for name in ("direct", "ours", "arithmetic"))
        mine, theirs = (by_name[name]["bytes"] for name in ("direct", "ours"))
        print(f"{shape[0]:5d} {shape[1]:4d} {shape[2]:3d} {one * 1e6:10.1f} {other * 1e6:9.2f} {one / other:5.0f}x "
              f"{bare * 1e6:14.2f} {mine / 2**20:10.1f} {theirs / 2**20:8.1f} {difference(shape):19.1e}", flush=True)


def grow():
    print("\nGrowth of the microseconds per mask, one number moved at a time from "
          + ", ".join(f"{name} = {value}" for name, value in BASE.items()) + " masks per size\n")
    for name, values in GROWTH.items():
        times = {title: [time_at({**BASE, name: value}, title) for value in values] for title in ("direct", "ours")}
        print(f"{name:>6} " + "".join(f"{value:>10}" for value in values) + "   grows as")
        for title, row in times.items():
            slope = np.polyfit(np.log(values), np.log(row), 1)[0]  # the slope on log-log paper
            print(f"{title:>6} " + "".join(f"{time:10.2f}" for time in row) + f"   {name}^{slope:.2f}")
        ratios = [one / other for one, other in zip(*times.values(), strict=True)]
        print(f"{'times':>6} " + "".join(f"{ratio:9.0f}x" for ratio in ratios) + "\n", flush=True)
        if name == "N":
            cells = "".join(f"{reading_time(value):10.2f}" for value in values)
            print(f"of ours, reading the rows once for all {BASE['D'] * BASE['P']} masks:\n{'':>6} {cells}\n")


def reading_time(num_rows):
    """Microseconds of `summarise` per mask: all of ours that depends on N."""
    def read(model, x, count):
        summarise(model, x)
        return count

    model, x = make_case(num_rows, BASE["D"], BASE["K"])
    return 1e6 * seconds_a_mask(read, model, x, BASE["D"] * BASE["P"], repeats=3)


def time_at(sizes, title):
    """Microseconds per mask; those of the direct method do not depend on P, so it gets P masks in all."""
    model, x = make_case(sizes["N"], sizes["D"], sizes["K"])
    return 1e6 * seconds_a_mask(METHODS[title], model, x, sizes["P"], repeats=3)


def main(*words):
    """Both tables; or, for a case's number and a method's name, that measurement alone."""
    torch.set_num_threads(1)
    if words:
        alone(int(words[0]), words[1])
    else:
        compare()
        grow()
