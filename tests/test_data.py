"""Images and texts that lie on this machine, in a broken file, or nowhere: then defaults, which say so."""

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from conftest import finished
from fakes import saved_network

from mptlml.masked_lm import MaskedLM
from mptlml_book.data import images, places, text

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
def nothing_here(monkeypatch, tmp_path):
    """An empty home, and no place named; whoever opens a connection fails."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("MPTLML_DATA", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("socket.socket.connect", lambda *to: pytest.fail(f"asked for {to}"))


def test_where_images_are_missing_the_digits_serve_with_a_note():
    first = images.load_images("mnist", 100)
    again = images.load_images("mnist", 200, train=False)
    assert "MNIST was not at hand" in first.note and "8 × 8 digits" in first.note
    assert first.source == "scikit-learn digits" and first.side == 8 and again.note == first.note
    assert first.pixels.shape == (100, 64) and again.pixels.shape == (200, 64)
    fashion = images.load_images("fashion-mnist", 10_000)  # as many as there are stand in for more
    assert "Fashion-MNIST" in fashion.note and fashion.pixels.shape == (1797, 64)


def test_pictures_to_train_on_and_pictures_held_out(monkeypatch):
    """As in Fig. 3: 2,000 of the training set, 500 of the test set. Of the digits every fourth is held out."""
    digits, held_out = images.train_and_held_out("digits")
    assert (len(digits.pixels), len(held_out.pixels)) == (1347, 450)

    def load(name, num_rows, train=True):
        return images.Images(torch.full((num_rows, 784), train), 28, name)

    monkeypatch.setattr(images, "load_images", load)
    trained, held_out = images.train_and_held_out("mnist")
    assert trained.pixels.shape == (2000, 784) and trained.pixels.all()
    assert held_out.pixels.shape == (500, 784) and not held_out.pixels.any()


@pytest.mark.parametrize(
    "name, folder, train, source",
    [
        ("mnist", "MNIST", True, "MNIST"),
        ("fashion-mnist", "FashionMNIST", False, "Fashion-MNIST, test images"),
    ],
)
def test_images_are_read_where_the_reader_says(name, folder, train, source, tmp_path, monkeypatch):
    write_idx(tmp_path, folder)
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    found = images.load_images(name, 4, train=train)
    np.testing.assert_array_equal(found.pixels, PIXELS[:4].reshape(4, 784) / 255)
    assert found.pixels.dtype == torch.float64 and found.side == 28
    assert found.source == source and found.note == ""


@pytest.mark.parametrize(
    "damage", [lambda path: os.truncate(path, 1000), lambda path: path.write_bytes(bytes(1000))]
)
def test_a_broken_file_is_named_and_never_misread(damage, tmp_path, monkeypatch):
    raw = write_idx(tmp_path)
    damage(raw / "train-images-idx3-ubyte")
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"{raw} cannot be read"):
        images.load_images("mnist")


def test_lists_name_what_lies_there(tmp_path, monkeypatch):
    """Each in its own: what came there since makes a chapter run again."""

    def lists():
        command = (sys.executable, "-m", "mptlml_book.data.places")
        return [finished(*command, room).stdout for room in ("images", "texts", "networks")]

    before = lists()
    (write_idx(tmp_path / "home" / ".cache" / "mptlml") / "t10k-labels-idx1-ubyte").unlink()
    assert not places.is_here("mnist")
    found, *others = lists()
    assert "mnist train-labels-idx1-ubyte 13\n" in found and others == before[1:]
    folder = tmp_path / "home/.cache/huggingface/hub/models--google-bert--bert-base-uncased"
    (folder / "snapshots" / "0").mkdir(parents=True)
    (folder / "snapshots" / "0" / "model.safetensors").write_bytes(b"12")
    assert places.is_here(places.BERT)
    assert "google-bert/bert-base-uncased model.safetensors 2\n" in lists()[1]


def test_texts_that_stand_in_are_disjoint_and_say_so():
    found = [text.load_glue(name) for name in text.SETS]
    found += [text.load_glue(name, train=True) for name in ("cola", "qnli", "mrpc")]
    starts = [id(sentence) for part in found for sentence in part.texts]
    assert len(starts) == len(set(starts)) and min(len(part.texts) for part in found) > 50
    assert len(found[4].texts) // 4 == len(found[1].texts)  # a fifth is held out
    bert = text.load_bert_tokenizer()
    assert all("was not at hand here" in part.note for part in (*found, bert))
    ids = bert.tokenizer("The statement is executed.").input_ids
    assert ids[0] == bert.tokenizer.cls_token_id and ids[-1] == bert.tokenizer.sep_token_id
    assert len(bert.tokenizer) == 30522 and bert.tokenizer.unk_token_id not in ids


def test_real_sets_give_the_texts_of_a_pair_in_turn(tmp_path, monkeypatch):
    table = pyarrow.table({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [0, 1]})
    folder = tmp_path / "nyu-mll___glue" / "mrpc" / "0.0.0" / "0"
    folder.mkdir(parents=True)
    with pyarrow.ipc.new_stream(folder / "glue-train.arrow", table.schema) as file:
        file.write_table(table)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    found = text.load_glue("mrpc", train=True)
    assert (found.texts, found.source) == (["a", "c", "b", "d"], "GLUE mrpc, train split")
    assert found.note == ""
    for name, train in (("sst2", False), ("ax", True)):
        with pytest.raises(ValueError, match="ax has no training split"):
            text.load_glue(name, train=train)


def test_a_model_is_read_from_a_folder_and_prints_nothing_on_a_page(tmp_path, capfd):
    saved = saved_network(tmp_path, "The cat sat on the mat.")
    capfd.readouterr()
    found = text.from_cache(MaskedLM.from_pretrained, str(tmp_path))
    assert capfd.readouterr() == ("", "")
    scores = [lm.pseudo_log_likelihood(["the cat"]) for lm in (found, saved)]
    torch.testing.assert_close(*scores)
    (tmp_path / "model.safetensors").unlink()  # a part is none
    assert text.from_cache(MaskedLM.from_pretrained, str(tmp_path)) is None
    assert text.from_cache(MaskedLM.from_pretrained, "some/model") is None


def test_the_same_text_gives_the_same_tokenizer():
    texts = text._python_reference()[:2000]
    one, two = (text.make_tokenizer(texts, 300) for _ in range(2))
    assert one.get_vocab() == two.get_vocab() and len(one) == 300
