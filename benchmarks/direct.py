"""The direct method: Eq. 7 as it is written, one mask at a time. What one would write first, and with some care."""

import torch
from torch.distributions import Normal


def direct_scores(x, mean, covariance, masks):
    """(1/m) sum_{j in M} log p(x_j | x_R), averaged over rows x [N, D]: nats per token [P], for masks [P, D].

    For each mask: form S_RR, solve, and score every masked token of every row.
    """
    return torch.stack([_score(x, mean, covariance, observed) for observed in masks])


def _score(x, mean, covariance, observed):
    seen, masked = observed.nonzero().squeeze(-1), (~observed).nonzero().squeeze(-1)
    across = covariance[seen][:, masked]  # S_RM
    solved = torch.linalg.solve(covariance[seen][:, seen], across)  # S_RR^-1 S_RM
    conditional_mean = mean[masked] + (x[:, seen] - mean[seen]) @ solved  # [N, M]
    variance = covariance.diagonal()[masked] - (across * solved).sum(0)
    return Normal(conditional_mean, variance.sqrt()).log_prob(x[:, masked]).mean()
