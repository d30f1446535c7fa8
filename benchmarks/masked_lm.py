"""Pseudo-log-likelihoods of texts under a BERT: python -m benchmarks masked_lm [texts [layers [folder]]]

Nats per token. The network is random, of BERT-base's width, or that of a folder. The plain loop makes one masked copy
per forward pass, with all positions through the vocabulary head. minicons is compared where it is installed, with one
text and with four in a call; it is wanted for this page alone: pip install "minicons==0.3.39"

Then the bookkeeping alone: texts of 500 tokens, under a network that answers nothing.
"""

from functools import partial

import torch
from transformers import BertConfig

from mptlml.data.text import load_bert_tokenizer, load_glue, make_tokenizer
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
    return torch.tensor(totals)


def minicons(lm, texts, at_once=1):
    type(lm.tokenizer).batch_encode_plus = type(lm.tokenizer).__call__  # a name of transformers 4 that it still uses
    peer, totals = scorer.MaskedLMScorer(lm.model, "cpu", tokenizer=lm.tokenizer), []
    for k in range(0, len(texts), at_once):
        totals += peer.sequence_score(texts[k: k + at_once], reduction=lambda scores: scores.sum().item(),
                                      PLL_metric="original")
    return torch.tensor(totals)


WAYS = {"mptlml": MaskedLM.pseudo_log_likelihood, "plain loop": plain_loop, "minicons": minicons,
        "minicons, four at once": partial(minicons, at_once=4)}


def prepare(way, count, layers, folder):
    if folder:
        lm, texts = MaskedLM.from_pretrained(folder), load_lines(folder, count)
    else:
        lm = MaskedLM.random(BertConfig(num_hidden_layers=layers), load_bert_tokenizer().tokenizer, seed=1)
        rows = lm.blocks(load_glue("mrpc").texts, NUM_TOKENS, count).rows
        texts = [lm.tokenizer.decode(ids) for ids in rows]
    lengths = torch.tensor([len(lm.encode(text)) for text in texts])
    return lambda: WAYS[way](lm, texts) / lengths


def load_lines(folder, count):
    with open(f"{folder}/texts.txt", encoding="utf-8") as file:
        return file.read().splitlines()[:count]


def bookkeeping(way, count):
    tokenizer = make_tokenizer(["the cat sat on the mat"] * 9, 60)
    config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, hidden_size=8,
                        num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    lm = MaskedLM.random(config, tokenizer, seed=0, batch_tokens=2**14)
    lm._logits = lambda given, seen, where: torch.zeros(int(where.sum()), len(tokenizer))
    return partial(lm.pseudo_log_likelihood, ["cat " * 500] * int(way.split()[0]))


def main(count="1", layers="12", folder=""):
    ways = [way for way in WAYS if scorer or "minicons" not in way]
    network = folder or f"BERT-base of {layers} layers"
    print(f"{count} text(s), of about {NUM_TOKENS} tokens and two special ones if random; {network}, float32")
    compare(prepare, ways, int(count), int(layers), folder, unit="text", tolerance=1e-5, repeats=1)
    print("\nBookkeeping: texts of 500 tokens")
    compare(bookkeeping, ["600 texts", "300 texts", "150 texts"], 0, unit="text", tolerance=1e9, repeats=1)
