"""Is there a connection? One short probe of a server, the same for images and for text."""

import http.client
import urllib.error
import urllib.request
from functools import cache

PROBE_SECONDS = 3


@cache
def is_reachable(address: str) -> bool:
    """Whether the server answers within 3 seconds. It is asked once per session: never a retry loop."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=PROBE_SECONDS):
            return True
    except urllib.error.HTTPError as error:  # it answers, if only to say that a folder has no page of its own
        return error.code < 500
    except (OSError, ValueError, http.client.HTTPException):
        return False
