"""A cancel at every await of every path: no lock without its task, no savepoint left, no work of the caller's undone.

Where a driver can't go on after a cancelled statement (asyncmy, and SQLAlchemy over any driver), the caller's
transaction is gone as a whole, and the connection is replaced or closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import anyio
import pytest

from oxpull_async import Oxpull, UniqueEnqueueRace
from oxpull_async.enqueueing.bound import Bound
from oxpull_async.tasks import AnyTask
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.joined.calls import hold, key_of, no_lock_without_task_nor_task_without_lock, own_rows
from tests.joined.handles import READ_COMMITTED, REPEATABLE_READ, Caller, Handle
from tests.joined.interrupts import Savepoints, Stop, stopped_at
from tests.scale import points

Callers = Callable[[], Awaitable[Caller]]
Path: TypeAlias = Callable[[Bound, AnyTask, int], Coroutine[Any, Any, Any]]

MOST_AWAITS = 60


def _single(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_unique(send, n)


def _waiting(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_unique(send.using(wait=5), n)


def _bulk(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_unique_many(send, [(n,), (n + 500,), (n + 1000,)])


def _plain_bulk(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue_many(_plain(send), [(n,), (n + 500,)])


def _plain_single(bound: Bound, send: AnyTask, n: int) -> Coroutine[Any, Any, Any]:
    return bound.enqueue(_plain(send), n)


def _plain(send: AnyTask) -> AnyTask:
    return type(send)(None, "proof.plain", type(send.options)(), send._home)


# What is called, and the status of the key's holder if it has one.
PATHS: dict[str, tuple[Path, str | None]] = {
    "new": (_single, None),
    "new-with-a-wait": (_waiting, None),
    "duplicate": (_single, "READY"),
    "take-over": (_single, "FAILED"),
    "bulk-new": (_bulk, None),
    "bulk-duplicate": (_bulk, "READY"),
    "bulk-take-over": (_bulk, "FAILED"),
    "plain": (_plain_single, None),
    "plain-bulk": (_plain_bulk, None),
}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stop", ["task", "scope"])
async def test_a_cancel_at_any_await_leaves_all_or_nothing(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor, handle: Handle, path: str, stop: Stop
):
    call, holder = PATHS[path]
    for number in points(MOST_AWAITS):
        caller = await new_caller()
        if holder:
            hold(competitor, number, status=holder)
        await caller.begin(READ_COMMITTED)
        await caller.order(number)
        savepoints = Savepoints()
        stopped = await stopped_at(number, call(ox.bind(caller.bindable), send, number), stop)
        if not stopped.reached:
            await caller.rollback()
            break
        assert stopped.ended_rightly, stopped.result
        await _ends_well(caller, competitor, handle, number, savepoints)
        await caller.close()

    assert number > (1 if handle.dialect == "sqlite" else 3)
    if holder != "FAILED" and "plain" not in path:
        no_lock_without_task_nor_task_without_lock(competitor)
    assert set(competitor.locks().values()) <= set(competitor.statuses())


async def _ends_well(
    caller: Caller, competitor: Competitor, handle: Handle, number: int, savepoints: Savepoints
) -> None:
    """After a cancel: the transaction goes on with all that was done in it, or none of it remains."""
    try:
        await caller.order(number + 10_000)
    except Exception as error:
        assert not handle.spares_on_cancel, f"at await {number}: {error!r}"
        with contextlib.suppress(Exception):
            await caller.rollback()
        assert number not in own_rows(competitor)
        if handle.is_sqlalchemy:
            assert await caller.orders() == own_rows(competitor)  # on a new connection
        return
    assert await savepoints.still_open(caller) == []
    await caller.commit()
    assert {number, number + 10_000} <= own_rows(competitor)


# Every await of the first call on a connection, which also compares the databases
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("stop", ["task", "scope"])
async def test_a_cancel_at_any_await_of_a_recheck_leaves_no_connection_behind(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor, handle: Handle, stop: Stop
):
    if handle.dialect == "sqlite":
        pytest.skip("nothing is rechecked there")
    _let_asyncpg_forget_its_handshake()
    for number in points(MOST_AWAITS):
        caller = await new_caller()
        holder = hold(competitor, number)
        await caller.begin(REPEATABLE_READ)
        await caller.order(number)
        competitor.set_task(holder, status="RUNNING")
        before = len(competitor.sessions())
        savepoints = Savepoints()
        stopped = await stopped_at(number, ox.bind(caller.bindable).enqueue_unique(send, number), stop)
        if not stopped.reached:
            await caller.rollback()
            break
        assert stopped.ended_rightly, stopped.result
        await _ends_well(caller, competitor, handle, number, savepoints)
        await eventually(partial(_has_sessions, competitor, before))
        await caller.close()
    else:
        pytest.fail("it never ended")

    no_lock_without_task_nor_task_without_lock(competitor)


def _let_asyncpg_forget_its_handshake() -> None:
    """A connect that is cancelled while the server answers about TLS leaves a failure that nobody awaits."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if str(context.get("exception")) != "unexpected connection_lost() call":
            (before or asyncio.AbstractEventLoop.default_exception_handler)(loop, context)

    loop.set_exception_handler(handle)


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("stop", ["task", "scope"])
async def test_a_cancel_while_waiting_for_a_competitor_ends_the_wait(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor, handle: Handle, stop: Stop,
    somebody_waits: Callable[[], Awaitable[Any]],
):  # fmt: skip
    for call, number in ((_single, 1), (_bulk, 2)):
        caller = await new_caller()
        await caller.begin(READ_COMMITTED)
        await caller.order(number)
        savepoints = Savepoints()
        competitor.begin()
        hold(competitor, number)
        try:
            cancelled = await _cancelled_once(call(ox.bind(caller.bindable), send, number), somebody_waits, stop)
        finally:
            competitor.rollback()
        assert cancelled
        await _ends_well(caller, competitor, handle, number, savepoints)
        await caller.close()

    assert competitor.counts() == (0, 0)


async def _cancelled_once(work: Coroutine[Any, Any, object], reached: Callable[[], Awaitable[Any]], stop: Stop) -> bool:
    """Whether the work ended by the cancel that it got once `reached` had returned."""
    if stop == "task":
        task = asyncio.ensure_future(work)
        await reached()
        task.cancel()
        await asyncio.wait([task], timeout=10)
        return task.cancelled()
    async with anyio.create_task_group() as group:
        done = anyio.Event()

        async def run() -> None:
            try:
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    await work
            finally:
                done.set()

        scopes: list[anyio.CancelScope] = []
        group.start_soon(run)
        await reached()
        scopes[0].cancel()
        with anyio.fail_after(10):
            await done.wait()
    return scopes[0].cancelled_caught


@pytest.mark.parametrize("way", ["asyncpg"], indirect=True)
async def test_a_timeout_around_the_call_is_a_timeout_and_the_transaction_goes_on(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    await caller.order(1)
    competitor.begin()
    hold(competitor, 1)
    for call in (_single, _bulk):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await call(ox.bind(caller.bindable), send, 1)
        with pytest.raises(TimeoutError), anyio.fail_after(0.05):
            await call(ox.bind(caller.bindable), send, 1)
    with pytest.raises(UniqueEnqueueRace):
        await ox.bind(caller.bindable).enqueue_unique(send.using(wait=0.05), 1)
    competitor.rollback()
    result = await ox.bind(caller.bindable).enqueue_unique(send, 1)
    await caller.commit()

    assert competitor.locks() == {key_of(1): result.id}
    assert own_rows(competitor) == {1}


def _has_sessions(competitor: Competitor, at_most: int) -> bool:
    return len(competitor.sessions()) <= at_most
