"""The Hugging Face hub and torchvision's mirror, played by a server on the loopback, also one that does things wrong.

    python tests/hub.py [chapter ...]

executes the chapters (all by default) as `make execute` does, in a copy of the book, as on a machine that has
a connection and no data yet: whole sets of other texts and images, in the sizes of GLUE's and MNIST's, and
random weights of BERT's size.
"""

import gzip
import hashlib
import json
import os
import random
import re
import shutil
import socket
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

from mptlml_book.data.text import _python_reference, make_tokenizer

ROOT = Path(__file__).parents[1]
BERT = "google-bert/bert-base-uncased"
SIZES = {  # of GLUE: the rows of each split
    "ax": {"test": 1104},
    "cola": {"train": 8551, "validation": 1043},
    "mrpc": {"train": 3668, "test": 1725},
    "qnli": {"validation": 5463},
}
COLUMNS = {
    "ax": ("premise", "hypothesis"),
    "cola": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "qnli": ("question", "sentence"),
}
COMMIT = "0" * 40
PORTAL = b"<!doctype html><title>Welcome</title><p>Please sign in to use this network.</p>"


class Hub(BaseHTTPRequestHandler):
    """Serves the files below `folder`: models/OWNER/NAME, datasets/OWNER/NAME and mnist, as the hub's clients ask."""

    protocol_version = "HTTP/1.1"
    folder: Path
    # "busy" (429), "error" (500) or "stall", also "... later", with files; "break" in the middle of what is asked for;
    # "slow", at `speed` bytes a second; "portal"; "" for none
    fault = ""
    speed = 10_000_000
    asked: list[str]

    def log_message(self, *given):
        self.asked.append(
            " ".join([self.command, self.path, self.headers.get("Range", "")]).strip()
        )

    def do_GET(self):
        fault, _, later = self.fault.partition(" ")
        due = not later or "resolve" in self.path or self.path.endswith("gz")
        if fault in ("busy", "error") and due:
            return self._send({"busy": 429, "error": 500}[fault], b"not now")
        if fault == "stall" and due:
            return time.sleep(20)
        if self.fault == "portal":
            return self._send(200, PORTAL)
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/") if part]
        self._describe(*parts[1:]) if parts[:1] == ["api"] else self._give(parts)

    do_HEAD = do_GET

    def _give(self, parts):
        """A file by its path below the folder, or as it is resolved at a revision; from where it is asked for."""
        commit = COMMIT
        if "resolve" in parts:
            at = parts.index("resolve")
            commit = parts[at + 1] if len(parts[at + 1]) == 40 else COMMIT
            parts = ["models"] * (parts[0] != "datasets") + parts[:at] + parts[at + 2 :]
        file = self.folder.joinpath(*parts)
        if not file.is_file():
            return self._send(200 if not parts else 404, b"", {"X-Error-Code": "EntryNotFound"})
        data = file.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": commit}
        begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if begin:
            headers["Content-Range"] = f"bytes {begin[1]}-{len(data) - 1}/{len(data)}"
        self._send(206 if begin else 200, data[int(begin[1]) :] if begin else data, headers)

    def _describe(self, kind="", owner="", name="", what="", revision="", *path):
        """The pages of the hub's interface that describe a repository, its folders and its files."""
        repository = self.folder / kind / owner / name
        if not (name and repository.is_dir()):
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if what == "tree":
            below = repository.joinpath(*path)
            deep = "recursive=true" in self.path.lower()
            found = [
                {
                    "type": "file" if file.is_file() else "directory",
                    "oid": COMMIT,
                    "size": file.stat().st_size,
                    "path": file.relative_to(repository).as_posix(),
                }
                for file in sorted(below.rglob("*") if deep else below.glob("*"))
            ]
        else:
            found = {
                "id": f"{owner}/{name}",
                "sha": revision or COMMIT,
                "siblings": [
                    {"rfilename": file.relative_to(repository).as_posix()}
                    for file in repository.rglob("*.*")
                ],
            }
        self._send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def _send(self, code, data, headers=None):
        self.send_response(code)
        for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault == "break" and len(data) > 10_000:
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        for at in range(0, len(data), self.speed // 10):
            self.wfile.write(data[at : at + self.speed // 10])
            if self.fault == "slow" and len(data) > 10_000:
                time.sleep(0.1)


@contextmanager
def serving(folder, fault=""):
    """The address of a hub that serves a folder, and the class that answers, whose `fault` can be changed."""
    handler = type("Handler", (Hub,), {"folder": Path(folder), "fault": fault, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    # a client may leave before it has its answer
    server.handle_error = lambda request, client: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        server.server_close()


def write_hub(folder, share=1.0, **size):
    """Texts and images, `share` of the real sets' sizes; a tokenizer; random weights of BERT-base or another size."""
    write_glue(Path(folder, "datasets", "nyu-mll", "glue"), share)
    write_images(Path(folder, "mnist"), share)
    make_tokenizer(_python_reference(), 30522, fill=True).save_pretrained(
        Path(folder, "models", BERT)
    )
    with torch.random.fork_rng(devices=[]):
        BertForMaskedLM(BertConfig(**size)).save_pretrained(Path(folder, "models", BERT))


def write_glue(folder, share):
    draw = random.Random(0)
    words = sorted({word for text in topics.values() for word in text.split() if word.isalpha()})
    for name, splits in SIZES.items():
        (folder / name).mkdir(parents=True)
        for split, count in splits.items():
            rows = range(max(40, int(share * count)))
            table = {
                column: [" ".join(draw.choices(words, k=draw.randint(5, 25))) for _ in rows]
                for column in COLUMNS[name]
            }
            table |= {"label": [0] * len(rows), "idx": [*rows]}
            pyarrow.parquet.write_table(
                pyarrow.table(table), folder / name / f"{split}-0-of-1.parquet"
            )
    configs = [
        {
            "config_name": name,
            "data_files": [{"split": split, "path": f"{name}/{split}-*"} for split in splits],
        }
        for name, splits in SIZES.items()
    ]
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


STARTUP = """
import hashlib, pathlib
from torchvision import datasets
for kind, name in ((datasets.MNIST, "mnist"), (datasets.FashionMNIST, "fashion")):
    files = sorted(pathlib.Path({folder!r}, name).iterdir())
    kind.mirrors = [{address!r} + "/mnist/" + name + "/"]
    kind.resources = [(file.name, hashlib.md5(file.read_bytes()).hexdigest()) for file in files]
"""


def surroundings(home, address, folder):
    """The environment of a machine with a connection to this hub, and an empty home; kernels know its mirror."""
    home, kept = (
        Path(home),
        ("PATH", "LANG", "CI", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    )
    startup = home / "ipython" / "profile_default" / "startup" / "mirror.py"
    startup.parent.mkdir(parents=True, exist_ok=True)
    startup.write_text(STARTUP.format(folder=str(Path(folder) / "mnist"), address=address))
    known = home / "site"
    known.mkdir(exist_ok=True)
    (
        known / "sitecustomize.py"
    ).write_text(  # for the program that fetches before the kernels start
        f"import sys\nif 'mptlml_book.data.fetch' in sys.orig_argv:\n    exec(open({str(startup)!r}).read())\n"
    )
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "HF_ENDPOINT": address,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
        "MIRROR": str(startup),
        "PYTHONPATH": str(known),
    }


def main(*chapters):
    """Execute chapters against a hub of full size; says what each read and took. Exits with what the execution says."""
    with tempfile.TemporaryDirectory() as scratch:
        book, folder = Path(scratch, "book"), Path(scratch, "hub")
        shutil.copytree(
            ROOT, book, ignore=shutil.ignore_patterns("_build", ".venv", ".git", ".newest")
        )
        write_hub(folder)
        with serving(folder) as (address, _):
            command = [sys.executable, str(book / "book" / "_ext" / "book_execute.py"), *chapters]
            env = surroundings(Path(scratch, "home"), address, folder) | {
                "MPTLML_REQUIRE_DATA": "1"
            }
            status = subprocess.run(command, cwd=book, env=env).returncode
        for stem, said in json.loads((book / "_build" / "records.json").read_text())[
            "chapters"
        ].items():
            data = "; ".join(f"{one['source']}, {one['size']}" for one in said["data"])
            print(f"{stem}: {said['seconds']:.0f} s, {said['megabytes']:.0f} MB; {data}")
        return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
