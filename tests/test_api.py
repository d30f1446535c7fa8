"""The page of the package's names says every one of them."""

import importlib
import inspect
import pkgutil

import mptlml
import mptlml_book


def test_every_public_name_has_its_entry(page):
    ids = {tag["id"] for name in ("api", "api_book") for tag in page(f"book/{name}").select("[id]")}
    for package in (mptlml, mptlml_book):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__"):
                continue  # a command
            for name, value in vars(importlib.import_module(info.name)).items():
                own = getattr(value, "__module__", "") == info.name and not name.startswith("_")
                if own and (inspect.isclass(value) or inspect.isfunction(value)):
                    assert f"{info.name}.{name}" in ids
