"""Images: MNIST and Fashion-MNIST by torchvision or, where they are not at hand, scikit-learn's digits.

If the environment variable MPTLML_DATA names a folder (a torchvision root), the files are read
there and nowhere else. Otherwise they come from the reader's cache, or from the network after one
short probe. Without any of these the digits stand in, and `note` says so.
"""

import gzip
import hashlib
import os
import shutil
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from mptlml.checks import check_choice, check_count
from mptlml.extras import needs

from . import digest_of, places
from .probe import asked_before, download, in_words, refusal

# torchvision's names, also of the folders
DATASETS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
GZIP = b"\x1f\x8b"  # what a file of theirs begins with
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}


@dataclass(frozen=True, eq=False)
class Images:
    """pixels [N, height * width], float64 in [0, 1]; labels [N]; `source` names the data; `note` warns of a default.

    `size` says how many of them there are, such as "3,000 images", and `digest` tells these pixels
    from others.
    """

    pixels: Tensor
    labels: Tensor
    side: int
    source: str
    note: str = ""

    size = property(lambda self: f"{len(self.pixels):,} images")
    digest = property(lambda self: digest_of(self.pixels.numpy().tobytes()))

    def binary(self, threshold: float = 0.5) -> Tensor:
        """Pixels above `threshold` as 1.0, others as 0.0: float64 [N, height * width]."""
        return (self.pixels > threshold).double()


def load_images(name: str, num_rows: int | None = None, *, train: bool = True) -> Images:
    """The first `num_rows` images (all by default) of "mnist", "fashion-mnist" or "digits".

    Falls back to "digits", with a note, where the real data are not at hand. Raises ValueError:
    another name, fewer images than asked for, files that cannot be read, or a folder in MPTLML_DATA
    that does not hold the data.
    """
    if num_rows is not None:
        check_count(num_rows, "num_rows")
    check_choice(name, (*DATASETS, "digits"), "images")
    if name == "digits":
        return _cut(_digits(), num_rows)
    named, root = os.environ.get("MPTLML_DATA"), places.images()
    if not _is_there(raw := root / DATASETS[name] / "raw"):
        if named:
            raise ValueError(
                f"MPTLML_DATA={named!r} holds no {DATASETS[name]}: expected four idx files in {raw}"
            )
        if why := fetch_images(name):
            note = (
                f"{TITLES[name]} was not at hand here ({why}, and MPTLML_DATA is not set): "
                "scikit-learn's 8 × 8 digits stand in for it on this page."
            )
            digits = replace(_digits(), note=note)
            return _cut(digits, min(num_rows or len(digits.pixels), len(digits.pixels)))
    return _cut(_read(name, root, train, num_rows), num_rows)


def train_and_held_out(name: str) -> tuple[Images, Images]:
    """(training Images, held-out Images): 2,000 as in Fig. 3, and 500 of the test images.

    The digits, also where they stand in, have no test set: all are loaded, and every fourth one is
    held out. Raises ValueError: as `load_images`.
    """
    found = load_images(name, None if name == "digits" else 2000)
    if found.side != 8:
        return found, load_images(name, 500, train=False)
    fourth = torch.arange(len(found.pixels)) % 4 == 0
    kept, held_out = (
        replace(found, pixels=found.pixels[at], labels=found.labels[at]) for at in (~fourth, fourth)
    )
    return kept, held_out


def _digits() -> Images:
    with needs("book"):
        from sklearn.datasets import load_digits
    bunch = load_digits()
    return Images(
        torch.from_numpy(bunch.data) / 16, torch.from_numpy(bunch.target), 8, "scikit-learn digits"
    )


def _read(name: str, root: Path, train: bool, at_most: int | None) -> Images:
    """Images of torchvision's files. Raises ValueError: they cannot be read."""
    try:
        found = _torchvision(name)(str(root), train=train)
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        there = root / DATASETS[name] / "raw"
        raise ValueError(
            f"the {DATASETS[name]} files in {there} cannot be read: {error!r}"
        ) from error
    # cut first: in float64 all of them take 380 MB
    pixels = found.data[:at_most].flatten(1).double() / 255
    source = TITLES[name] + ("" if train else ", test images")
    return Images(pixels, found.targets[:at_most], 28, source)


def _torchvision(name: str) -> Any:
    """The class of a data set in torchvision."""
    with needs("book"):
        from torchvision import datasets  # slow to import: only where it is needed
    return getattr(datasets, DATASETS[name])


def _is_there(raw: Path) -> bool:
    return len(list(raw.glob("*-ubyte"))) == 4


def fetch_images(name: str) -> str:
    """Put the files of a data set into the reader's cache, one process at a time; why that failed, "" where not."""
    raw = places.cached_images() / DATASETS[name] / "raw"
    kind = _torchvision(name)
    if why := asked_before("mirror") or refusal(kind.mirrors[0] + kind.resources[0][0], GZIP):
        return why
    try:
        raw.mkdir(parents=True, exist_ok=True)
        with FileLock(raw.parent / "lock"):
            if not _is_there(raw):  # else another process had the lock before, and fetched them
                _fetch(kind, raw.parent / "part", raw)
    except (OSError, ValueError, HTTPException) as error:
        # the mirror answered but did not deliver, or the folder cannot be written
        return in_words(error)
    return ""


def _fetch(kind: Any, part: Path, raw: Path) -> None:
    """Files of torchvision's class, by its sums, into `raw` by way of `part`, where an interrupted download lies."""
    part.mkdir(exist_ok=True)
    for file, md5 in kind.resources:
        target = part / file
        for mirror in kind.mirrors:
            try:
                download(mirror + file, target)
            except (OSError, HTTPException):
                if mirror == kind.mirrors[-1]:
                    raise
            else:
                break
        if hashlib.md5(target.read_bytes(), usedforsecurity=False).hexdigest() != md5:
            target.unlink()
            raise ValueError(f"{file} is not the file that it should be")
        new = part / Path(file).stem
        new.write_bytes(gzip.decompress(target.read_bytes()))
        new.replace(raw / new.name)
    shutil.rmtree(part)


def _cut(images: Images, num_rows: int | None) -> Images:
    """The first `num_rows` images. Raises ValueError where there are fewer."""
    if num_rows is not None and num_rows > len(images.pixels):
        raise ValueError(
            f"{num_rows} images asked for, {images.source} has {len(images.pixels)} here"
        )
    return replace(images, pixels=images.pixels[:num_rows], labels=images.labels[:num_rows])
