"""The page of the package's names says every one of them."""

import inspect
import pkgutil
from importlib import import_module

import mptlml
import mptlml_book

MODULES = [
    import_module(info.name)
    for package in (mptlml, mptlml_book)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith("__main__")  # a command
]


def test_every_public_name_has_its_entry(page):
    ids = {tag["id"] for name in ("api", "api_book") for tag in page(f"book/{name}").select("[id]")}
    found = {
        f"{module.__name__}.{name}"
        for module in MODULES
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    assert found - ids == set()
