"""Execute the chapters once, for the tests and for the book.

    python book/_ext/book_execute.py [--jobs N] [chapter ...]      (what `make execute` runs)

Each chapter whose digest (book_digest.py) has no outputs yet is run by `pytest --nbmake`, two at a
time. Outputs of those that passed are kept (book_outputs.py), also where the others are stopped by
Ctrl-C, so the build of the pages executes nothing; one that failed shows its traceback and lies in
build/chapters, to be looked at. Chapters are named by file (`04_convergence`).
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
from book_digest import ROOT, chapters, code_of, digest, read_chapter
from book_lock import locked
from book_outputs import executed_chapter, gather, stand_ins

from mptlml_book.data import places
from mptlml_book.data.fetch import missing


def run(stale: dict[Path, str], jobs: int, root: Path, lock: int) -> list[str]:
    """Run chapters, each with the digest of its sources, by `pytest --nbmake`; the names of those that failed.

    A copy of each is run; those that pass are kept (book_nbmake.py). Stopped, it ends all that it
    started; killed, what it started holds the `lock`, an open file, until it has ended.
    """
    copies = root / "build" / "chapters"  # nbmake passes by what lies below _build
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir(parents=True)
    for path, state in stale.items():
        notebook = read_chapter(path)
        notebook.metadata["digest"] = state
        nbformat.write(notebook, copies / f"{path.stem}.ipynb")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "book_nbmake",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        copies,
        "--nbmake",
        "--overwrite",
        "--nbmake-timeout=3600",
        f"--numprocesses={jobs}",
        "--maxschedchunk=1",
        *(copies / f"{path.stem}.ipynb" for path in stale),
    ]
    pytest = psutil.Popen(
        command, cwd=copies, env=_environment(root), start_new_session=True, pass_fds=[lock]
    )
    try:
        pytest.wait()
    except BaseException:
        pytest.suspend()  # else it would start workers anew
        while left := [
            each
            for each in pytest.children(recursive=True)
            if each.status() != psutil.STATUS_ZOMBIE
        ]:
            for each in left:
                each.kill()
            time.sleep(0.2)
        pytest.kill()
        raise
    return [path.stem for path in stale if (copies / f"{path.stem}.ipynb").exists()]


def _environment(root: Path) -> dict[str, str]:
    """What a chapter's kernel runs with: one thread, for two share the cores, and data wherever it starts."""
    env = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") | os.environ
    for name in places.VARIABLES:
        if os.path.isdir(env.get(name, "")):
            env[name] = os.path.abspath(env[name])
    return env | {"BOOK_ROOT": str(root), "PYTHONPATH": str(Path(__file__).parent)}


WANTED = {
    "mnist": '"mnist"',
    "fashion-mnist": '"fashion-mnist"',
    "glue": "load_glue(",
    "bert": "load_bert_tokenizer(",
}


def fetch(wanted: list[Path], root: Path) -> None:
    """Ask once, before any chapter runs, for the data that they read and that are not at hand; kernels are told."""
    code = "\n".join(code_of(path.read_text(encoding="utf-8")) for path in wanted)
    if names := missing(name for name, sign in WANTED.items() if sign in code.replace("'", '"')):
        command = [sys.executable, "-m", "mptlml_book.data.fetch", *names]
        os.environ["MPTLML_ASKED"] = subprocess.run(
            command, cwd=root, stdout=subprocess.PIPE, text=True
        ).stdout.strip()


def refresh(wanted: list[Path], jobs: int, root: Path, ask: bool, lock: int) -> list[str]:
    """Run the chapters that are out of date, and keep outputs of those that passed; the names of the others.

    What stands in for data is out of date once these are at hand, for which the network is asked,
    unless not to `ask` and every chapter has outputs.
    """
    if ask or any(executed_chapter(path, root) is None for path in wanted):
        fetch(wanted, root)
    stale = {path: digest(path, root) for path in wanted if executed_chapter(path, root) is None}
    if not stale:
        print(
            "nothing to execute: the chapters asked for were run for these very sources", flush=True
        )
        return []
    jobs = min(jobs, len(stale))
    print(f"executing {len(stale)} of {len(wanted)} chapters, {jobs} at a time", flush=True)
    failed = run(stale, jobs, root, lock)
    print(f"{len(stale) - len(failed)} of {len(stale)} chapters passed", flush=True)
    return failed


def execute(names: list[str], jobs: int, root: Path = ROOT, ask: bool = True) -> int:
    """Bring the named chapters (all by default) up to date, and gather what all said; 0 if they are now.

    ask: also where all have run, ask the network for data in whose place others stand.
    """
    known = {path.stem: path for path in chapters(root)}
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(
            f"no such chapter: {', '.join(unknown)}; there are {', '.join(known) or 'none'}",
            file=sys.stderr,
        )
        return 2
    # two executions at once would run each chapter twice
    with locked(root / "_build" / ".execute.lock") as held:
        wanted = [path for stem, path in known.items() if not names or stem in names]
        failed = refresh(wanted, jobs, root, ask, held.fileno())
        gather(root)
    for stem in failed:
        print(f"failed: {stem}, kept in build/chapters/{stem}.ipynb", file=sys.stderr)
    refused = os.environ.get("MPTLML_REQUIRE_DATA") and stand_ins(root, names)  # kept ones, too
    return 1 if failed or refused else 0


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
