"""Rows as the authors' public research scripts draw them."""

import pytest
import torch

from mptlml.models import PPCA
from mptlml.studies.scripts_data import scripts_rows


def test_the_exact_lml_of_table_1_is_met_to_its_printed_digits():
    x, weight, noise_variance = scripts_rows(1000, 200, 5, seed=1991)
    assert f"{PPCA(weight, noise_variance).log_prob(x).mean():.2f}" == "-60.34"


def test_the_stream_is_that_of_the_global_seed_in_the_order_weight_latents_noise():
    x, weight, noise_variance = scripts_rows(7, 6, 2, seed=44)
    with torch.random.fork_rng():
        torch.manual_seed(44)
        expected_weight, latents, noise = torch.randn(6, 2), torch.randn(7, 2), torch.randn(7, 1) / 5
    assert torch.equal(weight, expected_weight.double())
    assert torch.equal(x, (latents @ expected_weight.T + noise).double())
    assert noise_variance == 0.2
    assert x.dtype == weight.dtype == torch.float64


def test_the_noise_is_one_number_a_row_so_the_rows_have_rank_k_plus_1():
    x, weight, _ = scripts_rows(50, 8, 2, seed=4)
    singular = torch.linalg.svdvals(x)
    assert singular[2] > 0.1 and singular[3] < 1e-4


def test_the_global_stream_is_untouched_and_the_seed_decides():
    before = torch.random.get_rng_state()
    first, again, other = (scripts_rows(5, 4, 2, seed=seed)[0] for seed in (4, 4, 44))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.parametrize("counts", [(0, 5, 2), (5, 0, 2), (5, 5, 0), (2.5, 5, 2)])
def test_counts_below_one_or_not_whole_are_refused(counts):
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        scripts_rows(*counts, seed=1)
