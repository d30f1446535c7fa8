"""What a table of scores says as a whole."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from .scorer import Line, Scorer
from .tables import pd


def summary(
    scorer: Scorer, frames: Iterable[pd.DataFrame], right: str | None, group: str | None
) -> str:
    """Means with their standard errors over rows, and the height of the curve where everything is hidden.

    right: the right alternative, or the column that names it; group: a column by which it is
    counted. Raises ValueError: a row that does not say which one is right.
    """
    sums: dict[str, Any] = defaultdict(lambda: np.zeros(3))  # of a fact, its square, and 1
    for frame in frames:
        for row in frame.to_dict("records"):
            for name, fact in _facts(scorer, row, right).items():
                sums[name] += fact, fact**2, 1
                if group and name.startswith(("right", "tie")):
                    sums[f"{name}, {row[group]}"] += fact, fact**2, 1
    table = pd.DataFrame(sums, range(3)).T.sort_index()
    total, squares, count = map(table.get, table)
    mean = total / count
    sem = ((squares / count - mean**2).clip(0) / (count - 1)) ** 0.5
    said = pd.DataFrame(dict(mean=mean, sem=sem, count=count)).to_string()
    hidden, tokens = (mean.filter(regex=f"^{key}").sum() for key in ("hidden", "tokens"))
    words = len(scorer.lm.words)
    if tokens:
        lead = f"{hidden / tokens + math.log(words):+.3f} nats per token"
        lead += ", below 0 one token at a time may rank otherwise than the area"
        said += f"\nall hidden, minus a blind guess among {words} words: {lead}"
    return said


def _facts(scorer: Scorer, row: Line, right: str | None) -> Line:
    """What a row says in numbers.

    Which alternative is right: one column, or what a cell says by number from 1, letter, name or text.
    """
    facts: Line = {"left out": bool(row["left_out"])}
    for name in () if row["left_out"] else scorer.columns[:-1]:
        if not name.startswith("likeliest"):
            facts[name] = float(row[name])
            continue
        facts["unequal lengths"] = len({row[f"tokens{end}"] for end in scorer.ends}) > 1
        facts[f"tie, {name}"] = not row[name]
        if right and row[name]:
            label = str(row[right]).strip()
            found = {right} & {*scorer.names} or {
                one
                for number, one in enumerate(scorer.names, 1)
                if label in (str(number), chr(64 + number), one, str(row[one]).strip())
            }
            if len(found) != 1:
                raise ValueError(
                    f"line {row['line']}: {label!r} in {right} names {len(found)} alternatives"
                )
            facts[f"right, {name}"] = row[name] in found
    return facts
