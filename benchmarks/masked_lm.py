"""Pseudo-log-likelihoods of 128-token texts with a random BERT-base: ours, a plain loop, and minicons where installed.

    python -m benchmarks masked_lm [texts [layers]]

Each runs in a process of its own: seconds of CPU, text tokens scored per second, and the peak of memory above that of
the loaded model (Linux). The loop makes one masked copy per forward pass, with all positions through the vocabulary
head. All must agree to float32 precision. minicons is wanted for this page alone: pip install "minicons==0.3.39"
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import torch

from mptlml.data.text import load_bert_tokenizer, load_glue
from mptlml.models.masked_lm import MaskedLM

NUM_TOKENS = 126  # own tokens of a text; two special ones make 128


def build(layers):
    from transformers import BertConfig

    return MaskedLM.random(BertConfig(num_hidden_layers=layers), load_bert_tokenizer().tokenizer, seed=1)


def make_texts(lm, count):
    """Texts whose tokens are exactly NUM_TOKENS after decoding and encoding again."""
    found = []
    for ids in lm.blocks(load_glue("mrpc").texts, NUM_TOKENS).rows:
        text = lm.tokenizer.decode(ids)
        if len(lm.tokenizer(text, add_special_tokens=False).input_ids) == NUM_TOKENS:
            found.append(text)
        if len(found) == count:
            return found
    raise ValueError(f"the text at hand gives {len(found)} texts of {NUM_TOKENS} tokens, {count} asked for")


def ours(lm, texts):
    return lm.pseudo_log_likelihood(texts).tolist()


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
    from minicons import scorer

    type(lm.tokenizer).batch_encode_plus = type(lm.tokenizer).__call__  # a name of transformers 4 that it still uses
    peer = scorer.MaskedLMScorer(lm.model, "cpu", tokenizer=lm.tokenizer)
    return peer.sequence_score(texts, reduction=lambda scores: scores.sum().item(), PLL_metric="original")


def child(method, count, layers):
    lm = build(layers)
    texts = make_texts(lm, count)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of building the model
    start, loaded = time.process_time(), peak_megabytes()
    found = globals()[method](lm, texts)
    print(json.dumps(dict(found=found, seconds=time.process_time() - start, peak=peak_megabytes() - loaded)))


def peak_megabytes():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


def main(count="1", layers="12"):
    print(f"{count} text(s) of {NUM_TOKENS + 2} tokens, BERT-base of {layers} layers, "
          f"{torch.get_num_threads()} thread(s)")
    print(f"{'':12}{'CPU s':>8}{'tokens/s':>10}{'MB above model':>16}{'largest difference, nats':>26}")
    truth = None
    for method in ("ours", "plain_loop", "minicons"):
        if method == "minicons" and importlib.util.find_spec("minicons") is None:
            print("minicons    is not installed")
            continue
        code = f"from benchmarks.masked_lm import child; child({method!r}, {int(count)}, {int(layers)})"
        run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=Path(__file__).parents[1], check=True,
                             capture_output=True, text=True, env=dict(os.environ))
        result = json.loads(run.stdout.splitlines()[-1])
        truth = truth or result["found"]
        gap = max(abs(a - b) for a, b in zip(truth, result["found"], strict=True))
        print(f"{method:12}{result['seconds']:8.1f}{int(count) * NUM_TOKENS / result['seconds']:10.1f}"
              f"{result['peak']:16.0f}{gap:26.1e}", flush=True)
        if gap > 1e-4 * abs(truth[0]):
            raise SystemExit(f"{method} differs by {gap:.3g} nats: more than float32 allows")
