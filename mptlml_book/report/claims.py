"""Claims: the entries of book/claims.yml, the check of a measured value against its band, and the text for the pages.

At run time a claim needs only its band: the words of an entry change no output of a chapter.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, SupportsFloat

import yaml

from mptlml.checks import check_count

from . import records
from .records import emit

NOT_RUN, OTHER_DATA = "not run here", "other data"
KINDS = ("before", "after", "exact")  # origin of a band; the scorecard says what each word means
# origin of a value, and its words
RUNS = {"here": "", "both": "against a stored run", "stored": "stored run"}
VERDICTS = (
    "reproduced",
    "partly",
    "not reproduced",
    "misprint",
    "scripts differ",
    "from the authors",
    "new",
    NOT_RUN,
    OTHER_DATA,
)
NEEDED = "id chapter kind place statement paper unit how band why verdict format".split()
# units of pure numbers
PURE = re.compile(r"ratio|relative|power|probability|(rank )?correlation|share|unit of")
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
BOOK = Path(__file__).parents[2] / "book"
Fields = dict[str, Any]  # of an entry in book/claims.yml, or of the record that its chapter emits


def stored(name: str) -> Path:
    """The path of a file of stored results, book/data/NAME; that it was read is emitted.

    Raises FileNotFoundError: no such file.
    """
    path = BOOK / "data" / name
    if not path.is_file():
        raise FileNotFoundError(f"no stored results in {path}")
    emit("stored", f"a stored run, {name}", file=name)
    return path


@cache
def data_sets(chapter: str) -> dict[str, str]:
    """For which data the bands of a chapter were set: {digest: words}, from book/data_sets.yml."""
    sets: dict[str, dict[str, str]] = yaml.safe_load(
        (BOOK / "data_sets.yml").read_text(encoding="utf-8")
    )
    return sets.get(chapter, {})


class ClaimError(AssertionError):
    """A measured value lies outside the band of its claim."""


@cache
def claims(path: Path | None = None) -> dict[str, Fields]:
    """All claims of the book, or of another such file: {id: entry}, in the file's order."""
    path = path or BOOK / "claims.yml"
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    for entry in entries:
        if lacking := [name for name in NEEDED if name not in entry]:
            raise ValueError(f"{path.name}: {entry.get('id')} lacks {', '.join(lacking)}")
        # YAML takes 1e-10 for a text
        entry["band"] = [float(end) if isinstance(end, str) else end for end in entry["band"]]
    return {entry["id"]: entry for entry in entries}


def claim(
    id: str,
    value: SupportsFloat,
    stderr: SupportsFloat | None = None,
    *,
    spread: SupportsFloat | None = None,
    seeds: int | None = None,
    cases: int | None = None,
) -> None:
    """Check a measured value against the claim's band, and emit it.

    On data other than those for which the bands of the chapter were set, a claim that is "exact" or
    says `data: any` is checked all the same, and any other is shown with a word on that. One with a
    stored run behind it is so only outside its band.

    stderr: the standard error of the value. spread: a standard deviation to show after the ±
    instead. seeds, cases: the numbers of seeds and of cases (models, rows, masks, as `how` in
    book/claims.yml says) behind the value; each must be given if and only if `how` shows it, as
    {seeds} and {cases}.

    Raises ClaimError: a value outside the band, or NaN; KeyError: a claim that book/claims.yml does
    not list; ValueError: counts below 1 or that do not match `how`, or an error that is not finite.
    """
    entry, record = claims()[id], {"id": id, "value": float(value)}
    for name, error in (("stderr", stderr), ("spread", spread)):
        record[name] = None if error is None else float(error)
    for name, count in (("seeds", seeds), ("cases", cases)):
        record[name] = None if count is None else check_count(count, f"{id}: {name}")
    how(entry, record)
    (low, high), text = entry["band"], value_text({"format": ".4g"}, record)
    inside = low <= record["value"] <= high  # NaN is not
    anywhere = entry["kind"] == "exact" or entry.get("data") == "any" or "run" in entry and inside
    if records.running.other and not anywhere:
        words = "; ".join(data_sets(records.running.name).values())
        emit(
            "claim",
            f"claim {id}: {text} on other data",
            **record,
            other=f"the band was set for {words}",
        )
    elif inside:
        emit("claim", f"claim {id}: {text}, in its band {low:g} to {high:g}", **record)
    else:
        raise ClaimError(
            f"{id}: {statement(entry, record)} Measured {text}, the band is [{low}, {high}] "
            f"({entry['why']})"
        )


def not_run(id: str, reason: str) -> None:
    """Report that a claim could not be checked here, and why. Raises KeyError: a claim that is not listed."""
    emit("claim", f"claim {claims()[id]['id']}: {NOT_RUN} ({reason})", id=id, reason=reason)


def number(value: float, form: str) -> str:
    """A number as people write it: with a true minus sign, no minus before zero, and 4 × 10⁻¹⁵ in place of 4e-15."""
    digits, _, power = format(value, form).partition("e")
    if not digits.strip("+-0."):
        digits, power = digits.lstrip("+-"), ""
    tens = f" × 10{str(int(power)).translate(SUPERSCRIPTS)}" if power else ""
    return digits.replace("-", "−") + tens


def with_unit(text: str, unit: str | None) -> str:
    """A number's text with its unit; the text alone where the unit only names a kind of pure number."""
    if unit is None or PURE.match(unit):
        return text
    return f"{text}%" if unit == "%" else f"{text} {unit}"


def value_text(entry: Fields, record: Fields) -> str:
    """The value and its error as pages write them, "2.06 ± 0.01"; a dash where the claim was not run."""
    numbers = [record.get(name) for name in ("value", "stderr", "spread")]
    return (
        " ± ".join(number(found, entry["format"]) for found in numbers if found is not None) or "–"
    )


def band_text(entry: Fields) -> str:
    """The band as pages write it, "0 to 1 × 10⁻¹⁰"."""
    low, high = (number(end, "g") for end in entry["band"])
    return f"exactly {low}" if low == high else f"{low} to {high}"


def statement(entry: Fields, record: Fields) -> str:
    """The statement, with the measured value and its unit for {value}. Where the claim was not run, the band.

    After "at most" stands the upper end of the band alone.
    """
    text, said = value_text(entry, record), str(entry["statement"])
    if "reason" in record:
        said = f"Expected, but not run here: {said}"
        text = number(entry["band"][1], "g") if "at most {value}" in said else band_text(entry)
    return said.replace("{value}", with_unit(text, entry["unit"]))


def verdict(entry: Fields, record: Fields) -> str:
    """The verdict on the claim, one of VERDICTS."""
    return NOT_RUN if "reason" in record else OTHER_DATA if "other" in record else entry["verdict"]


def how(entry: Fields, record: Fields) -> str:
    """How the value was measured, with its counts, or why it was not. Raises ValueError: counts do not match `how`."""
    if "reason" in record:
        return record["reason"]
    for name in ("seeds", "cases"):
        if (record[name] is not None) != (f"{{{name}}}" in entry["how"]):
            raise ValueError(
                f"{entry['id']}: {name} = {record[name]}, but its `how` in claims.yml is {entry['how']!r}"
            )
    counts = {name: f"{record[name]:,}" for name in ("seeds", "cases") if record[name]}
    other = f"; other data: {record['other']}" if "other" in record else ""
    return " ".join(entry["how"].split()).format(**counts) + other
