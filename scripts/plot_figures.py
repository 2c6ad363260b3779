"""Draws the tables of docs/explanation/performance.md as one picture, while the site is built.

A hook of MkDocs: the picture is made of the page's own text, so the two can't tell different things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

PLACE = "<!-- the tables below, drawn -->"

_HEAD = "| per second | ratio |"
_TITLE = re.compile(r"^### (?P<engine>\w+)[^\n]*\n(?P<body>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| (?P<name>[^|]+?) \| [\d,]+ \| (?P<ratio>[\d.]+) \|", re.MULTILINE)

_WIDTH, _LEFT, _RIGHT, _TOP = 760, 262, 40, 52
_BAR, _GAP = 13, 16


@dataclass(frozen=True, slots=True)
class Engine:
    """The ratios of one engine's rows to their floors."""

    name: str
    ratios: dict[str, float]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return markdown.replace(PLACE, as_svg(engines_in(markdown))) if PLACE in markdown else markdown


def engines_in(markdown: str) -> list[Engine]:
    """Every table with ratios beneath a heading of its own."""
    return [
        Engine(title["engine"], {row["name"]: float(row["ratio"]) for row in _ROW.finditer(title["body"])})
        for title in _TITLE.finditer(markdown)
        if _HEAD in title["body"]
    ]


def as_svg(engines: list[Engine]) -> str:
    """Bars beside one another, a group for each row, and a line where the floor is."""
    names = list(dict.fromkeys(name for engine in engines for name in engine.ratios))
    group = len(engines) * _BAR + _GAP
    height = _TOP + len(names) * group
    scale = (_WIDTH - _LEFT - _RIGHT) / max(ratio for engine in engines for ratio in engine.ratios.values())
    floor = _LEFT + scale
    parts = [
        *_legend(engines),
        f'<path class="floor" d="M{floor:.0f} {_TOP - 8}V{height}"/>',
        f'<text class="small" x="{floor:.0f}" y="{_TOP - 14}">the floor</text>',
    ]
    for number, name in enumerate(names):
        parts += _group(name, _TOP + number * group, engines, scale)
    label = "Speed beside the floor: " + "; ".join(
        f"{engine.name} " + ", ".join(f"{name} {ratio:g}" for name, ratio in engine.ratios.items())
        for engine in engines
    )
    return (
        f'<svg class="figure chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _legend(engines: list[Engine]) -> Iterator[str]:
    for number, engine in enumerate(engines):
        x = 14 + number * 110
        yield f'<rect class="bar{number}" x="{x - 10}" y="8" width="11" height="11" rx="2"/>'
        yield f'<text class="start small" x="{x + 6}" y="18">{escape(engine.name)}</text>'


def _group(name: str, top: int, engines: list[Engine], scale: float) -> Iterator[str]:
    middle = top + len(engines) * _BAR / 2 + 4
    yield f'<text class="end small" x="{_LEFT - 10}" y="{middle:.0f}">{escape(name)}</text>'
    for number, engine in enumerate(engines):
        ratio = engine.ratios.get(name)
        if ratio is None:
            continue
        y, width = top + number * _BAR, ratio * scale
        yield f'<rect class="bar{number}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" rx="2"/>'
        yield f'<text class="start tiny" x="{_LEFT + width + 5:.0f}" y="{y + _BAR - 3}">{ratio:.2f}</text>'
