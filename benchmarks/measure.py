"""Time per mask and peak memory of one method on one case.

Time is processor time on one thread, the best of a few runs: it hardly minds what else the machine is doing. Memory is
that of the whole process: each measurement has a process to itself, which notes what it holds before the run (Python,
torch, the rows), lets the kernel forget its earlier peak, runs once, and reads the new one. So torch's tensors,
LAPACK's workspace and the allocator's own reserve are all in it, to about a megabyte; tracemalloc would see none of
them.
"""

import re
import resource
import sys
import time
from pathlib import Path

import torch

from mptlml import random_masks, score_curve
from mptlml.models import PPCA
from mptlml.models.ppca import BLOCK

from .direct import direct_scores

NOISE_VARIANCE = 0.2


def make_case(num_rows, num_tokens, num_latents):
    """(model, rows [N, D]): a random PPCA and rows drawn from it, float64."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_tokens, num_latents, generator=generator, dtype=torch.float64)
    model = PPCA(weight, NOISE_VARIANCE)
    return model, model.sample(num_rows, generator=generator)


def covariance_of(model):
    """S = W W^T + sigma^2 I [D, D]: what the direct method works on."""
    eye = torch.eye(model.num_tokens, dtype=model.weight.dtype)
    return model.weight @ model.weight.T + model.noise_variance * eye


def draw_masks(num_tokens, count):
    """Masks [count, D] of sizes spread evenly over 1..D."""
    sizes = torch.linspace(1, num_tokens, count).round().long()
    return random_masks(num_tokens, sizes, generator=torch.Generator().manual_seed(1))


def ours(model, x, num_masks):
    """The whole curve as a chapter draws it, `num_masks` masks per size; returns the number of masks."""
    score_curve(model, x, num_masks=num_masks, generator=torch.Generator().manual_seed(1))
    return num_masks * model.num_tokens


def direct(model, x, num_masks):
    """As many masks in all as `num_masks` says, by the direct method; returns that number."""
    direct_scores(x, model.mean, covariance_of(model), draw_masks(model.num_tokens, num_masks))
    return num_masks


def arithmetic(model, x, num_masks):
    """The matrix products, roots and inverses of `ours` and nothing else, on one block of masks again and again."""
    wt, moment = model.weight.T.contiguous(), model.summarise(x).about(model.mean)
    outer = (model.weight[:, :, None] * model.weight[:, None, :]).flatten(1)
    seen = draw_masks(model.num_tokens, max(1, BLOCK // wt.numel())).to(wt)
    cut = seen[:, None] * wt  # W_R^T [P, K, D]
    noise = model.noise_variance * torch.eye(len(wt), dtype=wt.dtype)
    times = max(1, num_masks * model.num_tokens // len(seen))
    for _ in range(times):
        gram = (seen @ outer).view(-1, *noise.shape)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(gram + noise)[0])
        inverse @ wt, moment.times(cut) @ cut.mT @ inverse @ wt
    return times * len(seen)


def seconds_a_mask(method, model, x, num_masks, repeats=5):
    """Processor seconds per mask, the best of `repeats` runs, everything included: drawing masks, summarising rows."""
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        count = method(model, x, num_masks)
        best = min(best, (time.process_time() - began) / count)
    return best


def peak_bytes(work):
    """How far the process's memory rises above where it stood, while `work()` runs."""
    if sys.platform != "linux":  # no way to forget an earlier peak: a lower bound
        before = _maximum()
        work()
        return _maximum() - before
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    work()
    return max(0, _status("VmHWM") - before)


def _status(field):
    """A field of this process's status, in bytes."""
    return int(re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def _maximum():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
