"""The stored tables by name, in an order in which each finds those that it reads."""

from . import (
    after_training,
    deep_vae,
    evidence,
    known_language,
    linear_vae,
    many_starts,
    masked_diffusion,
    masked_mixture,
    networks,
    order,
    real_network,
)

PARTS = (
    known_language,
    linear_vae,
    deep_vae,
    masked_diffusion,
    real_network,
    after_training,
    masked_mixture,
    many_starts,
    networks,
    evidence,
    order,
)
TABLES = {name: table for part in PARTS for name, table in part.TABLES.items()}
