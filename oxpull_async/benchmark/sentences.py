"""What the figures say, in sentences: no more than can be known from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oxpull_async.benchmark.rounds import Measured, ratio
from oxpull_async.benchmark.rows import DRAIN, SINGLE
from oxpull_async.benchmark.run import Figures

_WIDE: Final = 0.5
_RELAXED: Final = {
    "fsync": {"off"},
    "synchronous_commit": {"off"},
    "innodb_flush_log_at_trx_commit": {"0", "2"},
    "synchronous": {"OFF", "NORMAL"},
}
_LOSSES: Final = {"fsync": "a crash of the machine may destroy the database"}


def sentences(figures: Figures) -> Iterator[str]:
    """The most telling first."""
    found = {entry.row.name: entry for entry in figures.measured}
    yield from _durability(figures)
    plain, unique = found["plain, one after another"], found["unique new, one after another"]
    floor, round_trip = found[SINGLE], figures.round_trip.p50 * 1e3
    yield (
        f"Alone, a plain enqueue takes {_ms(plain)} and a unique one with a new key {_ms(unique)}, where a bare INSERT "
        f"takes {_ms(floor)}; a round trip alone takes {round_trip:.2f} ms."
    )
    crowd = found["plain, 50 coroutines"]
    yield (
        f"50 callers at once get {crowd.median:,.0f} plain enqueues a second, {_times(crowd, figures)} what an INSERT "
        "for each gets over a pool: they share statements and commits, which pays the more, the slower a commit is."
    )
    yield (
        f"One worker process ran {found[DRAIN].median:,.0f} tasks a second that do nothing; what real ones do comes on "
        "top of that."
    )
    yield from _doubts(figures)


def _durability(figures: Figures) -> Iterator[str]:
    for name, values in _RELAXED.items():
        value = figures.server_facts.get(name)
        if value in values:
            loss = _LOSSES.get(name, "the last commits may be lost in a crash of the machine")
            yield f"With {name}={value} {loss}; figures with a durable setting would be lower."


def _doubts(figures: Figures) -> Iterator[str]:
    widest = max(figures.measured, key=lambda entry: entry.spread)
    if len(widest.rates) > 1 and widest.spread > _WIDE:
        yield (
            f"The rounds differ by up to {widest.spread:.0%} ({widest.row.name}), so something else was at work "
            "too. Run it again when it's quiet, or take differences of that size for chance."
        )
    if figures.terms.rounds < 3:
        yield "With fewer than three rounds a median says little."


def _ms(entry: Measured) -> str:
    return f"{1e3 / entry.median:.2f} ms"


def _times(entry: Measured, figures: Figures) -> str:
    found = ratio(entry, figures.measured)
    assert found is not None
    return f"{found:.1f} times"
