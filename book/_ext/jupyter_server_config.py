"""Settings of a Jupyter server that is started from .venv: a save without an edit changes nothing."""

import warnings


def without_kernel(model, **_):
    """Leave out what the front end adds of the kernel that happens to run, such as the version of its Python."""
    if model["type"] == "notebook":
        model["content"]["metadata"].pop("language_info", None)


# as the settings are read twice
warnings.filterwarnings("ignore", "Overriding existing pre_save_hook")
c.ContentsManager.pre_save_hook = without_kernel  # noqa: F821
