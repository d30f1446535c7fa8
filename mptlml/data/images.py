"""Data: rows as the authors' public research scripts draw them; images from torchvision or, by default, scikit-learn.

Real data come first from the folder named by the environment variable MPTLML_DATA (a torchvision root), then from the
reader's cache, then from the network after one short probe. Without any of them the digits serve, and `note` says so.
"""

import io
import os
import socket
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from ..checks import check_count
from .probe import PROBE_SECONDS, is_reachable

DATASETS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
_read = {}  # {source: note}


def note_source(source, note=""):
    """Remember that data were read in this process, for the account that a chapter gives of itself."""
    _read[source] = note


def sources_read():
    """Images and texts that were read in this process, {source: note}; the note says what a default stands in for."""
    return dict(_read)


@dataclass(frozen=True)
class Images:
    """pixels [N, height * width], float64 in [0, 1]; labels [N]; `source` names the data; `note` warns of a default."""

    pixels: torch.Tensor
    labels: torch.Tensor
    side: int
    source: str
    note: str = ""

    def binary(self, threshold=0.5):
        """Pixels above `threshold` as 1.0, others as 0.0: [N, height * width]."""
        return (self.pixels > threshold).double()


def load_images(name, num_rows=None, *, train=True):
    """The first `num_rows` images (all by default) of "mnist", "fashion-mnist" or "digits".

    Falls back to "digits", with a note, where the real data cannot be had. Raises ValueError: another name, fewer
    images than asked for, or a folder in MPTLML_DATA that does not hold the data.
    """
    if num_rows is not None:
        check_count(num_rows, "num_rows")
    if name == "digits":
        return _cut(_digits(), num_rows)
    if name not in DATASETS:
        raise ValueError(f'images must be one of "mnist", "fashion-mnist", "digits", got {name!r}')
    folder = os.environ.get("MPTLML_DATA")
    root = Path(folder) if folder else Path.home() / ".cache" / "mptlml"
    try:
        return _cut(_torchvision(name, root, train, num_rows), num_rows)
    except FileNotFoundError as error:
        if folder:
            raise ValueError(f"MPTLML_DATA={folder!r} holds no {DATASETS[name]}: expected {error}") from None
    if is_reachable(_mirror(name)):
        try:
            with _quiet_network():
                return _cut(_torchvision(name, root, train, num_rows, download=True), num_rows)
        except FileNotFoundError:
            pass  # the mirror answered, and then did not deliver
    note = (f"{DATASETS[name]} could not be had here (no download, and MPTLML_DATA is not set): "
            "scikit-learn's 8 x 8 digits stand in for it on this page.")
    digits = _digits(note)
    return _cut(digits, None if num_rows is None else min(num_rows, len(digits.pixels)))


def train_and_held_out(name):
    """(training Images, held-out Images, the Images loaded first): 2,000 as in Fig. 3, and 500 of the test images.

    The digits, also where they stand in, have no test set: all are loaded, and every fourth is held out. Raises
    ValueError: as `load_images`.
    """
    found = load_images(name, None if name == "digits" else 2000)
    if found.side != 8:
        return found, load_images(name, 500, train=False), found
    fourth = torch.arange(len(found.pixels)) % 4 == 0
    parts = (replace(found, pixels=found.pixels[part], labels=found.labels[part]) for part in (~fourth, fourth))
    return *parts, found


def _digits(note=""):
    bunch = load_digits()
    return Images(torch.from_numpy(bunch.data) / 16, torch.from_numpy(bunch.target), 8, "scikit-learn digits", note)


def _torchvision(name, root, train, num_rows, download=False):
    """Raises FileNotFoundError where the files are not there, ValueError where they cannot be read."""
    from torchvision import datasets  # slow to import: only where it is needed

    raw = root / DATASETS[name] / "raw"
    try:
        found = getattr(datasets, DATASETS[name])(str(root), train=train, download=download)
    except (OSError, RuntimeError, ValueError, AssertionError) as error:
        if len(list(raw.glob("*-ubyte"))) < 4:
            raise FileNotFoundError(f"four idx files in {raw}") from error
        raise ValueError(f"the {DATASETS[name]} files in {raw} cannot be read: {error!r}") from error
    pixels = found.data[:num_rows].flatten(1).double() / 255  # cut first: in float64 all of them take 380 MB
    return Images(pixels, found.targets[:num_rows], 28, DATASETS[name] + ("" if train else ", test images"))


@contextmanager
def _quiet_network():
    """A download that stalls ends in an error, and leaves no progress bar on the page."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PROBE_SECONDS)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)


def _mirror(name):
    """Where the data set is downloaded from."""
    from torchvision import datasets

    return getattr(datasets, DATASETS[name]).mirrors[0]


def _cut(images, num_rows):
    note_source(images.source, images.note)
    if num_rows is None:
        return images
    if num_rows > len(images.pixels):
        raise ValueError(f"{num_rows} images asked for, {images.source} has {len(images.pixels)} here")
    return Images(images.pixels[:num_rows], images.labels[:num_rows], images.side, images.source, images.note)
