"""A network that somebody else trained, AntiBERTy, the sequences that it is asked about, and its repair.

AntiBERTy (Ruffolo, Gray and Sulam 2021) is a BERT of 26 million weights, trained on 558 million
antibody sequences. Its package `antiberty` holds the weights; the package `anarci` holds germline
genes, from which a body puts its antibodies together. Both packages are read as data and never
imported. A text is a chain of residues, one letter each, with spaces between.

`python -m mptlml_book.real_network NAME` writes the long runs behind Chapter 13, some hour of one
core together:

real_network_repair: AntiBERTy trained further on germline genes of other species, by each of
SCHEMES from several seeds. A line for each run, stage and human gene: its score at each masking
rate, nats per token (the first, 1%, is the mean over several masks of one residue each), and the
objective of the batch that follows. control: a fixed 15%, for so many steps that it predicts as
many residues as uniform sizes do in repair.

real_network_scores: a line for each of some genes and chains, as `read_text` reads it. Sequences of
one length have their masks in common.

real_network_after: a line for each seed of repair's uniform sizes and each of those chains: its
area after training.

real_network_masks: for Chapter 2, a line for each of the 255 masks of eight residues, the whole
text: the log-probability of each hidden residue. Bit j of a mask's number says that residue j is
hidden.
"""

import ast
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Generator, Tensor

from mptlml import objectives, random_orders
from mptlml.draws import seeded
from mptlml.masked_lm import MaskedLM, spaced_sizes
from mptlml.training import History, fit

from .data import digest_of
from .data.text import Texts, load_glue, make_tokenizer
from .rates import RateCurve, rate_curve
from .runs import Table, main
from .toy_grammar import every_mask

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
CHAINS = "HKL"  # heavy, and the two kinds of light chain
CEILING = 0.8  # training sequences as like a human one as this, or more, are left out

# The variable domains of three antibodies in use, as Jain et al. (2017) list them.
ANTIBODIES = {
    "trastuzumab heavy": (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
    ),
    "trastuzumab light": (
        "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK"
    ),
    "adalimumab heavy": (
        "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS"
    ),
    "adalimumab light": (
        "DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYCQRYNRAPYTFGQGTKVEIK"
    ),
    "pembrolizumab heavy": (
        "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS"
    ),
    "pembrolizumab light": (
        "EIVLTQSPATLSLSPGERATLSCRASKGVSTSGYSYLHWYQQKPGQAPRLLIYLASYLESGVPARFSGSGSGTDFTLTISSLEPEDFAVYYCQHSRDLPLTFGGGTKVEIK"
    ),
}
EIGHT = ANTIBODIES["trastuzumab heavy"][:8]  # a text of their own in Chapter 2

# dense where the curve bends
RATES = (0.01, 0.05, 0.15, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
# genes scored in the stored runs; masks of one residue, for the first rate
NUM_GENES, MASKS_OF_ONE = 16, 6
BATCH, WARM_UP, NUM_STEPS = 8, 20, 25
LEARNING_RATE = 5e-5
SCHEMES: dict[str, Callable[..., Tensor]] = {
    "uniform sizes": objectives.stratified_size,
    "fixed 15%": partial(objectives.bernoulli_rate, rate=0.15),
    "fixed 40%": partial(objectives.bernoulli_rate, rate=0.40),
}

# of the long runs
SEEDS = (0, 1, 2)
COLUMNS = [f"at {rate:g}" for rate in RATES]
NUM_SIZES, NUM_MASKS, NUM_ORDERS = 16, 4, 2
EQUAL_STEPS = (
    84  # of a fixed 15%: 14.4 of 96 residues each, as uniform sizes have 48.5 in each of 25
)

Lines = Iterator[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """lm: the network; `source` names it, `note` warns of a stand-in. `digest` is that of its name."""

    lm: MaskedLM
    source: str
    note: str = ""

    size = property(lambda self: f"{self.lm.model.num_parameters() / 1e6:.2g} million weights")
    digest = property(lambda self: digest_of(self.source.encode()))


class Sequences(NamedTuple):
    """tested and trained: texts that share no family; `data`: both as what a chapter reads."""

    tested: list[str]
    trained: list[str]
    data: Texts


def spaced(sequence: str) -> str:
    """A chain as a text: its letters with spaces between."""
    return " ".join(sequence)


def load_network() -> LoadedNetwork:
    """AntiBERTy, or a small network with a note."""
    if folder := _folder("antiberty"):
        return LoadedNetwork(_antiberty(folder), "AntiBERTy (antiberty 0.1.3)")
    return LoadedNetwork(
        small_network(),
        "a small BERT",
        "The package antiberty 0.1.3 was not at hand here: a small BERT, trained on this page for a few seconds, "
        "stands in. What the page computes itself is not about a network in use.",
    )


def load_sequences() -> Sequences:
    """Human germline genes to test on, and those of other species to train on; or sentences, with a note.

    A sequence to train on has less than CEILING in common with each of the human ones (`identity`).
    """
    folder = _folder("anarci")
    if folder and _folder("antiberty"):
        tested, trained = (list(map(spaced, genes)) for genes in germline_genes(folder))
        source, note = "germline genes (anarci 2026.2.13.2)", ""
    else:
        tested, trained = (
            [text for text in load_glue("cola", train=train).texts if 20 < len(text) < 100]
            for train in (False, True)
        )
        trained = [text for text in trained if text not in set(tested)]
        source = "sentences"
        note = "Germline genes were not at hand here, or no network that reads them: sentences stand in."
    return Sequences(tested, trained, Texts([*tested, *trained], source, note))


@cache
def germline_genes(folder: Path) -> tuple[list[str], list[str]]:
    """The V genes in anarci's folder, letters only: (human, an allele of each gene; of other species).

    Each sequence once, in the file's order. Those of other species have less than CEILING in common
    with each human one.
    """
    text = (folder / "germlines.py").read_text(encoding="utf-8")
    genes = ast.literal_eval(text[text.index("{") :].strip())["V"]
    rows = [
        (species == "human", allele.split("*")[0], aligned.replace("-", ""))
        for chain in CHAINS
        for species, alleles in genes[chain].items()
        for allele, aligned in alleles.items()
    ]
    table = pd.DataFrame(rows, columns=["human", "gene", "sequence"])
    human = table[table.human].drop_duplicates("gene").sequence.unique()
    others = table[~table.human].sequence.unique()
    return list(human), list(others[identity(others, human).max(1) < CEILING])


def identity(sequences: Iterable[str], others: Iterable[str]) -> np.ndarray:
    """1 - edit distance / length of the longer, [N, M]: the fewest letters to change, insert or leave out.

    (Anarci's own columns do not serve: it numbers genes of some species otherwise: equal letters
    stand apart.)
    """
    from Bio.Align import PairwiseAligner  # anarci needs it too

    edits = PairwiseAligner(match_score=0, mismatch_score=-1, gap_score=-1)
    return np.array(
        [
            [1 + edits.score(one, other) / max(len(one), len(other)) for other in others]
            for one in sequences
        ]
    )


def spread_out(texts: Sequence[str], count: int) -> list[str]:
    """`count` of the texts, at equal distances in the list."""
    return [texts[k] for k in np.linspace(0, len(texts) - 1, count).round().astype(int)]


def by_place(texts: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """The mean log-probability of a letter of each of `others`, nats per letter [others], by place alone.

    A letter has the share of the texts that have it at that place, with half a count more for every
    letter that they have anywhere: no context, so the curve of each text is flat.
    """
    longest = max(len(text.split()) for text in [*texts, *others])
    table = pd.DataFrame([text.split() for text in texts]).reindex(columns=range(longest))
    kinds, means = table.stack().nunique(), []
    for letters in map(str.split, others):
        there = table.iloc[:, : len(letters)]
        shares = ((there == letters).sum() + 0.5) / (there.count() + 0.5 * kinds)
        means.append(np.log(shares).mean())
    return np.array(means)


def fine_tune(
    lm: MaskedLM,
    texts: Sequence[str],
    scheme: str,
    *,
    seed: int,
    num_steps: int = NUM_STEPS,
    learning_rate: float = LEARNING_RATE,
    read: Sequence[str] = (),
) -> History:
    """Train lm's network further, in place, on the texts by one of SCHEMES; its History is in nats per text.

    Batches of BATCH texts, each text once before any comes again; AdamW. The seed decides the
    batches and the masks; schemes with one seed share the batches. The History has
    the curve of the texts `read`, if any, every NUM_STEPS steps.
    """
    ids = [lm.encode(text) for text in texts]
    width = max(map(len, ids))
    rows = torch.nn.utils.rnn.pad_sequence(
        ids, batch_first=True, padding_value=lm.tokenizer.pad_token_id
    )
    lengths, generator = torch.tensor([len(i) for i in ids]), seeded(seed, 1)
    view, batches = lm.at_length(width), _batches(len(rows), seeded(seed))

    def objective() -> Tensor:
        batch = next(batches)
        return SCHEMES[scheme](view, rows[batch], lengths=lengths[batch], generator=generator)

    lm.model.train()
    try:
        return fit(
            objective,
            lm.model.parameters(),
            num_steps=num_steps,
            learning_rate=learning_rate,
            warm_up=WARM_UP,
            track={"curve": lambda: read_curve(lm, read)} if read else {},
            track_every=NUM_STEPS,
            optimiser=torch.optim.AdamW,
            name=scheme,
        )
    finally:
        lm.model.eval()


def repaired(
    lm: MaskedLM, learnt: Sequence[str], read: Sequence[str], scheme: str, **options: Any
) -> Iterator[tuple[int, float, RateCurve]]:
    """(step, objective of the batch that follows, curve of the texts `read`), from before `fine_tune` to its end."""
    history = fine_tune(lm, learnt, scheme, read=read, **options)
    last = len(history.objective) - 1
    for step, curve in zip(history.at, history.tracked["curve"], strict=True):
        yield step, history.objective[min(step, last)], curve


def _batches(num_rows: int, generator: Generator) -> Iterator[Tensor]:
    """Numbers of rows, BATCH at a time, each once before any comes again; a last, smaller batch is left out."""
    while True:
        for batch in torch.randperm(num_rows, generator=generator).split(BATCH):
            if len(batch) == min(BATCH, num_rows):
                yield batch


def read_curve(lm: MaskedLM, texts: Sequence[str]) -> RateCurve:
    """The curve of texts at RATES, always under the same masks, so that two networks can be compared."""
    curve = rate_curve(lm, texts, RATES[1:], generator=seeded(13))
    ones = rate_curve(lm, texts, RATES[:1], num_masks=MASKS_OF_ONE, generator=seeded(13, 1))
    return RateCurve(np.array(RATES), np.concatenate([ones.scores, curve.scores]), curve.lengths)


def read_text(
    lm: MaskedLM, text: str, num_masks: int = NUM_MASKS, num_orders: int = 0
) -> dict[str, Any]:
    """A text under a network, nats per text: its area, with the error of the masks, and other scores.

    They are the pseudo-log-likelihood, left to right, the sums along random orders, and, nats per
    token, the curve under each mask. Texts of one length share their masks and orders.
    """
    length = len(lm.encode(text))
    sizes, generator = spaced_sizes(length, NUM_SIZES), seeded(13)
    curve = lm.curve(text, sizes, num_masks=num_masks, generator=generator)
    area = curve.area()
    orders = [*random_orders(length, num_orders, generator=seeded(13, 1))] if num_orders else []
    ahead = torch.arange(length - 1, -1, -1)
    sums = lm.chain_rule(text, torch.stack([ahead, *orders])).sum(-1).tolist()
    return dict(
        tokens=length,
        area=area.mean,
        area_error=area.stderr,
        pseudo_log_likelihood=lm.pseudo_log_likelihood([text]).item(),
        left_to_right=sums[0],
        orders=sums[1:],
        sizes=curve.sizes.tolist(),
        curve=np.array(curve.scores).flatten().tolist(),
    )


def scored() -> dict[str, str]:
    """The texts of the stored scores by name: some germline genes, and the chains."""
    genes = spread_out(load_sequences().tested, NUM_GENES)[::2]
    return {f"gene {2 * k}": text for k, text in enumerate(genes)} | chains()


def answered_from(start: float, curve: RateCurve, flat: np.ndarray) -> np.ndarray:
    """What areas change, nats per text [texts], if a table without context answers from `start` masked on.

    flat [texts]: what the table scores, nats per token, however much is masked.
    """
    changes = [
        (height - scores[math.ceil(start * len(scores)) - 1 :]).sum()
        for height, scores in zip(flat, curve.at_sizes, strict=True)
    ]
    return np.array(changes)


def chains() -> dict[str, str]:
    """The chains of ANTIBODIES as texts, by name."""
    return {name: spaced(chain) for name, chain in ANTIBODIES.items()}


def _folder(package: str) -> Path | None:
    """Where a package lies, without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    return Path(str(spec.origin)).parent if spec else None


def _antiberty(folder: Path) -> MaskedLM:
    """The weights in the folder of antiberty as a MaskedLM; without dropout, training follows from its seed."""
    from transformers import BertConfig, BertTokenizer

    folder /= "trained_models"
    saved = folder / "AntiBERTy_md_smooth"
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    tokenizer = BertTokenizer({word: k for k, word in enumerate(words)}, do_lower_case=False)
    config = BertConfig.from_json_file(saved / "config.json")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    lm = MaskedLM.random(config, tokenizer, seed=0)
    weights = torch.load(saved / "pytorch_model.bin", weights_only=True, map_location="cpu")
    return filled(lm, weights)  # it also has heads for species and chain


def filled(lm: MaskedLM, weights: Mapping[str, Tensor]) -> MaskedLM:
    """lm with these weights: all that it has must be among them."""
    lm.model.load_state_dict({key: weights[key] for key in lm.model.state_dict()})
    return lm


def small_network(num_steps: int = 300) -> MaskedLM:
    """A small BERT, trained for a few seconds at a fixed 15%."""
    from transformers import BertConfig

    texts = load_glue("cola", train=True).texts
    pieces = make_tokenizer(texts, 120)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=130,
        initializer_range=0.1,
        pad_token_id=pieces.pad_token_id,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    lm = MaskedLM.random(config, pieces, seed=1)
    short = [text for text in texts if len(text) < 100]
    fine_tune(lm, short, "fixed 15%", seed=1, num_steps=num_steps, learning_rate=3e-3)
    return lm


def repair(scheme: str, seed: int, num_steps: int = NUM_STEPS) -> Lines:
    """The lines of one run."""
    lm, learnt = load_network().lm, load_sequences().trained
    read = spread_out(load_sequences().tested, NUM_GENES)
    for step, objective, curve in repaired(
        lm, learnt, read, scheme, num_steps=num_steps, seed=seed
    ):
        for gene, tokens in enumerate(curve.lengths):
            line = dict(scheme=scheme, seed=seed, learning_rate=LEARNING_RATE, step=step, gene=gene)
            scores = dict(zip(COLUMNS, curve.scores[:, gene].tolist(), strict=True))
            yield line | dict(tokens=tokens, objective=objective) | scores


def score(name: str, text: str) -> Lines:
    """The one line of a sequence."""
    num_orders = NUM_ORDERS if name in chains() else 0
    yield dict(name=name) | read_text(load_network().lm, text, num_orders=num_orders)


def after(seed: int) -> Lines:
    """The lines of one seed: the network after `repair` by uniform sizes."""
    lm = load_network().lm
    fine_tune(lm, load_sequences().trained, "uniform sizes", seed=seed)
    for name, text in chains().items():
        yield dict(seed=seed, name=name, area=read_text(lm, text)["area"])


@torch.no_grad()
def masks(residues: str) -> Lines:
    """The lines of a short text."""
    lm, hidden = load_network().lm, every_mask(len(residues))
    ids = lm.encode(spaced(residues))
    answers = lm.at_length(len(ids)).conditional_log_prob(ids, ~hidden)
    for number in range(1, len(hidden)):
        scores = answers[number, hidden[number]].tolist()
        yield dict(residues=residues, mask=number, scores=scores)


TABLES = {
    "real_network_repair": Table(repair, lambda: product(SCHEMES, SEEDS)),
    "real_network_control": Table(repair, lambda: product(["fixed 15%"], SEEDS, [EQUAL_STEPS])),
    "real_network_scores": Table(score, lambda: scored().items()),
    "real_network_after": Table(after, lambda: product(SEEDS)),
    "real_network_masks": Table(masks, lambda: [(EIGHT,)]),
}


if __name__ == "__main__":
    main(TABLES)
