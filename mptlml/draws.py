"""One rule for all that is drawn at random: a draw happens where the generator lives, and goes where the data lie.

A generator on the CPU therefore gives the same numbers whatever device a model computes on.
"""

import torch


def rand(shape, like, generator):
    """Uniform numbers in [0, 1), in the dtype and on the device of the tensor `like`."""
    return torch.rand(shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)


def randn(shape, like, generator):
    """Standard normal numbers, in the dtype and on the device of the tensor `like`."""
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)


def randint(high, shape, like, generator):
    """Whole numbers 0..high - 1, int64, on the device of the tensor `like`."""
    return torch.randint(high, shape, generator=generator, device=generator.device).to(like.device)


def randperm(count, like, generator):
    """0..count - 1 in random order, int64, on the device of the tensor `like`."""
    return torch.randperm(count, generator=generator, device=generator.device).to(like.device)


def bernoulli(probs, generator):
    """1 with each of these probabilities, else 0, in their shape, dtype and device."""
    return torch.bernoulli(probs.to(generator.device), generator=generator).to(probs.device)


def multinomial(weights, num_draws, generator):
    """`num_draws` places for each row of weights [..., C], with replacement: int64 [..., num_draws]."""
    drawn = torch.multinomial(weights.to(generator.device), num_draws, replacement=True, generator=generator)
    return drawn.to(weights.device)
