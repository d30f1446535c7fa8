"""Execute the chapters once, for the tests and for the book.

    python book/_ext/book_execute.py [--jobs N] [chapter ...]      (what `make execute` runs)

Each chapter whose digest (book_digest.py) has no outputs yet is copied and run by `pytest --nbmake`, two at a time.
Outputs of those that passed are kept (book_outputs.py), also where the others are stopped by Ctrl-C, so the build of
the pages executes nothing; one that failed shows its traceback and lies in _build/failed, to be looked at, unless its
kernel died. Chapters are named by file (`04_convergence`).
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nbformat
import psutil
from book_digest import ROOT, chapters, code_cells, digest, read_chapter
from book_outputs import executed_chapter, gather, keep, locked, place, records_of


def is_complete(notebook: nbformat.NotebookNode) -> bool:
    """Whether every code cell ran, and none raised an error."""
    cells = [cell for cell in code_cells(notebook) if cell.source.strip()]
    errors = [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    return not errors and all(cell.execution_count is not None for cell in cells)


def end_below(folder: str) -> None:
    """Wait until what works below a folder has ended, and kill what has not after five seconds.

    A kernel that is stopped as it starts can hang, and what a chapter has started may not end with it.
    """
    for _ in range(10):  # a process may start another meanwhile
        found = [each for each in psutil.process_iter(["cwd"]) if (each.info["cwd"] or "").startswith(folder)]
        for process in psutil.wait_procs(found, timeout=5)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if not found:
            return


def run(paths: list[Path], jobs: int, root: Path = ROOT) -> Iterator[tuple[Path, nbformat.NotebookNode]]:
    """Run the chapters' copies under pytest; yield those that passed, with their outputs.

    Raises KeyboardInterrupt, where that stopped the others, once those that had passed are yielded. The copies lie
    beside `notebooks/`, where relative paths mean the same (nbmake refuses a folder called `_build`).
    """
    env = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") | os.environ  # two kernels share the cores
    for name in ("MPTLML_DATA", "MPTLML_MASKED_LM", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        if os.path.isdir(env.get(name, "")):  # kernels start in that folder, where a relative path is another one
            env[name] = os.path.abspath(env[name])
    command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", "--nbmake-timeout=600", "--durations=0",
               "--nbmake-kernel=python3", "-p", "no:cacheprovider", "-n", str(jobs), "--maxschedchunk=1"]
    with tempfile.TemporaryDirectory(prefix=".run-", dir=root, ignore_cleanup_errors=True) as folder:
        copies = {path: Path(folder) / f"{path.stem}.ipynb" for path in paths}
        for path, copy in copies.items():
            nbformat.write(read_chapter(path), copy)
        stopped = False
        with subprocess.Popen([*command, *map(str, copies.values())], cwd=root, env=env) as tests:
            try:
                tests.wait()
            except KeyboardInterrupt:  # pytest got it too, from the terminal or from make
                stopped = True
                tests.terminate()
        end_below(folder)
        for path, copy in copies.items():
            with suppress(ValueError):  # it was being written
                notebook = nbformat.read(copy, as_version=4)
                if is_complete(notebook):
                    yield path, notebook
                elif any(cell.outputs for cell in code_cells(notebook)):
                    (root / "_build" / "failed").mkdir(parents=True, exist_ok=True)
                    shutil.copy(copy, root / "_build" / "failed")
    if stopped:
        raise KeyboardInterrupt


def refresh(wanted: list[Path], jobs: int, root: Path) -> list[str]:
    """Run the chapters that are out of date, and keep the outputs of those that passed; the names of the others."""
    stale = {path: digest(path, root) for path in wanted if executed_chapter(path, root) is None}
    if not stale:
        print(f"nothing to execute: all {len(wanted)} chapters were run for these very sources", flush=True)
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
    """Bring the named chapters (all by default) up to date, and gather what all said; 0 if they all are now."""
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
