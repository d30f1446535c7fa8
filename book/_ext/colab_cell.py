# @title Install the package where it is missing, as on Colab. Elsewhere this does nothing.
import importlib.util
import os
import subprocess
import sys

REPOSITORY, BRANCH = "", ""
if importlib.util.find_spec("mptlml_book") is None:
    if not REPOSITORY:
        raise ModuleNotFoundError('mptlml_book is missing. In a copy of its repository run: pip install -e ".[book]"')
    folder = os.path.abspath("mptlml-book")
    if not os.path.isdir(folder):
        subprocess.run(["git", "clone", "--depth", "1", "--branch", BRANCH, REPOSITORY, folder], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", f"{folder}[book]"], check=True)
    sys.path.insert(0, folder)  # this kernel began before the installation
