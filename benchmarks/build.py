"""What building takes, in a fresh clone: python -m benchmarks build [FOLDER]

Clones what is committed into FOLDER (a new temporary one by default, removed at the end), and prints the wall
and the processor seconds of an installation, the chapters, the site, an edit of one word of a chapter until
its page is there, the tests without a browser and those in one; then seconds and megabytes of each chapter.
Data are looked for as always (book/howto.md). It takes about 25 minutes on two cores, which should have
nothing else to do.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

ROOT = Path(__file__).parents[1]
EDITED = Path("notebooks", "03_ppca.md")
STEPS = {"installation": ["env"], "chapters": ["execute"], "site": ["book"], "edit of a word": ["book"],
         "tests, no browser": ["test", 'TESTS=-m "not browser"'], "tests, browser": ["test", "TESTS=-m browser"]}


def measure(command, folder, log):
    """(wall seconds, processor seconds) of a command and all that it starts. Exits where it fails."""
    began, before = time.perf_counter(), os.times()
    with log.open("a") as file:
        done = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: see {log}")
    after = os.times()
    work = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, work


def main(folder=None):
    log = Path(tempfile.gettempdir(), "build.log")
    with nullcontext(folder) if folder else tempfile.TemporaryDirectory() as place:
        clone = Path(place, "clone")
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        print(f"{'':20}{'wall':>8}{'processor':>12}   seconds")
        for step, goals in STEPS.items():
            command, path = ["make", f"PYTHON={sys.executable}", *goals], clone / EDITED
            text = path.read_text(encoding="utf-8")
            if step == "edit of a word":
                path.write_text(re.sub("\n\nThe ", "\n\nAgain the ", text, count=1), encoding="utf-8")
            wall, work = measure(command, clone, log)
            print(f"{step:20}{wall:8.0f}{work:12.0f}", flush=True)
            if step == "edit of a word":  # and back, for the tests hold the pair of the chapter together
                path.write_text(text, encoding="utf-8")
                measure(command, clone, log)
        chapters = json.loads((clone / "_build" / "records.json").read_text(encoding="utf-8"))["chapters"]
        for stem, said in chapters.items():
            print(f"{stem:24}{said['seconds']:6.0f} s{said['megabytes']:8.0f} MB")
