"""`python -m mptlml` is the command `mptlml`, as launchers of several processes start it."""

from .scoring.command import main

if __name__ == "__main__":
    main()
