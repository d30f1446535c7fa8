"""Conditionals of the linear Bernoulli VAE: one matrix product against a loop over pixels."""

from functools import partial

import torch

from mptlml import random_masks
from mptlml.models import LinearVAE
from mptlml.models.linear_vae import disc_rule

from .measure import compare

NUM_ROWS, NUM_TOKENS, SPACING = 64, 784, 0.5


def by_pixel(model, x, observed):
    """One pixel after the other, over all rows and nodes at a time."""
    log_joint = model.rule.log_weights.expand(len(x), -1).clone()
    for j in range(NUM_TOKENS):
        chance = model.logits[:, j].sigmoid()
        log_joint += torch.where(observed[:, j, None], torch.where(x[:, j, None] == 1, chance, 1 - chance).log(), 0.0)
    shares, columns = log_joint.softmax(-1), []
    for j in range(NUM_TOKENS):
        one = shares @ model.logits[:, j].sigmoid()
        columns.append(torch.where(observed[:, j], 0.0, torch.where(x[:, j] == 1, one, 1 - one).log()))
    return torch.stack(columns, -1)


WAYS = {"mptlml": LinearVAE.conditional_log_prob, "loop over pixels": by_pixel}


def prepare(way):
    generator = torch.Generator().manual_seed(0)
    draw = dict(generator=generator, dtype=torch.float64)
    model = LinearVAE(torch.randn(NUM_TOKENS, 2, **draw), torch.randn(NUM_TOKENS, **draw), disc_rule(SPACING))
    x = model.sample(NUM_ROWS, generator=generator)
    observed = random_masks(NUM_TOKENS, [round(0.15 * NUM_TOKENS)] * NUM_ROWS, generator=generator)
    return partial(WAYS[way], model, x, observed)


def main():
    print(f"p(x_j | x_R): {NUM_ROWS} rows, {NUM_TOKENS} pixels, {len(disc_rule(SPACING).nodes)} nodes, float64")
    compare(prepare, WAYS, unit="row", tolerance=1e-10)
