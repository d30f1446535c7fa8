"""Quadrature rules for a latent variable z ~ N(0, I_K), by which linear and deep VAEs integrate it out."""

import math
from typing import NamedTuple

import torch
from scipy.special import roots_hermitenorm
from torch import Generator, Tensor

from mptlml.checks import check_count
from mptlml.draws import rand


class Rule(NamedTuple):
    """A rule for z ~ N(0, I_K): nodes [Q, K] and log_weights [Q], logs of prior density times cell size."""

    nodes: Tensor
    log_weights: Tensor

    def to(self, like: Tensor) -> "Rule":
        """The rule in the dtype and on the device of a tensor."""
        return Rule(self.nodes.to(like), self.log_weights.to(like))


def disc_rule(
    spacing: float, radius: float = 4.5, num_latents: int = 2, *, generator: Generator | None = None
) -> Rule:
    """A uniform grid inside the ball that holds the prior's mass; the weights sum to one.

    It converges faster than any power of `spacing` below the posterior's width. With a `generator`
    the grid is shifted by a random part of a cell, so that a model in training cannot fit the
    nodes. Raises ValueError: spacing or radius not positive, or more than 10^6 nodes in the
    surrounding cube.
    """
    check_count(num_latents, "num_latents")
    if not 0 < spacing <= radius < math.inf:
        raise ValueError(
            f"a grid needs 0 < spacing <= radius, got spacing {spacing!r}, radius {radius!r}"
        )
    half = math.ceil(radius / spacing)
    if (2 * half + 1) ** num_latents > 1e6:
        raise ValueError(
            f"{2 * half + 1} nodes per axis in {num_latents} dimensions are more than a million"
        )
    axis = spacing * torch.arange(-half, half + 1, dtype=torch.float64)
    nodes = torch.cartesian_prod(*[axis] * num_latents).view(-1, num_latents)
    if generator is not None:
        nodes = nodes + spacing * (rand((num_latents,), nodes, generator) - 0.5)
    nodes = nodes[nodes.square().sum(-1) <= radius**2]
    return Rule(nodes, (-0.5 * nodes.square().sum(-1)).log_softmax(0))


def hermite_rule(per_axis: int, num_latents: int = 2) -> Rule:
    """Gauss-Hermite: exact for polynomials of degree below 2 per_axis in each z_k."""
    points, weights = (torch.from_numpy(values) for values in roots_hermitenorm(per_axis))
    weights = weights / weights.sum()
    nodes = torch.cartesian_prod(*[points] * num_latents).view(-1, num_latents)
    log_weights = torch.cartesian_prod(*[weights.log()] * num_latents).view(-1, num_latents).sum(-1)
    return Rule(nodes, log_weights)
