"""The book in one file, to be read with no connection: what `make archive` writes.

    _build/mptlml-book.zip    site/ (open site/index.html), notebooks/, data/, licences

The same site gives the same file, byte for byte: names are sorted and dates fixed.
"""

import os
import zipfile
from pathlib import Path

from book_digest import ROOT

NAME = "mptlml-book"
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
README = Path(__file__).with_name("archive.txt")


def contents(site: Path, root: Path) -> dict[str, Path]:
    """What goes into the archive, {name in it: file}."""
    found = {"README.txt": README} | {name: root / name for name in ("LICENSE", "LICENSE-text", "CITATION.cff")}
    found |= {f"site/{path.relative_to(site).as_posix()}": path
              for path in site.rglob("*") if path.is_file() and path.name != ".buildinfo"}
    found |= {f"notebooks/{path.name}": path for path in (site / "_sources" / "notebooks").glob("*.ipynb")}
    return found | {f"data/{path.name}": path for path in [*site.glob("data/*.csv"), *site.glob("claims*.json")]}


def write_archive(site: Path, target: Path, root: Path = ROOT) -> int:
    """Write the archive, whole or not at all; the number of files in it. Raises ValueError: the site is not built."""
    if not (site / "index.html").is_file():
        raise ValueError(f"there is no book in {site}: make book")
    part, found = target.with_suffix(".part"), contents(site, root)
    try:
        with zipfile.ZipFile(part, "w") as archive:
            for name in sorted(found):
                entry = zipfile.ZipInfo(f"{NAME}/{name}", DATE)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, found[name].read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return len(found)


if __name__ == "__main__":
    target = ROOT / "_build" / f"{NAME}.zip"
    count = write_archive(ROOT / "_build" / "html", target)
    print(f"{target.relative_to(ROOT)}: {count} files, {target.stat().st_size / 1e6:.1f} MB")
