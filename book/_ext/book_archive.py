"""The book in one file, to be read with no connection: what `make archive` writes.

    _build/mptlml-book.zip    site/ (open site/index.html), notebooks/, data/, licences

The same site gives the same file, byte for byte: names are sorted and dates fixed.
"""

import os
import sys
import zipfile
from pathlib import Path

from book_digest import ROOT

NAME = "mptlml-book"
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can hold
BESIDE = ("LICENSE", "LICENSE-text", "CITATION.cff")
README = """\
Masked pre-training and the marginal likelihood, in numbers

site/index.html   the book: open it in a browser. Search and equations need no connection.
notebooks/        its chapters as Jupyter notebooks, without outputs. Their first cell installs
                  the package they need where it is missing; that, and only that, needs a connection.
data/             the numbers behind the figures (CSV), and every claim with its verdict (claims.json),
                  as far as this build has them
LICENSE           of the code (MIT); LICENSE-text of text and figures (CC BY 4.0); CITATION.cff: how to cite
"""


def contents(site: Path, root: Path) -> dict[str, bytes | Path]:
    """What goes into the archive, {name in it: a file or its bytes}."""
    found = {"README.txt": README.encode()} | {name: root / name for name in BESIDE}
    for path in site.rglob("*"):
        if path.is_file() and path.name != ".buildinfo":
            found[f"site/{path.relative_to(site).as_posix()}"] = path
    found |= {f"notebooks/{path.name}": path for path in (site / "_sources" / "notebooks").glob("*.ipynb")}
    found |= {f"data/{path.name}": path for path in [*(site / "data").glob("*.csv"), *site.glob("claims*.json")]}
    return found


def write_archive(site: Path, target: Path, root: Path = ROOT) -> int:
    """Write the archive, whole or not at all; the number of files in it. Raises ValueError: the site is not built."""
    if not (site / "index.html").is_file():
        raise ValueError(f"there is no book in {site}: make book")
    part = target.with_suffix(".part")
    found = contents(site, root)
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in sorted(found):
                entry = zipfile.ZipInfo(f"{NAME}/{name}", DATE)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                held = found[name]
                archive.writestr(entry, held if isinstance(held, bytes) else held.read_bytes())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return len(found)


def main() -> int:
    target = ROOT / "_build" / f"{NAME}.zip"
    count = write_archive(ROOT / "_build" / "html", target)
    print(f"{target.relative_to(ROOT)}: {count} files, {target.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
