"""What a table of scores says as a whole."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .scorer import Line, Scorer
from .tables import pd

BELOW = "below 0 one token at a time may rank otherwise than the area"


def summary(
    scorer: Scorer, frames: Iterable[pd.DataFrame], right: str | None, group: str | None
) -> str:
    """Means with their standard errors over rows, and the height of the curve where everything is hidden.

    right: the right alternative, or the column that names it; group: a column by which it is
    counted. Raises ValueError: a row that does not say which one is right.
    """
    sums: dict[tuple[str, str], Any] = {}  # count, sum and sum of squares, by group and fact
    for frame in frames:
        for row in frame.astype(object).fillna("").to_dict("records"):
            for name, fact in _facts(scorer, row, right).items():
                for key in {("", name), (str(row.get(group, "")), name)}:
                    sums[key] = sums.get(key, 0) + np.array([1, fact, fact**2])
    count, total, squares = np.array([*sums.values()], float).T
    mean = total / count
    sem = ((squares / count - mean**2).clip(0) / (count - 1)) ** 0.5
    told = pd.DataFrame(dict(mean=mean, sem=sem, count=count), pd.MultiIndex.from_tuples(sums))
    whole = told.loc[""]
    lines = [whole.to_string()]
    if group:
        lines.append(told.drop("").filter(regex="'(right|tie)", axis=0).to_string())
    hidden, tokens = (whole["mean"].filter(regex=f"^{key}").sum() for key in ("hidden", "tokens"))
    words = len(scorer.lm.words)
    if tokens:
        lead = f"{hidden / tokens + math.log(words):+.3f} nats per token"
        lines.append(f"all hidden, minus a blind guess among {words} words: {lead}, {BELOW}")
    return "\n".join(lines)


def _facts(scorer: Scorer, row: Line, right: str | None) -> Line:
    """What a row says in numbers."""
    facts: Line = {"left out": bool(row["left_out"])}
    for name in () if row["left_out"] else scorer.columns[:-1]:
        if not name.startswith("likeliest"):
            facts[name] = float(row[name])
            continue
        facts[f"tie, {name}"] = not row[name]
        if right and row[name]:
            facts[f"right, {name}"] = row[name] == _right(scorer.names, row, right)
    lengths = {fact for name, fact in facts.items() if name.startswith("tokens_")}
    return facts | ({"unequal lengths": len(lengths) > 1} if lengths else {})


def _right(names: Iterable[str], row: Line, right: str) -> str:
    """Which alternative is right: one column, or what a row says by number from 1, letter, name or text."""
    label = str(row.get(right)).strip()
    found = {right} & {*names} or {
        name
        for number, name in enumerate(names, 1)
        if label in (str(number), chr(64 + number), name, str(row[name]).strip())
    }
    if len(found) != 1:
        why = f"{label!r} in {right} names {len(found)} of the alternatives, from 1"
        raise ValueError(f"line {row['line']}: {why}")
    return found.pop()
