"""Pseudo-log-likelihoods of texts under a BERT: python -m benchmarks masked_lm [texts [network]]

Nats per token. The network is "small", Chapter 10's of two layers of 64, hardly trained; "antiberty", Chapter 13's; a
random one of BERT-base's width with that number of layers; or that of a folder with a file texts.txt. The plain loop
makes one masked copy per forward pass, with all positions through the vocabulary head. minicons is compared where it
can be imported, with one text and with four in a call; it is wanted here alone: pip install "minicons==0.3.39".

Then the bookkeeping alone: texts of 500 tokens, under a network that answers nothing.

python -m benchmarks masked_lm 100 small, x86-64, torch 2.15, one thread, on a machine that others used: 30 ms of
processor time per text, plain loop 144, less than 1 MB each; minicons 26 ms and 32 MB; largest difference 7e-7.

python -m benchmarks masked_lm 4 antiberty, same machine, busier: 9.7 s of processor time per text and 40 MB, plain loop
10.2 s and less than 1 MB, minicons 8.8 s and 338 MB, four at once 11.0 s and 823 MB; largest difference 3e-8. The times
are equal but for the noise, as four fifths are arithmetic: the matrix products alone of 10,000 tokens, one text with 98
masks of 100, take 7.7 to 8.0 s (64 GFLOPS), in turns with 9.8 s for all of it. So no order of passes can halve the time
in float32 on a processor like this. Of the rest, 0.9 s are page faults (none, and 8.3 s in all, with
MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ of a gigabyte or two). Within the noise: batch_tokens from 256 to
16384 (8.0 to 10.2 s), eager attention, no attention mask, inference_mode, and GELU by tanh, which is not exact.
bfloat16 takes 59 s where the processor has no such arithmetic. In the last layer, only the places asked need queries
and what follows attention, a tenth of all products here; transformers has no way to say so.
"""

from functools import partial
from pathlib import Path

import torch
from transformers import BertConfig

from mptlml.data.text import load_bert_tokenizer, load_glue, make_tokenizer
from mptlml.models.masked_lm import MaskedLM
from mptlml.studies import real_network

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


def prepare(way, count, network):
    lm, texts = load(network, count)
    lengths = torch.tensor([len(lm.encode(text)) for text in texts])
    return lambda: WAYS[way](lm, texts) / lengths


def load(network, count):
    """The network and `count` texts, as the first lines of this file say."""
    if network == "small":
        lm, known = real_network.small_network(num_steps=1), load_glue("cola").texts
        return lm, [text for text in known if 20 < len(text) < 100][:count]
    if network == "antiberty":
        return real_network.load_network().lm, real_network.spread_out(real_network.load_sequences().tested, count)
    if network.isdigit():
        lm = MaskedLM.random(BertConfig(num_hidden_layers=int(network)), load_bert_tokenizer().tokenizer, seed=1)
        return lm, [lm.tokenizer.decode(ids) for ids in lm.blocks(load_glue("mrpc").texts, NUM_TOKENS, count).rows]
    texts = Path(network, "texts.txt").read_text(encoding="utf-8").splitlines()
    return MaskedLM.from_pretrained(network), texts[:count]


def bookkeeping(way, count):
    tokenizer = make_tokenizer(["the cat sat on the mat"] * 9, 60)
    config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, hidden_size=8,
                        num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    lm = MaskedLM.random(config, tokenizer, seed=0, batch_tokens=2**14)
    lm._logits = lambda given, seen, where: torch.zeros(int(where.sum()), len(tokenizer))
    return partial(lm.pseudo_log_likelihood, ["cat " * 500] * int(way.split()[0]))


def main(count="100", network="small"):
    ways = [way for way in WAYS if scorer or "minicons" not in way]
    print(f"{count} text(s), network {network}, float32")
    compare(prepare, ways, int(count), network, unit="text", tolerance=1e-5, repeats=1)
    print("\nBookkeeping: texts of 500 tokens")
    compare(bookkeeping, ["600 texts", "300 texts", "150 texts"], 0, unit="text", tolerance=1e9, repeats=1)
