"""Models whose answer is written down, in place of models that compute one; a tiny network in a folder."""

import torch

from mptlml import MaskedLM
from mptlml_book.data.text import make_tokenizer


class Says:
    """A model that answers `say(x, observed)` where a token is masked; it keeps the masks."""

    def __init__(self, num_tokens, say):
        self.num_tokens, self.say, self.asked = num_tokens, say, []

    def conditional_log_prob(self, x, observed):
        self.asked.append(observed.expand(torch.broadcast_shapes(x.shape, observed.shape)))
        return torch.where(observed, 0.0, self.say(x, observed))


def one_nat_each(num_tokens):
    """Every masked token costs 1 nat, whatever stands elsewhere."""
    return Says(num_tokens, lambda x, observed: -torch.ones_like(x))


def saved_network(folder, text):
    """A tiny random masked language model of the words of a text, saved in a folder and returned."""
    lm = random_network(make_tokenizer([text] * 9, 60))
    for part in (lm.model, lm.tokenizer):
        part.save_pretrained(folder)
    return lm


def random_network(tokenizer, **options):
    """A tiny random masked language model for a tokenizer."""
    from transformers import BertConfig

    config = BertConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return MaskedLM.random(config, tokenizer, seed=2, **options)
