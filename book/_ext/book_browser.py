"""The reader's browser: a Chromium that is already on this machine, driven by Playwright. Nothing is downloaded."""

import os
import shutil
from contextlib import contextmanager

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")


def find_chromium(environ=os.environ) -> str | None:
    """The path of a Chromium: what CHROMIUM names, else the first of its usual names on the PATH; None without one.

    Raises ValueError: CHROMIUM names something that cannot be run.
    """
    asked = environ.get("CHROMIUM")
    if asked and not shutil.which(asked):
        raise ValueError(f"CHROMIUM is {asked!r}, which is not a program")
    return next(filter(None, map(shutil.which, [asked] if asked else NAMES)), None)


@contextmanager
def chromium(path: str):
    """A headless Playwright browser, closed at the end."""
    from playwright.sync_api import sync_playwright

    # Chromium refuses to sandbox itself for root, which is who one is in most containers.
    flags = [*FLAGS, *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()
