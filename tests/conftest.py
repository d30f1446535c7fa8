"""What every test here shares: one thread (the tensors are small), the book's tools on the path, a seeded
generator, a GPU where there is one, and a watch on global state.
"""

import os
import random
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from fakes import saved_network

from mptlml.text import MaskedLM

ROOT = Path(__file__).parents[1]
DESKTOP = {"width": 1280, "height": 900}
torch.set_num_threads(1)
sys.path.insert(0, str(ROOT / "book" / "_ext"))


@pytest.fixture
def gpu():
    """The device of a GPU; where there is none, the test is skipped."""
    return torch.device("cuda") if torch.cuda.is_available() else pytest.skip("there is no GPU")


@pytest.fixture(scope="session")
def built_site():
    """The folder of the built site, where it was built from today's sources; else the test is skipped."""
    if subprocess.run(
        ["make", "--question", "pages"], cwd=ROOT, check=False, capture_output=True
    ).returncode:
        # `make test` has built it
        say = pytest.fail if os.environ.get("BOOK_EXECUTED") == "1" else pytest.skip
        say("the book is not built from these sources: `make book`")
    return ROOT / "_build" / "html"


@pytest.fixture(scope="session")
def page(built_site):
    """page("book/intro") is a page of the built site, parsed once for all tests: they change nothing in it."""
    return cache(
        lambda name: BeautifulSoup(
            (built_site / f"{name}.html").read_text(encoding="utf-8"), "html.parser"
        )
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """A failure is named when it happens, for the whole may take a while longer."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal:  # not in a process of xdist's
        config.pluginmanager.register(Named(terminal))


class Named:
    def __init__(self, terminal):
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.terminal.write_line(f"\n{report.when} failed: {report.nodeid}", red=True)


SLOW = [
    "test_site",
    "test_connection",
    "test_editing",
    "test_moving",
    "test_book",
    "test_corpus_scores",
]


def pytest_collection_modifyitems(items):
    """Browser tests are marked, and the slowest files come first, so that two processes end together."""
    items.sort(key=lambda item: [*SLOW, item.path.stem].index(item.path.stem))
    for item in items:
        if "chromium" in item.fixturenames:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium():
    """The path of a Chromium, which CHROMIUM may name; else the test is skipped."""
    names = (
        os.environ.get("CHROMIUM"),
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    )
    path = next(filter(None, (shutil.which(name) for name in names if name)), None)
    return path or pytest.skip("no Chromium on this machine")


@pytest.fixture(scope="module")
def reader(chromium):
    """A browser session of its own, on a screen, in light colours, for a reader who asked for less motion."""
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium) as browser,
    ):
        context = browser.new_context(
            viewport=DESKTOP, color_scheme="light", reduced_motion="reduce"
        )
        # patience for a busy machine; nothing here waits that long otherwise
        context.set_default_timeout(60_000)
        yield context


@pytest.fixture
def generator():
    """A torch.Generator with a fixed seed."""
    return torch.Generator().manual_seed(1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where a tiny masked language model of a few words lies, as transformers saves one."""
    where = tmp_path_factory.mktemp("model")
    saved_network(where, "the cat sat on the mat a dog ran")
    return where


@pytest.fixture(scope="session")
def lm(folder):
    """The model of `folder`, for tests that leave it as it is."""
    return MaskedLM.from_pretrained(str(folder), local_files_only=True)


def global_states():
    """The states of the global random generators of torch, numpy and python, comparable with ==."""
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), (kind, keys.tolist(), *rest), random.getstate()


@pytest.fixture(autouse=True)
def global_state_is_untouched():
    """Nothing tested may move global randomness or the default dtype."""
    before = global_states(), torch.get_default_dtype()
    yield
    assert (global_states(), torch.get_default_dtype()) == before, (
        "global random state or default dtype moved"
    )
