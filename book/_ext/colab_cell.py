# @title Install the package where it is missing, as on Colab. Elsewhere this does nothing.
import importlib.util
import os
import subprocess
import sys

REPOSITORY, BRANCH = "", ""
if importlib.util.find_spec("mptlml") is None:
    if not REPOSITORY:
        raise ModuleNotFoundError(
            "The package mptlml is not installed, and this copy of the notebook does not say where its book is kept. "
            "In a copy of the book's repository run: pip install --editable ."
        )
    folder = os.path.abspath("mptlml-book")
    try:
        if not os.path.isdir(folder):
            fetch = ["git", "clone", "--quiet", "--depth", "1", "--branch", BRANCH, REPOSITORY, folder]
            subprocess.run(fetch, check=True, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", folder], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        message = f"mptlml could not be installed from {REPOSITORY}: is there a connection? ({error})"
        raise RuntimeError(message) from None
    sys.path.insert(0, folder)  # this kernel began before the installation
