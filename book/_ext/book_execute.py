"""Execute the chapters once, for the tests and for the book.

    python book/_ext/book_execute.py [--jobs N] [chapter ...]      (what `make execute` runs)

Each chapter whose digest (book_digest.py) has no outputs yet is copied and run by `pytest --nbmake`, two at a time. The
outputs of those that passed are kept (book_outputs.py), so the build of the pages executes nothing; one that failed
shows its traceback and leaves nothing behind. Chapters are named by file (`04_convergence`).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from book_digest import ROOT, chapters, code_cells, digest, read_chapter
from book_outputs import executed_chapter, keep, locked, place, read_notebook, records_of, write_records

CELL_SECONDS = 600
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def quiet_environment(root: Path = ROOT) -> dict[str, str]:
    """The environment of a kernel: this Python's own, one thread, and no settings from a reader's home."""
    env = os.environ | dict.fromkeys(THREADS, "1")
    for name in ("PYTHONPATH", "JUPYTER_PATH", "PYTEST_ADDOPTS", "MPLBACKEND", "PYTHONWARNINGS"):
        env.pop(name, None)
    env |= {
        "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel installed beside this Python, not one of the same name at home
        "JUPYTER_PLATFORM_DIRS": "1",
        "IPYTHONDIR": str(root / "_build" / ".ipython"),
        "MPLCONFIGDIR": str(Path(sys.prefix) / "matplotlib"),
        "PYTHONNOUSERSITE": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PATH": str(Path(sys.executable).parent) + os.pathsep + env.get("PATH", os.defpath),
    }
    if env.get("MPTLML_DATA"):  # kernels start in notebooks/, where a relative path would mean another folder
        env["MPTLML_DATA"] = os.path.abspath(env["MPTLML_DATA"])
    return env


def is_complete(notebook: nbformat.NotebookNode) -> bool:
    """Whether every code cell ran, and none raised an error that it was not meant to raise."""
    for cell in code_cells(notebook):
        tags = cell.metadata.get("tags", [])
        failed = any(output.output_type == "error" for output in cell.outputs)
        if cell.source.strip() and cell.execution_count is None and "skip-execution" not in tags:
            return False
        if failed and "raises-exception" not in tags:
            return False
    return True


def run(paths: list[Path], jobs: int, root: Path = ROOT) -> dict[Path, nbformat.NotebookNode]:
    """Run the chapters' copies under pytest; return those that passed, with their outputs.

    The copies lie in a folder beside `notebooks/`, where relative paths mean the same (nbmake refuses any
    folder called `_build`).
    """
    folder = Path(tempfile.mkdtemp(prefix=".run-", dir=root))
    try:
        copies = {path: folder / f"{path.stem}.ipynb" for path in paths}
        for path in paths:
            nbformat.write(read_chapter(path, root), copies[path])
        command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", f"--nbmake-timeout={CELL_SECONDS}",
                   "--nbmake-kernel=python3", "-p", "no:cacheprovider", "--durations=0", "--rootdir", str(root),
                   "-c", str(root / "pyproject.toml")]
        if min(jobs, len(paths)) > 1:
            command += ["-n", str(min(jobs, len(paths))), "--maxschedchunk=1"]
        subprocess.run([*command, *map(str, copies.values())], cwd=root, env=quiet_environment(root), check=False)
        executed = {path: read_notebook(copies[path]) for path in paths}
        return {path: notebook for path, notebook in executed.items() if notebook and is_complete(notebook)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def holds(notebook: nbformat.NotebookNode, before: str, after: str) -> bool:
    """Whether outputs made from the digest `before` are those of `after`: data may come, where nothing stood in for them."""
    same_sources = before.split("-")[0] == after.split("-")[0]
    stood_in = any(record["kind"] == "data" and record["note"] for record in records_of(notebook))
    return before == after or (same_sources and not stood_in)


def refresh(wanted: list[Path], jobs: int, root: Path) -> list[str]:
    """Run the chapters that are out of date, and keep the outputs of those that passed; the names of the others."""
    stale = {path: digest(path, root) for path in wanted if executed_chapter(path, root) is None}
    if not stale:
        print(f"nothing to execute: all {len(wanted)} chapters were run for these very sources", flush=True)
        return []
    print(f"executing {len(stale)} of {len(wanted)} chapters, {min(jobs, len(stale))} at a time", flush=True)
    began = time.monotonic()
    passed = run(list(stale), jobs, root)
    print(f"{len(passed)} of {len(stale)} chapters passed in {time.monotonic() - began:.0f} seconds", flush=True)
    for path, notebook in list(passed.items()):
        state = digest(path, root)
        if holds(notebook, stale[path], state):
            keep(notebook, place(path, state, root))
        else:
            print(f"{path.stem}: its sources or data changed while it ran, its outputs are not kept", file=sys.stderr)
            del passed[path]
    return [path.stem for path in stale if path not in passed]


def execute(names: list[str], jobs: int, root: Path = ROOT) -> int:
    """Bring the named chapters (all by default) up to date, and gather the records of all; 0 if they all are now."""
    known = {path.stem: path for path in chapters(root)}
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no such chapter: {', '.join(unknown)}; there are {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    with locked(root / "_build" / ".execute.lock"):  # two executions at once would run each chapter twice
        failed = refresh([path for stem, path in known.items() if not names or stem in names], jobs, root)
        write_records(root)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("chapters", nargs="*", help="such as 04_convergence; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    options = parser.parse_args()
    return execute(options.chapters, max(1, options.jobs))


if __name__ == "__main__":
    sys.exit(main())
