"""Masks that several texts share.

A draw is a share t of the tokens and a random key for each token; a text hides the ceil(t D) tokens
with the lowest keys. Seen alone, a text is asked under a random size and random masks of that size,
so D times its score has its area as mean. Tokens that texts have in common share their keys, so
they are hidden together: the difference of two scores has the difference of the areas as mean, and
less noise.
"""

import difflib
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from .. import draws

STRATA = 8  # of the shares of a round


def together(rounds: int, keys: Sequence[Sequence[int]], generator: Generator) -> list[Tensor]:
    """What is seen in some rounds of STRATA shares, of texts whose tokens have these keys: [n, D] each."""
    place = torch.arange(STRATA) + draws.rand((rounds, STRATA), None, generator)
    share = 1 - place.view(-1, 1) / STRATA
    key = draws.rand((len(share), 1 + max(map(max, keys))), None, generator)
    return [key[:, own].argsort(-1).argsort(-1) >= (share * len(own)).ceil() for own in keys]


def shared_keys(first: Sequence[int], other: Sequence[int]) -> list[int]:
    """Which key each token of another text takes, where those of the first take 0, 1, ...

    What they have in common, in order, takes the same, and so do tokens that stand in for each
    other, as many as both have between what is common.
    """
    keys = [*range(len(first), len(first) + len(other))]
    match = difflib.SequenceMatcher(None, first, other, autojunk=False)
    for _, start, stop, begin, end in match.get_opcodes():
        both = min(stop - start, end - begin)
        keys[begin : begin + both] = range(start, start + both)
    return keys
