"""What every test here shares: one thread (the tensors are small), a seeded generator, and a watch on global state."""

import os
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


@pytest.fixture(scope="session")
def chromium():
    """The path of a Chromium; else the test is skipped. Checking machines (CI is set) read no pages."""
    import book_browser

    if os.environ.get("CI"):
        pytest.skip("the site is looked at where it is written, not on checking machines (CI is set)")
    path = book_browser.find_chromium()
    if path is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(book_browser.NAMES)}, and at CHROMIUM)")
    return path


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
