"""Where data lie on this machine: as environment variables say, else in the reader's cache."""

import os
from pathlib import Path

# What may name a place, for the chapters that run in another folder than this one
VARIABLES = "MPTLML_DATA", "MPTLML_MASKED_LM", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"


def _said(variable: str, usual: Path) -> Path:
    return Path(os.environ.get(variable) or usual)


def cached_images() -> Path:
    """Where images that were fetched are kept, as a torchvision root."""
    return Path.home() / ".cache" / "mptlml"


def images() -> Path:
    """The torchvision root that is read."""
    return _said("MPTLML_DATA", cached_images())


def _hugging_face() -> Path:
    return _said("HF_HOME", Path.home() / ".cache" / "huggingface")


def models() -> Path:
    """Models of the hub."""
    return _said("HF_HUB_CACHE", _hugging_face() / "hub")


def glue() -> Path:
    """The sets of GLUE, of one folder each."""
    return _said("HF_DATASETS_CACHE", _hugging_face() / "datasets") / "nyu-mll___glue"
