"""Sixty starts side by side score and end as each would alone."""

import pytest
import torch

from mptlml import fit, mean_score, random_masks
from mptlml.models import PPCA
from mptlml_book import many_starts as study


@pytest.fixture(scope="module")
def started():
    return study.rows_of(study.SCRIPTED), torch.stack(
        [study.starting_weight(seed, 10, 2) for seed in (4, 44, 444)]
    )


def test_the_scores_are_those_of_each_model(started):
    rows, weights = started
    sizes = torch.arange(1, 11).expand(3, -1)
    observed = random_masks(10, sizes, generator=torch.Generator().manual_seed(1))
    second = rows.moment.about(torch.zeros(10).double()).covariance
    scores = study.mean_scores(weights, rows.noise, second, observed)
    for found, weight, masks in zip(scores, weights, observed, strict=True):
        torch.testing.assert_close(found, mean_score(PPCA(weight, rows.noise), rows.moment, masks))
    alone = torch.stack([PPCA(weight, rows.noise).mean_log_prob(rows.moment) for weight in weights])
    torch.testing.assert_close(study.log_likelihood(weights, rows.noise, second), alone)


@pytest.mark.parametrize("way", ["exact gradient", "20%, all masks, β₂ = 0.9"])
def test_a_start_among_others_ends_as_it_does_alone(started, way):
    rows, weights = started
    settings = study.WAYS[way]
    among = study.train(study.SCRIPTED, settings, (4, 44, 444), 20)[1]
    alone = weights[1].clone().requires_grad_()
    masks = study.masks_of(settings, 1, 10, None)[0] if settings.sizes else None

    def objective():
        model = PPCA(alone, rows.noise)
        return (
            model.mean_log_prob(rows.moment)
            if masks is None
            else 10 * mean_score(model, rows.moment, masks).mean()
        )

    fit(
        objective,
        [alone],
        num_steps=20,
        optimiser=lambda weights, **how: torch.optim.Adam(
            weights, betas=(0.9, settings.memory), **how
        ),
    )
    torch.testing.assert_close(among, alone.detach())


@pytest.mark.parametrize(
    ("way", "sizes"),
    [
        ("every size, ten masks", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ("20%, ten masks", [2] * 10),
        ("20%, one mask", [2]),
    ],
)
def test_an_epoch_has_the_masks_that_its_way_names(way, sizes):
    observed = study.masks_of(study.WAYS[way], 3, 10, torch.Generator().manual_seed(0))
    assert (~observed).sum(-1).tolist() == [sizes] * 3 and not torch.equal(observed[0], observed[1])


def test_emptying_the_memory_changes_where_a_run_ends():
    way = study.WAYS["20%, all masks"]
    assert study.WAYS["20%, all masks, memory emptied"] == way._replace(emptied=study.EMPTIED)
    kept, emptied = (
        study.train(study.SCRIPTED, way._replace(emptied=when), (4,), 20) for when in ((), (10,))
    )
    assert not torch.allclose(kept, emptied)


def test_the_highest_likelihood_loses_nothing():
    for name in study.OWN, study.SCRIPTED:
        rows = study.rows_of(name)
        best = PPCA.fit(rows.population, 2, rows.noise, torch.zeros(10).double()).weight
        ours, population = study.lost(name, best[None])
        assert ours[0] > 0 and abs(population[0]) < 1e-12
