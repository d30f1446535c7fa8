"""The command `mptlml`, also as `python -m mptlml`: words are read first, and what it works with is loaded for them."""

from collections.abc import Sequence

from .scoring.options import parse


def main(words: Sequence[str] | None = None) -> None:
    """Score the texts of a table, or mutants of a sequence; leave with a message where that fails."""
    given = parse(words)
    from .scoring.command import run  # slow, for it brings torch

    run(given)


if __name__ == "__main__":
    main()
