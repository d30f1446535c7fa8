"""Networks that others trained: weights read as data, tokenizers, reactions, and models of known likelihood."""

import io
import pickle
import re
import subprocess
from argparse import Namespace
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from mptlml_book import networks as study
from mptlml_book.data import places
from mptlml_book.real_network import spaced


class Evil:
    """Writes a file when it is unpickled as code."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "was here")


def test_weights_are_never_run_as_code(tmp_path):
    """A file that would write another: plain pickle does, `read_weights` refuses. A Namespace comes back inert."""
    there, saved = tmp_path / "there", io.BytesIO()
    torch.save({"model": {"w": torch.ones(2)}, "args": Evil(there)}, saved)
    with pytest.raises(pickle.UnpicklingError):
        study.read_weights(saved.getvalue())
    assert not there.exists()
    torch.load(io.BytesIO(saved.getvalue()), weights_only=False)
    assert there.exists()  # the file is as dangerous as it should be
    for zipped in (True, False):  # Sapiens is in the older form
        harmless = io.BytesIO()
        torch.save(
            {"w": torch.ones(2), "args": Namespace(seed=1)},
            harmless,
            _use_new_zipfile_serialization=zipped,
        )
        found = study.read_weights(harmless.getvalue())
        assert found["w"].tolist() == [1, 1] and type(found["args"]) is study.Inert


def test_a_wheel_is_read_by_its_digest_alone_and_missed_without_harm(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "folder", lambda what: tmp_path)
    assert study.wheel("rxnfp") is None and study.load("rxnfp") is None
    (tmp_path / "rxnfp-0.1.0-py3-none-any.whl").write_bytes(b"something else")
    with pytest.raises(ValueError, match="SHA-256"):
        study.load("rxnfp")


def test_pip_is_asked_for_wheels_by_their_digests(monkeypatch):
    asked = {}
    monkeypatch.setattr(study, "check", lambda: None)
    monkeypatch.setattr(subprocess, "run", lambda words, **more: asked.update(more, words=words))
    study.fetch()
    assert asked["input"].startswith("sapiens==1.0.5 --hash=sha256:af1a8d44")
    assert {"download", "--no-deps", "--require-hashes", ":all:"} <= set(asked["words"])


def test_reactions_lose_no_atom():
    """All but hydrogen, which SMILES leaves out, is counted here; RDKit has counted hydrogen too."""
    found = study.reactions()
    assert len(found) >= 40 and len(set(found.values())) == len(found)
    for name, reaction in found.items():
        sides = [
            Counter(
                atom.capitalize()
                for atom in re.findall(r"Br|Cl|Sn|Zn|Mg|Na|[BCNOSPFIK]|[cnos]", side)
            )
            for side in reaction.split(">>")
        ]
        assert sides[0] == sides[1], name


def test_smiles_are_cut_as_chemists_do():
    words = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "Br", "C", "[nH]", "c", "1", ">>", "%10"]
    made = study.tokenizer(words, study.BERT_FRAME, study.SMILES)
    assert made.tokenize("BrC[nH]c1>>C%10") == ["Br", "C", "[nH]", "c", "1", ">>", "C", "%10"]
    assert made("C").input_ids == [0, 6, 1] and made.tokenize("CX") == ["C", "[UNK]"]


def test_a_network_that_answers_otherwise_than_stored_is_told(monkeypatch):
    class Lm:
        def pseudo_log_likelihood(self, texts):
            return torch.tensor([-8.0])

    monkeypatch.setattr(study, "load", lambda name: Lm())
    with pytest.raises(SystemExit, match="Sapiens heavy .* -121.2"):
        study.check()


def test_the_markov_chain_is_a_distribution():
    """Over all texts of three words out of three, probabilities add up to 1; counts by hand."""
    texts = [["a", "b", "a"], ["b", "c"]]
    every = [list(words) for words in product("abc", repeat=3)]
    assert sum(np.exp(study.by_markov(texts, one, 3, 2)) for one in every) == pytest.approx(1)
    anywhere = {"a": 2.5 / 6.5, "b": 2.5 / 6.5}
    by_hand = anywhere["a"] * (1 + 2 * anywhere["b"]) / (1 + 2)  # a is followed once, by b
    assert np.exp(study.by_markov(texts, ["a", "b"], 3, 2)) == pytest.approx(by_hand)


def test_the_copying_model_sums_over_all_ways():
    """Against a loop over all paths through the five places of two texts."""
    texts, other, keep, jump = [spaced("ACD"), spaced("CE")], "CD", 0.8, 0.1
    letters, ends, starts = "ACDCE", (2, 4), (0, 3)
    frequency = {x: letters.count(x) / 5 * 0.999 + 0.001 / 20 for x in study.RESIDUES}
    emit = [[keep * (x == there) + (1 - keep) * frequency[x] for there in letters] for x in other]
    total = 0.0
    for one, two in product(range(5), repeat=2):
        move = 1 / 5 if one in ends else jump / 5 + (1 - jump) * (two == one + 1)
        total += (one in starts) / 2 * emit[0][one] * move * emit[1][two]
    assert study.by_copying(texts, spaced(other), keep, jump) == pytest.approx(np.log(total))


def test_chains_come_from_a_table_that_the_reader_names(tmp_path, monkeypatch):
    file = tmp_path / "own.csv"
    monkeypatch.setenv("MPTLML_ANTIBODIES", str(file))
    load = study.load_chains.__wrapped__
    file.write_text("# mine\nname,heavy,light\nmab,ACD,EF\n")
    assert load() == {"mab heavy": "A C D", "mab light": "E F"}
    file.write_text("name,heavy,light\nmab,AXD,EF\n")
    with pytest.raises(ValueError, match="mab"):
        load()
    monkeypatch.delenv("MPTLML_ANTIBODIES")
    with pytest.raises(ValueError, match="MPTLML_ANTIBODIES="):
        load()
