"""Studies without a file of tests of their own: the known language with its objectives, and the scripts' rows."""

import itertools
import math

import pytest
import torch

from mptlml import objectives
from mptlml.models import PPCA
from mptlml.studies.known_language import SCHEMES, pretrain, sentence
from mptlml.studies.scripts_data import scripts_rows


class Asked:
    """Answers with -1..-10 for its ten tokens, and remembers how many of each row were masked."""

    num_tokens = 10

    def conditional_log_prob(self, x, observed):
        self.sizes = (~observed).sum(-1).flatten()
        return torch.where(observed, 0.0, -1.0 - torch.arange(self.num_tokens))


@pytest.mark.parametrize("num_rows, together, times", [(20, 1, 2), (10, 1, 1), (5, 2, 1), (2, 5, 1)])
def test_stratified_sizes_are_spread_evenly(num_rows, together, times, generator):
    """Each stratum of `together` neighbouring sizes is met `times` times; over many draws each row meets every size.

    Scores depend on the token alone, so that D S(x; m) has the same mean for every size, -55.
    """
    met, values = torch.zeros(num_rows, 10), []
    for _ in range(100):
        model = Asked()
        values.append(objectives.stratified_size(model, torch.zeros(num_rows, 10), generator=generator))
        count = torch.bincount(model.sizes - 1, minlength=10)
        assert (count.view(-1, together).sum(-1) == times).all()
        met[torch.arange(num_rows), model.sizes - 1] += 1
    assert (met > 0).all()
    values = torch.stack(values)
    assert abs(values.mean() + 55) < 4 * values.std() / math.sqrt(len(values))


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


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="scheme must be one of 'uniform sizes'"):
        pretrain("curriculum", seed=0)


def test_sentences_are_wrapped_words():
    assert sentence(torch.tensor([0.0, 3.0, 12.0])) == "the boat drifts"
    assert sentence(torch.tensor([0.0, 3.0, 12.0]), width=9) == "the boat\ndrifts"


def test_the_exact_lml_of_table_1_is_met_to_its_printed_digits():
    x, weight, noise_variance = scripts_rows(1000, 200, 5, seed=1991)
    assert f"{PPCA(weight, noise_variance).log_prob(x).mean():.2f}" == "-60.34" and x.dtype == torch.float64
