"""The command `mptlml`, also as `python -m mptlml`: words are read first, and what it works with is loaded for them."""

from collections.abc import Sequence

from .scoring.options import parser


def main(words: Sequence[str] | None = None) -> None:
    """Score or compare the texts of files, and print a summary; leave with a message where that fails."""
    given = parser().parse_args(words)
    from .scoring.command import run  # slow, for it brings torch

    run(given)


if __name__ == "__main__":
    main()
