"""SQLite 3.35 or later, over aiosqlite."""

from __future__ import annotations

from oxpull_async.drivers._room import Room
from oxpull_async.drivers.sqlite import (
    batches,
    claims,
    exclusive,
    holds,
    inspection,
    joined,
    limits,
    maintenance,
    outcomes,
    queues,
    revisions,
    schedules,
    tasks,
    ticks,
    unique,
)
from oxpull_async.drivers.sqlite.pool import Pool
from oxpull_async.settings import Settings


def room(url: str, settings: Settings) -> Room:
    """This dialect's procedures over a pool of its own."""
    return Room(
        engine="sqlite",
        pool=Pool(url, settings),
        tasks=tasks,
        unique=unique,
        joined=joined,
        claims=claims,
        outcomes=outcomes,
        maintenance=maintenance,
        inspection=inspection,
        ticks=ticks,
        schedules=schedules,
        batches=batches,
        limits=limits,
        queues=queues,
        exclusive=exclusive,
        holds=holds,
        revisions=revisions,
        insert_chunk=5000,
    )
