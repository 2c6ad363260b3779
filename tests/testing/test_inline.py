"""``inline``: what runs, what is refused, what is kept, and that no database is asked."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from oxpull_async import InvalidArguments, NotOpen, Oxpull, TaskContext, TaskFailed, TaskRouter, TaskStatus, TaskTimeout
from oxpull_async.testing import all_enqueued, inline


@pytest.fixture
def ox() -> Oxpull:
    """Never opened: its server doesn't exist."""
    return Oxpull("postgresql://nobody@nowhere.invalid/none")


async def test_a_task_has_run_when_its_enqueue_returns(ox: Oxpull):
    @ox.task
    async def double(number: int) -> int:
        return number * 2

    with inline(ox):
        result = await double.enqueue(21)

        assert (result.created, result.status, result.return_value) == (True, TaskStatus.SUCCESSFUL, 42)
        assert await result.wait(timeout=0) == 42
        assert (await ox.get_result(result.id)).args == [21]


async def test_arguments_and_values_go_through_json(ox: Oxpull):
    seen: list[Any] = []

    @ox.task
    def note(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return (1, {2: 3})

    given = {"n": [1]}
    with inline(ox):
        result = await note.enqueue((1, 2), given, key={1: 2})
    given["n"].append(2)

    assert seen == [(([1, 2], {"n": [1]}), {"key": {"1": 2}})]
    assert result.return_value == [1, {"2": 3}]


async def test_what_is_refused_before_sql_is_refused(ox: Oxpull):
    @ox.task
    async def send(order_id: int) -> None: ...

    with inline(ox) as queue:
        with pytest.raises(InvalidArguments):
            await send.enqueue(object())  # type: ignore[arg-type]
        with pytest.raises(InvalidArguments):
            await send.enqueue()  # type: ignore[call-arg]
    assert queue.rows == []


async def test_an_error_reaches_whoever_enqueues(ox: Oxpull):
    @ox.task(max_attempts=5)
    async def fail() -> None:
        raise LookupError("gone")

    with inline(ox) as queue, pytest.raises(LookupError):
        await fail.enqueue()

    assert [(row.status, row.attempts) for row in queue.rows] == [(TaskStatus.FAILED, 1)]


async def test_an_error_can_be_kept_as_a_result(ox: Oxpull):
    @ox.task
    async def fail() -> None:
        raise LookupError("gone")

    with inline(ox, raise_errors=False):
        result = await fail.enqueue()
        with pytest.raises(TaskFailed, match="gone"):
            await result.wait(timeout=1)
    assert result.errors[0]["exception_class_path"] == "builtins.LookupError"


async def test_a_task_s_own_enqueues_run_too(ox: Oxpull):
    ran: list[str] = []

    @ox.task(takes_context=True)
    async def first(context: TaskContext) -> None:
        ran.append(f"first {context.attempt} of {context.max_attempts}")
        await context.enqueue(second)

    @ox.task
    async def second() -> None:
        ran.append("second")

    with inline(ox):
        await first.enqueue()

    assert ran == ["first 1 of 3", "second"]


async def test_a_unique_task_finds_itself_while_it_runs_and_is_new_afterwards(ox: Oxpull):
    inner: list[Any] = []

    @ox.task(unique=True)
    async def once(n: int) -> None:
        if not inner:
            inner.append(await once.enqueue(n))

    with inline(ox):
        outer = await once.enqueue(1)
        later = await once.enqueue(1)

    assert (inner[0].id, inner[0].created, inner[0].status) == (outer.id, False, TaskStatus.RUNNING)
    assert later.created
    assert later.id != outer.id


async def test_many_and_bound_and_transactional_enqueues_run_at_once(ox: Oxpull):
    ran: list[int] = []

    @ox.task
    async def note(n: int) -> None:
        ran.append(n)

    class NoConnection:
        def oxpull_session(self) -> Any: ...

    with inline(ox):
        await note.enqueue_many([(1,), (2,)])
        bound = ox.bind(NoConnection())
        await bound.enqueue(note, 3)
        await bound.enqueue_many(note, [(4,)])
        async with ox.transaction() as tx:
            await tx.enqueue_unique(note, 5)
            assert ran == [1, 2, 3, 4, 5]


async def test_a_sync_task_runs_in_a_thread_and_timeouts_hold(ox: Oxpull):
    @ox.task(timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(30)

    @ox.task(run_after=timedelta(days=1))
    def blocking() -> str:
        time.sleep(0.001)
        return "done"

    with inline(ox):
        with pytest.raises(TaskTimeout):
            await slow.enqueue()
        assert (await blocking.enqueue()).return_value == "done"


async def test_a_task_of_another_code_base_is_only_noted(ox: Oxpull):
    foreign = ox.reference("elsewhere.tasks.send", unique=True)

    with inline(ox):
        first, second = await foreign.enqueue(1), await foreign.enqueue(1)
        assert [row.args for row in await all_enqueued(foreign)] == [[1]]

    assert (first.status, first.created, second.created) == (TaskStatus.READY, True, False)


async def test_tasks_of_a_router_and_hooks_take_part(ox: Oxpull):
    router, told = TaskRouter(), []

    @router.task
    async def routed() -> str:
        return "ran"

    ox.include(router)
    ox.on("enqueued", lambda result: told.append(result.task_path))
    with inline(ox):
        assert (await routed.enqueue()).return_value == "ran"
    assert told == [routed.path]


async def test_afterwards_the_database_is_asked_again(ox: Oxpull):
    @ox.task
    async def send() -> None: ...

    with inline(ox):
        await send.enqueue()
    with pytest.raises(NotOpen):
        await send.enqueue()
