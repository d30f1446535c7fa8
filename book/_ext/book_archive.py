"""The book in one file, to be read with no connection: what `make archive` writes.

    _build/mptlml-book.zip    site/ (open site/index.html), notebooks/, data/, licences

The same site gives the same file, byte for byte: names are sorted and dates fixed.
"""

import zipfile
from pathlib import Path

from book_digest import ROOT

NAME = "mptlml-book"
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold


def write_archive(site: Path, target: Path) -> int:
    """Write the archive, whole or not at all; the number of files in it."""
    found = {"README.txt": Path(__file__).with_name("archive.txt")}
    found |= {name: ROOT / name for name in ("LICENSE", "LICENSE-text", "CITATION.cff")}
    found |= {f"site/{path.relative_to(site).as_posix()}": path
              for path in site.rglob("*") if path.is_file() and path.name != ".buildinfo"}
    found |= {f"notebooks/{path.name}": path for path in site.glob("_sources/notebooks/*.ipynb")}
    found |= {f"data/{path.name}": path for path in [*site.glob("data/*.csv"), *site.glob("claims*.json")]}
    part = target.with_suffix(".part")
    with zipfile.ZipFile(part, "w") as archive:
        for name in sorted(found):
            entry = zipfile.ZipInfo(f"{NAME}/{name}", DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, found[name].read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
    part.replace(target)
    return len(found)


if __name__ == "__main__":
    target = ROOT / "_build" / f"{NAME}.zip"
    count = write_archive(ROOT / "_build" / "html", target)
    print(f"{target.relative_to(ROOT)}: {count} files, {target.stat().st_size / 1e6:.1f} MB")
