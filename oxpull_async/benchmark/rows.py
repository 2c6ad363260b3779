"""What is measured as a rate: each row's work, and what it stands beside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from oxpull_async.app import Oxpull
from oxpull_async.benchmark.floors import Floor
from oxpull_async.runtime.worker import Worker
from oxpull_async.tasks import Task

COROUTINES: Final = 50
PENDING_KEYS: Final = 100
CONCURRENCY: Final = 200
SINGLE: Final = "floor: one INSERT at a time"
CROWD: Final = "floor: 50 coroutines, an INSERT each"
BULK: Final = "floor: bulk INSERT"
DRAIN: Final = "one worker, no-op tasks"
DRAIN_FLOOR: Final = "floor: claim and settle by the 200"

Work: TypeAlias = Callable[[int], Awaitable[None]]
Made: TypeAlias = Callable[[Oxpull, Floor], Work]
Prepare: TypeAlias = Callable[[Oxpull, Floor, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``beside`` names the row that it's divided by; a floor has none."""

    name: str
    count: int
    work: Made
    beside: str | None = None
    target: float | None = None
    prepare: Prepare | None = None


def single_rows(count: int) -> list[Row]:
    """One call after another, each durable before the next."""
    return [
        Row(SINGLE, count, lambda ox, floor: floor.one_after_another),
        Row("plain, one after another", count, _plain, SINGLE, 0.85),
        Row("unique new, one after another", count, _unique, SINGLE, 0.7),
        Row("unique duplicate, one after another", count, _duplicate, SINGLE, 1.1, _fill_keys),
    ]


def crowd_rows(count: int) -> list[Row]:
    """Calls from 50 coroutines at once."""
    return [
        Row(CROWD, count, lambda ox, floor: lambda number: floor.at_once(number, COROUTINES)),
        Row("plain, 50 coroutines", count, lambda ox, floor: at_once(note_task(ox).enqueue), CROWD, 2.0),
        Row("unique new, 50 coroutines", count, lambda ox, floor: at_once(note_task(ox).enqueue_unique), CROWD, 2.0),
    ]


def bulk_rows(count: int) -> list[Row]:
    """All of it in one call."""
    plain = "plain, in bulk"
    return [
        Row(BULK, count, lambda ox, floor: floor.in_bulk),
        Row(plain, count, _plain_bulk, BULK, 0.5),
        Row("unique, in bulk", count, _unique_bulk, plain, 0.5),
    ]


def drain_rows(count: int) -> list[Row]:
    """What one worker process does with tasks that do nothing."""
    return [Row(DRAIN_FLOOR, count, _drain_bare, prepare=_fill_bare), drain_row(count, DRAIN_FLOOR)]


def drain_row(count: int, beside: str | None = None, target: float | None = None) -> Row:
    """A worker that drains what is due, beside whoever does the same."""
    return Row(DRAIN, count, drain, beside, target, fill)


def note_task(ox: Oxpull) -> Task[[int], None]:
    """The task whose rows are written; it never runs."""
    return ox.task(note)


def note(number: int) -> None:
    """Nothing to do."""


async def do_nothing(number: int) -> None:
    """As quick as a task can be."""


async def fill(ox: Oxpull, floor: Floor, count: int) -> None:
    """Have so many rows waiting that do nothing."""
    await ox.task(do_nothing).enqueue_many([(number,) for number in range(count)])


def drain(ox: Oxpull, floor: Floor) -> Work:
    """One process, one event loop; every outcome is written before it ends."""
    ox.task(do_nothing)

    async def work(count: int) -> None:
        await Worker(ox, concurrency=CONCURRENCY).run(until_idle=True)

    return work


def at_once(enqueue: Callable[[int], Awaitable[object]]) -> Work:
    """The call from 50 coroutines, each of which goes on when it's answered."""

    async def work(count: int) -> None:
        numbers = iter(range(count))

        async def one() -> None:
            for number in numbers:
                await enqueue(number)

        await asyncio.gather(*(one() for _ in range(COROUTINES)))

    return work


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


async def _fill_keys(ox: Oxpull, floor: Floor, count: int) -> None:
    await note_task(ox).enqueue_unique_many([(number,) for number in range(PENDING_KEYS)])


def _duplicate(ox: Oxpull, floor: Floor) -> Work:
    task = note_task(ox)

    async def work(count: int) -> None:
        for number in range(count):
            result = await task.enqueue_unique(number % PENDING_KEYS)
            assert not result.created

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


async def _fill_bare(ox: Oxpull, floor: Floor, count: int) -> None:
    await floor.in_bulk(count)


def _drain_bare(ox: Oxpull, floor: Floor) -> Work:
    return lambda count: floor.drain()
