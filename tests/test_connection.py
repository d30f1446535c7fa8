"""Texts, tokenizer, weights and images from a hub and a mirror on the loopback, and from such that fail."""

import subprocess
import sys

import pytest
from hub import BERT, ROOT, serving, surroundings, write_hub

from mptlml_book.data import probe

LOAD = """
import os, resource
exec(open(os.environ["MIRROR"]).read())
if most := os.environ.get("LARGEST_FILE"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
from mptlml_book.data.images import load_images
from mptlml_book.data import text
from mptlml_book.data.text import BERT, from_hub, load_bert_tokenizer, load_glue
text.MOST_SECONDS = int(os.environ.get("MOST_SECONDS", 10))
from mptlml.text import MaskedLM
found = [load_glue("cola"), load_glue("mrpc", train=True), load_bert_tokenizer(), load_images("mnist", 30)]
for one in found:
    print(one.source, one.size, bool(one.note), sep="|")
lm = from_hub(lambda local: MaskedLM.from_pretrained(BERT, local_files_only=local))
print("weights", lm and lm.vocab_size, lm is None, sep="|")
"""
THERE = ["GLUE cola, validation split|52 texts|False", "GLUE mrpc, train split|366 texts|False",
         "google-bert/bert-base-uncased, tokenizer|30,522 tokens|False", "MNIST|30 images|False", "weights|30522|False"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("hub")
    write_hub(where, share=0.05, num_hidden_layers=1, hidden_size=12, num_attention_heads=2)
    return where


def load(home, address, folder, most=300, **more):
    """What a fresh process prints of what it loaded, in `most` seconds; nothing is left half-written."""
    env = surroundings(home, address, folder) | {"PYTHONPATH": str(ROOT)} | more
    done = subprocess.run([sys.executable, "-c", LOAD], env=env, capture_output=True, text=True, timeout=most)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_what_was_fetched_is_kept(folder, tmp_path):
    killed = tmp_path / ".cache" / "mptlml" / "MNIST" / "part" / "MNIST" / "raw"  # what a killed download left
    killed.mkdir(parents=True)
    (killed / "train-images-idx3-ubyte").write_bytes(b"half")
    with serving(folder) as (address, handler):
        assert load(tmp_path, address, folder) == THERE
        assert not killed.exists()
        asked = len(handler.asked)
        assert load(tmp_path, address, folder) == THERE and len(handler.asked) == asked


@pytest.mark.parametrize("fault", ["", "busy", "stall", "portal"])
def test_a_hub_that_answers_otherwise_is_none(fault, folder):
    """From then on all is as without a connection."""
    with serving(folder, fault) as (address, _):
        assert probe.is_reachable(f"{address}/api/models/{BERT}", b"{") == (not fault)
        mirror = probe.is_reachable(f"{address}/mnist/mnist/")  # whose portal is told by its first file
        assert mirror == (fault in ("", "portal"))


@pytest.mark.parametrize("fault", ["busy later", "stall later", "break", "portal", "full disk"])
def test_a_connection_that_fails_leaves_stand_ins_and_the_next_takes_up(fault, folder, tmp_path):
    with serving(folder, fault) as (address, handler):
        lines = load(tmp_path, address, folder, 60, LARGEST_FILE="4000" * (fault == "full disk"),
                     MOST_SECONDS="4" if "later" in fault else "10")
        assert [line.endswith("|True") for line in lines] == [True] * 5, lines
        if fault == "portal":  # it delivers nothing that could be left
            return
        handler.fault = ""
        assert load(tmp_path, address, folder) == THERE
        assert not [*tmp_path.rglob("*.incomplete"), *tmp_path.rglob("part*")]
