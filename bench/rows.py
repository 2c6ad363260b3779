"""What is measured: each row's work, what it stands beside, and the ratio that it should reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from bench import working
from bench.bound import by_bind, by_hand, driver_caller, sqlalchemy_caller
from bench.floors import Floor
from oxpull_async import Oxpull, Task

COROUTINES = 50
PENDING_KEYS = 100

Work = Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``beside`` names the row that it's divided by; a floor has none."""

    name: str
    count: int
    work: Callable[[Oxpull, Floor], Work]
    beside: str | None = None
    target: float | None = None
    prepare: Callable[[Oxpull, Floor], Awaitable[None]] | None = None


def note_task(ox: Oxpull) -> Task[[int], None]:
    """The task whose rows are written; it never runs."""
    return ox.task(note)


def note(number: int) -> None:
    """Nothing to do."""


def rows(scale: float, engine: str = "") -> list[Row]:
    """All rows, floors first in each group; ``scale`` makes every count smaller or larger."""
    some, many = max(1, round(2_000 * scale)), max(1, round(10_000 * scale))
    by_driver, by_sqlalchemy = (f"floor: savepoint and two INSERTs, {way}" for way in ("driver", "SQLAlchemy"))
    single, crowd, bulk = "floor: one INSERT at a time", "floor: 50 coroutines, an INSERT each", "floor: bulk INSERT"
    return [
        Row(single, some, lambda ox, floor: floor.one_after_another),
        Row("plain, one after another", some, _plain, single, 0.85),
        Row("unique new, one after another", some, _unique, single, 0.7),
        Row("unique duplicate, one after another", some, _duplicate, single, 1.1, _fill),
        Row(crowd, many, lambda ox, floor: lambda count: floor.at_once(count, COROUTINES)),
        Row("plain, 50 coroutines", many, _plain_at_once, crowd, 2.0),
        Row("unique new, 50 coroutines", many, _unique_at_once, crowd, 2.0),
        Row(bulk, many, lambda ox, floor: floor.in_bulk),
        Row("plain, bulk of 10,000", many, _plain_bulk, bulk, 0.5),
        Row("unique, bulk of 10,000", many, _unique_bulk, "plain, bulk of 10,000", 0.5),
        Row("batch, add, one after another", some, _add, single),
        Row("batch, add, 50 coroutines", many, _add_at_once, crowd),
        Row("batch, add_many of 10,000", many, _add_many, bulk, 0.4),
        Row(by_driver, some, by_hand(driver_caller)),
        Row("unique new, bound, driver", some, by_bind(driver_caller, note), by_driver),
        Row(by_sqlalchemy, some, by_hand(sqlalchemy_caller)),
        Row("unique new, bound, SQLAlchemy", some, by_bind(sqlalchemy_caller, note), by_sqlalchemy),
        *_drains(many, working.has_peer(engine)),
        *_fetches(some),
    ]


def _drains(count: int, has_peer: bool) -> list[Row]:
    if not has_peer:
        return [Row(working.DRAIN, count, working.drain, prepare=working.filled(count))]
    return [
        Row(working.PEER, count, working.peer_drain, prepare=working.peer_filled(count)),
        Row(working.DRAIN, count, working.drain, working.PEER, 1.3, working.filled(count)),
    ]


def _fetches(count: int) -> list[Row]:
    plain, exclusive = "tasks of 20 ms, 50 at once", "exclusive tasks of 20 ms, 50 at once"
    alone, together = partial(working.fetches, exclusive=True), partial(working.fetches, exclusive=False)
    return [
        Row(plain, count, together, prepare=working.filled_with_fetches(count, exclusive=False)),
        Row(exclusive, count, alone, plain, 0.8, working.filled_with_fetches(count, exclusive=True)),
    ]


def _plain(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        for number in range(count):
            await task.enqueue(number)

    return work


def _unique(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        for number in range(count):
            await task.enqueue_unique(number)

    return work


async def _fill(ox: Oxpull, floor: Floor) -> None:
    await note_task(ox).enqueue_unique_many([(number,) for number in range(PENDING_KEYS)])


def _duplicate(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        for number in range(count):
            result = await task.enqueue_unique(number % PENDING_KEYS)
            assert not result.created

    return work


def _plain_at_once(ox: Oxpull, floor: Floor) -> Work:
    return _at_once(note_task(ox).enqueue)


def _unique_at_once(ox: Oxpull, floor: Floor) -> Work:
    return _at_once(note_task(ox).enqueue_unique)


def _at_once(enqueue: Callable[[int], Awaitable[object]]) -> Work:
    async def work(count: int) -> None:
        numbers = iter(range(count))

        async def one() -> None:
            for number in numbers:
                await enqueue(number)

        await asyncio.gather(*(one() for _ in range(COROUTINES)))

    return work


def _plain_bulk(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        await task.enqueue_many([(number,) for number in range(count)])

    return work


def _unique_bulk(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        await task.enqueue_unique_many([(number,) for number in range(count)])

    return work


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

        async def add(number: int) -> None:
            await batch.add(task, number)

        await _at_once(add)(count)

    return work


def _add_many(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        batch = await ox.batches.create("bench")
        await batch.add_many(task, ((number,) for number in range(count)))

    return work
