"""A tool for masked language models of others: scores of a corpus, pairs that are compared, the command `mptlml`."""

from .logits import FromLogits
from .pairs import choose, compare, single_mutants

__all__ = ["FromLogits", "choose", "compare", "single_mutants"]
