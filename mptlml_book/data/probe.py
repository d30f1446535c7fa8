"""Access to the network, the same for images and for text: one short probe, and silence while data are loaded."""

import http.client
import io
import logging
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import cache

PROBE_SECONDS = 3


class Late(BaseException):
    """It took too long. No library takes it for an error of its own, after which it would try again."""


@cache
def is_reachable(address: str, begins: bytes = b"") -> bool:
    """Whether the server answers within 3 seconds. It is asked once per session, without retries.

    begins: what its answer must begin with, where another may come in its place, as a page that asks to sign in.
    """
    request = urllib.request.Request(address, method="GET" if begins else "HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS) as answer:
            return bool(answer.read(len(begins)) == begins)
    except urllib.error.HTTPError as error:  # it answers, if only to say that a folder has no page of its own
        return not begins and error.code in (403, 404)
    except (OSError, ValueError, http.client.HTTPException):
        return False


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Leave this block by `Late` once it has taken so many seconds, where the system and the thread allow it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise Late(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def quiet_network() -> Iterator[None]:
    """In this block only errors are logged, progress bars show in a terminal only, and stalled downloads fail."""
    level, timeout = logging.root.manager.disable, socket.getdefaulttimeout()
    logging.disable(logging.WARNING)
    socket.setdefaulttimeout(PROBE_SECONDS)
    try:
        with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)
        socket.setdefaulttimeout(timeout)
