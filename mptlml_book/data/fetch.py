"""Fetch what chapters read and this machine lacks, before they run, with a line for each wait.

    python -m mptlml_book.data.fetch [mnist] [fashion-mnist] [glue] [bert]

prints in JSON why the "hub" or the "mirror" did not deliver, for the kernels that run then
(MPTLML_ASKED): they do not ask again, and their notes give the reason. What came is kept, also a
part of a file, which the next run goes on with.
"""

import json
import os
import sys
from collections.abc import Iterable

from . import places

GLUE_SETS = ("ax", "cola", "mrpc", "qnli")


def missing(names: Iterable[str]) -> list[str]:
    """Those among the data that are not on this machine and may be fetched: a look at folders, nothing else."""
    said = os.environ.get
    switches = {said(name, "").upper() for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")}
    offline = {"1", "TRUE", "YES", "ON"} & switches
    bert = places.models() / "models--google-bert--bert-base-uncased" / "snapshots"
    images = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
    there = {
        "glue": offline or all(any((places.glue() / name).rglob("*.arrow")) for name in GLUE_SETS),
        "bert": offline or any(bert.glob("*/*.safetensors")) and any(bert.glob("*/vocab.txt")),
    } | {
        name: said("MPTLML_DATA")
        or len([*(places.cached_images() / folder / "raw").glob("*-ubyte")]) == 4
        for name, folder in images.items()
    }
    return [name for name in names if not there[name]]


def fetch(name: str) -> str:
    """Fetch one of the data; why that failed, "" where not."""
    from .images import DATASETS, fetch_images

    if name in DATASETS:
        return fetch_images(name)
    from . import text

    if name == "glue":
        found = [text.load_glue(one) for one in GLUE_SETS]
        return text.why_absent() if any(one.note for one in found) else ""
    return text.fetch_bert()


def main(names: list[str]) -> None:
    """Fetch what is named, and print which servers failed, with why, as JSON."""
    from .probe import arrivals

    arrivals.told, failed = sys.stderr, {}
    for name in names:
        server = "mirror" if "mnist" in name else "hub"
        if server not in failed:
            arrivals.tell(f"asking for {name}, which is not on this machine")
            if why := fetch(name):
                failed[server] = why
                arrivals.tell(f"{name} cannot be had now: {why}")
    print(json.dumps(failed))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
