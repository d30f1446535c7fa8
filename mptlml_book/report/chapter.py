"""The record of a chapter's run: beginning and end, the data that it read, its cost, and its versions and machine."""

import ctypes
import gc
import os
import platform
import resource
import sys
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from . import depends, records
from .claims import ClaimError, claims, data_sets
from .figures import use_style

# A Binder session has 2048, for the notebook's server and the pages of libraries too
MOST_MEGABYTES = 1600
LIBRARIES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
    "matplotlib",
    "transformers",
    "datasets",
)


def start(chapter: str) -> None:
    """Begin a chapter: one plot style, SVG figures, the clock."""
    vars(records.running).update(
        name=chapter, began=time.perf_counter(), records=[], pictures=0, other=False
    )
    use_style()


def data_used(data: Any) -> None:
    """Name the images or texts that this chapter reads, once; their note says what a stand-in replaces.

    Where the bands of the chapter were set for others, claims say so from now on. Raises
    FileNotFoundError: a stand-in, where the environment variable MPTLML_REQUIRE_DATA is set.
    """
    if data.note and os.environ.get("MPTLML_REQUIRE_DATA"):
        raise FileNotFoundError(f"MPTLML_REQUIRE_DATA is set: {data.note}")
    known = data_sets(records.running.name)
    record = {name: getattr(data, name) for name in ("source", "size", "digest", "note")}
    record["words"] = known.get(data.digest, "not the data of the bands")
    if {"kind": "data", **record} not in records.running.records:
        note = f" (a default: {data.note})" if data.note else ""
        records.emit(
            "data", f"data: {data.source}, {data.size}, digest {data.digest}{note}", **record
        )
        records.running.other |= data.digest not in known


def expect(holds: Any, says: str) -> None:
    """Check that what the page says holds; on other data than those it was written for, say there that it does not.

    says: what the page says, to be read after "that". Raises AssertionError: it does not hold on
    these very data.
    """
    if not holds and not records.running.other:
        raise AssertionError(f"{records.running.name} says that {says}")
    if not holds:
        records.emit("unlike", f"on these data it does not hold that {says}", says=says)


def free_memory() -> None:
    """Hand freed memory back to the system: the C library of Linux keeps parts below 32 MB, such as weights."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def closing() -> None:
    """End a chapter: report the number of claims checked, time and memory, versions and machine.

    Make is told what the chapter read. Raises ClaimError: a claim listed for the chapter was not
    made once, one listed elsewhere was, or one made without the stored files that it `reads`;
    MemoryError: more than MOST_MEGABYTES, where the environment variable CI is set.
    """
    chapter = records.running
    said = {
        kind: [record for record in chapter.records if record["kind"] == kind]
        for kind in ("claim", "stored", "data")
    }
    made, files = (
        [record["id"] for record in said["claim"]],
        {record["file"] for record in said["stored"]},
    )
    own = {id: entry for id, entry in claims().items() if entry["chapter"] == chapter.name}
    if wrong := {*own} ^ {*made} | {id for id in made if made.count(id) > 1}:
        raise ClaimError(
            f"{chapter.name}: claims not made once, or listed elsewhere: {sorted(wrong)}"
        )
    if unread := {file for entry in own.values() for file in entry.get("reads", [])} - files:
        raise ClaimError(f"{chapter.name}: claims read {sorted(unread)}, and the chapter did not")
    seconds = time.perf_counter() - chapter.began
    megabytes = _megabytes()
    if megabytes > MOST_MEGABYTES and os.environ.get("CI"):
        raise MemoryError(f"{chapter.name} took {megabytes:.0f} MB, more than {MOST_MEGABYTES} MB")
    records.glue(f"{chapter.name}-seconds", seconds)
    count = sum(record.keys().isdisjoint({"reason", "other"}) for record in said["claim"])
    records.emit(
        "cost",
        f"{count} of {len(own)} claims checked; {seconds:.0f} s, {megabytes:.0f} MB",
        chapter=chapter.name,
        seconds=seconds,
        megabytes=megabytes,
        **_setting(),
    )
    depends.write(chapter.name, [record["note"] for record in said["data"] if record["note"]])


def _megabytes() -> float:
    """The most memory that this process took, without pages of files as they are now, such as the code of libraries.

    The system can take these back, and two installations of the same libraries differ by hundreds
    of megabytes in them.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (
        20 if sys.platform == "darwin" else 10
    )
    status = Path("/proc/self/status")  # of Linux, which counts in kilobytes; macOS counts in bytes
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return peak - sum(int(line.split()[1]) for line in lines if line.startswith("RssFile:")) / 1024


def _setting() -> dict[str, dict[str, Any]]:
    """Versions and machine, without names of machines or persons and without paths."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        # most chapters do not need the text libraries
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    machine = {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.is_initialized(),
    }
    return {"versions": versions, "machine": machine}
