"""What to say where a library is missing that only some rooms need."""

import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Imports in its block that fail raise a ModuleNotFoundError which names the extra of mptlml to install.

    Python's global generator stays as it is, from which some libraries draw while they are imported.
    """
    state = random.getstate()
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f'{error.name} is not installed: pip install "mptlml[{extra}]"'
        raise ModuleNotFoundError(missing, name=error.name) from error
    finally:
        random.setstate(state)
