"""Imports of optional libraries: a missing one is named with what to install."""

import random
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """A failed import in this block raises a ModuleNotFoundError that names the extra of mptlml to install.

    Some libraries draw from Python's global generator while they are imported; its state is put
    back.
    """
    state = random.getstate()
    try:
        yield
    except ModuleNotFoundError as error:
        missing = f'{error.name} is not installed: in a copy of the repository of mptlml, pip install ".[{extra}]"'
        raise ModuleNotFoundError(missing, name=error.name) from error
    finally:
        random.setstate(state)
