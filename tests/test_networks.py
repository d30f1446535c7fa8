"""Networks that others trained: weights read as data, tokenizers and reactions."""

import io
import pickle
import re
import zipfile
from argparse import Namespace
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch

from mptlml_book import known_language
from mptlml_book import networks as study
from mptlml_book.data import places


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


def test_chains_come_from_a_table_that_the_reader_names(tmp_path, monkeypatch):
    file = tmp_path / "own.csv"
    monkeypatch.setenv("MPTLML_ANTIBODIES", str(file))
    load = study.load_chains.__wrapped__
    file.write_text("# mine\nname,heavy,light\nmab,ACD,EF\n")
    assert load() == {"mab heavy": "A C D", "mab light": "E F"}
    monkeypatch.delenv("MPTLML_ANTIBODIES")
    with pytest.raises(ValueError, match="MPTLML_ANTIBODIES="):
        load()


def test_labels_unsmoothed_are_those_that_were_smoothed(generator):
    answer = torch.randn(3, 25, dtype=torch.float64, generator=generator).softmax(-1)
    again = study.unsmoothed((0.9 * answer + 0.1 / 25).log())
    assert torch.allclose(again.exp(), 0.9 * answer) and torch.allclose(again.softmax(-1), answer)


def test_the_truth_itself_ranks_rows_by_area_as_they_are(monkeypatch):
    """Four masks a size leave some noise; one token at a time counts what neighbours share many times."""
    monkeypatch.setattr(study, "NUM_RANKED", 48)
    found = study.ranked(known_language.language(), seed=1)
    assert found["by area"] > 0.95 > found["single"] > 0.7


def test_what_files_say_is_read_by_line_and_field(tmp_path, monkeypatch):
    saved = io.BytesIO()
    torch.save(Namespace(mlm_probability=0.15), saved)
    with zipfile.ZipFile(tmp_path / "own.whl", "w") as made:
        made.writestr("own/args.bin", saved.getvalue())
        made.writestr("own/core.py", "import os\nfrom transformers import AlbertModel\n")
    monkeypatch.setattr(study, "wheel", lambda name: zipfile.ZipFile(tmp_path / "own.whl"))
    [args] = study.says("RXNMapper", "own/args.bin", "mlm_probability")
    [code] = study.says("RXNMapper", "own/core.py", "from transformers")
    assert args["value"] == 0.15 and code["line"] == 2 and "AlbertModel" in code["value"]


def test_an_atom_of_a_product_looks_at_one_of_a_reactant():
    """In CO.Cl>>CCl.O the first C looks most at a dot, then at O; Cl and O at the first C."""
    words = ["[CLS]", "C", "O", ".", "Cl", ">>", "C", "Cl", ".", "O", "[SEP]"]
    looks = torch.zeros(1, 6, 11, 11)
    looks[0, 5, 6, 3], looks[0, 5, 6, 2], looks[0, 5, 7:, 1] = 0.6, 0.4, 1.0
    answer = SimpleNamespace(attentions=[None] * 10 + [looks])
    lm = SimpleNamespace(model=SimpleNamespace(albert=lambda ids, output_attentions: answer))
    lm.tokenizer = MagicMock(**{"convert_ids_to_tokens.return_value": words})
    assert study.partners(lm, "CO.Cl>>CCl.O") == [1, 0, 0]
