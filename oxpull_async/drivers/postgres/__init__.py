"""PostgreSQL 13 or later, over asyncpg."""

from __future__ import annotations

from oxpull_async.drivers._room import Room
from oxpull_async.drivers.postgres import (
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
from oxpull_async.drivers.postgres._wakeups import Wakeups
from oxpull_async.drivers.postgres.pool import Pool
from oxpull_async.settings import Settings


def room(url: str, settings: Settings) -> Room:
    """This dialect's procedures over a pool of its own."""
    pool = Pool(url, settings)
    return Room(
        engine="postgres",
        pool=pool,
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
        wakeups=Wakeups(pool),
    )
