"""``bench``: how fast the queue is on a database of the user's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from oxpull_async.benchmark.latencies import Latency
from oxpull_async.benchmark.report import facts, machine, server
from oxpull_async.benchmark.rounds import Measured, ratio
from oxpull_async.benchmark.run import Figures, Terms, run_benchmark
from oxpull_async.benchmark.sentences import sentences
from oxpull_async.cli.options import Flag, Where
from oxpull_async.cli.output import show_json, table_of
from oxpull_async.cli.target import DATABASE_VARIABLE, Target, UsageError
from oxpull_async.settings import Settings, settings_from_environment

_QUICK: Final = Terms(rounds=3, seconds=0.2, samples=30)
_SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_RATES: Final = ("what", "per second#", "slowest–quickest#", "× floor#")
_TIMES: Final = ("how long", "median ms#", "95 of 100 ms#", "longest ms#", "samples#")


async def bench(
    *,
    target: Where = None,
    rounds: int | None = None,
    seconds: float | None = None,
    quick: Flag = False,
    json: Flag = False,
) -> int:
    """Measure how fast the queue is on your database, beside the bare driver in the same run.

    Works in a schema (PostgreSQL), a database (MySQL, MariaDB) or a folder
    (SQLite) of its own, which is removed at the end, after Ctrl-C too. Your
    tables are neither read nor written. Takes one to two minutes.

    Parameters
    ----------
    rounds
        How many interleaved rounds to take medians of; 5, or 3 with --quick.
    seconds
        How long each figure is measured for in a round, about; 1, or 0.2 with --quick.
    quick
        Measure less, for a first impression.
    json
        Print JSON.
    """
    terms = _terms(_QUICK if quick else Terms(), rounds, seconds)
    ox = (target or Target()).find()
    url = ox.settings.database or settings_from_environment().get("database")
    if not url:
        raise UsageError(f"this Oxpull names no database; give --database URL, or set {DATABASE_VARIABLE}")
    figures = await _measure(url, ox.settings, terms)
    if isinstance(figures, int):
        return figures
    if json:
        show_json(facts(figures))
    else:
        _show(figures)
    return 0


async def _measure(url: str, settings: Settings, terms: Terms) -> Figures | int:
    """The figures, or the exit code where a signal has ended it."""
    with _bar() as bar:
        shown = bar.add_task("making a place for it", total=1.0)
        measuring = asyncio.ensure_future(
            run_benchmark(
                url,
                settings,
                terms,
                tell=lambda words: _tell(bar.console, words),
                progress=lambda words, share: bar.update(shown, description=words, completed=share),
            )
        )
        with _stopped_by_signals(measuring, bar.console) as received:
            try:
                return await measuring
            except asyncio.CancelledError:
                if not received:
                    raise
                return 128 + received[0]


def _terms(usual: Terms, rounds: int | None, seconds: float | None) -> Terms:
    if rounds is not None and rounds < 1:
        raise UsageError("--rounds must be at least 1")
    if seconds is not None and not 0 < seconds <= 3600:
        raise UsageError("--seconds must be more than 0, and at most 3600")
    return Terms(
        rounds=usual.rounds if rounds is None else rounds,
        seconds=usual.seconds if seconds is None else seconds,
        samples=usual.samples,
    )


def _bar() -> Progress:
    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def _stopped_by_signals(measuring: asyncio.Future[Any], console: Console) -> Iterator[list[int]]:
    """The first ends the measurement, which removes what it made; the second ends the process there and then."""
    loop, received = asyncio.get_running_loop(), list[int]()

    def stop(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        _tell(console, "stopping, and removing what was made; another signal ends it at once, and leaves it there")
        measuring.cancel()

    for number in _SIGNALS:
        with suppress(NotImplementedError):  # not on Windows, where Ctrl-C cancels this very task
            loop.add_signal_handler(number, stop, number)
    try:
        yield received
    finally:
        for number in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _tell(console: Console, words: str) -> None:
    if console.is_terminal:
        console.print(words)
    else:
        print(words, file=sys.stderr, flush=True)  # as it stands, without line breaks at a width that nobody has


def _show(figures: Figures) -> None:
    console = Console(highlight=False)
    settings = ", ".join(f"{name}={value}" for name, value in figures.server_facts.items())
    console.print(f"{server(figures)}: {settings}")
    console.print(f"here: {machine()}; medians of {figures.terms.rounds} interleaved rounds")
    console.print()
    console.print(_rates(figures))
    console.print()
    console.print(_times(figures))
    console.print()
    for words in sentences(figures):
        console.print(words)


def _rates(figures: Figures) -> Table:
    rows: list[list[object]] = []
    for entry in figures.measured:
        if entry.row.beside is None and rows:
            rows.append([""] * len(_RATES))
        rows.append(_row(entry, figures))
    return table_of(_RATES, rows)


def _times(figures: Figures) -> Table:
    every = (figures.round_trip, *figures.latencies)
    return table_of(_TIMES, [(each.name, *_milliseconds(each), len(each.seconds)) for each in every])


def _milliseconds(latency: Latency) -> tuple[str, str, str]:
    return f"{latency.p50 * 1e3:.2f}", f"{latency.p95 * 1e3:.2f}", f"{max(latency.seconds) * 1e3:.2f}"


def _row(entry: Measured, figures: Figures) -> list[object]:
    found = ratio(entry, figures.measured)
    return [
        entry.row.name,
        f"{entry.median:,.0f}",
        f"{min(entry.rates):,.0f}–{max(entry.rates):,.0f}",
        "" if found is None else f"{found:.2f}",
    ]
