"""Execute the chapters once, for the tests and for the book.

    python book/_ext/book_execute.py [--jobs N] [chapter ...]      (what `make execute` runs)

Each chapter whose digest (book_digest.py) has no outputs yet runs in a kernel of its own, two at a time.
Outputs of those that passed are kept (book_outputs.py), also where the others are stopped by Ctrl-C, so the
build of the pages executes nothing; one that failed shows its traceback and lies in _build/failed, to be
looked at, unless its kernel died. Chapters are named by file (`04_convergence`).
"""

import argparse
import asyncio
import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import nbformat
import psutil
from book_digest import ROOT, chapters, code_of, digest, read_chapter
from book_lock import locked
from book_outputs import executed_chapter, gather, keep, place, records_of
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from mptlml_book.data.fetch import missing


def run_one(path: Path, root: Path, which: str) -> nbformat.NotebookNode:
    """The chapter with its outputs. Raises what stopped it; an error is kept in _build/failed too."""
    print(f"{which}: {path.stem}", flush=True)
    env = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") | os.environ  # two share the cores
    for name in ("MPTLML_DATA", "MPTLML_MASKED_LM", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        if os.path.isdir(env.get(name, "")):  # for the kernel starts in another folder
            env[name] = os.path.abspath(env[name])
    began, notebook = time.monotonic(), read_chapter(path)
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", extra_arguments=["--log-level=ERROR"],
                            resources={"metadata": {"path": str(root / "notebooks")}})
    try:
        asyncio.run(client.async_execute(env=env))
    except CellExecutionError:
        failed = root / "_build" / "failed"
        failed.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, failed / f"{path.stem}.ipynb")
        raise
    finally:
        atexit.unregister(client._cleanup_kernel)  # which a kernel that is killed as it starts would leave
    print(f"{path.stem} passed in {time.monotonic() - began:.0f} s", flush=True)
    return notebook


def run(paths: list[Path], jobs: int, root: Path = ROOT) -> Iterator[tuple[Path, nbformat.NotebookNode]]:
    """Run the chapters; yield each that passes, with its outputs. Stopped, it ends all that they started."""
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_one, path, root, f"{k} of {len(paths)}"): path
                   for k, path in enumerate(paths, 1)}
        try:
            for done in as_completed(running):
                if error := done.exception():
                    print(f"{running[done].stem}: {error}", file=sys.stderr)
                else:
                    yield running[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(each.done() for each in running):  # a kernel may just be starting
                for process in psutil.Process().children(recursive=True):
                    process.kill()
                time.sleep(0.2)
            raise


WANTED = {"mnist": '"mnist"', "fashion-mnist": '"fashion-mnist"', "glue": "load_glue(", "bert": "load_bert_tokenizer("}


def fetch(wanted: list[Path], root: Path) -> None:
    """Ask once, before any chapter runs, for the data that they read and that are not at hand; kernels are told."""
    code = "\n".join(code_of(path.read_text(encoding="utf-8")) for path in wanted)
    if names := missing(name for name, sign in WANTED.items() if sign in code.replace("'", '"')):
        command = [sys.executable, "-m", "mptlml_book.data.fetch", *names]
        os.environ["MPTLML_ASKED"] = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True).stdout.strip()


def refresh(wanted: list[Path], jobs: int, root: Path) -> list[str]:
    """Run the chapters that are out of date, and keep outputs of those that passed; the names of the others.

    What stands in for data is out of date once these are at hand.
    """
    fetch(wanted, root)
    stale = {path: digest(path, root) for path in wanted if executed_chapter(path, root) is None}
    if not stale:
        print("nothing to execute: the chapters asked for were run for these very sources", flush=True)
        return []
    jobs = min(jobs, len(stale))
    print(f"executing {len(stale)} of {len(wanted)} chapters, {jobs} at a time", flush=True)
    shutil.rmtree(root / "_build" / "failed", ignore_errors=True)
    kept = set()
    for path, notebook in run(list(stale), jobs, root):
        before, after = stale[path], digest(path, root)
        # A chapter may have fetched its data. One that took a default instead is kept as one that found none.
        state = before if any(record.get("note") for record in records_of(notebook)) else after
        if before.split("-")[0] == after.split("-")[0]:
            keep(notebook, place(path, state, root))
            kept.add(path)
        else:
            print(f"{path.stem}: its sources changed while it ran, its outputs are not kept", file=sys.stderr)
    print(f"{len(kept)} of {len(stale)} chapters passed", flush=True)
    return [path.stem for path in stale if path not in kept]


def execute(names: list[str], jobs: int, root: Path = ROOT) -> int:
    """Bring the named chapters (all by default) up to date, and gather what all said; 0 if they are now."""
    known = {path.stem: path for path in chapters(root)}
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no such chapter: {', '.join(unknown)}; there are {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    with locked(root / "_build" / ".execute.lock"):  # two executions at once would run each chapter twice
        failed = refresh([path for stem, path in known.items() if not names or stem in names], jobs, root)
        gather(root)
    for stem in failed:
        kept = Path("_build", "failed", f"{stem}.ipynb")
        print(f"failed: {stem}" + f", kept in {kept}" * (root / kept).is_file(), file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("chapters", nargs="*", help="such as 04_convergence; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # a kill, a closed terminal
        if signal.getsignal(number) != signal.SIG_IGN:  # which nohup asks for
            signal.signal(number, signal.default_int_handler)
    try:
        return execute(options.chapters, max(1, options.jobs))
    except KeyboardInterrupt:
        print("stopped; chapters that had passed are kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
