"""A plot as SVG, in the page's colours: both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 40, 44, 110
COLOURS: Final = ("#4f6bed", "#2f9e74")


@dataclass(frozen=True, slots=True)
class Line:
    """Points by their x, and what they are."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines under a title."""

    title: str
    lines: Sequence[Line]

    def svg(self) -> str:
        """The whole figure."""
        head = (
            f'<svg class="figure plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{self.title}" '
            'xmlns="http://www.w3.org/2000/svg">'
        )
        parts = [head, f'<text class="strong" x="{WIDTH / 2:g}" y="24">{self.title}</text>']
        parts += [*self._grid(), *self._drawn(), "</svg>"]
        return "\n".join(parts) + "\n"

    def _grid(self) -> Iterator[str]:
        (x_low, x_high), (y_low, y_high) = self._decades(0), self._decades(1)
        for power in range(x_low, x_high + 1):
            x = self._place(0, 10**power)
            yield f'<g class="line"><path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke-opacity="0.25"/></g>'
            yield f'<text class="small" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{10**power:,}</text>'
        for power in range(y_low, y_high + 1):
            y = self._place(1, 10**power)
            yield f'<g class="line"><path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke-opacity="0.25"/></g>'
            yield f'<text class="small" x="{LEFT - 28}" y="{y + 4:.1f}">{10**power:g}</text>'

    def _drawn(self) -> Iterator[str]:
        for number, line in enumerate(self.lines):
            colour = COLOURS[number % len(COLOURS)]
            dashes = ' stroke-dasharray="7 5"' if number >= len(self.lines) / 2 else ""
            places = [(self._place(0, x), self._place(1, y)) for x, y in line.points]
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            yield f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2.2"{dashes}/>'
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places)
            row, column = divmod(number, 2)
            x, y = LEFT + column * 350, HEIGHT - BOTTOM + 52 + row * 26
            yield f'<path d="M{x} {y}h34" stroke="{colour}" stroke-width="2.2"{dashes}/>'
            yield f'<text class="small" x="{x + 42}" y="{y + 4}" style="text-anchor: start">{line.name}</text>'

    def _decades(self, axis: int) -> tuple[int, int]:
        values = [point[axis] for line in self.lines for point in line.points]
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return low, max(high, low + 1)

    def _place(self, axis: int, value: float) -> float:
        low, high = self._decades(axis)
        share = (math.log10(value) - low) / (high - low)
        if axis == 0:
            return LEFT + share * (WIDTH - LEFT - RIGHT)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
