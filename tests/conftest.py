"""What every test here shares: one thread (the tensors are small), the book's tools on the path, a seeded
generator, a GPU where there is one, and a watch on global state.
"""

import json
import math
import os
import random
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets  # noqa: F401  it draws from `random` as it is imported
import torch
from bs4 import BeautifulSoup
from fakes import saved_network
from scipy import stats

from mptlml import MaskedLM
from mptlml.__main__ import main

ROOT = Path(__file__).parents[1]
DESKTOP = {"width": 1280, "height": 900}
torch.set_num_threads(1)
sys.path.insert(0, str(ROOT / "book" / "_ext"))


for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # a test's own make is no part of `make test`
    os.environ.pop(name, None)


def finished(*command, cwd=ROOT, **more):
    """A command that has ended: its returncode, and what it wrote, as text."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **more)


def write_files(root, files):
    """Write files {name: text} below a folder, and the folders that they need."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def text_of(name):
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def soup_of(path):
    """The parsed page of a file."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def seeded(seed=0):
    """A torch.Generator with a seed."""
    return torch.Generator().manual_seed(seed)


def same(found, expected, atol=None, rtol=0):
    """Both are equal: to rounding, or up to a difference, which may be relative."""
    if isinstance(found, np.ndarray) or isinstance(expected, np.ndarray):
        found, expected = (torch.as_tensor(value) for value in (found, expected))
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol if atol is not None else None)


def near(values, expected):
    """The mean of random values is within four of its standard errors of what is expected."""
    return abs(values.mean() - expected) < 4 * values.std() / math.sqrt(len(values))


def as_frequent(counts, expected):
    """Counts scatter about their expectations as random ones do, where 5 or more are expected (1 in 10,000 fails)."""
    counts, expected = np.asarray(counts), np.asarray(expected)
    common = expected >= 5
    square = ((counts - expected) ** 2 / expected)[common].sum()
    return square < stats.chi2.ppf(0.9999, common.sum() - 1)


@pytest.fixture
def gpu():
    """The device of a GPU; where there is none, the test is skipped."""
    return torch.device("cuda") if torch.cuda.is_available() else pytest.skip("there is no GPU")


@pytest.fixture(scope="session")
def built_site():
    """The folder of the built site, where it was built from today's sources; else the test is skipped."""
    if finished("make", "--question", "pages").returncode:
        # `make test` has built it
        say = pytest.fail if os.environ.get("BOOK_EXECUTED") == "1" else pytest.skip
        say("the book is not built from these sources: `make book`")
    return ROOT / "_build" / "html"


@pytest.fixture(scope="session")
def page(built_site):
    """page("book/intro") is a page of the built site, parsed once for all tests: they change nothing in it."""
    return cache(lambda name: soup_of(built_site / f"{name}.html"))


SLOW = [f"test_{name}" for name in "site connection editing moving book scoring".split()]


def pytest_collection_modifyitems(items):
    """Browser tests are marked, and the slowest files come first, so that two processes end together."""
    items.sort(key=lambda item: [*SLOW, item.path.stem].index(item.path.stem))
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args):
    """A Chromium of the system, whose path CHROMIUM may give; without one the test is skipped."""
    names = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
    found = filter(None, map(shutil.which, [os.environ.get("CHROMIUM", ""), *names]))
    path = next(found, None) or pytest.skip("there is no Chromium")
    return {**browser_type_launch_args, "executable_path": path}


@pytest.fixture(scope="session")
def base_url():
    """None: pages are opened from their folder. (The plugin's own has a form that pytest 10 refuses.)"""


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args):
    """A screen, in light colours."""
    return {**browser_context_args, "viewport": DESKTOP, "color_scheme": "light"}


@pytest.fixture
def generator():
    """A torch.Generator with a fixed seed."""
    return seeded(1)


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


@pytest.fixture
def run(folder, tmp_path, monkeypatch):
    """The command in an empty working folder, run("score t.txt"): the rows of what it writes, by a tiny model."""
    monkeypatch.chdir(tmp_path)

    def run(line, out="s.jsonl", model=folder):
        main([*shlex.split(line), "--model", str(model), "-o", out])
        text = Path(out).read_text()
        return [json.loads(row) for row in text.splitlines()] if out.endswith("l") else text

    return run


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
