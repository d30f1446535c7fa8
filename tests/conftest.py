"""What every test here shares: one thread (the tensors are small), a seeded generator, and a watch on global state."""

import random

import numpy as np
import pytest
import torch

torch.set_num_threads(1)

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


@pytest.fixture(scope="session")
def built_site():
    """The folder of the built site, where it was built from today's sources; else the test is skipped."""
    import book_build  # the modules that ask for the site put its folder on the path

    if not book_build.is_current():
        pytest.skip("the book is not built from these sources: `make book`")
    return book_build.ROOT / "_build" / "html"


@pytest.fixture
def generator():
    """A torch.Generator with a fixed seed."""
    return torch.Generator().manual_seed(1)


def global_states():
    """The states of the global random generators of torch, numpy and python, comparable with ==."""
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), (kind, keys.tolist(), *rest), random.getstate()


@pytest.fixture(autouse=True)
def global_state_is_untouched():
    """Nothing tested may move global randomness or the default dtype."""
    before = global_states(), torch.get_default_dtype()
    yield
    assert (global_states(), torch.get_default_dtype()) == before, "global random state or default dtype moved"
