"""`claims.json`, its schema, `badge.svg` and the data of the figures, in the root of the site; and `{claims-badge}`.

    claims.json          every claim: band, measured value, verdict, and the cell that measures it
    claims.schema.json   what stands in it (JSON Schema); `version` grows when a field changes its meaning
    badge.svg            "claims | 111 of 112 in band", for the front page or a README
    data/<key>.csv       what `report.figure_data(key, ...)` kept

Nothing of it comes from elsewhere, and nothing in it says when it was made.
"""

import json
import shutil
from collections import Counter
from html import escape
from pathlib import Path

from book_records import later, records
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

VERSION = 1
SCHEMA = Path(__file__).with_name("claims.schema.json")
PER_CHARACTER, PADDING = 6.6, 10  # of the badge's 11-pixel letters
BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}">
<title>{label}</title>
<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="#00664b"/>
<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">
<text x="{at}" y="14" textLength="{name_width}">{name}</text>
<text x="{value_at}" y="14" textLength="{value_width}">{value}</text>
</g></svg>
"""


def in_band(claims: list[dict]) -> int:
    """How many claims were measured, which means that they lie in their bands: others stop the build."""
    return sum(claim["value"] is not None for claim in claims)


def as_json(found: dict) -> dict:
    """The content of claims.json, from what `book_records.gather` found."""
    claims = found["claims"]
    return {
        "$schema": SCHEMA.name,
        "version": VERSION,
        "summary": {"claims": len(claims), "in_band": in_band(claims),
                    "verdicts": dict(sorted(Counter(claim["verdict"] for claim in claims).items()))},
        "claims": claims,
    }


def badge(name: str, value: str) -> str:
    """An SVG picture of two labels side by side."""
    name_width, value_width = (round(PER_CHARACTER * len(text)) for text in (name, value))
    left, right = name_width + PADDING, value_width + PADDING
    return BADGE.format(label=escape(f"{name}: {value}"), name=escape(name), value=escape(value), width=left + right,
                        left=left, right=right, at=left / 2, value_at=left + right / 2,
                        name_width=name_width, value_width=value_width)


def write_files(found: dict, site: Path) -> None:
    """Put claims.json, its schema, the badge and the figures' data into a built site."""
    (site / "claims.json").write_text(json.dumps(as_json(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.copy(SCHEMA, site / SCHEMA.name)
    (site / "badge.svg").write_text(badge("claims", in_words(found)), encoding="utf-8")
    (site / "data").mkdir(exist_ok=True)
    for chapter in found["chapters"].values():
        for key, text in chapter["tables"].items():
            (site / "data" / f"{key}.csv").write_text(text, encoding="utf-8")


def in_words(found: dict) -> str:
    return f"{in_band(found['claims'])} of {len(found['claims'])} in band"


def shown(app, docname, place):
    """The badge on a page, as a link to the scorecard."""
    root = "../" * docname.count("/")
    target = app.builder.get_relative_uri(docname, "book/scorecard")
    return nodes.raw("", f'<p><a href="{target}"><img class="claims-badge" src="{root}badge.svg" '
                         f'alt="Claims: {in_words(records(app))}"></a></p>', format="html")


class ClaimsBadge(SphinxDirective):
    def run(self):
        return [later(make=shown)]


def _write(app, exception):
    if exception is None and app.builder.name == "html":
        write_files(records(app), Path(app.outdir))


def setup(app):
    app.setup_extension("book_records")
    app.add_directive("claims-badge", ClaimsBadge)
    app.connect("build-finished", _write, priority=400)  # before the pages are inspected
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
