"""Ask once for the data that chapters read and that are not on this machine, with a line for each.

    python -m mptlml_book.data

From then on nothing asks the network: what could not be had is stood in for, with a note on the
page. All together may take SECONDS; then the process is killed, and the next goes on with the rest.
"""

import io
import os
import signal
import socket
import urllib.request
from contextlib import redirect_stderr
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

from . import places

SECONDS, SILENCE = 1200, 10  # for all together; without a byte
HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
REVISIONS = {
    "glue": "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    places.BERT: "86b5e0934494bd15c9632b12f734a8a67f723594",
}


def refusal() -> str:
    """Why the network cannot be used, "" where the hub answers: it is asked once, without retries."""
    if os.environ.get("HF_HUB_OFFLINE", "0") != "0":
        return "HF_HUB_OFFLINE is set"
    try:
        with urllib.request.urlopen(f"{HUB}/api/models/{places.BERT}") as answer:
            known = answer.read().startswith(b"{")
    except (OSError, HTTPException) as error:
        return f"the hub cannot be reached: {error}"
    return "" if known else "another page came, perhaps one that asks to sign in"


def fetch(name: str) -> None:
    """Put images in their place, each file whole or not at all; GLUE or a model into the caches of the hub."""
    if name in places.IMAGES:
        from torchvision import datasets

        raw = places.folder(name)
        raw.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=raw) as part:
            getattr(datasets, raw.parent.name)(part, download=True)
            for file in Path(part).rglob("*-ubyte"):
                file.replace(raw / file.name)
    elif name == "glue":
        from datasets import load_dataset

        for one in places.GLUE_SETS:
            load_dataset("nyu-mll/glue", one, revision=REVISIONS[name])
    else:
        from huggingface_hub import snapshot_download

        files = ["*.json", "*.txt", "*.model", "*.safetensors"]
        snapshot_download(name, revision=REVISIONS[name], allow_patterns=files)


def main() -> None:
    """Ask for all that is missing."""
    signal.alarm(SECONDS)
    socket.setdefaulttimeout(SILENCE)
    names = (*places.IMAGES, "glue", places.BERT)
    missing = [name for name in names if not places.is_here(name)]
    if missing and (why := refusal()):
        return print(f"{', '.join(missing)} cannot be had now: {why}")
    for name in missing:
        print(f"{name}: ", end="", flush=True)
        try:
            with redirect_stderr(io.StringIO()):
                fetch(name)
            print("it came")
        except Exception as error:  # of many kinds: a busy server, a broken connection, a full disk
            words = " ".join(repr(error).split())
            print(f"it cannot be had now: {words:.200}")


if __name__ == "__main__":
    main()
