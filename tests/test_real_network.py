"""The network that somebody else trained: its packages, how close genes are, training, stand-ins."""

import importlib.util
from functools import partial

import numpy as np
import pytest
import torch
from fakes import random_network
from transformers import BertTokenizer

from mptlml_book import real_network as study
from mptlml_book.rates import RateCurve

NEEDS = {
    name: pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
    )
    for name in ("antiberty", "anarci")
}


def tiny():
    """A small random network that reads residues."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *study.RESIDUES]
    return random_network(
        BertTokenizer({word: k for k, word in enumerate(words)}, do_lower_case=False)
    )


TEXTS = [
    study.spaced(s)
    for s in ("ACDEFG", "ACDEFGH", "CCDE", "WYWYWYWY", "ACACAC", "LMNP", "QRSTV", "ACDQ", "KLM")
]


def test_identity_is_one_minus_the_edit_distance_over_the_longer():
    """KITTEN becomes SITTING by three edits; ABCD becomes BCDA by two, one at each end."""
    found = study.identity(["KITTEN", "ABCD", "AAAA"], ["SITTING", "BCDA"])
    np.testing.assert_allclose(found, [[1 - 3 / 7, 0], [0, 1 - 2 / 4], [0, 1 - 3 / 4]], atol=1e-12)


@NEEDS["anarci"]
def test_training_genes_are_far_from_every_human_gene():
    """Columns of the alignment would not do: the same rhesus gene stands one column on from the 16th."""
    human, others = study.germline_genes(study._folder("anarci"))
    assert len(set(human)) == len(human) == 119 and len(set(others)) == len(others) == 628
    assert {*"".join(human + others)} == set(study.RESIDUES)
    rhesus = "EVQLVQSGAEVKKPGASVKISCKASGYTFTDYYLHWVRQAPGKGLEWMGRVDPEDGEAIHAQKFQDRVTITRDTSTDTAYMELSSLRSEDTAVYYCAT"
    assert study.identity([rhesus], human).max() > study.CEILING and rhesus not in others
    assert study.identity(others[::100], human[::40]).max() < study.CEILING


@NEEDS["antiberty"]
def test_the_weights_are_where_they_belong():
    """With 16 of 107 residues hidden, a network with its weights in place is nearly sure of most."""
    found = study.load_network()
    ids = found.lm.encode(study.chains()["trastuzumab light"])
    hidden = torch.randperm(len(ids), generator=torch.Generator().manual_seed(1))[:16]
    seen = torch.ones(1, len(ids), dtype=torch.bool).index_fill(1, hidden, False)
    with torch.no_grad():
        answer = found.lm.at_length(len(ids)).vocabulary_log_prob(ids[None], seen)[0, hidden]
    assert not found.note
    assert answer.gather(1, ids[hidden][:, None]).median() > -0.4
    assert answer.exp().sum(1).numpy() == pytest.approx(1, abs=1e-4)


def test_without_the_packages_another_network_stands_in_and_says_so(monkeypatch):
    monkeypatch.setattr(study, "_folder", lambda package: None)
    monkeypatch.setattr(study, "small_network", partial(study.small_network, num_steps=2))
    found, sequences = study.load_network(), study.load_sequences()
    assert "antiberty" in found.note and "Germline genes" in sequences.data.note
    assert not set(sequences.tested) & set(sequences.trained)
    assert len(found.lm.encode(study.chains()["adalimumab heavy"])) == 121  # it can be read
    found.lm.read(study.spread_out(sequences.tested, 12))


def test_a_table_by_place_counts_letters_there():
    """Half a count more for each of three letters; no text has a third place."""
    [found] = study.by_place(["A C", "A D", "C D"], ["A D C"])
    assert found == pytest.approx(np.log([2.5 / 4.5, 2.5 / 4.5, 0.5 / 1.5]).mean())


def test_a_table_answers_where_much_is_masked():
    """A flat curve of -1 for 10 residues: from 80% on, three sizes, answers of -3 cost 2 each."""
    rates = np.array(study.RATES)
    curve = RateCurve(rates, -np.ones((len(rates), 1)), np.array([10]))
    assert study.answered_from(0.8, curve, np.array([-3])) == pytest.approx([-6])


def trained(scheme, seed):
    lm = tiny()
    history = study.fine_tune(lm, TEXTS, scheme, seed=seed, num_steps=30, learning_rate=1e-2)
    assert not lm.model.training
    return history.objective, lm.pseudo_log_likelihood(TEXTS)


@pytest.mark.parametrize("scheme", study.SCHEMES)
def test_every_scheme_trains_and_the_seed_decides(scheme):
    (first, told), (again, same), (other, _) = (trained(scheme, seed) for seed in (3, 3, 4))
    assert first == again and torch.equal(told, same) and first != other
    assert told.sum() > tiny().pseudo_log_likelihood(TEXTS).sum()  # it learns


def test_the_seed_decides_the_batches_and_padding_is_no_text(monkeypatch):
    """Whatever the scheme: three batches of eight texts, and twice the same."""
    batches = []

    def scheme(view, rows, *, lengths, generator):
        batches.append([row[:length].tolist() for row, length in zip(rows, lengths, strict=True)])
        assert rows.sum() == sum(map(sum, batches[-1]))  # the rest is padding
        return 0 * sum(weight.sum() for weight in view.lm.model.parameters())

    monkeypatch.setitem(study.SCHEMES, "any", scheme)
    for _ in range(2):
        study.fine_tune(tiny(), TEXTS, "any", seed=5, num_steps=3)
    assert batches[:3] == batches[3:] and len({str(batch) for batch in batches}) == 3
    assert all(len({str(row) for row in batch}) == 8 for batch in batches)
