"""What comes after training: the domains, the exact posterior, the probe, and the stored run."""

import pytest
import torch
from scipy.stats import entropy
from torch.nn.functional import cross_entropy

from mptlml_book import after_training as study
from mptlml_book.known_language import NOUNS, WORDS, language
from mptlml_book.transformer import MaskedTransformer


def small_net(generator, num_tokens=32):
    return MaskedTransformer(num_tokens, len(WORDS), width=8, num_layers=2, generator=generator)


@pytest.mark.parametrize("name", study.DOMAINS)
def test_the_posterior_is_that_of_an_enumeration_of_all_states(name, generator):
    """12^4 or 16^4 paths of four words: the probability of each with x, summed by the topic at word 2."""
    truth = study.domain(name, 4)
    x = truth.sample(3, generator=generator)
    num_states = len(truth.initial)
    joint = torch.einsum("a,ab,bc,cd->abcd", truth.initial, *[truth.transition] * 3)
    for row, found in zip(x, study.topic_posterior(truth, x), strict=True):
        weight = torch.einsum("abcd,a,b,c,d->b", joint, *(truth.emission[:, word] for word in row))
        expected = weight.view(num_states // 4, 4).sum(1) / weight.sum()
        assert torch.allclose(found, expected, atol=1e-12)
        assert weight.sum().log() == pytest.approx(float(truth.log_prob(row[None])[0]))


def test_the_domains_differ_where_they_say():
    home, _, renamed, noisy, new = map(study.domain, study.DOMAINS)
    assert torch.allclose(noisy.emission, 0.9 * home.emission + 0.1 / 24)
    boat, cook = (WORDS.index(topic[0]) for topic in NOUNS[:2])
    assert torch.allclose(renamed.emission[:, cook], home.emission[:, boat])
    words = {WORDS[one] for one in new.emission[13].topk(3).indices}  # of the fourth topic
    assert [len(words & {*nouns}) for nouns in NOUNS] == [1, 1, 1]


def test_the_probe_is_where_the_slope_of_its_density_vanishes(generator):
    """Also where a class has no label."""
    inputs = 3 * torch.randn(2, 60, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (2, 60), generator=generator)
    weight = study.probe(inputs, labels, 3).requires_grad_()
    answer = (study.with_constant(inputs) @ weight).transpose(1, 2)
    (cross_entropy(answer, labels, reduction="sum") + weight.square().sum() / 2).backward()
    assert weight.grad.abs().max() < 1e-5


def test_the_regret_is_the_divergence_from_the_posterior(generator):
    posterior, answer = torch.rand(2, 50, 3, generator=generator, dtype=torch.float64).softmax(-1)
    expected = entropy(posterior, answer, axis=-1).mean()
    assert study.regret(posterior, answer.log()) == pytest.approx(expected)


def test_the_middle_state_is_the_one_that_the_readout_sees(generator):
    net, x = small_net(generator), language().sample(32, generator=generator)
    read = net.readout(study.middle_states(net, x)).log_softmax(-1)
    assert torch.allclose(read, net(x, torch.ones_like(x, dtype=torch.bool))[:, 15], atol=1e-6)


class Knower:
    """A network's shell around a language: it answers exactly, and its states are the exact log-posterior."""

    def __init__(self, truth):
        self.num_tokens, self.vocab_size = truth.num_tokens, truth.vocab_size
        self.vocabulary_log_prob = truth.vocabulary_log_prob


def test_who_knows_the_language_has_no_regret_at_home(monkeypatch):
    truth = language()
    monkeypatch.setattr(
        study, "middle_states", lambda net, x: study.topic_posterior(truth, x).log()
    )
    monkeypatch.setattr(study, "LABELLED", {8: 4, 512: 1})
    found = study.afterwards(Knower(truth), seed=1)
    assert abs(found["fill, home"]) < 1e-9 and abs(found["write, home"]) < 1e-9
    assert 0 <= found["probe 512, home"] < found["probe 8, home"] < 0.1
    assert all(
        found[f"{task}, {name}"] > 0.1 for task in ("fill", "write") for name in study.DOMAINS[1:]
    )
    about = study.foretellers(Knower(truth), seed=1)
    assert all(abs(about[name]) < 1e-9 for name in ("area gap", "S(1)"))


def test_every_task_is_measured_and_the_seed_decides(generator, monkeypatch):
    monkeypatch.setattr(study, "LABELLED", {8: 2, 32: 1})
    net = small_net(generator)
    found = study.afterwards(net, seed=3)
    assert len(found) == 5 * 4 and min(found.values()) > 0
    assert found == study.afterwards(net, seed=3)
