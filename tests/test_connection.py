"""Texts, tokenizer, weights and images from a hub and a mirror on the loopback, and from such that fail."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from hub import BERT, ROOT, serving, surroundings, write_hub

from mptlml_book.data import probe

PATIENCE = 900  # seconds for what takes up to 60 when the machine is quiet, from the moment when its imports are done
LOAD = """
import os, resource
exec(open(os.environ["MIRROR"]).read())
if most := os.environ.get("LARGEST_FILE"):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
import datasets, transformers
from mptlml_book.data import probe, text
from mptlml_book.data.images import load_images
from mptlml_book.data.text import BERT, from_hub, load_bert_tokenizer, load_glue
from mptlml import MaskedLM
print("ready", flush=True)
probe.STALLED = int(os.environ.get("STALLED", 300))
found = [load_glue("cola"), load_glue("mrpc", train=True), load_bert_tokenizer(), load_images("mnist", 30)]
for one in found:
    print(one.source, one.size, one.note, sep="|")
lm = from_hub(lambda **where: MaskedLM.from_pretrained(BERT, **where), BERT)
print("weights", lm and lm.vocab_size, "" if lm else text.why_absent(), sep="|")
"""
THERE = [
    "GLUE cola, validation split|52 texts|",
    "GLUE mrpc, train split|366 texts|",
    "google-bert/bert-base-uncased, tokenizer|30,522 tokens|",
    "MNIST|30 images|",
    "weights|30522|",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("hub")
    write_hub(where, share=0.05, num_hidden_layers=1, hidden_size=12, num_attention_heads=2)
    return where


def load(home, address, folder, **more):
    """What a fresh process prints of what it loaded; nothing is left half-written."""
    env = surroundings(home, address, folder) | {"PYTHONPATH": str(ROOT)} | more
    running = subprocess.Popen(
        [sys.executable, "-c", LOAD],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = running.stdout.readline()  # the clock starts here
    said, errors = running.communicate(timeout=PATIENCE)
    assert (first, running.returncode) == ("ready\n", 0), errors[-2000:]
    return said.splitlines()


def test_what_was_fetched_is_kept(folder, tmp_path):
    # what a killed download left, of another file
    killed = tmp_path / ".cache" / "mptlml" / "MNIST" / "part"
    killed.mkdir(parents=True)
    (killed / "train-images-idx3-ubyte").write_bytes(b"half")
    with serving(folder) as (address, handler):
        assert load(tmp_path, address, folder) == THERE
        assert not killed.exists()
        asked = len(handler.asked)
        assert load(tmp_path, address, folder) == THERE and len(handler.asked) == asked


WHY = {
    "": "",
    "stall": "no answer within 3 seconds",
    "busy": "the server answered 429, too many requests",
    "error": "the server answered 500, an error of its own",
    "portal": "another page came in its place, such as one that asks to sign in",
}


@pytest.mark.parametrize("fault", WHY)
def test_a_hub_that_answers_otherwise_is_none(fault, folder):
    """From then on all is as without a connection; but the reason is told."""
    with serving(folder, fault) as (address, _):
        assert probe.refusal(f"{address}/api/models/{BERT}", b"{") == WHY[fault]
        assert (
            probe.refusal(f"{address}/mnist/mnist/t10k-images-idx3-ubyte.gz", b"\x1f\x8b")
            == WHY[fault]
        )


REASONS = {  # what the notes say of texts, and of images, which are fetched piece by piece
    "busy later": ("the server answered 429, too many requests",) * 2,
    "error later": ("the server answered 500, an error of its own",) * 2,
    "stall later": ("the server stalled: nothing came for a while", "no answer within 3 seconds"),
    "break": ("the connection broke off", ""),
    "portal": (WHY["portal"],) * 2,
    "full disk": ("it could not be stored: File too large",) * 2,
}


@pytest.mark.parametrize("fault", REASONS)
def test_a_connection_that_fails_leaves_stand_ins_that_say_why_and_the_next_takes_up(
    fault, folder, tmp_path
):
    with serving(folder, fault) as (address, handler):
        lines = load(
            tmp_path, address, folder, STALLED="4", LARGEST_FILE="4000" * (fault == "full disk")
        )
        texts, images = REASONS[fault]
        for line, why in zip(lines, [texts, texts, texts, images, texts], strict=True):
            assert why in line and line.endswith("|") == (why == ""), line
        handler.fault = ""
        assert load(tmp_path, address, folder) == THERE
        assert not [*tmp_path.rglob("*.incomplete"), *tmp_path.rglob("*.part")]


def test_a_slow_connection_is_waited_for(folder, tmp_path):
    """Some files take more than the four seconds after which a server that sends nothing is left."""
    with serving(folder, "slow") as (address, handler):
        handler.speed = 150_000
        assert load(tmp_path, address, folder, STALLED="4") == THERE


def fetch(home, address, folder, *names):
    """The program that fetches before the chapters run, started."""
    env = surroundings(home, address, folder)
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(ROOT)])
    command = [sys.executable, "-m", "mptlml_book.data.fetch", *names]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_stopped_download_of_weights_goes_on_in_the_next_run(folder, tmp_path):
    weights = folder / "models" / BERT / "model.safetensors"
    with serving(folder, "slow") as (address, handler):
        handler.speed = 150_000
        running, last = fetch(tmp_path, address, folder, "bert"), time.monotonic() + PATIENCE
        while not any(part.stat().st_size > 100_000 for part in tmp_path.rglob("blobs/*.part")):
            assert running.poll() is None and time.monotonic() < last, running.communicate()
            time.sleep(0.1)
        running.kill()
        running.communicate()
        [part] = tmp_path.rglob("blobs/*.part")
        begun = part.stat().st_size
        handler.fault = ""
        said, shown = fetch(tmp_path, address, folder, "bert").communicate(timeout=PATIENCE)
        assert said == "{}\n" and "asking for bert" in shown, shown
        [asked] = [line.rpartition("bytes=")[2] for line in handler.asked if "bytes=" in line]
        assert begun <= int(asked.rstrip("-")) < weights.stat().st_size
        [kept] = tmp_path.rglob("snapshots/*/model.safetensors")
        assert kept.read_bytes() == weights.read_bytes()
        assert load(tmp_path, address, folder)[-1] == THERE[-1]


def test_waits_are_shown(folder, tmp_path):
    with serving(folder, "stall later") as (address, _):
        said, shown = fetch(tmp_path, address, folder, "bert").communicate(timeout=PATIENCE)
    assert "0.0 MB so far; nothing for" in shown
    assert (
        said.startswith('{"hub": "the server stalled')
        and "bert cannot be had now: the server stalled" in shown
    )


CHAPTER = """# One

```{code-cell} ipython3
from mptlml_book import report
from mptlml_book.data.images import load_images
report.start("01_one")
report.data_used(load_images("mnist", 30))
report.closing()
```
"""


def test_a_stand_in_is_named_at_the_end_and_asked_for_again(folder, tmp_path):
    book = tmp_path / "book"
    for name in ("mptlml", "mptlml_book", "book/_ext"):
        shutil.copytree(ROOT / name, book / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in {
        "book/claims.yml": "[]",
        "book/data_sets.yml": "01_one: {}",
        "book/figures.yml": "[]",
        "requirements.txt": "",
        "constraints.txt": "",
        "notebooks/01_one.md": CHAPTER,
    }.items():
        (book / name).parent.mkdir(exist_ok=True)
        (book / name).write_text(text)

    def run(program, **more):
        env = surroundings(tmp_path / "home", address, folder) | more
        return subprocess.run(
            [sys.executable, f"book/_ext/{program}.py"],
            cwd=book,
            env=env,
            text=True,
            check=False,
            capture_output=True,
            timeout=PATIENCE,
        )

    with serving(folder, "busy later") as (address, handler):
        first = run("book_execute")
        why = "the server answered 429, too many requests"
        assert first.returncode == 0 and f"mnist cannot be had now: {why}" in first.stderr
        assert "1 of 1: 01_one" in first.stdout
        asked = [line for line in handler.asked if "mnist" in line]
        assert len(asked) == 1  # not by the kernel, too
        last = run("book_outputs").stdout
        assert f"01_one: MNIST was not at hand here ({why}" in last
        assert last.endswith(
            "1 chapters show what stands in for data: 01_one; "
            "make book asks again once there is a connection\n"
        )
        assert (
            "nothing to execute" in run("book_execute").stdout
            and run("book_outputs").returncode == 0
        )
        for program in ("book_outputs", "book_execute"):  # also of what is kept
            assert run(program, MPTLML_REQUIRE_DATA="1").returncode == 1
        handler.fault = ""
        assert "1 of 1 chapters passed" in run("book_execute").stdout
        assert run("book_outputs", MPTLML_REQUIRE_DATA="1").stdout == ""
        assert "nothing to execute" in run("book_execute").stdout
