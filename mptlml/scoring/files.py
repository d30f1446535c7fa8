"""Files that are written whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path to write to; it takes the place of `file` all at once, or not at all. Raises OSError."""
    new = file.with_name(f"{file.name}.{secrets.token_hex(4)}.new")
    new.open("x").close()  # never another's file
    try:
        yield new
        if file.exists():
            shutil.copymode(file, new)
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)
