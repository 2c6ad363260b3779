"""Fails if a page of the built site makes a browser load anything from another host.

    python scripts/check_site.py site

Links that a reader may follow are fine; scripts, styles, images, fonts and frames must be the site's own.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

LOADS = {*((tag, "src") for tag in ("script", "img", "iframe", "source", "video", "audio")), ("link", "href")}
MERELY_NAMED = {"canonical", "alternate", "next", "prev", "license", "author"}
STYLE_LOAD = re.compile(r"""(?:url\(\s*|@import\s+)["']?(?:https?:)?//[^"')\s]+""")


class Loads(HTMLParser):
    """Collects the addresses on other hosts that a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if (values.get("rel") or "") in MERELY_NAMED:
            return
        for name, value in values.items():
            if (tag, name) in LOADS and re.match(r"(https?:)?//", value or ""):
                self.found.append(f"<{tag} {name}={value}>")


def main(site: Path) -> None:
    found = [f"{page}: {load}" for page in sorted(site.rglob("*.html")) for load in loads_of_page(page)]
    found += [f"{style}: {load}" for style in sorted(site.rglob("*.css")) for load in loads_of_style(style)]
    if found:
        raise SystemExit("The site loads from elsewhere:\n" + "\n".join(found))
    print(f"{site} loads nothing from elsewhere")


def loads_of_page(page: Path) -> list[str]:
    parser = Loads()
    parser.feed(page.read_text())
    return parser.found


def loads_of_style(style: Path) -> list[str]:
    return STYLE_LOAD.findall(style.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
