"""This library beside minicons, lmppl and a plain loop, on the same networks: python -m benchmarks tools PYTHON

Writes book/data/tools.csv: processor seconds, peak megabytes of the process, and the largest
difference from this library's scores, for three networks and two scores, tool after tool, three
times over. Each tool runs in a process of its own, on one thread, text by text; loading is not
counted. lmppl tells a perplexity alone, so its texts are compared by their mean over tokens. About
15 minutes. minicons needs transformers 4, so PYTHON is another one:

    python3.11 -m venv _build/tools
    _build/tools/bin/pip install -e ".[text]" "transformers<5" minicons==0.3.39 lmppl==0.3.2
    .venv/bin/python -m benchmarks tools _build/tools/bin/python
"""

import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import torch

from mptlml.text import MaskedLM

FIELDS = (
    "network",
    "score",
    "repeat",
    "tool",
    "version",
    "seconds",
    "megabytes",
    "difference per token",
)
REPEATS = 3
ASKED = [
    ("small BERT", "pseudo-log-likelihood"),
    ("BERT-base", "pseudo-log-likelihood"),
    ("BERT-base", "within words"),
    ("antibody", "pseudo-log-likelihood"),
]
TEXTS = {"small BERT": 32, "BERT-base": 8, "antibody": 1}
LATER = {"pseudo-log-likelihood": "none", "within words": "word"}


def by_mptlml(folder, texts, score):
    lm = MaskedLM.from_pretrained(folder, local_files_only=True)
    return lambda: [lm.single_scores([text], LATER[score])[0].tolist() for text in texts]


def by_minicons(folder, texts, score):
    from minicons.scorer import MaskedLMScorer

    scorer, metric = (
        MaskedLMScorer(folder, "cpu"),
        {"none": "original", "word": "within_word_l2r"}[LATER[score]],
    )
    return lambda: [
        [nats for _, nats in scorer.token_score(text, PLL_metric=metric)[0]] for text in texts
    ]


def by_lmppl(folder, texts, score):
    import lmppl

    scorer = lmppl.MaskedLM(folder)
    return lambda: [[-math.log(scorer.get_perplexity(text))] for text in texts]


def by_loop(folder, texts, score):
    """A pass per token, of one row, as one would write it."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def one(text):
        ids, found = tokenizer(text, return_tensors="pt").input_ids, []
        for place in range(1, ids.shape[1] - 1):
            hidden = ids.clone()
            hidden[0, place] = tokenizer.mask_token_id
            logits = model(hidden).logits[0, place]
            found.append(logits.log_softmax(-1)[ids[0, place]].item())
        return found

    return lambda: [one(text) for text in texts]


TOOLS = {"mptlml": by_mptlml, "minicons": by_minicons, "lmppl": by_lmppl, "loop": by_loop}
NOT_ASKED = {("lmppl", "within words"), ("loop", "within words")}


def save(folder):
    """The networks, random weights of BERT's size and that of Chapter 13, with texts for each."""
    from transformers import BertConfig

    from mptlml_book.data.text import _python_reference, make_tokenizer
    from mptlml_book.studies import real_network

    sentences = _python_reference()
    tokenizer = make_tokenizer(sentences, 30522, fill=True)
    split = [
        text for text in sentences if 60 < len(text) < 90 and "##" in str(tokenizer.tokenize(text))
    ]
    small = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    found = {
        "small BERT": (MaskedLM.random(small, tokenizer, seed=0), split),
        "BERT-base": (MaskedLM.random(BertConfig(), tokenizer, seed=0), split),
        "antibody": (real_network.load_network().lm, real_network.load_sequences().tested),
    }
    for name, (lm, texts) in found.items():
        for part in (lm.model, lm.tokenizer):
            part.save_pretrained(folder / name)
        about = folder / name / "tokenizer_config.json"  # in transformers 4's words
        about.write_text(
            json.dumps(
                json.loads(about.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
            )
        )
        (folder / name / "texts.json").write_text(
            json.dumps(texts[:: len(texts) // TEXTS[name]][: TEXTS[name]])
        )


def alone(folder, network, score, tool):
    """By PYTHON, in a process of its own: JSON of the version, the scores, the seconds and the megabytes."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    place = Path(folder, network)
    ask = TOOLS[tool](str(place), json.loads((place / "texts.json").read_text()), score)
    before, scores = time.process_time(), ask()
    seconds = time.process_time() - before
    # of this process alone: getrusage's peak is that of the parent where this was started from a larger one
    [most] = [
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    which = "" if tool == "loop" else version(tool)
    print(json.dumps([which, scores, seconds, most / 1024]))


def run(python, folder, network, score, repeat):
    """The lines of one score, a tool each."""
    ours = []
    for tool in [tool for tool in TOOLS if (tool, score) not in NOT_ASKED]:
        command = [python, "-m", "benchmarks", "tools", folder, network, score, tool]
        done = subprocess.run(command, capture_output=True, text=True, check=tool != "lmppl")
        # lmppl reads a text with a mask anew, and pieces of words do not come back
        if done.returncode:
            yield dict(
                zip(FIELDS, (network, score, repeat, tool, "", "", "", "fails"), strict=True)
            )
            continue
        which, scores, seconds, megabytes = json.loads(done.stdout.splitlines()[-1])
        ours = ours or scores
        other = [[sum(text) / len(text)] for text in ours] if tool == "lmppl" else ours
        apart = max(abs(a - b) for a, b in zip(chain(*scores), chain(*other), strict=True))
        values = network, score, repeat, tool, which, round(seconds, 2), round(megabytes), apart
        yield dict(zip(FIELDS, values, strict=True))


def main(python="", *words):
    if words:
        return alone(python, *words)
    from .results import Table, write  # PYTHON need not have what this needs

    if (
        not python
        or subprocess.run([python, "-c", "import minicons, lmppl"], capture_output=True).returncode
    ):
        sys.exit(
            "give a Python with minicons and lmppl: the head of benchmarks/tools.py says how to make one"
        )
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        units = [(*asked, repeat) for repeat in range(REPEATS) for asked in ASKED]
        write("tools", Table(partial(run, python, folder), lambda: units))
