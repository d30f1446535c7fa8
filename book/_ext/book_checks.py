"""Warn about built pages that fetch something from elsewhere, or that show a picture without saying what it shows.

The book is built with warnings as errors, so each of these stops the build. Links that a reader may follow
(`<a href>`) are no matter; what counts is what a browser loads by itself.
"""

import re
from html.parser import HTMLParser
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

# attributes from which a browser fetches, by tag
FETCHED = {
    "script": ("src",), "img": ("src", "srcset"), "source": ("src", "srcset"), "iframe": ("src",), "frame": ("src",),
    "embed": ("src",), "object": ("data",), "video": ("src", "poster"), "audio": ("src",), "track": ("src",),
    "input": ("src",), "image": ("href", "xlink:href"), "use": ("href", "xlink:href"),
}
FETCHED_RELS = {
    "stylesheet", "icon", "shortcut", "apple-touch-icon", "mask-icon", "manifest", "preload", "prefetch",
    "modulepreload", "preconnect", "dns-prefetch",
}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
REMOTE = re.compile(r"^\s*(?:https?:|wss?:|ftp:)?//", re.IGNORECASE)
CSS_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CSS_FETCH = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)
PICTURE_NAME = re.compile(r"\.(?:svg|png|jpe?g|gif|webp)$", re.IGNORECASE)


def remote_in_css(text: str) -> list[str]:
    """Addresses outside the book that a style sheet loads by `url()` or `@import`."""
    return CSS_FETCH.findall(CSS_COMMENT.sub("", text))


class _Page(HTMLParser):
    """Collects what a page fetches from elsewhere (`remote`) and its unnamed pictures (`unlabelled`)."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.remote, self.unlabelled = [], []
        self._open = []  # the open elements as [tag, its content is labelled or hidden as a whole]
        self._svg = None  # the outermost open <svg> that has no label yet

    def handle_starttag(self, tag, attrs):
        attrs = {name: value or "" for name, value in attrs}
        self._check_remote(tag, attrs)
        # The theme's own pictures stand outside <article>, beside the text that says the same.
        ours = any(name == "article" for name, _ in self._open)
        covered = any(whole for _, whole in self._open)
        labelled = bool((attrs.get("aria-label", "") + attrs.get("aria-labelledby", "")).strip())
        hidden = attrs.get("aria-hidden") == "true" or attrs.get("role") in {"presentation", "none"}
        if ours and not covered and not labelled and not hidden:
            self._check_label(tag, attrs)
        if tag not in VOID:
            self._open.append([tag, hidden or (labelled and (attrs.get("role") == "img" or tag == "svg"))])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        for place in reversed(range(len(self._open))):  # closes what HTML lets stand open, such as <p>
            if self._open[place][0] == tag:
                del self._open[place:]
                break
        if tag == "svg" and self._svg and not any(name == "svg" for name, _ in self._open):
            self.unlabelled.append(self._svg)
            self._svg = None

    def handle_data(self, data):
        if self._open and self._open[-1][0] == "style":
            self.remote += [f"style: {address}" for address in remote_in_css(data)]

    def _check_remote(self, tag, attrs):
        names = FETCHED.get(tag, ())
        if tag == "link" and FETCHED_RELS & set(attrs.get("rel", "").lower().split()):
            names = ("href",)
        for name in names:
            values = attrs.get(name, "").split(",") if name == "srcset" else [attrs.get(name, "")]
            self.remote += [f"{tag}: {value.strip()}" for value in values if REMOTE.match(value)]
        self.remote += [f"style: {address}" for address in remote_in_css(attrs.get("style", ""))]

    def _check_label(self, tag, attrs):
        start = self.get_starttag_text()[:120]
        if tag == "svg":
            self._svg = self._svg or start  # a <title> may follow
        elif tag == "title":
            self._svg = None
        elif tag == "img":
            alt = attrs.get("alt", "").strip()
            # Without an alt text docutils writes the picture's own address.
            if not alt or (PICTURE_NAME.search(alt) and " " not in alt):
                self.unlabelled.append(start)
        elif tag in {"video", "canvas"} or attrs.get("role") == "img":
            self.unlabelled.append(start)


def inspect_html(text: str) -> tuple[list[str], list[str]]:
    """What the page loads from elsewhere, and the pictures of its <article> without an alt text or label."""
    page = _Page()
    page.feed(text)
    page.close()
    return page.remote, page.unlabelled


def inspect_site(folder: Path) -> list[tuple[str, str]]:
    """Every finding in a built book as (path inside it, what is wrong)."""
    findings = []
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        if name.startswith("_static/"):
            continue
        remote, unlabelled = inspect_html(path.read_text(encoding="utf-8"))
        findings += [(name, f"loads from outside the book: {what}") for what in remote]
        findings += [(name, f"picture without an alt text or label: {what}") for what in unlabelled]
    for path in sorted(folder.rglob("*.css")):
        name = path.relative_to(folder).as_posix()
        for address in remote_in_css(path.read_text(encoding="utf-8", errors="replace")):
            findings.append((name, f"loads from outside the book: {address}"))
    return findings


def _warn(app, exception):
    if exception is None and app.builder.name == "html":
        for name, what in inspect_site(Path(app.outdir)):
            logger.warning("%s: %s", name, what, type="book_checks")


def setup(app):
    app.connect("build-finished", _warn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
