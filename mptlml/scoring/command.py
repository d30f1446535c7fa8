"""The command `mptlml`: chunks of a table are read, scored and appended to another, which is summed up."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from inspect import signature
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
import yaml
from tqdm import tqdm

from .. import __version__
from .mutants import heat_map, offset_of, rank_line, singles, with_marginals
from .scorer import QUIET, Scorer
from .summary import summary
from .tables import MARKS, chunks, column, kind_of, pd, write

RANKS = "$RANK/$WORLD_SIZE", "$SLURM_PROCID/$SLURM_STEP_NUM_TASKS", "0/1"


def run(given: Namespace) -> None:
    """Do what the words say, or leave with a message."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        if kind_of(given.output) in ("txt", "fasta"):
            raise ValueError(f"{given.output} must end in .jsonl, .csv or .tsv")
        (_score if given.command == "score" else _mutants)(given)
    except Exception as error:
        sys.exit(f"mptlml {given.command} {given.file}: {error}")


def _score(given: Namespace) -> None:
    place, parts = _shard(given.shard)
    scorer, frames = _table(given.file, given)
    mine = islice(frames, place, None, parts)
    if given.check:
        for frame in mine:
            for line, row in zip(frame.index, scorer.read(frame), strict=True):
                if isinstance(row, str):
                    print(f"line {line}: {row}")
        return
    out = given.output
    if parts > 1:
        out = out.with_name(f"{out.stem}.{place:04}-of-{parts:04}{out.suffix}")
    state = _state(out, given)
    for frame in tqdm(islice(mine, state["chunks"], None), "chunks of 64 rows", disable=None):
        # before the first chunk too, so that a run that is killed within it goes on
        Path(f"{out}.new").write_text(json.dumps(state))
        os.replace(f"{out}.new", f"{out}.state")
        whole = pd.DataFrame(scorer(frame.to_dict("list")), frame.index, dtype=object)
        write(_checked(whole, given), out, header=place == state["chunks"] == 0)
        state |= dict(chunks=state["chunks"] + 1, bytes=out.stat().st_size)
    if place == 0 or kind_of(out) == "jsonl":
        print(summary(scorer, chunks(out, kind_of(out)), given.right, given.group))


def _state(out: Path, given: Namespace) -> dict[str, Any]:
    """How far a file is that is gone on with. Raises FileExistsError: it is there, and is not gone on with."""
    said = vars(given) | dict(resume=True, skip=True, right=None, group=None)  # may differ
    changed = given.file.exists() and given.file.stat().st_mtime_ns
    new: Any = dict(settings=f"{__version__} {said} {changed}", chunks=0, bytes=0)
    beside = Path(f"{out}.state")
    state = json.loads(beside.read_text()) if given.resume and beside.exists() else new
    out.touch()
    has = out.stat().st_size
    if state["settings"] != new["settings"] or has < state["bytes"] or has and state is new:
        raise FileExistsError(
            f"{out} exists; --resume goes on with what the same words began, as {beside} says"
        )
    os.truncate(out, state["bytes"])
    return state


def _checked(whole: pd.DataFrame, given: Namespace) -> pd.DataFrame:
    """Rows with their lines. Raises ValueError: one cannot be scored, and is not to be left out."""
    wrong = whole.left_out[~whole.left_out.isin([None, *QUIET])]
    if not (given.skip or wrong.empty):
        raise ValueError(f"line {wrong.index[0]}: {wrong.iloc[0]}; --skip leaves such rows out")
    return whole.assign(line=whole.index)


def _mutants(given: Namespace) -> None:
    wilds = [text for frame in chunks(given.file, kind_of(given.file)) for text in frame.text]
    if len(wilds) != 1:
        raise ValueError(f"{given.file} holds {len(wilds)} sequences: give one wild type")
    wild, offset = wilds[0].strip(), 1
    given.text = given.text or ["mutant"]
    if given.table:
        scorer, frames = _table(given.table, given)
        table = pd.concat(frames)
        offset = offset_of(wild, table[scorer.names[0]])
        print(f"mptlml: the first letter of the wild type has number {offset}", file=sys.stderr)
    else:
        scorer = _scorer(given)
    known = singles(scorer, wild, offset)
    if not given.table:
        table = pd.DataFrame({scorer.names[0]: [*known]})
    whole = _checked(with_marginals(table, scorer.names[0], wild, offset, known), given)
    given.output.touch(exist_ok=False)
    write(whole, given.output)
    if given.plot:
        heat_map(given.plot, known)
    if given.measured:
        print(rank_line(whole, given.measured))


def _shard(asked: str | None) -> tuple[int, int]:
    """Which part this is, of how many. Raises ValueError: none."""
    said = asked or next(part for part in map(os.path.expandvars, RANKS) if "$" not in part)
    place, parts = map(int, said.split("/"))
    if not 0 <= place < parts:
        raise ValueError(f"--shard must be I/N with 0 <= I < N, got {place}/{parts}")
    return place, parts


def _table(path: Path, given: Namespace) -> tuple[Scorer, Iterator[pd.DataFrame]]:
    """A Scorer for the texts of a table, and its chunks. Raises ValueError: no rows, no such column.

    What is said of columns becomes their names.
    """
    kind = kind_of(path, given.format)
    frames = chunks(path, kind)
    first = next(frames, pd.DataFrame())
    if first.empty:
        raise ValueError("holds no rows")
    given.text = [column(each, [*first]) for each in given.text or ["text"]]
    given.absent = "nan na n/a none null".split() if kind in MARKS else ()
    for each in ("right", "group", "measured"):
        if said := vars(given).get(each):
            setattr(given, each, column(said, [*first]))
    return _scorer(given), chain([first], frames)


def _scorer(given: Namespace) -> Scorer:
    """The Scorer of these words; what --set says beside its options is for loading the model."""
    known = signature(Scorer).parameters
    said = {key: value for key, value in vars(given).items() if key in known and value is not None}
    said |= yaml.safe_load("\n".join(word.replace("=", ": ", 1) for word in given.set or ())) or {}
    load = dict(
        device="cuda" if torch.cuda.is_available() else "cpu",
        max_tokens=given.max_tokens,
        local_files_only=Path(given.model).is_dir(),
    )
    load |= {key: said.pop(key) for key in said.keys() - known}
    scorer = Scorer(**said, load=load)
    how = scorer.spaced * "letter by letter (--drop '*-.' takes out stops and gaps), "
    how += f"up to {scorer.lm.max_tokens} tokens, in {scorer.lm.model.dtype}"
    print(f"mptlml: reads {scorer.names}, {how}", file=sys.stderr)
    return scorer
