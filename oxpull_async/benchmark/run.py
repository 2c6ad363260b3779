"""A whole run: in a place of its own, all rates in interleaved rounds, then the times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final, TypeAlias

from oxpull_async.app import Oxpull
from oxpull_async.benchmark.floors import Floor, open_floor
from oxpull_async.benchmark.latencies import Latency, callbacks, round_trips, starts
from oxpull_async.benchmark.places import Tell, place_in
from oxpull_async.benchmark.rounds import Measured, fitting_count, measure
from oxpull_async.benchmark.rows import Row, bulk_rows, crowd_rows, drain_rows, single_rows
from oxpull_async.drivers import engine_of
from oxpull_async.exceptions import OxpullError
from oxpull_async.settings import Settings

SINGLE_MOST: Final = 2_000
MANY_MOST: Final = 10_000
_TIME_BUDGET: Final = 5
"""The times may take so many times as long as a rate in a round."""

# What is the user's own of how connections are set up. The rest says which tasks there are, and how they run.
_KEPT: Final = (
    "pool_size", "connect_timeout", "pool_timeout", "close_timeout", "statement_timeout", "statement_cache", "notify",
    "synchronous",
)  # fmt: skip

Progress: TypeAlias = Callable[[str, float], None]
"""Is told what was measured, and which share of the whole is done."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How much is measured.

    ``seconds`` is how long each rate is measured for in a round, about; counts follow from it.
    """

    rounds: int = 5
    seconds: float = 1.0
    samples: int = 100


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it."""

    engine: str
    server_version: str
    server_facts: Mapping[str, str]
    place: str
    terms: Terms
    measured: Sequence[Measured]
    round_trip: Latency
    latencies: Sequence[Latency]


async def run_benchmark(
    url: str, settings: Settings, terms: Terms, *, tell: Tell, progress: Progress = lambda words, share: None
) -> Figures:
    """Measure on the database of this URL, beside the user's tables, and leave nothing behind.

    Raises: as ``place_in``; of the bare driver's errors, the library's own.
    """
    with _library_errors(url):
        async with place_in(url, settings, tell) as place, _opened(place.url, settings) as (ox, floor):
            return await _measured(ox, floor, place.name, terms, progress)


@asynccontextmanager
async def _opened(url: str, settings: Settings) -> AsyncIterator[tuple[Oxpull, Floor]]:
    """The floor first: it refuses to work anywhere but where it was sent."""
    kept = {name: getattr(settings, name) for name in _KEPT}
    async with open_floor(url, settings) as floor, Oxpull(url, **kept) as ox:
        await ox.migrate()
        yield ox, floor


async def _measured(ox: Oxpull, floor: Floor, place: str, terms: Terms, progress: Progress) -> Figures:
    rows = await _fitting_rows(ox, floor, terms.seconds, progress)
    steps = _Steps(len(rows) * terms.rounds, progress)
    server = ox.store.capabilities
    facts, round_trip = await floor.facts(), await round_trips(floor, terms.samples)
    measured = await measure(ox, floor, rows, terms.rounds, steps)
    await floor.empty()
    within = terms.seconds * _TIME_BUDGET
    progress("enqueue to start", _RATES_END)
    latencies = [await starts(ox, terms.samples, within)]
    progress("last member's end to callback", (1 + _RATES_END) / 2)
    latencies.append(await callbacks(ox, terms.samples, within))
    return Figures(server.engine, server.server_version, facts, place, terms, measured, round_trip, latencies)


async def _fitting_rows(ox: Oxpull, floor: Floor, seconds: float, progress: Progress) -> list[Row]:
    """As many calls of each as fit into the time; those that share a floor do as many, and stand beside it."""
    groups = [single_rows(SINGLE_MOST), crowd_rows(MANY_MOST), bulk_rows(MANY_MOST), drain_rows(MANY_MOST)]
    found: list[Row] = []
    for group in groups:
        progress("how much fits", 0)
        count = await fitting_count(ox, floor, group[0], seconds)
        floor_name = group[0].name
        found += [replace(row, count=count, beside=row.beside and floor_name) for row in group]
    return found


_RATES_END: Final = 0.9


class _Steps:
    """Says how far the rounds are."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._total = total
        self._progress = progress
        self._done = 0

    def __call__(self, words: str) -> None:
        self._done += 1
        self._progress(words, _RATES_END * self._done / self._total)


@contextmanager
def _library_errors(url: str) -> Iterator[None]:
    """The floor's statements raise what its driver does."""
    errors = import_module(f"oxpull_async.drivers.{engine_of(url)}.errors")
    try:
        yield
    except OxpullError:
        raise
    except errors.DRIVER_ERRORS as error:
        raise errors.classify(error) from error
