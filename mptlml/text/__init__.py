"""Masked language models of others: read as conditional models, their curves over text, and scores of a corpus."""

from .masked_lm import MaskedLM

__all__ = ["MaskedLM"]
