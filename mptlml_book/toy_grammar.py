"""The toy grammar of Chapters 1 and 2, one sentence of it, and all masks of that sentence."""

import torch
from torch import Tensor

from mptlml.models import HiddenMarkovModel

RULES = [  # state, its words, the states that may follow; 1 singular, 2 plural
    ("D1", "the a", "A1 N1"),
    ("A1", "old small grey", "N1"),
    ("N1", "dog cat bird", "V1"),
    ("V1", "chases sees hears", "d1 d2"),
    ("D2", "the some", "A2 N2"),
    ("A2", "old small grey", "N2"),
    ("N2", "dogs cats birds", "V2"),
    ("V2", "chase see hear", "d1 d2"),
    ("d1", "the a", "a1 n1"),
    ("a1", "old small grey", "n1"),
    ("n1", "dog cat bird", "T"),
    ("d2", "the some", "a2 n2"),
    ("a2", "old small grey", "n2"),
    ("n2", "dogs cats birds", "T"),
    ("T", "today again", "D1 D2"),
]
STATES = [state for state, _, _ in RULES]
VOCABULARY = sorted({word for _, words, _ in RULES for word in words.split()})
SENTENCE = "the old dogs chase a small cat today".split()


def grammar() -> HiddenMarkovModel:
    """Sentences in a row, of which eight words are seen."""
    return HiddenMarkovModel(
        _table(["D1 D2"], STATES)[0],  # a row begins with a sentence
        _table([then for _, _, then in RULES], STATES),
        _table([words for _, words, _ in RULES], VOCABULARY),
        num_tokens=len(SENTENCE),
    )


def sentence() -> Tensor:
    """SENTENCE as a row of the grammar [8]."""
    return torch.tensor([VOCABULARY.index(word) for word in SENTENCE]).double()


def every_mask(num_tokens: int) -> Tensor:
    """True where hidden [2^D, D]: bit j of a mask's number says that token j is."""
    return (torch.arange(2**num_tokens)[:, None] >> torch.arange(num_tokens)) % 2 == 1


def _table(chosen: list[str], names: list[str]) -> Tensor:
    """One row of probabilities per rule: its k-th choice has weight 1/k."""
    chances = torch.zeros(len(chosen), len(names), dtype=torch.float64)
    for chance, some in zip(chances, chosen, strict=True):
        for k, name in enumerate(some.split(), start=1):
            chance[names.index(name)] = 1 / k
    return chances / chances.sum(-1, keepdim=True)
