"""Studies without a file of tests of their own: the known language with its objectives, and the scripts' rows."""

import itertools
import math

import pytest
import torch

from mptlml import objectives
from mptlml.models import PPCA, HiddenMarkovModel
from mptlml.studies.known_language import BATCH, SCHEMES, WORDS, language, pretrain, sentence
from mptlml.studies.scripts_data import scripts_rows


class Asked:
    """Answers with fixed numbers and remembers which masks it was asked for."""

    num_tokens, vocab_size = 10, 4

    def __init__(self):
        self.shown, self.observed = [], []

    def conditional_log_prob(self, x, observed):
        self.observed.append(observed.expand(*torch.broadcast_shapes(x.shape, observed.shape)))
        return torch.where(observed, 0.0, -1.0 - torch.arange(self.num_tokens)).expand(self.observed[-1].shape)

    def vocabulary_log_prob(self, x, observed):
        self.shown.append(x)
        self.observed.append(observed)
        return torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4])).expand(*x.shape, 4)


@pytest.mark.parametrize("num_rows, together, times", [(20, 1, 2), (10, 1, 1), (5, 2, 1), (2, 5, 1)])
def test_stratified_sizes_are_spread_evenly(num_rows, together, times, generator):
    """Each stratum of `together` neighbouring sizes is met `times` times; over many draws each row meets every size.

    Scores depend on the token alone, so that D S(x; m) has for every size the mean 10 times that of -1..-10.
    """
    met, values = torch.zeros(num_rows, 10), []
    for _ in range(100):
        model = Asked()
        values.append(objectives.stratified_size(model, torch.zeros(num_rows, 10), generator=generator))
        sizes = (~model.observed[0]).sum(-1).flatten()
        count = torch.bincount(sizes - 1, minlength=10)
        assert (count.view(-1, together).sum(-1) == times).all()
        met[torch.arange(num_rows), sizes - 1] += 1
    assert (met > 0).all()
    values = torch.stack(values)
    assert abs(values.mean() + 55) < 4 * values.std() / math.sqrt(len(values))


def test_eighty_ten_ten(generator):
    model, x = Asked(), torch.randint(4, (4000, 10), generator=generator).double()
    value = objectives.eighty_ten_ten(model, x, 5, generator=generator)
    hidden, changed = ~model.observed[0], model.shown[0] != x
    assert hidden.double().mean().item() == pytest.approx(0.4, abs=0.01)  # 80% of half the tokens
    assert changed.double().mean().item() == pytest.approx(0.05 * 0.75, abs=0.005)  # or by chance the same
    assert not (hidden & changed).any()
    expected = 10 * torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))[x.long()].mean()
    assert value.item() == pytest.approx(expected.item(), abs=0.1)  # scored at all chosen tokens, shown or not
    alike = objectives.eighty_ten_ten(model, torch.full((50, 10), 3.0), 2, generator=generator)
    assert alike.item() == pytest.approx(10 * math.log(0.4))  # and at no other
    with pytest.raises(ValueError, match="1..10"):
        objectives.eighty_ten_ten(model, x, 11, generator=generator)


@pytest.mark.parametrize(("scheme", "size"), [("fixed 40%", 13), ("fixed 15%", 5), ("15%, 80/10/10", 5)])
def test_a_fixed_scheme_chooses_its_share_of_32_tokens(scheme, size, generator):
    model = Asked()
    model.num_tokens = 32
    SCHEMES[scheme](model, torch.zeros(400, 32), generator)
    assert (~model.observed[0]).sum(-1).max() == size


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_trains_and_the_seed_decides(scheme):
    options = dict(num_steps=12, width=8, num_layers=1, track={"rows": lambda net: net.num_tokens}, track_every=6)
    net, history = pretrain(scheme, seed=3, **options)
    again, other = pretrain(scheme, seed=3, **options)[0], pretrain(scheme, seed=4, **options)[0]
    assert torch.equal(net.readout.weight, again.readout.weight)
    assert not torch.equal(net.readout.weight, other.readout.weight)
    assert history.at == [0, 6, 12] and history.tracked["rows"] == [32] * 3
    assert sum(history.objective[-3:]) > sum(history.objective[:3])  # it learns


def test_the_learning_rate_warms_up_and_decays():
    """Adam moves a weight by its rate at first: 5e-3 / 50; the second step's 2 / 50 is halved by the cosine of two."""
    weights = {"weight": lambda net: net.readout.weight.clone()}
    _, history = pretrain("uniform sizes", seed=3, num_steps=2, width=8, num_layers=1, track=weights, track_every=1)
    moved = [float((b - a).abs().max()) for a, b in itertools.pairwise(history.tracked["weight"])]
    assert moved[0] == pytest.approx(1e-4, rel=1e-2) and 0.8e-4 < moved[1] < 1.2e-4


def test_each_state_of_the_language_has_its_words():
    likely = language().emission.sort(descending=True).indices[:, :3]  # of 3 topics x 4 phases
    for state, words in {0: "the a one", 1: "boat gull sailor", 5: "cook soup pan", 10: "blooms hums digs"}.items():
        assert " ".join(WORDS[word] for word in likely[state]) == words


def test_schemes_with_one_seed_start_alike_on_the_same_rows(monkeypatch):
    seen = {}
    original = HiddenMarkovModel.sample

    def sample(self, num_rows, *, generator):
        return seen.setdefault(len(seen), original(self, num_rows, generator=generator))

    monkeypatch.setattr(HiddenMarkovModel, "sample", sample)
    for scheme in ("uniform sizes", "fixed 15%"):
        pretrain(scheme, seed=3, num_steps=2, width=8, num_layers=1)
    assert seen[0].shape == (2 * BATCH, 32) and torch.equal(seen[0], seen[1])
    with pytest.raises(ValueError, match="scheme must be one of 'uniform sizes'"):
        pretrain("curriculum", seed=0)


def test_sentences_are_wrapped_words():
    assert sentence(torch.tensor([0.0, 3.0, 12.0])) == f"{WORDS[0]} {WORDS[3]} {WORDS[12]}" == "the boat drifts"
    assert sentence(torch.tensor([0.0, 3.0, 12.0]), width=9) == "the boat\ndrifts"


def test_the_exact_lml_of_table_1_is_met_to_its_printed_digits():
    x, weight, noise_variance = scripts_rows(1000, 200, 5, seed=1991)
    assert f"{PPCA(weight, noise_variance).log_prob(x).mean():.2f}" == "-60.34"


def test_the_stream_is_that_of_the_global_seed_in_the_order_weight_latents_noise():
    x, weight, noise_variance = scripts_rows(7, 6, 2, seed=44)
    with torch.random.fork_rng():
        torch.manual_seed(44)
        expected_weight, latents, noise = torch.randn(6, 2), torch.randn(7, 2), torch.randn(7, 1) / 5
    assert torch.equal(weight, expected_weight.double()) and noise_variance == 0.2
    assert torch.equal(x, (latents @ expected_weight.T + noise).double()) and x.dtype == weight.dtype == torch.float64
