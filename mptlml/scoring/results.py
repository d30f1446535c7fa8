"""Results of texts, one line of JSON each, written as they are made: what a killed run wrote, the next keeps.

Items (texts, or pairs of them) are measured in units, each by itself: its masks and orders follow
from the seed and the numbers of its items, and its passes hold no others. So the lines of a unit
are the same, bit by bit, whichever process writes them and when.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..checks import check_count
from .files import replacing

UNIT = 16  # items
LOG_SECONDS = 30  # between two reports of progress where nobody watches them

Line = dict[str, Any]


@dataclass(frozen=True)
class Output:
    """Where results go: to `path`, or where several processes share the work to files beside it, one a part.

    part of parts: a process measures every `parts`-th unit only; a last run with parts = 1 and
    resume=True brings the files together. resume: keep the lines that such files hold; overwrite:
    replace a file.
    """

    path: Path
    part: int = 0
    parts: int = 1
    resume: bool = False
    overwrite: bool = False

    @property
    def own(self) -> Path:
        """The file that this part writes."""
        name = f"{self.path.stem}.{self.part + 1}-of-{self.parts}{self.path.suffix}"
        return self.path if self.parts == 1 else self.path.with_name(name)

    def check(self) -> None:
        """ValueError for a part that is none, a file that exists and is not to be replaced, a bad place."""
        if check_count(self.part, "part", at_least=0) >= check_count(self.parts, "parts"):
            raise ValueError(f"part must be one of 0..{self.parts - 1}, got {self.part}")
        if self.resume and self.overwrite:
            raise ValueError("say either resume=True or overwrite=True")
        for file in (self.own, settings_file(self.own)):
            check_place(file)
            if file.exists() and not (self.overwrite or self.resume and self.own.exists()):
                go_on = "" if self.resume else "go on with it by resume=True, or "
                raise ValueError(f"{file} exists: {go_on}replace it by overwrite=True")


def check_place(file: Path) -> None:
    """Refuse a file that cannot be written, by trying its folder: ValueError."""
    try:
        tempfile.TemporaryFile(dir=file.parent).close()
    except OSError:
        raise ValueError(f"{file}: {file.parent} is no folder that can be written to") from None
    if file.is_symlink() or file.exists() and not (file.is_file() and os.access(file, os.W_OK)):
        raise ValueError(f"{file} is no ordinary file that can be written to")


def settings_file(path: Path) -> Path:
    """Where the settings of a file of results lie: scores.settings.json beside scores.jsonl."""
    return path.with_name(path.name.removesuffix(".jsonl") + ".settings.json")


def write_results(
    output: Output,
    heads: Sequence[Line],
    measure: Callable[[Sequence[int]], Sequence[Line]],
    *,
    settings: Line,
    about: Mapping[str, Any],
    what: str,
    left_out: Callable[[str], None] | None = None,
) -> Path:
    """Write one line for each item, its head and what is measured of it, and return the path of the file.

    heads: what tells an item from others; its `line` must be above that of the item before.
    measure(places) answers for some items of a unit. settings: lines of others are not gone on
    with; they and `about` lie in `settings_file`. what: the items, in words. left_out: is told of
    items that have no finite answer, and no line then. Raises ValueError: see `Output.check`; lines
    of other settings or items; such an item where there is no `left_out`.
    """
    output.check()
    if not all(one["line"] < other["line"] for one, other in pairwise(heads)):
        raise ValueError(f"the lines of {what} must increase")
    run = short_digest(json.dumps(settings))
    heads = [head | dict(settings=run) for head in heads]
    units = [
        range(start, min(start + UNIT, len(heads)))
        for start in range(UNIT * output.part, len(heads), UNIT * output.parts)
    ]
    found = {
        place: line for file in _written(output) for place, line in _lines(file, heads).items()
    }
    done = {place: found[place] for unit in units if found.keys() >= set(unit) for place in unit}
    begun, seconds = False, 0.1 if sys.stderr.isatty() else LOG_SECONDS
    with tqdm(total=sum(map(len, units)), desc=what, mininterval=seconds) as bar:
        for unit in units:
            if unit[0] not in done:
                new = _measured(unit, heads, measure, left_out)
                done |= new
                if begun:
                    with output.own.open("a", encoding="utf-8") as there:
                        there.write("".join(new.values()))
                else:  # what an earlier run wrote stays until there is something to take its place
                    _write(output.own, {**about, **settings}, done)
                    begun = True
            bar.update(len(unit))
    _write(output.own, {**about, **settings}, done)
    return output.own


def read_results(path: Path) -> list[Line]:
    """The whole lines of a file that `write_results` writes, also of one that is being written."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def short_digest(text: str) -> str:
    """Sixteen hexadecimal digits that tell a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _measured(
    unit: Sequence[int],
    heads: Sequence[Line],
    measure: Callable[[Sequence[int]], Sequence[Line]],
    left_out: Callable[[str], None] | None,
) -> dict[int, str]:
    """The line of each item. What has no finite answer by itself is left out, or else a ValueError."""

    def lines(places: Sequence[int]) -> dict[int, str]:
        found = zip(places, measure(places), strict=True)
        return {place: _as_json(heads[place] | line) for place, line in found}

    try:
        return lines(unit)
    except ValueError:
        good = []
        for place in unit:
            try:
                lines([place])
            except ValueError as error:
                message = f"line {heads[place]['line']}: {error}"
                if left_out is None:
                    raise ValueError(message) from None
                left_out(message)
            else:
                good.append(place)
        if len(good) == len(unit):
            raise
        return lines(good) if good else {}


def _as_json(line: Line) -> str:
    try:
        return json.dumps(line, allow_nan=False) + "\n"
    except ValueError:
        raise ValueError("the model has no finite score for it") from None


def _written(output: Output) -> set[Path]:
    """The files whose lines are kept: this part's own, and those of other parts beside it."""
    path = output.path
    a_part = re.compile(re.escape(path.stem) + r"\.\d+-of-\d+" + re.escape(path.suffix))
    beside = {file for file in path.parent.iterdir() if a_part.fullmatch(file.name)}
    return {file for file in {output.own, *beside} if file.exists()} if output.resume else set()


def _lines(file: Path, heads: Sequence[Line]) -> dict[int, str]:
    """The whole lines that a file holds, by the places of their items. Raises ValueError: those of others."""
    places, found = {head["line"]: place for place, head in enumerate(heads)}, {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if number > 1 and not line.endswith("\n"):  # it was cut off
            continue
        try:
            there = json.loads(line, parse_constant=int)  # NaN is refused
            run, place = there["settings"], places.get(there["line"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(
                f"line {number} of {file} is not from a file of results: choose another file"
            ) from None
        if run != heads[0]["settings"]:
            raise ValueError(
                f"{file} was written with other settings (see {settings_file(file)}): "
                "choose another file"
            )
        if place is None or not heads[place].items() <= there.items():
            raise ValueError(
                f"{file} holds results of another text on line {there['line']}, "
                "in another place, or by another tokenizer: choose another file"
            )
        found[place] = line
    return found


def _write(file: Path, about: Line, lines: dict[int, str]) -> None:
    """The file, and then its settings beside it. A line names its settings, for a kill between the two."""
    whole = "".join(lines[place] for place in sorted(lines))
    for path, text in ((file, whole), (settings_file(file), json.dumps(about, indent=1) + "\n")):
        with replacing(path) as new:
            new.write_text(text, encoding="utf-8")
