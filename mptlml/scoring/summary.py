"""What a table of scores says as a whole."""

import math
from collections.abc import Iterable

from .scorer import Line, Scorer
from .tables import pd

SAID = ["mean", "sem", "count"]
BELOW = "below 0 one token at a time may rank otherwise than the area"


def summary(
    scorer: Scorer, frames: Iterable[pd.DataFrame], right: str | None, group: str | None
) -> str:
    """Means with their standard errors over rows, and the height of the curve where everything is hidden.

    right: the right alternative, or the column that names it; group: a column by which it is
    counted. Raises ValueError: a row that does not say which is right.
    """
    tables = (frame.astype(object).fillna("").to_dict("records") for frame in frames)
    facts = pd.concat(
        pd.DataFrame(_facts(scorer, row, right) | {"": row.get(group)} for row in rows)
        for rows in tables
    )
    told = facts.drop(columns="").astype(float)
    lines = [told.agg(SAID).T.to_string()]
    hidden, tokens = (told.filter(regex=f"^{key}").sum().sum() for key in ("hidden", "tokens"))
    if group:
        told = told.filter(regex="^(right|tie)")
        lines.append(told.groupby(facts[""]).agg(SAID).T.to_string())
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
            facts[name] = row[name]
            continue
        facts[f"tie, {name}"] = not row[name]
        if right and row[name]:
            facts[f"right, {name}"] = row[name] == _right(scorer.names, row, right)
    lengths = {fact for name, fact in facts.items() if name.startswith("tokens_")}
    return facts | ({"unequal lengths": len(lengths) > 1} if lengths else {})


def _right(names: Iterable[str], row: Line, right: str) -> str:
    """Which alternative is right: one column, or what a row says by number from 1, letter, name or text."""
    label = str(row.get(right)).strip()
    for number, name in enumerate(names, 1):
        ways = (str(number), chr(64 + number), name, str(row[name]).strip())
        if right == name or label in ways:
            return name
    raise ValueError(f"line {row['line']}: {label!r} in {right} names no alternative, from 1")
