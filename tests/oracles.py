"""Answers worked out another way: enumeration, loops, scipy and exact fractions, without mptlml.

Tokens are lists of indices, rows numpy vectors, a model is its mean and covariance, or its table.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy import stats


def subsets(num_tokens, size):
    """Every set of `size` tokens, as lists."""
    return [list(chosen) for chosen in itertools.combinations(range(num_tokens), size)]


def rest(num_tokens, masked):
    """The tokens outside `masked`."""
    return [token for token in range(num_tokens) if token not in set(masked)]


def ppca_covariance(weight, noise_variance):
    """S = W W^T + sigma^2 I (Eq. 6)."""
    return weight @ weight.T + noise_variance * np.eye(len(weight))


def gaussian_marginal(mean, covariance, row, tokens):
    """log N(x_tokens) in nats by scipy; 0 for no tokens."""
    if not tokens:
        return 0.0
    marginal = stats.multivariate_normal(mean[tokens], covariance[np.ix_(tokens, tokens)])
    return float(marginal.logpdf(row[tokens]))


def schur(mean, covariance, row, masked):
    """Mean and variance of masked tokens by Schur complements, one observed token at a time, in fractions.

    Seeing token r takes S_ir S_rj / S_rr from each S_ij: Eq. 7 with the minus sign, |R| = 1, again and again.
    """
    exact = np.vectorize(Fraction, otypes=[object])
    mean, covariance, row = exact(mean), exact(covariance), exact(row)
    for seen in rest(len(mean), masked):
        gain = covariance[:, seen] / covariance[seen, seen]
        mean = mean + gain * (row[seen] - mean[seen])
        covariance = covariance - np.outer(gain, covariance[seen])
    return mean[masked].astype(float), covariance.diagonal()[masked].astype(float)


def bernoulli_table(weights, probs):
    """{outcome: probability} of a Bernoulli mixture over all 2^D outcomes."""
    return {
        outcome: sum(
            weight
            * math.prod(p if bit else 1 - p for bit, p in zip(outcome, component, strict=True))
            for weight, component in zip(weights, probs, strict=True)
        )
        for outcome in itertools.product((0, 1), repeat=len(probs[0]))
    }


def sequence_table(initial, transition, emission, num_tokens):
    """{sequence: probability} of a hidden Markov model, summed over every path of states."""
    states, words = range(len(initial)), range(emission.shape[1])
    paths = {
        path: initial[path[0]] * math.prod(transition[step] for step in itertools.pairwise(path))
        for path in itertools.product(states, repeat=num_tokens)
    }
    return {
        sequence: sum(
            p * math.prod(emission[z, v] for z, v in zip(path, sequence, strict=True))
            for path, p in paths.items()
        )
        for sequence in itertools.product(words, repeat=num_tokens)
    }


def table_marginal(table, row, tokens):
    """log p(x_tokens) in nats, summed from a table of outcomes."""
    return math.log(
        sum(p for outcome, p in table.items() if all(outcome[t] == row[t] for t in tokens))
    )


def score(conditional, num_tokens, size):
    """S(x; m) straight from Proposition 1: the mean over all masks of the mean over masked tokens.

    conditional(j, R) -> log p(x_j | x_R).
    """
    masks = subsets(num_tokens, size)
    return sum(
        sum(conditional(token, rest(num_tokens, masked)) for token in masked) / size
        for masked in masks
    ) / len(masks)
