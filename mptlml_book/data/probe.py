"""Access to the network, the same for images and for text: one short probe, and silence while data are loaded."""

import errno
import io
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import TextIO

PROBE_SECONDS = 3
STALLED = (
    60  # seconds without a byte, after which a download is left; there is no limit for a slow one
)
NOBODY = "no connection"


class Late(BaseException):
    """Nothing came for too long. No library takes it for an error of its own, after which it would try again."""


class Arrivals:
    """What has come from the network in this process: how much, when last, and what a server said in its place."""

    def __init__(self) -> None:
        self.count, self.last, self.refusal = 0, time.monotonic(), ""
        self.told: TextIO | None = None  # where a waiting is shown, every TOLD_EVERY seconds

    def came(self, count: int) -> None:
        self.count, self.last = self.count + count, time.monotonic()

    def refused(self, code: int) -> None:
        reason = {401: "not allowed", 403: "forbidden", 429: "too many requests"}.get(
            code, "an error of its own"
        )
        self.refusal = f"the server answered {code}, {reason}"

    def tell(self, words: str) -> None:
        if self.told:
            print(words, file=self.told, flush=True)


TOLD_EVERY = 5
arrivals = Arrivals()


def in_words(error: BaseException) -> str:
    """Why a download failed: what a server said, else what became of the connection, or of the disk."""
    found: list[BaseException] = []
    while error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__ or error
    reasons = [getattr(one, "reason", None) for one in found]
    names = " ".join(type(one).__name__ for one in [*found, *reasons])
    if codes := [one.code for one in found if isinstance(one, urllib.error.HTTPError)]:
        arrivals.refused(codes[0])
    for one in found:
        if isinstance(one, OSError) and one.errno in (
            errno.ENOSPC,
            errno.EFBIG,
            errno.EROFS,
            errno.EACCES,
        ):
            return f"it could not be stored: {os.strerror(one.errno)}"
    if arrivals.refusal:
        return arrivals.refusal
    if "Late" in names or "Timeout" in names:
        return "the server stalled: nothing came for a while"
    if any(name in names for name in ("Connect", "gaierror", "URLError")):
        return NOBODY
    if any(name in names for name in ("Protocol", "Read", "Reset", "Remote", "Broken")):
        return "the connection broke off"
    return f"{type(found[0]).__name__}: {found[0]}".split("\n")[0][:200]


@cache
def refusal(address: str, begins: bytes = b"") -> str:
    """Why a server cannot be used, "" where it answers within 3 seconds. It is asked once per session, without retries.

    begins: what its answer must begin with, where another may come in its place, as a page that
    asks to sign in.
    """
    request = urllib.request.Request(address, method="GET" if begins else "HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS) as answer:
            as_asked = answer.read(len(begins)) == begins
            return (
                ""
                if as_asked
                else "another page came in its place, such as one that asks to sign in"
            )
    except urllib.error.HTTPError as error:
        return "" if not begins and error.code in (403, 404) else in_words(error)
    except (OSError, ValueError, HTTPException) as error:
        late = isinstance(getattr(error, "reason", error), TimeoutError)
        return f"no answer within {PROBE_SECONDS} seconds" if late else NOBODY


def asked_before(what: str) -> str:
    """Why the "hub" or the "mirror" has not delivered to the program that asked before this one (fetch.py)."""
    found: dict[str, str] = json.loads(os.environ.get("MPTLML_ASKED") or "{}")
    return found.get(what, "")


@contextmanager
def unless_stalled() -> Iterator[None]:
    """Leave this block by `Late` once nothing came for STALLED seconds, where the system and the thread allow it."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def look(*_: object) -> None:
        quiet = time.monotonic() - arrivals.last
        if quiet > STALLED:
            raise Late(f"nothing for {STALLED} s")
        waits = f"nothing for {quiet:.0f} s" + f" ({arrivals.refusal})" * bool(arrivals.refusal)
        arrivals.tell(
            f"  {arrivals.count / 1e6:.1f} MB so far" + f"; {waits}" * (quiet > TOLD_EVERY)
        )

    arrivals.count, arrivals.refusal, arrivals.last = 0, "", time.monotonic()
    before, tick = signal.signal(signal.SIGALRM, look), min(TOLD_EVERY, STALLED / 4)
    signal.setitimer(signal.ITIMER_REAL, tick, tick)
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
        with (
            nullcontext()
            if sys.stderr.isatty() and not arrivals.told
            else redirect_stderr(io.StringIO())
        ):
            yield
    finally:
        logging.disable(level)
        socket.setdefaulttimeout(timeout)


def download(address: str, target: Path) -> None:
    """Put what an address gives into a file, going on where an earlier try ended, also one of an earlier run.

    Raises OSError or HTTPException: it failed without a further byte; what came remains in `target`
    with ".part".
    """
    part = target.with_name(target.name + ".part")
    while True:
        have = part.stat().st_size if part.exists() else 0
        request = urllib.request.Request(
            address, headers={"Range": f"bytes={have}-"} if have else {}
        )
        try:
            with urllib.request.urlopen(request, timeout=STALLED) as answer:
                goes_on = answer.status == 206
                whole = int(answer.headers["Content-Length"]) + have * goes_on
                with part.open("ab" if goes_on else "wb") as file:
                    while block := answer.read1(1 << 16):
                        file.write(block)
                        arrivals.came(len(block))
            if part.stat().st_size < whole:
                raise ConnectionResetError("broken off")
            part.replace(target)
            return
        except urllib.error.HTTPError:
            raise
        except (OSError, HTTPException):
            if not part.exists() or part.stat().st_size <= have:
                raise
