"""Texts, tokenizer, weights and images from a hub and a mirror on the loopback, and from such that fail."""

import hashlib
import signal
import socket
import subprocess
import sys

import pytest
from conftest import finished
from hub import BERT, FETCH, serving, surroundings, write_hub
from torchvision import datasets

from mptlml_book.data import __main__ as data
from mptlml_book.data import places

LOAD = """
from mptlml_book.data.images import load_images
from mptlml_book.data.text import BERT, from_cache, load_bert_tokenizer, load_glue
from mptlml import MaskedLM
found = [load_glue("cola"), load_glue("mrpc", train=True), load_bert_tokenizer()]
for one in [*found, load_images("mnist", 30), load_images("fashion-mnist", 40, train=False)]:
    print(one.source, one.size, one.note, sep="|")
print(from_cache(MaskedLM.from_pretrained, BERT).vocab_size)
"""
THERE = """\
GLUE cola, validation split|52 texts|
GLUE mrpc, train split|366 texts|
google-bert/bert-base-uncased, tokenizer|30,522 tokens|
MNIST|30 images|
Fashion-MNIST, test images|40 images|
30522
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("hub")
    write_hub(where, share=0.05, num_hidden_layers=1, hidden_size=12, num_attention_heads=2)
    return where


def test_what_a_connection_gave_is_read_without_one(folder, tmp_path):
    def run(program):
        done = finished(sys.executable, "-c", program, env=env)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    names = ["mnist", "fashion-mnist", "glue", BERT]
    with serving(folder) as (address, asked):
        env = surroundings(tmp_path, address, folder)
        assert run(FETCH).splitlines() == [f"{name}: it came" for name in names]
        asked.clear()
        assert run(FETCH) == "" and not asked
    assert run(LOAD) == THERE


@pytest.fixture
def mnist_alone(folder, tmp_path, monkeypatch):
    """In this process MNIST is what is missing, and its files are those of the hub's folder."""
    files = sorted((folder / "mnist" / "mnist").iterdir())
    sums = [(file.name, hashlib.md5(file.read_bytes()).hexdigest()) for file in files]
    monkeypatch.setattr(datasets.MNIST, "resources", sums)
    monkeypatch.setattr(places, "is_here", lambda name: name != "mnist")
    monkeypatch.setattr(signal, "alarm", lambda seconds: None)
    monkeypatch.setattr(data, "SILENCE", 0.5)
    monkeypatch.setenv("MPTLML_DATA", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield
    socket.setdefaulttimeout(None)


@pytest.mark.parametrize(
    ("fault", "why"),
    {
        "429": "mnist cannot be had now: the hub cannot be reached: HTTP Error 429: Too Many Requests",
        "stall": "mnist cannot be had now: the hub cannot be reached: timed out",
        "portal": "mnist cannot be had now: another page came, perhaps one that asks to sign in",
        "break": "mnist: it cannot be had now: RuntimeError('Error downloading t10k-images",
    }.items(),
)
def test_a_connection_that_fails_is_one_line(
    fault, why, folder, tmp_path, monkeypatch, capsys, mnist_alone
):
    with serving(folder, fault) as (address, _):
        monkeypatch.setattr(data, "HUB", address)
        monkeypatch.setattr(datasets.MNIST, "mirrors", [f"{address}/mnist/mnist/"])
        data.main()
    said, shown = capsys.readouterr()
    assert said.startswith(why) and said.count("\n") == 1 and shown == ""
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_who_is_offline_by_choice_asks_nobody(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(data, "HUB", "http://127.0.0.1:1")
    assert data.refusal() == "HF_HUB_OFFLINE is set"


def test_a_download_that_stalls_ends_with_the_time_limit(tmp_path):
    program = (
        "import time\nfrom mptlml_book.data import __main__ as data\ndata.SECONDS = 1\n"
        "data.refusal = lambda: ''\ndata.fetch = lambda name: time.sleep(60)\ndata.main()"
    )
    env = surroundings(tmp_path, "http://127.0.0.1:1", tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as ended:
        subprocess.run([sys.executable, "-c", program], env=env, check=True, timeout=50)
    assert ended.value.returncode == -signal.SIGALRM
