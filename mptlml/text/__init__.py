"""Masked language models of others as conditional models: curves over text, scores of a corpus, pairs."""

from .logits import FromLogits
from .masked_lm import MaskedLM
from .pairs import choose, compare, single_mutants

__all__ = ["FromLogits", "MaskedLM", "choose", "compare", "single_mutants"]
