"""What a piece of work takes: processor time on one thread, and memory at its peak, in a process of its own.

Time is the best of a few runs: it hardly minds what else the machine is doing. Memory is that of the whole process, as
the kernel counts it (Linux), above what it held before the first run: torch's tensors, LAPACK's workspace and the
allocator's own reserve are all in it. tracemalloc would see none of them.
"""

import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch


def compare(prepare, ways, *words, unit, tolerance, repeats=5):
    """Prints time per answer, memory at the peak and agreement of `prepare(way, *words)()` for each of the ways.

    Answers are a list or tensor, one entry for each `unit`; the first way is the measure of the others, which may give
    fewer. Exits with a message where one differs by more than `tolerance`; NaN is no answer, so it never differs.
    """
    print(f"{'':28}{'ms per ' + unit:>14}{'times':>8}{'MB at peak':>12}{'largest difference':>20}")
    truth = None
    for way in ways:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            seconds, megabytes, answers = process.submit(measure, prepare, way, words, repeats).result()
        seconds, answers = seconds / len(answers), torch.tensor(answers, dtype=torch.float64)
        if truth is None:
            first, truth = seconds, answers
        gap = (answers - truth[:len(answers)]).abs().max().item()
        print(f"{way:28}{1e3 * seconds:14.5f}{seconds / first:8.1f}{megabytes:12.1f}{gap:20.1e}", flush=True)
        if gap > tolerance:
            sys.exit(f"{way} differs by {gap:.3g}: more than rounding explains ({tolerance:g})")


def measure(prepare, way, words, repeats):
    """(seconds, megabytes, answers) of `prepare(way, *words)()`; what `prepare` does is not counted."""
    torch.set_num_threads(1)
    work = prepare(way, *words)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, runs = status("VmRSS"), []
    for _ in range(repeats):
        began = time.process_time()
        answers = work()
        runs.append((time.process_time() - began, status("VmHWM") - before))
    return min(runs)[0], runs[0][1], torch.as_tensor(answers, dtype=torch.float64).tolist()


def status(field):
    """A field of this process's status, in megabytes."""
    return int(re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
