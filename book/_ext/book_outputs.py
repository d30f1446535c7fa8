"""The outputs of the chapters as they are kept, and the records in them, gathered into one file for the pages.

    _build/executed/STEM/DIGEST.ipynb     a chapter that ran to its end, under the digest of what it ran from
    _build/records.json                   what all chapters said of themselves, and the words of their claims
"""

import fcntl
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from book_digest import ROOT, chapters, code_cells, digest, read_chapter

from mptlml.report.chapter import MOST_MEGABYTES
from mptlml.report.claims import claims, how, statement, value_text, verdict
from mptlml.report.records import MIME

KEPT = 4  # outputs kept of each chapter, newest first: going back to old sources is common


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; whoever asks for it meanwhile waits, in this process or another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def place(path: Path, state: str, root: Path = ROOT) -> Path:
    """Where the outputs of a chapter are kept for a digest."""
    return root / "_build" / "executed" / path.stem / f"{state}.ipynb"


def keep(notebook: nbformat.NotebookNode, target: Path) -> None:
    """Keep an executed chapter, and forget all but the last few of its older outputs."""
    write_whole(target, nbformat.writes(notebook))
    for path in sorted(target.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        path.unlink()


def read_notebook(path: Path) -> nbformat.NotebookNode | None:
    """A notebook, or None where there is no file or a torn one."""
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError):
        return None


def executed_chapter(path: Path, root: Path = ROOT, text: str | None = None) -> nbformat.NotebookNode | None:
    """The chapter as it is written today, with the outputs of its code; None where it has not run for its sources."""
    executed, notebook = read_notebook(place(path, digest(path, root), root)), read_chapter(path, root, text)
    if executed is None:
        return None
    for ours, theirs in zip(code_cells(notebook), code_cells(executed), strict=True):
        ours.outputs, ours.execution_count = theirs.outputs, theirs.execution_count
    notebook.metadata["language_info"] = executed.metadata.get("language_info", {})
    return notebook


def records_of(notebook: nbformat.NotebookNode) -> list[dict]:
    """The records that a chapter emitted, in order."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [output["data"][MIME] for output in outputs if MIME in output.get("data", {})]


def claim_entry(entry: dict, record: dict, seconds: float) -> dict:
    """A claim as claims.json has it: its entry in claims.yml and what its chapter measured, in `seconds` altogether."""
    return {
        **{name: entry[name] for name in ("id", "chapter", "kind", "place", "paper", "unit", "band", "why")},
        **{name: record.get(name) for name in ("value", "stderr", "spread", "seeds", "cases")},
        "statement": statement(entry, record), "text": value_text(entry, record), "how": how(entry, record), "verdict": verdict(entry, record),
        "seconds": round(seconds, 1), "url": f"notebooks/{entry['chapter']}.html#claim-{entry['id']}",
    }


def gather(root: Path = ROOT) -> dict:
    """What all chapters said of themselves. `problems` are sentences on what is missing, double or too large."""
    listed, made, found, problems = claims(root / "book" / "claims.yml"), [], {}, []
    for path in chapters(root):
        notebook = executed_chapter(path, root)
        records = records_of(notebook) if notebook else []
        cost = next((record for record in records if record["kind"] == "cost"), None)
        if cost is None:
            problems.append(f"{path.stem} has not run for its sources as they are, or not to report.closing()")
            continue
        made += [record for record in records if record["kind"] == "claim"]
        lines = "\n".join(cell.source for cell in notebook.cells).splitlines()
        found[path.stem] = {
            "title": next(line[2:].strip() for line in lines if line.startswith("# ")),
            **{name: cost[name] for name in ("seconds", "megabytes", "versions", "machine")},
            "data": {record["source"]: record["note"] for record in records if record["kind"] == "data"},
            "columns": {record["key"]: dict(record["columns"]) for record in records if record["kind"] == "columns"},
        }
        if cost["megabytes"] > MOST_MEGABYTES:
            problems.append(f"{path.stem} took {cost['megabytes']:.0f} MB, a Binder has {MOST_MEGABYTES}")
    times = Counter(record["id"] for record in made)
    problems += [f"claim {id} was made {times[id]} times" for id in listed if times[id] != 1]
    by_id = {record["id"]: record for record in made}
    entries = [claim_entry(entry, by_id[id], found[entry["chapter"]]["seconds"])
               for id, entry in listed.items() if id in by_id]
    return {"version": 1, "claims": entries, "chapters": found, "problems": problems}


def write_records(root: Path = ROOT) -> None:
    """Gather the records of all chapters into _build/records.json."""
    write_whole(root / "_build" / "records.json", json.dumps(gather(root), ensure_ascii=False))
