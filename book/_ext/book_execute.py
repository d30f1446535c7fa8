"""Execute the chapters once, for the tests and for the book.

    python book/_ext/book_execute.py [--jobs N] [chapter ...]      (what `make execute` runs)

Each chapter whose code or inputs changed (book_digest.py) is copied and run by `pytest --nbmake`, two at a
time. Those that passed go into the cache that Sphinx reads, so the build of the pages executes nothing; one
that failed shows its traceback and leaves nothing behind. Chapters are named by file (`04_convergence`).
"""

import argparse
import copy
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import yaml
from book_digest import ROOT, cache_path
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.cache.db import NbCacheRecord
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

CELL_SECONDS = 600  # as `timeout` in _config.yml
KEPT_CACHES = 4  # digests whose outputs are kept, newest first


def quiet_environment(root: Path = ROOT) -> dict[str, str]:
    """The environment of a kernel: this Python's own, one thread, and no settings from a reader's home."""
    env = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        env[name] = "1"
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


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapters' Markdown sources, in order."""
    return sorted((root / "notebooks").glob("*.md"))


def read_chapter(path: Path, root: Path = ROOT) -> nbformat.NotebookNode:
    """A chapter as the book's own reader sees it: only then do its cells match those in the cache."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    syntax = MdParserConfig(enable_extensions=set(config["parse"]["myst_enable_extensions"]))
    text = path.read_text(encoding="utf-8")
    return read_myst_markdown_notebook(text, config=syntax, add_source_map=False, path=path)


def find_executed(cache, notebook: nbformat.NotebookNode):
    """The record of these cells in the cache, or None; a record whose file is missing or torn is removed."""
    try:
        record = cache.match_cache_notebook(notebook)
    except KeyError:
        return None
    try:
        cache.get_cache_bundle(record.pk)
    except (KeyError, ValueError, nbformat.reader.NotJSONError):
        NbCacheRecord.remove_record(record.pk, cache.db)
        return None
    return record


def executed_chapter(path: Path, root: Path = ROOT) -> nbformat.NotebookNode | None:
    """The chapter with its outputs, or None where it has not been executed for the sources as they are."""
    if not (cache_path(root) / "global.db").is_file():
        return None
    cache = get_cache(cache_path(root))
    notebook = read_chapter(path, root)
    return None if find_executed(cache, notebook) is None else cache.merge_match_into_notebook(notebook)[1]


def is_complete(notebook: nbformat.NotebookNode) -> bool:
    """Whether every code cell ran, and none raised an error that it was not meant to raise."""
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        tags = cell.metadata.get("tags", [])
        failed = any(output.output_type == "error" for output in cell.outputs)
        if "skip-execution" not in tags and cell.execution_count is None:
            return False
        if failed and "raises-exception" not in tags:
            return False
    return True


def with_outputs(source: nbformat.NotebookNode, executed: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The cells as they are written, tags and captions included, with the outputs of the run."""
    merged = copy.deepcopy(source)
    for ours, theirs in zip(merged.cells, executed.cells, strict=True):
        if ours.cell_type == "code":
            ours.outputs, ours.execution_count = theirs.outputs, theirs.execution_count
    if "language_info" in executed.metadata:
        merged.metadata["language_info"] = executed.metadata["language_info"]
    return merged


def refresh_metadata(cache, notebook: nbformat.NotebookNode, record) -> None:
    """Give the cached cells the tags, captions and alt texts of today.

    The cache matches code alone and hands back the metadata of the day it was filled, so without this an edited
    caption would not reach the page.
    """
    old = [cell for cell in cache.get_cache_bundle(record.pk).nb.cells]
    new = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.metadata for cell in old] == [cell.metadata for cell in new]:
        return
    _, merged = cache.merge_match_into_notebook(notebook)
    for cell, source in zip(merged.cells, notebook.cells, strict=True):
        cell.metadata = source.metadata
    cache.cache_notebook_bundle(CacheBundleIn(merged, record.uri, data=record.data),
                                check_validity=False, overwrite=True)


def prune(keep: Path) -> None:
    """Forget the outputs of old sources, except the last few: going back to them is common."""
    others = sorted((path for path in keep.parent.iterdir() if path.is_dir() and path != keep),
                    key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[KEPT_CACHES - 1:]:
        shutil.rmtree(path)


def run(paths: list[Path], jobs: int, root: Path = ROOT) -> dict[Path, nbformat.NotebookNode]:
    """Run the chapters' copies under pytest; return those that passed, with their outputs.

    The copies lie in a folder beside `notebooks/`, where relative paths mean the same (nbmake refuses any
    folder called `_build`).
    """
    folder = Path(tempfile.mkdtemp(prefix=".run-", dir=root))
    try:
        sources = {path: read_chapter(path, root) for path in paths}
        copies = {path: folder / f"{path.stem}.ipynb" for path in paths}
        for path, notebook in sources.items():
            nbformat.write(notebook, copies[path])
        command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", f"--nbmake-timeout={CELL_SECONDS}",
                   "--nbmake-kernel=python3", "-p", "no:cacheprovider", "--durations=0", "--rootdir", str(root),
                   "-c", str(root / "pyproject.toml")]
        if min(jobs, len(paths)) > 1:
            command += ["-n", str(min(jobs, len(paths))), "--maxschedchunk=1"]
        subprocess.run([*command, *map(str, copies.values())], cwd=root, env=quiet_environment(root), check=False)
        executed = {path: nbformat.read(copies[path], as_version=4) for path in paths}
        return {path: with_outputs(sources[path], nb) for path, nb in executed.items() if is_complete(nb)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def seconds_of(notebook: nbformat.NotebookNode) -> float | None:
    """The chapter's own clock, as `report.closing()` glued it."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name", "")
            if name.endswith("-seconds"):
                return float(output["data"]["application/papermill.record/text/plain"])
    return None


def execute(names: list[str], jobs: int, root: Path = ROOT) -> int:
    """Bring the named chapters (all by default) up to date in the cache; 0 if they all are now."""
    known = {path.stem: path for path in chapters(root)}
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no such chapter: {', '.join(unknown)}; there are {', '.join(known) or 'none'}", file=sys.stderr)
        return 2
    wanted = [path for stem, path in known.items() if not names or stem in names]
    where = cache_path(root)
    cache = get_cache(where)
    records = {path: find_executed(cache, read_chapter(path, root)) for path in wanted}
    stale = [path for path, record in records.items() if record is None]
    if stale:
        print(f"executing {len(stale)} of {len(wanted)} chapters, {min(jobs, len(stale))} at a time", flush=True)
        began = time.monotonic()
        passed = run(stale, jobs, root)
        if cache_path(root) != where:
            print("sources of the package or its data changed meanwhile: these outputs are not kept, run it again",
                  file=sys.stderr)
            return 1
        for path, notebook in passed.items():
            cache.cache_notebook_bundle(
                CacheBundleIn(notebook, str(path), data={"execution_seconds": seconds_of(notebook)}),
                check_validity=False, overwrite=True)
        print(f"{len(passed)} of {len(stale)} chapters passed in {time.monotonic() - began:.0f} seconds", flush=True)
        failed = [path.stem for path in stale if path not in passed]
        if failed:
            print(f"failed: {', '.join(failed)}", file=sys.stderr)
    else:
        failed = []
        print(f"nothing to execute: all {len(wanted)} chapters were run for these very sources", flush=True)
    for path, record in records.items():
        if record is not None:
            refresh_metadata(cache, read_chapter(path, root), record)
    if where.is_dir():
        prune(where)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("chapters", nargs="*", help="such as 04_convergence; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (2)")
    options = parser.parse_args()
    return execute(options.chapters, max(1, options.jobs))


if __name__ == "__main__":
    sys.exit(main())
