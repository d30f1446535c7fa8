"""Conditionals of the linear Bernoulli VAE: one matrix product against a loop over pixels and torch.distributions."""

import time

import torch
from torch.distributions import Bernoulli

from mptlml import random_masks
from mptlml.models import LinearVAE
from mptlml.models.linear_vae import disc_rule

NUM_ROWS, NUM_TOKENS, SPACING, REPEATS = 64, 784, 0.5, 3


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


def by_distributions(model, x, observed):
    """torch.distributions broadcast over rows, nodes and pixels."""
    tokens = Bernoulli(logits=model.logits).log_prob(x[:, None])  # [N, Q, D]
    log_joint = model.rule.log_weights + torch.where(observed[:, None], tokens, 0.0).sum(-1)
    answer = (log_joint.log_softmax(-1)[..., None] + tokens).logsumexp(1)
    return torch.where(observed, 0.0, answer)


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    draw = dict(generator=generator, dtype=torch.float64)
    model = LinearVAE(torch.randn(NUM_TOKENS, 2, **draw), torch.randn(NUM_TOKENS, **draw), disc_rule(SPACING))
    x = model.sample(NUM_ROWS, generator=generator)
    observed = random_masks(NUM_TOKENS, [round(0.15 * NUM_TOKENS)] * NUM_ROWS, generator=generator)
    ways = {"one matrix product (mptlml)": type(model).conditional_log_prob, "loop over pixels": by_pixel,
            "torch.distributions": by_distributions}
    truth = model.conditional_log_prob(x, observed)
    print(f"p(x_j | x_R): {NUM_ROWS} rows, {NUM_TOKENS} pixels, {len(model.rule.nodes)} nodes, float64, one thread")
    for name, way in ways.items():
        answer, best = way(model, x, observed), float("inf")
        for _ in range(REPEATS):
            began = time.process_time()
            way(model, x, observed)
            best = min(best, time.process_time() - began)
        error = (answer - truth).abs().max()
        print(f"{name:30s} {1e3 * best:9.1f} ms of processor time, largest difference {error:.1e}")


if __name__ == "__main__":
    main()
