"""Access to the network, the same for images and for text: one short probe, and silence while data are loaded."""

import http.client
import io
import logging
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import cache

PROBE_SECONDS = 3


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
