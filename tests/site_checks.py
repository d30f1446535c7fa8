"""Built pages that fetch something from elsewhere, or that show a picture without saying what it shows.

Links that a reader may follow (`<a href>`) are no matter; what counts is what a browser loads by itself.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup, Tag

ADDRESSES = ("src", "srcset", "poster", "data", "href", "xlink:href")  # attributes from which a browser fetches
REMOTE = re.compile(r"(?:^|,)\s*(?:https?:|wss?:|ftp:)?//", re.IGNORECASE)
CSS_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CSS_FETCH = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)
PICTURE_NAME = re.compile(r"\S+\.(?:svg|png|jpe?g|gif|webp)", re.IGNORECASE)
PICTURES = "article img, article svg, article video, article canvas, article [role=img]"


def remote_in_css(text: str) -> list[str]:
    """Addresses outside the book that a style sheet loads by `url()` or `@import`."""
    return CSS_FETCH.findall(CSS_COMMENT.sub("", text))


def remote_in(tag: Tag) -> list[str]:
    """Addresses outside the book that a browser loads for an element."""
    style = tag.get("style", "") + (tag.get_text() if tag.name == "style" else "")
    if tag.name in {"a", "area"} or "canonical" in tag.get("rel", []):  # left alone until someone asks for it
        return remote_in_css(style)
    return remote_in_css(style) + [tag[name] for name in ADDRESSES if REMOTE.search(tag.get(name, ""))]


def is_named(tag: Tag) -> bool:
    """Whether the element, or one around it, is labelled as a whole or hidden from those who cannot see it."""
    for element in (tag, *tag.parents):
        label = (element.get("aria-label") or element.get("aria-labelledby") or "").strip()
        hidden = element.get("aria-hidden") == "true" or element.get("role") in {"presentation", "none"}
        if hidden or (label and (element is tag or element.name == "svg" or element.get("role") == "img")):
            return True
    alt = tag.get("alt", "").strip()  # without one docutils writes the picture's own address
    return bool(tag.name == "svg" and tag.title) or bool(alt and not PICTURE_NAME.fullmatch(alt))


def inspect_html(text: str) -> tuple[list[str], list[str]]:
    """What the page loads from elsewhere, and the pictures of its <article> without an alt text or label."""
    page = BeautifulSoup(text, "html.parser")
    remote = [f"{tag.name}: {address}" for tag in page.find_all(True) for address in remote_in(tag)]
    unnamed = [tag for tag in page.select(PICTURES) if not tag.find_parent("svg") and not is_named(tag)]
    return remote, [str(tag)[:120] for tag in unnamed]


def inspect_site(folder: Path) -> list[tuple[str, str]]:
    """Every finding in a built book as (path inside it, what is wrong)."""
    findings = []
    for path in sorted(path for path in folder.rglob("*.*") if path.suffix in {".html", ".css"}):
        name, text = path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8", errors="replace")
        remote, unnamed = (remote_in_css(text), []) if path.suffix == ".css" else inspect_html(text)
        findings += [(name, f"loads from outside the book: {what}") for what in remote]
        findings += [(name, f"picture without an alt text or label: {what}") for what in unnamed]
    return findings
