"""How MyST-NB renders records: as nodes that the book's extension fills. An entry point names this class."""

from typing import Any

from .records import MIME


class Records:
    """A renderer for the entry-point group `myst_nb.mime_renderers`."""

    mime_priority_overrides = [("*", MIME, 1)]  # before text/plain, in every builder

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """A container of class "record" that holds a record; None where the output is for MyST-NB's own renderers."""
        from docutils import nodes

        return [nodes.container("", classes=["record"], record=data.content)] if data.mime_type == MIME else None
