"""The network that somebody else trained: its packages, how close genes are, training, stand-ins."""

import importlib.util
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import random_network
from transformers import BertTokenizer

from mptlml_book import real_network as study
from mptlml_book import report
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


def test_a_mixture_of_genes_is_a_distribution():
    """Over all sequences of three letters its probabilities sum to one; at keep = 0 it counts letters by place."""
    texts = [study.spaced(s) for s in ("ACA", "CCA", "CAA")]
    every = [study.spaced("".join(s)) for s in product("AC", repeat=3)]
    assert np.exp(np.sum(study.by_genes(texts, every, 0.7), 1)).sum() == pytest.approx(1)
    [found] = study.by_genes(["A C", "A D", "C D"], ["A D C"], 0)  # no text has a third
    np.testing.assert_allclose(np.exp(found), [2.5 / 4.5, 2.5 / 4.5, 0.5 / 1.5])


def test_a_lookup_answers_as_its_mixture_does():
    """Against ratios of sums over all sequences; and the steps of a curve add up to the log-probability."""
    texts = [study.spaced(s) for s in ("ACA", "CCA", "CAA")]
    every = [*product("AC", repeat=3)]
    sums = np.sum(study.by_genes(texts, [*map(" ".join, every)], 0.7), 1)
    joint = dict(zip(every, np.exp(sums), strict=True))
    own, (kept,) = ("C", "A", "A"), study._kept(texts, ["C A A"], 0.7)

    def total(places):
        return sum(p for row, p in joint.items() if all(row[j] == own[j] for j in places))

    for hidden in product([False, True], repeat=3):
        seen = [j for j in range(3) if not hidden[j]]
        for j, found in enumerate(study.from_visible(kept, np.array([hidden]))[0]):
            if hidden[j]:
                assert found == pytest.approx(np.log(total([*seen, j]) / total(seen)))
    curve = dict(
        zip(study.RATES, study.looked_up(texts, ["C A A"], 0.7, num_masks=4000)[0], strict=True)
    )
    # 1, 2, 3 of 3
    assert curve[0.01] + curve[0.6] + curve[1.0] == pytest.approx(np.log(joint[own]), abs=0.03)


def test_another_answers_where_much_is_masked():
    """A flat curve of -1 for 10 residues: from 80% on, three sizes, answers of -3 cost 2 each."""
    curves = np.ones((2, 1, len(study.RATES)))
    np.testing.assert_allclose(
        study.answered_from(0.8, -curves, np.array([10]), -3 * curves[0]), [[-6], [-6]]
    )


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


def test_the_longer_runs_take_the_rates_that_were_best_by_area():
    runs = pd.read_csv(report.stored("real_network_rates.csv"), comment="#")
    runs = runs[runs.step == study.NUM_STEPS]
    scores = runs[study.COLUMNS].to_numpy().T
    runs["area"] = RateCurve(np.array(study.RATES), scores, runs.tokens.to_numpy()).row_areas
    means = runs.groupby(["scheme", "learning_rate"]).area.mean().unstack()
    assert means.idxmax(axis=1).to_dict() == study.BEST_RATES
