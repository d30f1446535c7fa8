"""Mutants of a wild type: A10G, A10G:K12R, p.Ala10Gly, synonyms and the wild type itself."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from .scorer import Scorer
from .tables import pd

AMINO = "ACDEFGHIKLMNPQRSTVWY"  # 20 letters
THREE = "Ala Cys Asp Glu Phe Gly His Ile Lys Leu Met Asn Pro Gln Arg Ser Thr Val Trp Tyr Ter"
ONE = dict(zip(THREE.split(), f"{AMINO}*", strict=True))
EDIT = re.compile(r"[A-Z]\d+[A-Z*]")


def singles(scorer: Scorer, wild: str, offset: int) -> dict[str, float]:
    """The masked marginals of all single mutants, by name, nats; offset: the number of the first letter.

    How much likelier a letter is than that of the wild type where its place is hidden: L passes
    answer for all (Meier et al. 2021). Raises ValueError: the model knows no such single letters.
    """
    read = scorer.lm.tokenise
    ids = torch.tensor(read(" ".join(wild)))
    if len(ids) != len(wild) or not scorer.spaced:
        raise ValueError("mutants need a tokenizer of single letters, and a wild type of these")
    said = scorer.lm.masked_marginals(ids)
    gains = (said - said.gather(1, ids[:, None]))[:, read(" ".join(AMINO))].tolist()
    return {
        f"{old}{place + offset}{new}": gains[place][k]
        for place, old in enumerate(wild)
        for k, new in enumerate(AMINO)
    }


def with_marginals(
    table: pd.DataFrame, column: str, wild: str, offset: int, known: Mapping[str, float]
) -> pd.DataFrame:
    """A table of mutants, with the wild type, each mutant's sequence, and the sum of its masked marginals.

    A row says in `left_out` why it is no mutant of this wild type; `mutated_sequence` must agree.
    """
    lines = []
    for cells in table.to_dict("records"):
        letters, gain = [*wild], 0.0
        try:
            for name in substitutions(cells[column]):
                gain += known[name]
                letters[int(name[1:-1]) - offset] = name[-1]
            text = "".join(letters)
            if cells.get("mutated_sequence", text) != text:
                raise ValueError("mutated_sequence is that of another mutant")
            lines.append([wild, text, gain, None])
        except (ValueError, KeyError) as error:
            why = f"{cells[column]} is no mutant of letters {offset}, ...: {error}"
            lines.append([wild, None, None, why])
    new = pd.DataFrame(
        lines, table.index, ["wild", "mutated_sequence", "masked_marginal", "left_out"]
    )
    return table.drop(columns=["mutated_sequence", "left_out"], errors="ignore").join(new)


def short(mutant: Any) -> str:
    """A mutant in letters for three, such as A10G for p.Ala10Gly and A10A for A10=."""
    text = re.sub("[A-Z][a-z]{2}", lambda found: ONE.get(found[0], found[0]), str(mutant))
    return re.sub(r"([A-Z])(\d+)=", r"\1\2\1", text.replace("p.", "").strip("_"))


def substitutions(mutant: Any) -> list[str]:
    """The substitutions of a mutant, such as A10G. Raises ValueError: there are others, or two of one letter."""
    found, left = EDIT.findall(short(mutant)), EDIT.sub("", short(mutant)).strip(":;,/+_()[]= ")
    if left.upper() != "WT" * (not found) or len({name[1:-1] for name in found}) < len(found):
        raise ValueError("write it as A10G or A10G:K12R")
    return found


def offset_of(wild: str, mutants: Iterable[Any]) -> int:
    """The number of the wild type's first letter: 1, unless another number alone fits all mutants."""
    said = {
        (int(name[1:-1]), name[0]) for mutant in mutants for name in EDIT.findall(short(mutant))
    }
    tried = [min(said)[0] - place for place in range(len(wild)) if said]
    fits = [start for start in tried if said <= {*enumerate(wild, start)}]
    return fits[0] if len(fits) == 1 else 1


def heat_map(path: Path, gains: Mapping[str, float]) -> None:
    """Draw what each letter gains or loses at each place, minus the wild type, nats."""
    from matplotlib import colors, pyplot

    values = np.reshape([*gains.values()], (-1, 20)).T
    pyplot.imshow(
        values, cmap="RdBu", norm=colors.CenteredNorm(), aspect="auto", interpolation="nearest"
    )
    pyplot.yticks(range(20), AMINO)
    pyplot.xlabel("place, from 0; colour: what the letter at the left gains there, nats")
    pyplot.colorbar()
    pyplot.savefig(path)


def rank_line(table: pd.DataFrame, measured: str) -> str:
    """The rank correlation of masked marginals with measured values, and its interval at 95% (Fisher)."""
    pairs = table[["masked_marginal", measured]].apply(pd.to_numeric, errors="coerce").dropna()
    found = stats.pearsonr(*pairs.rank().to_numpy().T)
    low, high = found.confidence_interval()
    return f"rank correlation with {measured}: {found.statistic:.3f} ({low:.3f} to {high:.3f})"
