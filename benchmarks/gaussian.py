"""Probabilistic PCA: time per mask and peak memory, beside the direct method and beside the bare arithmetic.

"arithmetic" does the same matrix products, roots and inverses and nothing else, so it has no answer to compare: what
stands above it is for masking, sums and logarithms.
"""

from functools import partial

import torch
from torch.distributions import Normal

from mptlml import mean_score, random_masks
from mptlml.models import PPCA
from mptlml.models.ppca import BLOCK

from .measure import compare

CASES = [(100, 50, 2, 5000), (2000, 10, 2, 10_000), (1000, 200, 50, 600), (100, 512, 2, 1500)]  # N, D, K, masks


def direct(model, x, masks):
    """Eq. 7 as written, for the first 100 masks: form S_RR, solve, and score every masked token of every row."""
    eye = torch.eye(model.num_tokens, dtype=x.dtype)
    covariance = model.weight @ model.weight.T + model.noise_variance * eye
    scores = []
    for observed in masks[:100]:
        seen, masked = observed.nonzero().squeeze(-1), (~observed).nonzero().squeeze(-1)
        across = covariance[seen][:, masked]  # S_RM
        solved = torch.linalg.solve(covariance[seen][:, seen], across)  # S_RR^-1 S_RM
        mean = model.mean[masked] + (x[:, seen] - model.mean[seen]) @ solved  # [N, M]
        variance = covariance.diagonal()[masked] - (across * solved).sum(0)
        scores.append(Normal(mean, variance.sqrt()).log_prob(x[:, masked]).mean())
    return torch.stack(scores)


def arithmetic(model, x, masks):
    """The products, roots and inverses of `mean_score`, in blocks of the same size."""
    wt, moment = model.weight.T.contiguous(), model.summarise(x).about(model.mean)
    outer = (model.weight[:, :, None] * model.weight[:, None, :]).flatten(1)
    noise = model.noise_variance * torch.eye(len(wt), dtype=wt.dtype)
    for seen in masks.to(wt).split(max(1, BLOCK // wt.numel())):
        cut = seen[:, None] * wt  # W_R^T [P, K, D]
        gram = (seen @ outer).view(-1, *noise.shape)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(gram + noise)[0])
        inverse @ wt, moment.times(cut) @ cut.mT @ inverse @ wt
    return torch.full((len(masks),), torch.nan)


WAYS = {"mptlml": mean_score, "direct": direct, "arithmetic": arithmetic}


def prepare(way, num_rows, num_tokens, num_latents, num_masks):
    """The work of one way: a random model, rows drawn from it, masks of random sizes, float64."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_tokens, num_latents, generator=generator, dtype=torch.float64)
    model = PPCA(weight, noise_variance=0.2)
    x = model.sample(num_rows, generator=generator)
    sizes = torch.randint(1, num_tokens + 1, (num_masks,), generator=generator)
    masks = random_masks(num_tokens, sizes, generator=generator)
    WAYS[way](model, x[:1], masks[:1])  # load every library first: they are not the method's memory
    return partial(WAYS[way], model, x, masks)


def main():
    for case in CASES:
        print("\nN = {}, D = {}, K = {}".format(*case))
        compare(prepare, WAYS, *case, unit="mask", tolerance=1e-10)
