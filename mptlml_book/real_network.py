"""A network that somebody else trained, AntiBERTy, the sequences that it is asked about, and its repair.

AntiBERTy (Ruffolo, Gray and Sulam 2021) is a BERT of 26 million weights, trained on 558 million
antibody sequences. Its package `antiberty` holds the weights; the package `anarci` holds germline
genes, from which a body puts its antibodies together. Both packages are read as data and never
imported. A text is a chain of residues, one letter each, with spaces between.
"""

import ast
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from IPython.display import HTML
from torch import Generator, Tensor

from mptlml import draws, objectives
from mptlml.curve import straight_lines
from mptlml.extras import needs
from mptlml.masked_lm import MaskedLM
from mptlml.training import History, fit

from .data import digest_of
from .data.text import from_hub, load_glue, make_tokenizer
from .rates import RateCurve, hidden_tokens, rate_curve

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
CHAINS = "HKL"  # heavy, and the two kinds of light chain
CEILING = 0.8  # training sequences as like a human one as this, or more, are left out

# The variable domains (heavy, light) of three antibodies in use, as Jain et al. (2017) list them.
ANTIBODIES = {
    "trastuzumab": (
        "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS",
        "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK",
    ),
    "adalimumab": (
        "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS",
        "DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYCQRYNRAPYTFGQGTKVEIK",
    ),
    "pembrolizumab": (
        "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS",
        "EIVLTQSPATLSLSPGERATLSCRASKGVSTSGYSYLHWYQQKPGQAPRLLIYLASYLESGVPARFSGSGSGTDFTLTISSLEPEDFAVYYCQHSRDLPLTFGGGTKVEIK",
    ),
}
EIGHT = ANTIBODIES["trastuzumab"][0][:8]  # a text of their own in Chapter 2

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


@dataclass(frozen=True, eq=False)
class LoadedNetwork:
    """lm: the network; `source` names it, `note` warns of a stand-in, `is_real` says whether it is AntiBERTy.

    `digest` is that of its name where the pin says which weights it has, else of its weights.
    """

    lm: MaskedLM
    source: str
    note: str = ""
    is_real: bool = False

    size = property(lambda self: f"{self.lm.model.num_parameters() / 1e6:.2g} million weights")

    digest = property(
        lambda self: digest_of(
            *([self.source.encode()] if self.is_real else map(_bytes, self.lm.model.parameters()))
        )
    )


@dataclass(frozen=True, eq=False)
class Sequences:
    """tested and trained: texts that share no family; `source` names them, `note` warns of a stand-in."""

    tested: list[str]
    trained: list[str]
    source: str
    note: str = ""

    size = property(
        lambda self: f"{len(self.tested):,} to test on and {len(self.trained):,} to train on"
    )
    digest = property(
        lambda self: digest_of(*(text.encode() for text in (*self.tested, *self.trained)))
    )


def _bytes(weights: Tensor) -> bytes:
    return weights.detach().float().numpy().tobytes()


def spaced(sequence: str) -> str:
    """A chain as a text: its letters with spaces between."""
    return " ".join(sequence)


def load_network() -> LoadedNetwork:
    """The network that MPTLML_MASKED_LM names, or else AntiBERTy, or a small one with a note."""
    name = os.environ.get("MPTLML_MASKED_LM")
    if name:
        lm = from_hub(lambda **where: MaskedLM.from_pretrained(name, **where), name)
        if lm is not None:
            return LoadedNetwork(lm, name)
    folder = _folder("antiberty")
    if folder is not None and not name:
        return LoadedNetwork(
            _antiberty(folder / "trained_models"), "AntiBERTy (antiberty 0.1.3)", is_real=True
        )
    missing = name or "The package antiberty 0.1.3"
    return LoadedNetwork(
        small_network(),
        "a small BERT",
        (
            f"{missing} was not at hand here: a small BERT, trained on this page for a few seconds, stands in. "
            "What the page computes itself is not about a network in use."
        ),
    )


def load_sequences() -> Sequences:
    """Human germline genes to test on, and those of other species to train on; or sentences, with a note.

    A sequence to train on has less than CEILING in common with each of the human ones (`identity`).
    """
    folder = _folder("anarci")
    if folder is None or _folder("antiberty") is None and not os.environ.get("MPTLML_MASKED_LM"):
        tested, trained = (
            [text for text in load_glue("cola", train=train).texts if 20 < len(text) < 100]
            for train in (False, True)
        )
        met = set(tested)
        return Sequences(
            tested,
            [text for text in trained if text not in met],
            "sentences",
            (
                "Germline genes were not at hand here, or no network that reads them: sentences stand in."
            ),
        )
    human, others = _far_apart(folder)
    return Sequences(
        [*map(spaced, human)], [*map(spaced, others)], "germline genes (anarci 2026.2.13.2)"
    )


def germline_genes(folder: Path) -> tuple[list[str], list[str]]:
    """The V genes in anarci's folder, letters only: (human, an allele of each gene; of other species, all).

    Each sequence once, in the file's order.
    """
    text = (folder / "germlines.py").read_text(encoding="utf-8")
    genes = ast.literal_eval(text[text.index("{") :].strip())["V"]
    human: dict[str, str] = {}
    others: dict[str, None] = {}
    for chain in CHAINS:
        for species, alleles in genes[chain].items():
            for allele, aligned in alleles.items():
                sequence = aligned.replace("-", "")
                if species == "human":
                    human.setdefault(allele.split("*")[0], sequence)
                else:
                    others.setdefault(sequence)
    distinct = dict.fromkeys(human.values())
    return list(distinct), [sequence for sequence in others if sequence not in distinct]


@cache
def _far_apart(folder: Path) -> tuple[list[str], list[str]]:
    """The human genes, and those of other species that have less than CEILING in common with each of them."""
    human, others = germline_genes(folder)
    return human, [
        other
        for other, most in zip(others, identity(others, human).max(1), strict=True)
        if most < CEILING
    ]


def identity(sequences: Sequence[str], others: Sequence[str]) -> np.ndarray:
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


def by_position(texts: Sequence[str], others: Sequence[str]) -> list[np.ndarray]:
    """Log-probabilities of the letters of each of `others`, nats [D], by how often `texts` have them there.

    Half a count is added for every letter that the texts have anywhere.
    """
    return [
        np.log((same.sum(1) + 0.5) / (there.sum(1) + 0.5 * kinds))
        for same, there, kinds in _columns(texts, others)
    ]


def by_genes(texts: Sequence[str], others: Sequence[str], keep: float) -> list[np.ndarray]:
    """Log-probabilities of the letters of each of `others`, nats [D], left to right in a mixture of the texts.

    It draws one of the texts, and at each position keeps its letter with probability `keep`; else
    it draws one as `by_position` says. A coherent model of texts of a given length: a sum is its
    log-probability.
    """
    return [
        np.diff(np.logaddexp.reduce(kept.cumsum(0), axis=1), prepend=np.log(len(texts)))
        for kept in _kept(texts, others, keep)
    ]


def looked_up(
    texts: Sequence[str], others: Sequence[str], keep: float, *, num_masks: int = 32
) -> np.ndarray:
    """The curves of `others` in the mixture of `by_genes`, nats per letter [others, RATES].

    Visible letters say which texts are likely: a lookup, and nothing is trained.
    """
    rng, curves = np.random.default_rng(13), []
    for kept in _kept(texts, others, keep):
        ranks = rng.random((num_masks, len(kept))).argsort(1)  # [masks, D]
        curves.append(
            [
                from_visible(kept, ranks < size)[ranks < size].mean()
                for size in hidden_tokens(RATES, len(kept))
            ]
        )
    return np.array(curves)


def from_visible(kept: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Log-probabilities of letters, nats [masks, D], under an even mixture with log-probabilities `kept` [D, N].

    Each given the letters that are not `hidden`, bool [masks, D]; those of visible letters mean
    nothing.
    """
    seen = ~hidden @ kept  # [masks, N]
    weight = np.exp(seen - seen.max(1, keepdims=True))
    return np.log(weight / weight.sum(1, keepdims=True) @ np.exp(kept).T)


def _kept(texts: Sequence[str], others: Sequence[str], keep: float) -> Iterator[np.ndarray]:
    """For each of `others` the log-probability of its letter in each component of the mixture, nats [D, N]."""
    for (same, _, _), table in zip(
        _columns(texts, others), by_position(texts, others), strict=True
    ):
        yield np.log(keep * same + (1 - keep) * np.exp(table)[:, None])


def _columns(
    texts: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """For each of `others`: where texts have its letter, where they have any, bool [D, N], and how many kinds."""
    # the last makes it long enough
    rows = [text.split() for text in [*texts, max(others, key=len)]]
    letters = np.array([*zip_longest(*rows, fillvalue="")])[:, :-1]
    kinds = len(np.unique(letters[letters != ""]))
    for other in others:
        own = np.array(other.split())[:, None]
        yield letters[: len(own)] == own, letters[: len(own)] != "", kinds


def fine_tune(
    lm: MaskedLM,
    texts: Sequence[str],
    scheme: str,
    *,
    seed: int,
    num_steps: int = NUM_STEPS,
    learning_rate: float = LEARNING_RATE,
    track: dict[str, Callable[[], Any]] | None = None,
) -> History:
    """Train lm's network further, in place, on the texts by one of SCHEMES; its History is in nats per text.

    Batches of BATCH texts, each text once before any comes again; AdamW. The seed decides the
    batches and the masks; schemes with one seed share the batches. track: as in `fit`, every
    NUM_STEPS steps.
    """
    ids = [lm.encode(text) for text in texts]
    width = max(map(len, ids))
    rows = torch.nn.utils.rnn.pad_sequence(
        ids, batch_first=True, padding_value=lm.tokenizer.pad_token_id
    )
    lengths, order, generator = (
        torch.tensor([len(i) for i in ids]),
        draws.seeded(seed),
        draws.seeded(seed, 1),
    )
    view, batches = lm.at_length(width), _batches(len(rows), order)

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
            track=track,
            track_every=NUM_STEPS,
            optimiser=torch.optim.AdamW,
            name=scheme,
        )
    finally:
        lm.model.eval()


def seen(texts: Sequence[str], seed: int) -> list[str]:
    """The texts that `fine_tune` with this seed reads in NUM_STEPS steps."""
    batches = _batches(len(texts), draws.seeded(seed))
    return [texts[k] for _ in range(NUM_STEPS) for k in next(batches)]


def _batches(num_rows: int, generator: Generator) -> Iterator[Tensor]:
    """Numbers of rows, BATCH at a time, each once before any comes again; a last, smaller batch is left out."""
    while True:
        for batch in torch.randperm(num_rows, generator=generator).split(BATCH):
            if len(batch) == min(BATCH, num_rows):
                yield batch


def read_curve(lm: MaskedLM, texts: Sequence[str]) -> RateCurve:
    """The curve of texts at RATES, always under the same masks, so that two networks can be compared."""
    corpus = lm.read(texts)
    curve = rate_curve(lm, corpus, RATES[1:], generator=draws.seeded(13))
    ones = rate_curve(lm, corpus, RATES[:1], num_masks=MASKS_OF_ONE, generator=draws.seeded(13, 1))
    return RateCurve(np.array(RATES), np.concatenate([ones.scores, curve.scores]), curve.lengths)


def scored() -> dict[str, str]:
    """The texts of the stored scores by name: some germline genes, and the chains."""
    genes = spread_out(load_sequences().tested, NUM_GENES)[::2]
    return {f"gene {2 * k}": text for k, text in enumerate(genes)} | chains()


def answered_from(
    start: float, scores: np.ndarray, lengths: np.ndarray, answer: np.ndarray
) -> np.ndarray:
    """What areas change, nats per text [seeds, texts], if another model answers from `start` masked on.

    scores [seeds, texts, RATES], nats per residue; lengths [texts]; answer [texts, RATES]: the
    other's scores.
    """
    found = np.empty(scores.shape[:2])
    for k, length in enumerate(lengths):
        sizes = np.arange(1, length + 1)
        lines = straight_lines(hidden_tokens(RATES, length), length)[:, sizes >= start * length]
        found[:, k] = ((answer[k] - scores[:, k]) @ lines).sum(-1)
    return found


def chains() -> dict[str, str]:
    """The chains of ANTIBODIES as texts, by name: "trastuzumab heavy", ..."""
    return {
        f"{name} {kind}": spaced(chain)
        for name, pair in ANTIBODIES.items()
        for kind, chain in zip(("heavy", "light"), pair, strict=True)
    }


def guesses(lm: MaskedLM, text: str, rate: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """What the network says if `rate` of a text is hidden: (observed bool [D], log-probabilities [D, V])."""
    ids = lm.encode(text)
    hidden = max(1, round(rate * len(ids)))
    observed = torch.ones(len(ids), dtype=torch.bool)
    observed[torch.randperm(len(ids), generator=generator)[:hidden]] = False
    with torch.no_grad():
        return observed, lm.at_length(len(ids)).vocabulary_log_prob(ids[None], observed[None])[0]


def letters(gene: str, said: Mapping[str, Mapping[int, tuple[str, float]]]) -> HTML:
    """What networks guess of a gene, as columns of letters: the residue, grey where hidden, and below it each guess.

    said: {name: {place, from 1: (guess, its probability)}}. A right guess is blue and underlined, a
    wrong one orange; the paler, the less sure.
    """
    columns = ["<br>".join(["gene", *said])]
    for place, residue in enumerate(gene, 1):
        hidden = any(place in guessed for guessed in said.values())
        lines = [
            f'<span style="opacity: .65">\u00a0{residue}</span>'
            if hidden
            else f"<b>\u00a0{residue}\u00a0</b>"
        ]
        for guess, chance in [guessed.get(place, ("", 0.0)) for guessed in said.values()]:
            tag, colour = ("u", "0072b2") if guess == residue else ("span", "e69f00")
            shade = f"background: #{colour}{round(255 * (0.1 + 0.35 * chance)):02x}"
            lines.append(f'<{tag} style="{shade}">\u00a0{guess}\u00a0</{tag}>' if guess else "")
        columns.append("<br>".join(lines))
    style = "display: inline-block; vertical-align: top; margin: 0 1px .7em"
    blocks = "".join(f'<span style="{style}">{column}</span>' for column in columns)
    return HTML(
        f'<div style="font-family: monospace; line-height: 1.5; text-align: left">{blocks}</div>'
    )


def _folder(package: str) -> Path | None:
    """Where a package lies, without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _antiberty(folder: Path) -> MaskedLM:
    """The weights in a folder of antiberty as a MaskedLM; without dropout, training follows from its seed."""
    with needs("text"):
        from transformers import BertConfig, BertTokenizer
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    tokenizer = BertTokenizer({word: k for k, word in enumerate(words)}, do_lower_case=False)
    config = BertConfig.from_json_file(folder / "AntiBERTy_md_smooth" / "config.json")
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    lm = MaskedLM.random(config, tokenizer, seed=0)
    weights = torch.load(
        folder / "AntiBERTy_md_smooth" / "pytorch_model.bin", weights_only=True, map_location="cpu"
    )
    own = lm.model.state_dict()
    # it also has heads for species and chain
    lm.model.load_state_dict({key: weights[key] for key in own})
    return lm


def small_network(num_steps: int = 300) -> MaskedLM:
    """A small BERT, trained for a few seconds at a fixed 15%."""
    with needs("text"):
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
