"""Data without a connection, from a folder, and from a folder that is broken. The network is never touched."""

import http.client
import io
import socket
import struct
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.datasets  # noqa: F401 - slow to import, and the clock below is not to count it
from sklearn.datasets import load_digits

from mptlml.data import images as data
from mptlml.data import probe as connection

PIXELS = np.random.default_rng(0).integers(0, 256, size=(5, 28, 28), dtype=np.uint8)
LABELS = np.array([3, 1, 4, 1, 5], dtype=np.uint8)


def write_idx(root, name="MNIST", images=None):
    """Four idx files as torchvision expects them under `root`; returns the folder that holds them."""
    raw = Path(root) / name / "raw"
    raw.mkdir(parents=True)
    for part, shift in (("train", 0), ("t10k", 1)):
        pixels = struct.pack(">IIII", 0x803, 5, 28, 28) + np.roll(PIXELS, shift, 0).tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(pixels if images is None else images(pixels))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 5) + np.roll(LABELS, shift).tobytes())
    return raw


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """An empty home, no folder named, and a network that only counts who called: [(address, timeout), ...]."""
    monkeypatch.delenv("MPTLML_DATA", raising=False)
    calls = []

    def refuse(request, data=None, timeout=None, **_):
        calls.append((getattr(request, "full_url", request), timeout))
        raise urllib.error.URLError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    connection.is_reachable.cache_clear()
    yield calls
    connection.is_reachable.cache_clear()


def answer(*replies):
    """A network that gives the replies in turn: an exception is raised, anything else is returned."""
    left = list(replies)

    def urlopen(*_, **__):
        reply = left.pop(0) if left else urllib.error.URLError("gone")
        if isinstance(reply, Exception):
            raise reply
        return reply

    return urlopen


def test_without_a_connection_the_digits_serve_with_a_note(no_network):
    began = time.perf_counter()
    first = data.load_images("mnist", 100)
    again = data.load_images("mnist", 200, train=False)
    assert len(no_network) == 1  # one probe a session, never a retry
    assert no_network[0][1] is not None and no_network[0][1] <= 5  # and a short one
    assert time.perf_counter() - began < 10
    assert "MNIST could not be had" in first.note and "8 x 8 digits" in first.note and again.note == first.note
    assert first.source == "scikit-learn digits" and first.side == 8
    assert first.pixels.shape == (100, 64) and again.pixels.shape == (200, 64)
    fashion = data.load_images("fashion-mnist", 10_000)  # as many as there are stand in for more
    assert "FashionMNIST" in fashion.note and fashion.pixels.shape == (1797, 64) and len(no_network) == 2


@pytest.mark.parametrize("failure", [
    TimeoutError("timed out"), ConnectionResetError(), http.client.BadStatusLine("?"),
    urllib.error.HTTPError("http://x", 503, "busy", None, io.BytesIO()),
], ids=lambda failure: type(failure).__name__)
def test_a_probe_may_fail_in_any_way(failure, monkeypatch):
    monkeypatch.setattr(urllib.request, "urlopen", answer(failure))
    assert data.load_images("mnist", 3).note


@pytest.mark.parametrize("failure", [
    TimeoutError("timed out"), urllib.error.URLError("refused"),
    urllib.error.HTTPError("http://x", 403, "not for you", None, io.BytesIO()),
], ids=lambda failure: type(failure).__name__)
def test_a_mirror_may_answer_and_then_not_deliver(failure, monkeypatch, capsys):
    """The probe succeeds, every download fails: still the digits, with a note, and no word on the page."""
    monkeypatch.setattr(urllib.request, "urlopen", answer(io.BytesIO(), *[failure] * 100))
    images = data.load_images("mnist", 3)
    assert images.note and images.side == 8
    assert capsys.readouterr() == ("", "")
    assert socket.getdefaulttimeout() is None


def test_the_digits_are_scikit_learns(no_network):
    images = data.load_images("digits")
    bunch = load_digits()
    np.testing.assert_array_equal(images.pixels, bunch.data / 16)
    np.testing.assert_array_equal(images.labels, bunch.target)
    assert images.pixels.dtype == torch.float64 and 0 <= images.pixels.min() and images.pixels.max() == 1
    assert images.note == "" and not no_network
    np.testing.assert_array_equal(images.binary(0.25), bunch.data / 16 > 0.25)
    assert data.load_images("digits", 7).pixels.shape == (7, 64)


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fashion-mnist", "FashionMNIST")])
@pytest.mark.parametrize("train", [True, False])
def test_the_named_folder_comes_first(name, folder, train, tmp_path, monkeypatch, no_network):
    write_idx(tmp_path, folder)
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    images = data.load_images(name, 4, train=train)
    shift = 0 if train else 1
    np.testing.assert_allclose(images.pixels, np.roll(PIXELS, shift, 0)[:4].reshape(4, 784) / 255, rtol=0, atol=0)
    np.testing.assert_array_equal(images.labels, np.roll(LABELS, shift)[:4])
    assert images.pixels.dtype == torch.float64 and images.side == 28
    assert images.source.startswith(folder) and images.note == "" and not no_network


def test_then_the_readers_cache(tmp_path, no_network):
    write_idx(tmp_path / "home" / ".cache" / "mptlml")
    assert data.load_images("mnist").pixels.shape == (5, 784) and not no_network


def test_an_empty_variable_names_no_folder(monkeypatch):
    monkeypatch.setenv("MPTLML_DATA", "")
    assert data.load_images("mnist", 3).note


BROKEN = {
    "cut short": lambda pixels: pixels[:1000],
    "header only": lambda pixels: pixels[:6],
    "empty": lambda pixels: b"",
    "not idx": lambda pixels: b"\x1f\x8b\x08\x00" + pixels[4:],
    "too long": lambda pixels: pixels + b"1",
}


@pytest.mark.parametrize("images", BROKEN.values(), ids=BROKEN.keys())
def test_unreadable_files_are_named(images, tmp_path, monkeypatch, no_network):
    raw = write_idx(tmp_path, images=images)
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch may warn of an empty buffer first
        with pytest.raises(ValueError, match="cannot be read") as error:
            data.load_images("mnist")
    assert str(raw) in str(error.value) and not no_network


@pytest.mark.parametrize("lacking", ["folder", "files", "one file"])
def test_a_named_folder_without_data_is_an_error(lacking, tmp_path, monkeypatch, no_network):
    """Never a silent substitute: who names a folder wants its data."""
    if lacking != "folder":
        raw = write_idx(tmp_path)
        for path in list(raw.iterdir())[:1 if lacking == "one file" else None]:
            path.unlink()
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="holds no MNIST: expected four idx files in") as error:
        data.load_images("mnist")
    assert str(tmp_path / "MNIST" / "raw") in str(error.value) and not no_network
