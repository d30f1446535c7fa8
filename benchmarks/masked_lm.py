"""Pseudo-log-likelihoods of texts with a random BERT-base: python -m benchmarks masked_lm [texts [layers]]

The plain loop makes one masked copy per forward pass, with all positions through the vocabulary head. minicons is
compared where it is installed; it is wanted for this page alone: pip install "minicons==0.3.39"
"""

from functools import partial

import torch
from transformers import BertConfig

from mptlml.data.text import load_bert_tokenizer, load_glue
from mptlml.models.masked_lm import MaskedLM

from .measure import compare

try:
    from minicons import scorer
except ImportError:
    scorer = None

NUM_TOKENS = 126  # own tokens of a text, nearly: encoding may cut it elsewhere; two special ones make 128


@torch.no_grad()
def plain_loop(lm, texts):
    totals = []
    for text in texts:
        ids = lm.tokenizer(text, return_tensors="pt").input_ids
        total = 0.0
        for place in range(1, ids.shape[1] - 1):
            shown = ids.clone()
            shown[0, place] = lm.tokenizer.mask_token_id
            total += lm.model(shown).logits[0, place].log_softmax(-1)[ids[0, place]].item()
        totals.append(total)
    return totals


def minicons(lm, texts):
    type(lm.tokenizer).batch_encode_plus = type(lm.tokenizer).__call__  # a name of transformers 4 that it still uses
    peer = scorer.MaskedLMScorer(lm.model, "cpu", tokenizer=lm.tokenizer)
    return peer.sequence_score(texts, reduction=lambda scores: scores.sum().item(), PLL_metric="original")


WAYS = {"mptlml": MaskedLM.pseudo_log_likelihood, "plain loop": plain_loop, "minicons": minicons}


def prepare(way, count, layers):
    lm = MaskedLM.random(BertConfig(num_hidden_layers=layers), load_bert_tokenizer().tokenizer, seed=1)
    rows = lm.blocks(load_glue("mrpc").texts, NUM_TOKENS, count).rows
    return partial(WAYS[way], lm, [lm.tokenizer.decode(ids) for ids in rows])


def main(count="1", layers="12"):
    ways = [way for way in WAYS if way != "minicons" or scorer]
    print(f"{count} text(s) of about {NUM_TOKENS} tokens and two special ones, BERT-base of {layers} layers, float32")
    compare(prepare, ways, int(count), int(layers), unit="text", tolerance=1e-2, repeats=1)
