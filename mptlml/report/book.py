"""Where the book lies: its claims and stored results are files of the repository, not of the package."""

from pathlib import Path


def book_folder() -> Path:
    """The folder book/ of a copy of the book: looked for upwards from the working directory, then beside the package.

    Raises FileNotFoundError where there is none.
    """
    here = Path.cwd()
    for root in (here, *here.parents, Path(__file__).parents[2]):
        if (root / "book" / "claims.yml").is_file():
            return root / "book"
    raise FileNotFoundError(f"no book/claims.yml in {here}, above it, or beside the package: claims and stored results "
                            "are in the book's repository; run this in a copy of it")


def stored(name: str) -> Path:
    """The path of a file of stored results, book/data/NAME. Raises FileNotFoundError where there is no book."""
    return book_folder() / "data" / name
