"""Try the book with the newest versions of everything: what `make newest` runs, weekly in the workflows.

    python book/_ext/book_newest.py loosen    requirements.txt of this folder without its pins
    python book/_ext/book_newest.py pin       ... with the versions that pip then chose; the rest into constraints.txt,
                                              the builds for Binder into .binder/requirements.txt

It works on a copy of the repository in `.newest`. Once the tests pass there, these three files hold the next pins.
"""

import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

LIMITS = {"jupyter-book": "<2"}  # another program from 2 on
TOOLS = {"pip", "setuptools", "wheel", "mptlml"}  # not ours to pin
PIN = re.compile(r"([A-Za-z0-9._-]+)==[^\s+]+")


def canonical(name: str) -> str:
    """A project's name as the registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def loosened(requirements: str) -> str:
    """The requirements with no version pinned, save for the limits that the book needs."""
    return PIN.sub(lambda pin: pin[1] + LIMITS.get(pin[1], ""), requirements)


def pinned(requirements: str, versions: Mapping[str, str]) -> tuple[str, str]:
    """The requirements with these versions, and the constraints: the versions of everything else that is installed."""
    public = {canonical(name): version.split("+")[0] for name, version in versions.items()}
    lines, named = [], set(TOOLS)
    for line in requirements.splitlines():
        name = re.match(r"[A-Za-z0-9._-]+", line)
        if name and not line.startswith("-"):
            named.add(canonical(name[0]))
            line = f"{name[0]}=={public[canonical(name[0])]}"
        lines.append(line)
    rest = sorted(f"{name}=={public[canonical(name)]}" for name in versions if canonical(name) not in named)
    return "\n".join(lines) + "\n", "\n".join(rest) + "\n"


def main() -> int:
    requirements, constraints, binder = map(Path, ("requirements.txt", "constraints.txt", ".binder/requirements.txt"))
    first = constraints.read_text(encoding="utf-8").split("\n", 1)[0]  # what the file is for
    if sys.argv[1:] == ["loosen"]:
        requirements.write_text(loosened(requirements.read_text(encoding="utf-8")), encoding="utf-8")
        constraints.write_text(first + "\n", encoding="utf-8")
    elif sys.argv[1:] == ["pin"]:
        versions = {found.metadata["Name"]: found.version for found in metadata.distributions()}
        pins, rest = pinned(requirements.read_text(encoding="utf-8"), versions)
        requirements.write_text(pins, encoding="utf-8")
        constraints.write_text(f"{first}\n{rest}", encoding="utf-8")
        builds = binder.read_text(encoding="utf-8")
        builds = PIN.sub(lambda pin: f"{pin[1]}=={versions[pin[1]].split('+')[0]}", builds)
        binder.write_text(builds, encoding="utf-8")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
