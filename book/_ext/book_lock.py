"""python book/_ext/book_lock.py FILE COMMAND ...: run a command while no other that was given the same file runs.

It needs a Python and nothing else, for it also waits for an installation.
"""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def locked(path: Path) -> Iterator[TextIO]:
    """Hold a lock file, yielded open; whoever asks for it meanwhile waits, and says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another run in this folder to end", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who waits is stopped without a traceback
    with locked(Path(sys.argv[1])) as held:
        os.set_inheritable(held.fileno(), True)  # until all that it starts has ended
        os.execvp(sys.argv[2], sys.argv[2:])
