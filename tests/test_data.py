"""Images without a connection, from a folder, from a broken one, and by download; never from the network."""

import gzip
import hashlib
import os
import struct
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torchvision.datasets
from sklearn.datasets import load_digits

from mptlml_book.data import images as data
from mptlml_book.data import probe

LABELS = {"train": bytes([3, 1, 4, 1, 5]), "t10k": bytes([9, 2, 6, 5, 3])}
PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 28, 28), dtype=np.uint8)


def write_idx(root, name="MNIST"):
    """Four idx files as torchvision expects them under `root`, with the same pixels; their folder."""
    raw = Path(root) / name / "raw"
    raw.mkdir(parents=True)
    for part, labels in LABELS.items():
        pixels = struct.pack(">IIII", 0x803, 5, 28, 28) + PIXELS.tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(pixels)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 5) + labels)
    return raw


@pytest.fixture(autouse=True)
def network(monkeypatch, tmp_path):
    """An empty home, no folder of data named, and a network that refuses."""
    network = mock.Mock(side_effect=urllib.error.URLError("no network in tests"))
    monkeypatch.delenv("MPTLML_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(urllib.request, "urlopen", network)
    probe.refusal.cache_clear()
    yield network
    probe.refusal.cache_clear()


def test_without_a_connection_the_digits_serve_with_a_note(network):
    first = data.load_images("mnist", 100)
    again = data.load_images("mnist", 200, train=False)
    assert [call.kwargs["timeout"] for call in network.call_args_list] == [3]  # one probe, no retry
    assert "MNIST was not at hand" in first.note
    assert "8 × 8 digits" in first.note
    assert again.note == first.note
    assert first.source == "scikit-learn digits" and first.side == 8
    assert first.pixels.shape == (100, 64) and again.pixels.shape == (200, 64)
    fashion = data.load_images("fashion-mnist", 10_000)  # as many as there are stand in for more
    assert "Fashion-MNIST" in fashion.note
    assert fashion.pixels.shape == (1797, 64)
    assert network.call_count == 2


def test_the_digits_are_scikit_learns(network):
    images = data.load_images("digits")
    bunch = load_digits()
    np.testing.assert_array_equal(images.pixels, bunch.data / 16)
    np.testing.assert_array_equal(images.labels, bunch.target)
    assert images.pixels.dtype == torch.float64 and images.note == "" and not network.called
    np.testing.assert_array_equal(images.binary(0.25), bunch.data / 16 > 0.25)
    assert data.load_images("digits", 7).pixels.shape == (7, 64)


def test_pictures_to_train_on_and_pictures_held_out(monkeypatch):
    """As in Fig. 3: 2,000 of the training set, 500 of the test set. Of the digits every fourth is held out."""
    digits, held_out = data.train_and_held_out("digits")
    assert (len(digits.pixels), len(held_out.labels)) == (1347, 450)

    def load(name, num_rows, train=True):
        return data.Images(torch.full((num_rows, 784), train), torch.zeros(num_rows), 28, name)

    monkeypatch.setattr(data, "load_images", load)
    trained, held_out = data.train_and_held_out("mnist")
    assert trained.pixels.shape == (2000, 784) and trained.pixels.all()
    assert held_out.pixels.shape == (500, 784) and not held_out.pixels.any()


@pytest.mark.parametrize(
    "name, folder, train, source",
    [
        ("mnist", "MNIST", True, "MNIST"),
        ("fashion-mnist", "FashionMNIST", False, "Fashion-MNIST, test images"),
    ],
)
def test_the_named_folder_comes_first(name, folder, train, source, tmp_path, monkeypatch, network):
    write_idx(tmp_path, folder)
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    images = data.load_images(name, 4, train=train)
    np.testing.assert_array_equal(images.pixels, PIXELS[:4].reshape(4, 784) / 255)
    assert images.labels.tolist() == list(LABELS["train" if train else "t10k"][:4])
    assert images.pixels.dtype == torch.float64 and images.side == 28
    assert images.source == source and images.note == "" and not network.called


@pytest.mark.parametrize(
    "part, damage, message",
    [
        ("train-images-idx3", lambda path: os.truncate(path, 1000), "cannot be read"),
        ("train-images-idx3", lambda path: path.write_bytes(bytes(1000)), "cannot be read"),
        ("t10k-labels-idx1", Path.unlink, "MPTLML_DATA.* holds no MNIST: expected four idx files"),
    ],
)
def test_a_named_folder_without_good_data_is_an_error(
    part, damage, message, tmp_path, monkeypatch, network
):
    """Never a silent substitute: who names a folder wants its data."""
    raw = write_idx(tmp_path)
    damage(raw / f"{part}-ubyte")
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"{message}.*{raw}|{raw}.*{message}"):
        data.load_images("mnist")
    assert not network.called


def test_one_download_at_a_time_and_the_others_wait_for_it(monkeypatch, tmp_path):
    """Nor does what a killed one has left stop the next."""

    def download(address, target):
        downloads.append(target.name)
        time.sleep(0.1)
        target.write_bytes(files[target.name])

    downloads = []
    whole = write_idx(tmp_path / "mirror")
    files = {f"{path.name}.gz": gzip.compress(path.read_bytes()) for path in whole.iterdir()}
    sums = [(name, hashlib.md5(content).hexdigest()) for name, content in files.items()]
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", sums)
    monkeypatch.setattr(data, "download", download)
    monkeypatch.setattr(data, "refusal", lambda address, begins: "")
    raw = write_idx(tmp_path / "home" / ".cache" / "mptlml")
    (raw / "t10k-labels-idx1-ubyte").unlink()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: data.load_images("mnist", 4), range(3)))
    assert sorted(downloads) == sorted(files)
    assert {path.name for path in raw.parent.iterdir()} <= {"raw", "lock"}
    for images in found:
        assert images.source == "MNIST" and torch.equal(images.pixels, found[0].pixels)
