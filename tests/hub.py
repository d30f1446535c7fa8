"""The Hugging Face hub and torchvision's mirror, played by a server on the loopback, also one that does things wrong.

    python tests/hub.py [chapter ...]

fetches data and runs the chapters (all by default), as on a machine that has a connection and no data
yet: whole sets of other texts and images, in the sizes of GLUE's and MNIST's, and random weights of
BERT's size.
"""

import gzip
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from pydoc_data.topics import topics
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from transformers import BertConfig, BertForMaskedLM

from mptlml_book.data.places import BERT
from mptlml_book.data.text import SETS, _python_reference, make_tokenizer

ROOT = Path(__file__).parents[1]
SIZES = {  # of GLUE: the rows of each split
    "ax": {"test": 1104},
    "cola": {"train": 8551, "validation": 1043},
    "mrpc": {"train": 3668, "test": 1725},
    "qnli": {"validation": 5463},
}
COMMIT = "0" * 40
PORTAL = b"<!doctype html><title>Welcome</title><p>Please sign in to use this network.</p>"


class Hub(BaseHTTPRequestHandler):
    """Serves the files below `folder`: models/OWNER/NAME, datasets/OWNER/NAME and mnist, as the hub's clients ask."""

    protocol_version = "HTTP/1.1"
    folder: Path
    fault = ""  # "429", "500", "stall", "portal", or "break" in the middle of a file
    asked: list[str]

    def log_message(self, *given):
        self.asked.append(self.path)

    def do_GET(self):
        if self.fault.isdecimal():
            return self._send(int(self.fault), b"not now")
        if self.fault == "stall":
            return time.sleep(2)
        if self.fault == "portal":
            return self._send(200, PORTAL)
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/") if part]
        self._describe(*parts[1:]) if parts[:1] == ["api"] else self._give(parts)

    do_HEAD = do_GET

    def _give(self, parts):
        """A file by its path below the folder, or as it is resolved at a revision."""
        commit = COMMIT
        if "resolve" in parts:
            at = parts.index("resolve")
            commit = parts[at + 1]
            parts = ["models"] * (parts[0] != "datasets") + parts[:at] + parts[at + 2 :]
        file = self.folder.joinpath(*parts)
        if not file.is_file():
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        data = file.read_bytes()
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        self._send(200, data, {"ETag": etag, "X-Repo-Commit": commit})

    def _describe(self, kind, owner, name, what="", revision=COMMIT, *path):
        """The pages of the hub's interface that describe a repository, its folders and its files."""
        repository = self.folder / kind / owner / name
        files = [file for file in repository.joinpath(*path).rglob("*") if file.is_file()]
        names = [file.relative_to(repository).as_posix() for file in files]
        if what == "tree":
            found = [
                {"type": "file", "oid": COMMIT, "size": file.stat().st_size, "path": name}
                for file, name in zip(files, names, strict=True)
            ]
        else:
            siblings = [{"rfilename": name} for name in names]
            found = {"id": f"{owner}/{name}", "sha": revision, "siblings": siblings}
        self._send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def _send(self, code, data, headers=None):
        self.send_response(code)
        for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.fault == "break" and self.path.endswith("gz"):
            self.close_connection, data = True, data[: len(data) // 2]
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serving(folder, fault=""):
    """The address of a hub that serves a folder, and the list of what it is asked for."""
    handler = type("Handler", (Hub,), {"folder": Path(folder), "fault": fault, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    # a client may leave before it has its answer
    server.handle_error = lambda request, client: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.asked
    finally:
        server.shutdown()
        server.server_close()


def write_hub(folder, share=1.0, **size):
    """Texts and images, `share` of the real sets' sizes; a tokenizer; random weights of BERT-base or another size."""
    write_glue(Path(folder, "datasets", "nyu-mll", "glue"), share)
    write_images(Path(folder, "mnist"), share)
    tokenizer = make_tokenizer(_python_reference(), 30522, fill=True)
    with torch.random.fork_rng(devices=[]):
        for part in (tokenizer, BertForMaskedLM(BertConfig(**size))):
            part.save_pretrained(Path(folder, "models", BERT))


def write_glue(folder, share):
    draw = random.Random(0)
    words = sorted({word for text in topics.values() for word in text.split() if word.isalpha()})
    configs = []
    for name, splits in SIZES.items():
        (folder / name).mkdir(parents=True)
        for split, count in splits.items():
            table = {
                column: [
                    " ".join(draw.choices(words, k=draw.randint(5, 25)))
                    for _ in range(max(40, int(share * count)))
                ]
                for column in SETS[name][1:]
            }
            pyarrow.parquet.write_table(pyarrow.table(table), folder / name / f"{split}.parquet")
        files = [{"split": split, "path": f"{name}/{split}.parquet"} for split in splits]
        configs.append({"config_name": name, "data_files": files})
    # JSON is YAML
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n")


def write_images(folder, share):
    """MNIST's files, and Fashion-MNIST's, which are the same."""
    mnist, pixels = folder / "mnist", np.random.default_rng(0)
    mnist.mkdir(parents=True)
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        count = max(40, int(share * count))
        drawn = pixels.integers(0, 192, (count, 7, 7), dtype=np.uint8).repeat(4, 1).repeat(4, 2)
        drawn += pixels.integers(0, 64, drawn.shape, dtype=np.uint8)
        drawn[:, :4] = 0  # as the margins of digits are
        contents = {
            "images-idx3": struct.pack(">IIII", 0x803, count, 28, 28) + drawn.tobytes(),
            "labels-idx1": struct.pack(">II", 0x801, count) + bytes(k % 10 for k in range(count)),
        }
        for kind, content in contents.items():
            (mnist / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, 1, mtime=0))
    shutil.copytree(mnist, folder / "fashion")


FETCH = """
import hashlib, os, pathlib
from torchvision import datasets
for kind, name in ((datasets.MNIST, "mnist"), (datasets.FashionMNIST, "fashion")):
    files = sorted(pathlib.Path(os.environ["MIRRORED"], name).iterdir())
    kind.mirrors = [os.environ["HF_ENDPOINT"] + "/mnist/" + name + "/"]
    kind.resources = [(file.name, hashlib.md5(file.read_bytes()).hexdigest()) for file in files]
from mptlml_book.data.__main__ import main
main()
"""


def surroundings(home, address, folder):
    """The environment of a machine with a connection to this hub, and an empty home."""
    kept = ("PATH", "LANG", "CI", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(home),
        "HF_ENDPOINT": address,
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "MIRRORED": str(Path(folder) / "mnist"),
        "PYTHONPATH": str(ROOT),
    }


def main(*chapters):
    """Run chapters against a hub of full size: 0 if all passed, on whole data."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "hub")
        write_hub(folder)
        with serving(folder) as (address, _):
            env = surroundings(Path(scratch, "home"), address, folder)
            subprocess.run([sys.executable, "-c", FETCH], env=env, check=True)
        files = [ROOT / "notebooks" / f"{name}.ipynb" for name in chapters]
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull]
        command += ["--rootdir", ROOT, "--nbmake", "--nbmake-timeout", "3600"]
        command += files or sorted((ROOT / "notebooks").glob("*.ipynb"))
        return subprocess.run(command, env=env | {"MPTLML_REQUIRE_DATA": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
