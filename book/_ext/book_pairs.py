"""Write each chapter's source notebooks/x.md into its twin x.ipynb, without outputs: what `make pairs` runs.

An edit that reached the twin alone (made by an editor without Jupytext) is not written over: where
a twin holds cells that neither its source has, nor the source as it was last committed or last
written into it, or lacks some that it was given and its source still has, both files stay as they
are, and the run says how to keep either.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
from book_reader import ROOT, chapters
from jupytext.config import load_jupytext_config

FORMAT = "md:myst"


def cells(notebook: nbformat.NotebookNode, config: object) -> dict[str, str]:
    """{digest: first line} of the cells that a notebook would have as a text: kinds, sources and tags."""
    as_text = jupytext.reads(jupytext.writes(notebook, FORMAT, config=config), FORMAT)
    said = [
        json.dumps([cell.cell_type, cell.source.strip(), cell.metadata], sort_keys=True)
        for cell in as_text.cells
    ]
    return {
        hashlib.sha256(one.encode()).hexdigest()[:16]: cell.source.strip().split("\n")[0]
        for one, cell in zip(said, as_text.cells, strict=True)
    }


def committed(path: Path, root: Path) -> str:
    """The text of a file as it was last committed; "" for none."""
    command = ["git", "show", f"HEAD:./{path.relative_to(root)}"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    return done.stdout.decode(errors="replace")


def apart(source: Path, written: list[str], config: object, root: Path) -> str:
    """What was done to the twin alone, in words; "" for nothing.

    `written` names the cells that the twin was last given; what was committed serves where there
    are none.
    """
    twin = source.with_suffix(".ipynb")
    try:
        held = cells(nbformat.reads(twin.read_text(encoding="utf-8"), as_version=4), config)
    except (OSError, nbformat.reader.NotJSONError):  # no twin, or one with the marks of a merge
        return ""
    there = cells(jupytext.reads(source.read_text(encoding="utf-8"), FORMAT), config)
    if held.keys() == there.keys():
        return ""
    before = cells(jupytext.reads(committed(source, root), FORMAT), config)
    added = held.keys() - there.keys() - before.keys() - set(written)
    gone = there.keys() & (written or before.keys()) - held.keys()
    for names, verb, having, cell in (
        (added, "holds", "has not", held),
        (gone, "lacks", "still has", there),
    ):
        if names:
            first = next(line for name, line in cell.items() if name in names)
            return (
                f"{verb} {len(names)} cells that {source.name} {having}; the first begins: {first}"
            )
    return ""


def pair(source: Path, config: object) -> nbformat.NotebookNode:
    """Write the twin, and the source as Jupytext writes it, last: a text that is older than its twin is not opened."""
    notebook = jupytext.read(source, fmt=FORMAT, config=config)
    text = jupytext.writes(notebook, FORMAT, config=config)
    notebook = jupytext.reads(text, FORMAT, config=config)
    for k, cell in enumerate(notebook.cells):
        cell["id"] = str(k)
    del notebook.metadata["jupytext"]["text_representation"]
    notebook.metadata["jupytext"]["default_lexer"] = "ipython3"
    twin, written = source.with_suffix(".ipynb"), nbformat.writes(notebook) + "\n"
    if not twin.is_file() or twin.read_text(encoding="utf-8") != written:
        twin.write_text(written, encoding="utf-8")
    if text != source.read_text(encoding="utf-8"):
        source.write_text(text, encoding="utf-8")
    if source.stat().st_mtime < twin.stat().st_mtime:
        source.touch()
    return notebook


def main(root: Path = ROOT) -> int:
    stamp = root / "_build" / ".pairs.json"  # the cells that each twin was last given
    known = json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else {}
    config = load_jupytext_config(str(root / "notebooks" / "x.md"))
    failed = False
    for source in chapters(root):
        name = source.relative_to(root)
        if said := apart(source, known.get(source.stem, []), config, root):
            failed, twin = True, name.with_suffix(".ipynb")
            print(
                f"{twin} {said}\n"
                f"  to keep what the notebook holds:  .venv/bin/jupytext --to {FORMAT} {twin}\n"
                f"  to keep what the text holds:      rm {twin}\n"
                "  and then make pairs. Where both were edited, copy these cells into the text first.",
                file=sys.stderr,
            )
            continue
        known[source.stem] = [*cells(pair(source, config), config)]
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(json.dumps(known), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
