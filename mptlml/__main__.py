"""The command `mptlml`, also as `python -m mptlml`: words are read first, and what it works with is loaded for them."""

import sys
from collections.abc import Sequence

from .scoring.options import parse


def main(words: Sequence[str] | None = None) -> None:
    """Score the texts of a table, or mutants of a sequence; leave with a message where that fails."""
    given = parse(words)
    try:
        from .scoring.command import run  # slow, for it brings torch

        run(given)
    except KeyboardInterrupt:
        sys.exit("mptlml: stopped; score goes on with the same words and --resume")


if __name__ == "__main__":
    main()
