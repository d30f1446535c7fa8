from .known_language import FIRST_SEED, TWO, network, seeds, tuned  # noqa: F401
