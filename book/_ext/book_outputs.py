"""The outputs of the chapters as they are kept, and the records in them.

_build/executed/STEM/DIGEST.ipynb     a chapter that ran to its end, under the digest of what it ran from
_build/records.json                   what all chapters said of themselves, and the words of their claims

python book/_ext/book_outputs.py      says which chapters show what stands in for data
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import nbformat
import yaml
from book_digest import ROOT, chapters, code_cells, digest, read_chapter

from mptlml.files import replacing
from mptlml_book.report.claims import claims, file_digest, how, statement, value_text, verdict
from mptlml_book.report.records import MIME, NAMED

KEPT = 4  # outputs kept of each chapter, newest first: going back to old sources is common


def place(path: Path, state: str, root: Path = ROOT) -> Path:
    """Where the outputs of a chapter are kept for a digest."""
    return root / "_build" / "executed" / path.stem / f"{state}.ipynb"


def keep(notebook: nbformat.NotebookNode, target: Path) -> None:
    """Keep an executed chapter, and forget all but the last few of its older outputs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as new:
        nbformat.write(notebook, new)
    for path in sorted(target.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        path.unlink()


def executed_chapter(
    path: Path, root: Path = ROOT, text: str | None = None
) -> nbformat.NotebookNode | None:
    """The chapter as it is today, with the outputs of its code; None where it has not run for its sources.

    Which stored results it reads, only its outputs know: they name each file, with the digest of
    what it held.
    """
    kept, notebook = place(path, digest(path, root), root), read_chapter(path, text)
    if not kept.is_file():
        return None
    executed = nbformat.read(kept, as_version=4)
    read = {
        (root / "book" / "data" / record["file"], record["digest"])
        for record in records_of(executed)
        if record["kind"] == "stored"
    }
    if not all(file.is_file() and file_digest(file) == digits for file, digits in read):
        return None
    for ours, theirs in zip(code_cells(notebook), code_cells(executed), strict=True):
        ours.outputs, ours.execution_count = theirs.outputs, theirs.execution_count
    notebook.metadata["language_info"] = executed.metadata.get("language_info", {})
    return notebook


def records_of(notebook: nbformat.NotebookNode) -> list[dict]:
    """The records that a chapter emitted, in order, each with the name of its cell's figure, if any."""
    found = []
    for cell in code_cells(notebook):
        figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name", "")
        found += [
            output["data"][MIME] | {"figure": figure}
            for output in cell.outputs
            if MIME in output.get("data", {})
        ]
    return found


def account(notebook: nbformat.NotebookNode | None) -> dict | None:
    """What a chapter said of itself; None where it did not come to its end."""
    records = defaultdict(list)
    for record in records_of(notebook) if notebook else []:
        records[record["kind"]].append(record)
    if not records["cost"]:
        return None
    lines = "\n".join(cell.source for cell in notebook.cells).splitlines()
    return records["cost"][0] | {
        "title": next(line[2:].strip() for line in lines if line.startswith("# ")),
        "claims": records["claim"],
        "data": [
            {key: record[key] for key in ("source", "size", "digest", "note")}
            for record in records["data"]
        ],
        "stored": sorted({record["file"] for record in records["stored"]}),
        "columns": {record["key"]: dict(record["columns"]) for record in records["columns"]},
        "glued": {
            output.metadata.scrapbook.name: output.data[NAMED + "text/plain"]
            for cell in code_cells(notebook)
            for output in cell.outputs
            if NAMED + "text/plain" in output.get("data", {})
        },
    }


def claim_entry(entry: dict, record: dict, seconds: float) -> dict:
    """A claim as claims.json has it: its entry in claims.yml, and what its chapter measured in `seconds`."""
    return {
        **{
            name: entry[name]
            for name in ("id", "chapter", "kind", "place", "paper", "unit", "band", "why")
        },
        "run": entry.get("run", "here"),
        **{name: record.get(name) for name in ("value", "stderr", "spread", "seeds", "cases")},
        "statement": statement(entry, record),
        "text": value_text(entry, record),
        "how": how(entry, record),
        "verdict": verdict(entry, record),
        "cell": record.get("figure") or f"measured-{entry['id']}",
        "seconds": seconds,
        "url": f"notebooks/{entry['chapter']}.html#claim-{entry['id']}",
    }


def gather(root: Path = ROOT) -> None:
    """Write down what all chapters said. `problems` are sentences on what is missing or double."""
    accounts = {path.stem: account(executed_chapter(path, root)) for path in chapters(root)}
    found = {stem: chapter for stem, chapter in accounts.items() if chapter}
    known = yaml.safe_load((root / "book" / "data_sets.yml").read_text(encoding="utf-8"))
    for stem, chapter in found.items():
        for data in chapter["data"]:
            data["words"] = known.get(stem, {}).get(data["digest"], "not the data of the bands")
    listed, made = claims(root / "book" / "claims.yml"), defaultdict(list)
    for record in [record for chapter in found.values() for record in chapter["claims"]]:
        made[record["id"]].append(record)
    entries = [
        claim_entry(entry, made[id][0], found[entry["chapter"]]["seconds"])
        for id, entry in listed.items()
        if id in made
    ]
    problems = [
        f"{stem} has not run for its sources as they are, or not to report.closing()"
        for stem in accounts
        if stem not in found
    ]
    problems += [
        f"claim {id} was made {len(made[id])} times" for id in listed if len(made[id]) != 1
    ]
    said = json.dumps(
        {"claims": entries, "chapters": found, "problems": problems}, ensure_ascii=False
    )
    target = root / "_build" / "records.json"
    # else the pages stay as they are
    if not target.is_file() or target.read_text(encoding="utf-8") != said:
        with replacing(target) as new:
            new.write_text(said, encoding="utf-8")


def stand_ins(root: Path = ROOT, names: Collection[str] = ()) -> int:
    """Say which chapters (of those named, or of all) show what stands in for data, and how to ask again.

    Returns 1 where that is not allowed, else 0.
    """
    said = json.loads((root / "_build" / "records.json").read_text(encoding="utf-8"))["chapters"]
    notes = {
        stem: [data["note"] for data in chapter["data"] if data["note"]]
        for stem, chapter in said.items()
        if not names or stem in names
    }
    found = [stem for stem in notes if notes[stem]]
    if found:
        print("\n".join(f"{stem}: {notes[stem][0]}" for stem in found))
        print(
            f"{len(found)} chapters show what stands in for data: {', '.join(found)}; "
            "make book asks again once there is a connection"
        )
    refused = bool(found and os.environ.get("MPTLML_REQUIRE_DATA"))
    if refused:
        print("MPTLML_REQUIRE_DATA is set, and that is not allowed", file=sys.stderr)
    return int(refused)


if __name__ == "__main__":
    sys.exit(stand_ins())
