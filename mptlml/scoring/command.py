"""The command `mptlml`: chunks of a table are read, scored and appended to another, which is summed up."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import fields
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

Frames = Iterator[pd.DataFrame]
ABSENT = ("nan", "na", "n/a", "none", "null")  # cells of CSV and TSV that hold no text
RANKS = ("SLURM_PROCID", "SLURM_NTASKS"), ("RANK", "WORLD_SIZE")


def run(given: Namespace) -> None:
    """Do what the words say, or leave with a message."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        (_score if given.command == "score" else _mutants)(given)
    except KeyboardInterrupt:
        sys.exit("mptlml: stopped; score goes on with the same words and --resume")
    except (ValueError, TypeError, Warning, OSError, EOFError, ModuleNotFoundError) as error:
        sys.exit(f"mptlml {given.command} {given.file}: {error}")


def _score(given: Namespace) -> None:
    place, parts = _shard(given.shard)
    scorer, frames = _table(given.file, given, "text")
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
        new = scorer(frame.to_dict("list"))
        whole = pd.DataFrame(new, frame.index, dtype=object)
        write(_checked(whole, given), out, header=place == state["chunks"] == 0)
        state |= dict(chunks=state["chunks"] + 1, bytes=out.stat().st_size)
    if place == 0 or out.suffix == ".jsonl":
        print(summary(scorer, chunks(out, kind_of(out)), given.right, given.group))


def _state(out: Path, given: Namespace) -> dict[str, Any]:
    """How far a file is that is gone on with. ValueError: it was begun with other settings; OSError: it exists."""
    said = vars(given) | dict(resume=True, skip=True, right=None, group=None)  # may differ
    state = dict(settings=f"{__version__} {said}", chunks=0, bytes=0)
    beside = Path(f"{out}.state")
    if not (given.resume and beside.exists()):
        out.open("x").close()
        return state
    found = json.loads(beside.read_text())
    if found["settings"] != state["settings"]:
        raise ValueError(f"{out} was begun with other settings: see {beside}")
    os.truncate(out, found["bytes"])
    return found


def _checked(whole: pd.DataFrame, given: Namespace) -> pd.DataFrame:
    """Rows with their lines. Raises ValueError: one cannot be scored, and is not to be left out."""
    wrong = whole.left_out[~whole.left_out.isin([None, *QUIET])]
    if not (given.skip or wrong.empty):
        why = f"line {wrong.index[0]}: {wrong.iloc[0]}"
        raise ValueError(f"{why}; --skip leaves such rows out, --drop takes out characters")
    return whole.assign(line=whole.index)


def _mutants(given: Namespace) -> None:
    wilds = [text for frame in chunks(given.file, kind_of(given.file)) for text in frame.text]
    if len(wilds) != 1:
        raise ValueError(f"{given.file} holds {len(wilds)} sequences: give one wild type")
    wild, offset = wilds[0].strip(), 1
    if given.table:
        scorer, frames = _table(given.table, given, "mutant")
        table = pd.concat(frames)
        offset = offset_of(wild, table[scorer.names[0]])
        print(f"mptlml: the first letter of the wild type has number {offset}", file=sys.stderr)
        known = singles(scorer, wild, offset)
    else:
        scorer = _scorer(given, ["mutant"])
        known = singles(scorer, wild, offset)
        table = pd.DataFrame(dict(mutant=[*known]))
    whole = _checked(with_marginals(table, scorer.names[0], wild, offset, known), given)
    given.output.open("x").close()
    write(whole, given.output)
    if given.plot:
        heat_map(given.plot, known)
    if given.measured:
        print(rank_line(whole, given.measured))


def _shard(asked: str | None) -> tuple[int, int]:
    """Which part this is, of how many. Raises ValueError: none."""
    known = [f"{os.environ[one]}/{os.environ[all]}" for one, all in RANKS if all in os.environ]
    place, parts = map(int, (asked or [*known, "0/1"][0]).split("/"))
    if not 0 <= place < parts:
        raise ValueError(f"--shard must be I/N with 0 <= I < N, got {place}/{parts}")
    return place, parts


def _table(path: Path, given: Namespace, usual: str) -> tuple[Scorer, Frames]:
    """A Scorer for the texts of a table, and its chunks. Raises ValueError: no such column."""
    kind = kind_of(path, given.format)
    frames = chunks(path, kind)
    first = next(frames, pd.DataFrame())
    # an empty table has no columns
    names = [column(each, [*first] * bool(first.size)) for each in given.text or [usual]]
    return _scorer(given, names, ABSENT if kind in MARKS else ()), chain([first], frames)


def _scorer(given: Namespace, names: list[str], absent: tuple[str, ...] = ()) -> Scorer:
    """The Scorer of these words; what --set says beside its options is for loading the model."""
    known = {each.name for each in fields(Scorer)}
    said = {key: value for key, value in vars(given).items() if key in known and value is not None}
    said |= yaml.safe_load("\n".join(word.replace("=", ": ", 1) for word in given.set or ())) or {}
    load = {key: said.pop(key) for key in said.keys() - known}
    load.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    load |= dict(max_tokens=given.max_tokens, local_files_only=Path(given.model).is_dir())
    scorer = Scorer(**said | dict(text=names, absent=absent, load=load))
    how = "letter by letter (--drop '*-.' takes out stops and gaps), " if scorer.spaced else ""
    most = f"up to {scorer.lm.max_tokens} tokens, in {scorer.lm.model.dtype}"
    print(f"mptlml: reads {names}, {how}{most}", file=sys.stderr)
    return scorer
