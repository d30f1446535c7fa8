"""The record of a chapter's run: beginning and end, the data that it read, its cost, and its versions and machine."""

import os
import platform
import resource
import sys
import time
from contextlib import suppress
from importlib import metadata
from typing import Any

import torch

from . import records
from .claims import ClaimError, claims
from .figures import use_style

MOST_MEGABYTES = 2048  # the memory of a Binder session
LIBRARIES = (
    "torch", "torchvision", "numpy", "scipy", "scikit-learn", "pandas", "matplotlib", "transformers", "datasets")


def start(chapter: str) -> None:
    """Begin a chapter: one plot style, SVG figures, the clock."""
    vars(records.running).update(name=chapter, began=time.perf_counter(), records=[], pictures=0)
    use_style(chapter)


def data_used(data: Any) -> None:
    """Name the images or texts that this chapter reads, once; their note says what a stand-in replaces."""
    record = {"source": data.source, "note": data.note}
    if {"kind": "data", **record} not in records.running.records:
        note = f" (a default: {data.note})" if data.note else ""
        records.emit("data", f"data: {data.source}{note}", **record)


def closing() -> None:
    """End a chapter: report the number of claims checked, time and memory, versions and machine.

    Raises ClaimError: a claim listed for the chapter was not made, or a claim listed elsewhere was; MemoryError: more
    than MOST_MEGABYTES.
    """
    chapter = records.running
    made = {record["id"]: record for record in chapter.records if record["kind"] == "claim"}
    listed = {id for id, entry in claims().items() if entry["chapter"] == chapter.name}
    if listed != set(made):
        raise ClaimError(f"{chapter.name}: claims listed but not checked {sorted(listed - set(made))}, "
                         f"checked but listed elsewhere {sorted(set(made) - listed)}")
    seconds = time.perf_counter() - chapter.began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = peak / 2 ** (20 if sys.platform == "darwin" else 10)  # macOS counts bytes, Linux kilobytes
    if megabytes > MOST_MEGABYTES:
        raise MemoryError(f"{chapter.name} took {megabytes:.0f} MB; a Binder session has {MOST_MEGABYTES} MB")
    records.glue(f"{chapter.name}-seconds", seconds)
    count = sum("reason" not in record for record in made.values())
    records.emit("cost", f"{count} of {len(listed)} claims checked; {seconds:.0f} s, {megabytes:.0f} MB",
                 chapter=chapter.name, seconds=seconds, megabytes=megabytes, **_setting())


def _setting() -> dict[str, dict[str, Any]]:
    """Versions and machine, without names of machines or persons and without paths."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):  # most chapters do not need the text libraries
            versions[name] = metadata.version(name)
    machine = {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count(),
               "gpu": torch.cuda.is_initialized()}
    return {"versions": versions, "machine": machine}
