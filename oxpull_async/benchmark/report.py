"""Figures as plain facts, for programs."""

from __future__ import annotations

import os
import platform
from typing import Any, Final

from oxpull_async.benchmark.latencies import Latency
from oxpull_async.benchmark.rounds import Measured, ratio
from oxpull_async.benchmark.run import Figures
from oxpull_async.benchmark.sentences import sentences

_NAMES: Final = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


def machine() -> str:
    """The machine in a few words: without it no figure means anything."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def server(figures: Figures) -> str:
    """What it is and of which version, as its makers write it."""
    version = figures.server_version
    if figures.engine == "mysql":
        return f"{'MariaDB' if 'mariadb' in version.lower() else 'MySQL'} {version}"
    return f"{_NAMES[figures.engine]} {version}"


def facts(figures: Figures) -> dict[str, Any]:
    """Every rate of every round, for JSON."""
    return {
        "server": server(figures),
        "server_settings": dict(figures.server_facts),
        "machine": machine(),
        "rounds": figures.terms.rounds,
        "round_trip": _times(figures.round_trip),
        "rates": [_rates(entry, figures) for entry in figures.measured],
        "latencies": [{"name": latency.name, **_times(latency)} for latency in figures.latencies],
        "says": list(sentences(figures)),
    }


def _rates(entry: Measured, figures: Figures) -> dict[str, Any]:
    found = ratio(entry, figures.measured)
    return {
        "name": entry.row.name,
        "count": entry.row.count,
        "per_second": [round(rate, 1) for rate in entry.rates],
        "median": round(entry.median, 1),
        "beside": entry.row.beside,
        "ratio": None if found is None else round(found, 3),
    }


def _times(latency: Latency) -> dict[str, Any]:
    return {
        "samples": len(latency.seconds),
        "p50_ms": round(latency.p50 * 1e3, 3),
        "p95_ms": round(latency.p95 * 1e3, 3),
        "max_ms": round(max(latency.seconds) * 1e3, 3),
    }
