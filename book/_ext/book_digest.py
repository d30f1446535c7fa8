"""Name the execution cache after everything, beside a chapter's own cells, that can change its outputs.

jupyter-cache compares the code cells of a notebook and nothing else: after an edit in `mptlml/` it would
go on showing the old numbers. So the cache of the book lies in `_build/.jupyter_cache/<digest>`, and the digest is
taken over the package's sources, the pinned requirements, the claims, the stored results in `book/data`, and what of
the data folders the chapters read.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def input_files(root: Path) -> list[Path]:
    """The files that every chapter depends on, in a fixed order; those that do not exist are left out."""
    files = sorted((root / "mptlml").rglob("*.py"))
    files += [root / name for name in ("requirements.txt", "constraints.txt", "book/claims.yml")]
    files += sorted((root / "book" / "data").glob("*"))
    return [path for path in files if path.is_file()]


# What the chapters read of each data folder, by the environment variable that names it. A library may write lock files
# and other readers' data beside these, which change nothing here.
DATA = {
    "MPTLML_DATA": ("**/*",),
    "HF_HOME": ("datasets/nyu-mll___glue/**/*.arrow", "hub/models--google-bert--*/**/*.*"),
}


def data_listing(folder: str | None, patterns: tuple[str, ...] = ("**/*",)) -> str:
    """Names and sizes below a data folder (not where it lies), so real data and a stand-in never share a cache."""
    if not folder:
        return "no data folder"
    base = Path(folder)
    files = sorted({path for pattern in patterns for path in base.glob(pattern) if path.is_file()})
    return "\n".join(f"{path.relative_to(base).as_posix()} {path.stat().st_size}" for path in files)


def digest(root: Path = ROOT, environment: Mapping[str, str] | None = None) -> str:
    """16 hexadecimal digits that change whenever one of the inputs does; `environment` names folders and models."""
    environment = environment or {}
    state = hashlib.sha256()
    for path in input_files(root):
        state.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    for variable, patterns in DATA.items():
        state.update(data_listing(environment.get(variable), patterns).encode() + b"\0")
    state.update(environment.get("MPTLML_MASKED_LM", "").encode())  # the model that chapter 10 is pointed at
    return state.hexdigest()[:16]


def cache_path(root: Path = ROOT) -> Path:
    """Where the executed chapters are kept for the sources as they are now."""
    return root / "_build" / ".jupyter_cache" / digest(root, os.environ)


def _set_cache_path(app, config):
    config.nb_execution_cache_path = str(cache_path(Path(app.srcdir)))


def setup(app):
    app.connect("config-inited", _set_cache_path)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
