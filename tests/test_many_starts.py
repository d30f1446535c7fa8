"""Sixty starts side by side end as each would alone."""

import pytest
import torch
from conftest import same, seeded

from mptlml import fit, mean_score
from mptlml.models import PPCA
from mptlml_book import many_starts as study


@pytest.mark.parametrize("way", ["exact gradient", "20%, all masks, β₂ = 0.9"])
def test_a_start_among_others_ends_as_it_does_alone(way):
    rows, settings = study.rows_of(study.SCRIPTED), study.WAYS[way]
    among = study.train(study.SCRIPTED, settings, (4, 44), 20)[1]
    alone = study.starting_weight(44, 10, 2).requires_grad_()

    def objective():
        model = PPCA(alone, rows.noise)
        if not settings.sizes:
            return model.mean_log_prob(rows.moment)
        masks = study.masks_of(settings, 1, 10, seeded())[0]
        return 10 * mean_score(model, rows.moment, masks).mean()

    def adam(weights, **options):
        return torch.optim.Adam(weights, betas=(0.9, settings.memory), **options)

    fit(objective, [alone], num_steps=20, optimiser=adam)
    same(among, alone.detach())


@pytest.mark.parametrize(
    ("way", "sizes"),
    [("every size, ten masks", [*range(1, 11)]), ("20%, ten masks", [2] * 10)],
)
def test_an_epoch_has_the_masks_that_its_way_names(way, sizes):
    observed = study.masks_of(study.WAYS[way], 3, 10, seeded())
    assert (~observed).sum(-1).tolist() == [sizes] * 3 and not torch.equal(observed[0], observed[1])


def test_emptying_the_memory_changes_where_a_run_ends():
    way = study.WAYS["20%, all masks"]
    kept, emptied = (
        study.train(study.SCRIPTED, way._replace(emptied=when), (4,), 20) for when in ((), (10,))
    )
    assert not torch.allclose(kept, emptied)


@pytest.mark.parametrize("name", [study.OWN, study.SCRIPTED])
def test_the_highest_likelihood_loses_nothing(name):
    rows = study.rows_of(name)
    best = PPCA.fit(rows.population, 2, rows.noise, torch.zeros(10).double()).weight
    ours, population = study.lost(name, best[None])
    assert ours[0] > 0 and abs(population[0]) < 1e-12
