"""What is measured for the documentation: what users measure too, and batches, binding, peers."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from bench import peer, working
from bench.bound import by_bind, by_hand, driver_caller, sqlalchemy_caller
from oxpull_async import Oxpull
from oxpull_async.benchmark.floors import Floor
from oxpull_async.benchmark.rows import (
    BULK,
    CROWD,
    SINGLE,
    Row,
    Work,
    at_once,
    bulk_rows,
    crowd_rows,
    drain_row,
    drain_rows,
    note,
    note_task,
    single_rows,
)


def rows(scale: float, engine: str = "") -> list[Row]:
    """All rows, floors first in each group; ``scale`` makes every count smaller or larger."""
    some, many = max(1, round(2_000 * scale)), max(1, round(10_000 * scale))
    by_driver, by_sqlalchemy = (f"floor: savepoint and two INSERTs, {way}" for way in ("driver", "SQLAlchemy"))
    return [
        *single_rows(some),
        *crowd_rows(many),
        *bulk_rows(many),
        Row("batch, add, one after another", some, _add, SINGLE),
        Row("batch, add, 50 coroutines", many, _add_at_once, CROWD),
        Row("batch, add_many", many, _add_many, BULK, 0.4),
        Row(by_driver, some, by_hand(driver_caller)),
        Row("unique new, bound, driver", some, by_bind(driver_caller, note), by_driver),
        Row(by_sqlalchemy, some, by_hand(sqlalchemy_caller)),
        Row("unique new, bound, SQLAlchemy", some, by_bind(sqlalchemy_caller, note), by_sqlalchemy),
        *_drains(many, peer.is_here(engine)),
        *_fetches(some),
    ]


def _drains(count: int, has_peer: bool) -> list[Row]:
    floor, drain = drain_rows(count)
    if not has_peer:
        return [floor, drain]
    theirs = Row(peer.DRAIN, count, peer.drain, prepare=peer.fill)
    return [floor, theirs, drain_row(count, peer.DRAIN, 1.3)]


def _fetches(count: int) -> list[Row]:
    plain, exclusive = "tasks of 20 ms, 50 at once", "exclusive tasks of 20 ms, 50 at once"
    alone, together = partial(working.fetches, exclusive=True), partial(working.fetches, exclusive=False)
    return [
        Row(plain, count, together, prepare=working.filled_with_fetches(exclusive=False)),
        Row(exclusive, count, alone, plain, 0.8, working.filled_with_fetches(exclusive=True)),
    ]


def _add(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        batch = await ox.batches.create("bench")
        for number in range(count):
            await batch.add(task, number)

    return work


def _add_at_once(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        batch = await ox.batches.create("bench")

        def add(number: int) -> Awaitable[object]:
            return batch.add(task, number)

        await at_once(add)(count)

    return work


def _add_many(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        batch = await ox.batches.create("bench")
        await batch.add_many(task, ((number,) for number in range(count)))

    return work
