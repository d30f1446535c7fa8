"""Serve MathJax from the book itself: pages must typeset their equations with no connection.

The files come from the Python package `sphinx-mathjax-offline` (MathJax 3, Apache-2.0). Of its 15 MB the book
needs one bundle and one folder of fonts.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

BUNDLE, FONTS = "tex-chtml-full.js", "output/chtml/fonts/woff-v2"


def _copy(app, exception):
    if exception is None and app.builder.format == "html":
        # The package's name holds a hyphen, so it can be found but not imported by an import statement.
        source = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
        target = Path(app.outdir) / "_static" / "mathjax"
        shutil.copytree(source / FONTS, target / FONTS, dirs_exist_ok=True)
        shutil.copy2(source / BUNDLE, target / BUNDLE)


def _set_path(app, config):
    config.mathjax_path = f"mathjax/{BUNDLE}"


def setup(app):
    app.connect("config-inited", _set_path)
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
