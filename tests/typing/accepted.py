"""What a user may write, with the types that come of it. Read by mypy and pyright, run by nobody."""

# pyright: strict
from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from oxpull_async import (
    Call,
    DuplicateTask,
    EnqueueResult,
    KeyHolder,
    Oxpull,
    Schedule,
    Task,
    TaskContext,
    TaskResult,
    TaskRouter,
    TaskStatus,
    Unique,
    enqueue,
    enqueue_many,
    enqueue_unique,
    enqueue_unique_many,
)

ox = Oxpull("sqlite:///x.db", max_attempts=5, lease=timedelta(minutes=1))
router = TaskRouter()


@ox.task
async def plain(order_id: int, text: str = "") -> str:
    return f"{order_id} {text}"


@ox.task(unique=True, queue_name="mail", priority=5, timeout=30, backoff=timedelta(seconds=5))
async def send_invoice(order_id: int, *, copy: bool = False) -> str:
    return f"{order_id} {copy}"


@router.task(unique=Unique(by=("order_id",)), run_after=3600, max_attempts=3)
def in_a_thread(order_id: int) -> list[int]:
    return [order_id]


@ox.task(takes_context=True, unique=True)
async def with_context(context: TaskContext, name: str) -> None:
    assert_type(context.attempt, int)


@ox.task(takes_context=False)
def nothing() -> None: ...


@ox.scheduled(cron="0 2 * * *", timezone="Europe/Berlin", args=(1,))
@ox.schedulable("reports.nightly")
@ox.task
async def nightly(number: int) -> str:
    return str(number)


hourly: Schedule = ox.schedule(nightly, every=timedelta(hours=1), phase=60, name="hourly", kwargs={"number": 1})

foreign = ox.reference("proj.tasks.send", unique=True)

ox.include(router)


def what_is_declared() -> None:
    still_a_task: Awaitable[str] = nightly(1)
    print(still_a_task)
    assert_type(hourly.next_tick(datetime.now(UTC)), datetime)
    assert_type(in_a_thread(1), list[int])
    assert_type(foreign, Task[..., Any])
    function: Callable[[int], Awaitable[str]] = send_invoice
    del function


async def calls() -> None:
    assert_type(await plain(1, "x"), str)
    assert_type(await plain.enqueue(1), EnqueueResult)
    assert_type(await plain.enqueue(1, text="x"), EnqueueResult)
    assert_type(await send_invoice.enqueue(42, copy=True), EnqueueResult)
    assert_type(await send_invoice.enqueue_unique(42), EnqueueResult)
    assert_type(await with_context.enqueue("Ann"), EnqueueResult)
    assert_type(await with_context.enqueue(name="Ann"), EnqueueResult)
    assert_type(await nothing.enqueue(), EnqueueResult)
    assert_type(await foreign.enqueue(1, "anything", at=object()), EnqueueResult)
    assert_type(await in_a_thread.enqueue(1), EnqueueResult)

    assert_type(await enqueue(plain, 1, text="x"), EnqueueResult)
    assert_type(await enqueue_unique(send_invoice, 42), EnqueueResult)
    assert_type(await enqueue_unique(send_invoice, order_id=42, copy=True), EnqueueResult)
    assert_type(await enqueue_unique(with_context, "Ann"), EnqueueResult)
    assert_type(await ox.enqueue(plain, 1, "x"), EnqueueResult)
    assert_type(await ox.enqueue_unique(with_context, name="Ann"), EnqueueResult)


async def copies() -> None:
    copy = send_invoice.using(priority=3, queue_name="slow", wait=timedelta(seconds=1), max_attempts=1)
    assert_type(await copy.enqueue(1, copy=True), EnqueueResult)
    assert_type(await copy.using(run_after=datetime.now(UTC)).enqueue(1), EnqueueResult)
    assert_type(await copy.using(run_after=5).enqueue_unique(1), EnqueueResult)


async def many() -> None:
    assert_type(await plain.enqueue_many([(1,), (2, "x")]), list[EnqueueResult])
    assert_type(await plain.enqueue_unique_many((n,) for n in range(3)), list[EnqueueResult])
    assert_type(await enqueue_many(plain, [Call((1,), {"text": "x"})]), list[EnqueueResult])
    assert_type(await enqueue_unique_many(send_invoice, [[1], (2,)]), list[EnqueueResult])
    assert_type(await ox.enqueue_many(plain, []), list[EnqueueResult])
    assert_type(await ox.enqueue_unique_many(plain, [(1,)]), list[EnqueueResult])


async def results() -> None:
    result = await enqueue_unique(send_invoice, 42)
    assert_type(result.id, UUID)
    assert_type(result.created, bool)
    assert_type(result.status, TaskStatus)
    assert_type(result.is_finished, bool)
    assert_type(result.run_after, datetime | None)
    assert_type(result.enqueued_at, datetime)
    assert_type(result.errors, list[dict[str, Any]])
    assert_type(await result.wait(timeout=5), Any)
    assert_type(await result.refresh(), TaskResult)
    assert_type(await ox.get_result(result.id), TaskResult)
    assert_type(await ox.get_result(str(result.id)), TaskResult)


async def life() -> None:
    async with ox as opened:
        assert_type(opened, Oxpull)
    async with ox.running() as running:
        assert_type(running, Oxpull)
    assert_type(await ox.actions.retry("x"), bool)


@ox.on("enqueued")
def told(result: EnqueueResult) -> None: ...


@ox.task(run_after=5, unique=Unique(by=("order_id",), on_duplicate="reschedule", max_delay=timedelta(minutes=1)))
async def debounced(order_id: int, text: str = "") -> None: ...


def order_of(order_id: int, text: str = "") -> int:
    return order_id


@ox.task(unique=Unique(by=order_of, hold="ready", window=60, on_duplicate="replace"))
async def replaced(order_id: int, text: str = "") -> None: ...


async def keys() -> None:
    assert_type(await ox.unique.holder(debounced, 1, text="x"), KeyHolder | None)
    assert_type(await ox.unique.release(debounced, 1, text="x", reason="it hangs"), bool)
    assert_type(await ox.unique.sweep(), int)
    try:
        await debounced.enqueue(1)
    except DuplicateTask as duplicate:
        assert_type(duplicate.holder, TaskResult)
        assert_type(duplicate.holder_id, UUID)
