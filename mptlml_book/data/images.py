"""Images: MNIST and Fashion-MNIST or, where they are not on this machine, scikit-learn's digits.

`make data` puts their files into the folder that MPTLML_DATA names, or else into the reader's
cache, as torchvision keeps them. Where digits stand in, `note` says so.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mptlml.checks import check_choice, check_count

from . import digest_of, places


@dataclass(frozen=True, eq=False)
class Images:
    """pixels [N, height * width], float64 in [0, 1]; `source` names the data; `note` warns of a default.

    `size` says how many of them there are, such as "3,000 images", and `digest` tells these pixels
    from others.
    """

    pixels: Tensor
    side: int
    source: str
    note: str = ""

    size = property(lambda self: f"{len(self.pixels):,} images")
    digest = property(lambda self: digest_of(self.pixels.numpy().tobytes()))

    def binary(self, threshold: float = 0.5) -> Tensor:
        """Pixels above `threshold` as 1.0, others as 0.0: float64 [N, height * width]."""
        return (self.pixels > threshold).double()

    def at(self, rows: slice | Tensor) -> "Images":
        """Some of the images: a slice, or bool [N]."""
        return replace(self, pixels=self.pixels[rows])


def load_images(name: str, num_rows: int | None = None, *, train: bool = True) -> Images:
    """The first `num_rows` images (all by default) of "mnist", "fashion-mnist" or "digits".

    Falls back to "digits", with a note, where the real data are not on this machine. Raises
    ValueError: another name, fewer images than asked for, or files that cannot be read.
    """
    if num_rows is not None:
        check_count(num_rows, "num_rows")
    check_choice(name, (*places.IMAGES, "digits"), "images")
    if name != "digits" and places.is_here(name):
        found = _read(name, train, num_rows)
    else:
        from sklearn.datasets import load_digits

        pixels = torch.from_numpy(load_digits().data) / 16
        note = name != "digits" and (
            f"{places.IMAGES[name]} was not at hand here (`make data` asks for it, and says why not): "
            "scikit-learn's 8 × 8 digits stand in for it on this page."
        )
        found = Images(pixels, 8, "scikit-learn digits", note or "")
    if not found.note and num_rows is not None and num_rows > len(found.pixels):
        raise ValueError(
            f"{num_rows} images asked for, {found.source} has {len(found.pixels)} here"
        )
    return found.at(slice(num_rows))


def train_and_held_out(name: str) -> tuple[Images, Images]:
    """(training Images, held-out Images): 2,000 as in Fig. 3, and 500 of the test images.

    The digits, also where they stand in, have no test set: all are loaded, and every fourth one is
    held out. Raises ValueError: as `load_images`.
    """
    found = load_images(name, None if name == "digits" else 2000)
    if found.side != 8:
        return found, load_images(name, 500, train=False)
    fourth = torch.arange(len(found.pixels)) % 4 == 0
    return found.at(~fourth), found.at(fourth)


def _read(name: str, train: bool, at_most: int | None) -> Images:
    """Images of torchvision's files. Raises ValueError: they cannot be read."""
    from torchvision import datasets  # slow to import: only where it is needed

    there = places.folder(name)
    try:
        found = getattr(datasets, there.parent.name)(there.parents[1], train=train)
    except Exception as error:
        raise ValueError(f"the files in {there} cannot be read: {error!r}") from error
    # cut first: in float64 all of them take 380 MB
    pixels = found.data[:at_most].flatten(1).double() / 255
    return Images(pixels, 28, places.IMAGES[name] + ("" if train else ", test images"))
