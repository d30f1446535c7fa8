"""Where data lie on this machine: where environment variables say, else in the reader's cache.

    python -m mptlml_book.data.places images (or texts, or networks)

lists what lies there, a name and a size in bytes on each line: a chapter that reads them runs again
when its list is another now.
"""

import os
import sys
from pathlib import Path

BERT = "google-bert/bert-base-uncased"
GLUE_SETS = ("ax", "cola", "mrpc", "qnli")
IMAGES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}


def folder(what: str) -> Path:
    """Where a set of images lies, "glue", "networks", or a model: in a folder of that name, else in the hub's cache."""
    said, home = os.environ.get, Path.home() / ".cache"
    hugging_face = Path(said("HF_HOME", home / "huggingface"))
    if what in IMAGES:  # as torchvision keeps them
        return Path(said("MPTLML_DATA", home / "mptlml"), IMAGES[what].replace("-", ""), "raw")
    if what == "networks":
        return Path(__file__).parents[2] / "_build" / "networks-wheels"
    if what == "glue":
        return Path(said("HF_DATASETS_CACHE", hugging_face / "datasets"), "nyu-mll___glue")
    cached = Path(said("HF_HUB_CACHE", hugging_face / "hub"), f"models--{what.replace('/', '--')}")
    return Path(what) if Path(what).is_dir() else max(cached.glob("snapshots/*"), default=cached)


def is_here(what: str) -> bool:
    """Whether all of a set of images lies on this machine, of "glue", or of a model."""
    there = folder(what)
    if what in IMAGES:
        return len([*there.glob("*-ubyte")]) == 4
    if what == "glue":
        return all(any(there.glob(f"{name}/**/*.arrow")) for name in GLUE_SETS)
    return any(there.glob("*.safetensors"))


def main(room: str) -> None:
    """Print the list of "images", "texts" or "networks"."""
    for what in {"images": IMAGES, "texts": ("glue", BERT)}.get(room, [room]):
        for file in sorted(folder(what).rglob("*")):
            if file.is_file():
                print(what, file.relative_to(folder(what)), file.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
