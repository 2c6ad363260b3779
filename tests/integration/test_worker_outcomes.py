"""What becomes of an attempt: what is written, what is told, and when it's tried again."""

from __future__ import annotations

import asyncio
import math
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oxpull_async import Oxpull, TaskContext, TaskFailed, TaskStatus, Worker
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage
from tests.log_lines import events


async def test_what_a_task_returns_is_stored(ox: Oxpull):
    @ox.task
    async def answer() -> dict[str, Any]:
        return {"total": 3, "items": (1, "é", None)}

    result = await answer.enqueue()
    assert await ox.run_until_idle() == 1

    assert await result.wait(timeout=10) == {"total": 3, "items": [1, "é", None]}
    assert result.finished_at is not None
    assert (result.status, result.errors) == (TaskStatus.SUCCESSFUL, [])


async def test_a_task_that_returns_none_stores_null(ox: Oxpull):
    @ox.task
    async def nothing() -> None: ...

    result = await nothing.enqueue()
    await ox.run_until_idle()

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert row.return_value is None


async def test_a_failed_attempt_goes_back_with_a_delay_and_tells_nobody(ox: Oxpull):
    finished: list[Any] = []
    ox.on("finished", finished.append)

    @ox.task
    async def failing() -> None:
        raise ValueError("no such order")

    result = await failing.enqueue()
    before = datetime.now(UTC)
    assert await ox.run_until_idle() == 1

    row = await ox.store.get_task(result.id)
    assert row is not None
    await result.refresh()
    assert (row.status, row.attempts, row.lease_epoch) == ("READY", 1, 1)
    assert (row.finished_at, row.locked_by, row.locked_at, row.lease_expires_at) == (None, None, None, None)
    assert row.run_after is not None
    assert timedelta(seconds=4.9) < row.run_after - before < timedelta(seconds=15)
    assert [error["exception_class_path"] for error in result.errors] == ["builtins.ValueError"]
    assert "no such order" in result.errors[0]["traceback"]
    assert finished == []


async def test_the_last_attempt_settles_the_row_and_tells_once(ox: Oxpull):
    finished: list[Any] = []
    ox.on("finished", finished.append)

    @ox.task(max_attempts=1)
    async def failing() -> None:
        raise ValueError("no such order")

    result = await failing.enqueue()
    await ox.run_until_idle()

    with pytest.raises(TaskFailed, match="no such order"):
        await result.wait(timeout=10)
    assert (result.status, result.run_after) == (TaskStatus.FAILED, None)
    assert result.finished_at is not None
    assert [(told.id, told.status, len(told.errors)) for told in finished] == [(result.id, TaskStatus.FAILED, 1)]


async def test_a_task_is_tried_again_until_it_succeeds(ox: Oxpull):
    attempts: list[int] = []

    @ox.task(backoff=0, max_attempts=5, takes_context=True)
    async def flaky(context: TaskContext) -> str:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise OSError("not yet")
        return "at last"

    result = await flaky.enqueue()
    assert await ox.run_until_idle() == 3

    assert await result.wait(timeout=10) == "at last"
    assert attempts == [1, 2, 3]
    assert (result.attempts, len(result.worker_ids), len(result.errors)) == (3, 3, 2)


async def test_the_budget_is_the_rows_own(ox: Oxpull, competitor: Competitor):
    @ox.task(max_attempts=5, backoff=0)
    async def failing() -> None:
        raise ValueError

    result = await failing.enqueue()
    competitor.set_task(result.id, max_attempts=2)

    assert await ox.run_until_idle() == 2
    assert (await result.refresh()).status == TaskStatus.FAILED


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, "builtins.ValueError"),
        ("a\0b", "builtins.ValueError"),
        ("\ud800", "builtins.ValueError"),
        ({1, 2}, "builtins.TypeError"),
        (ValueError(object()), "builtins.TypeError"),
    ],
    ids=["NaN", "NUL", "lone surrogate", "set", "exception"],
)
async def test_a_result_that_cannot_be_stored_is_a_failed_attempt(ox: Oxpull, value: object, error: str):
    @ox.task(max_attempts=1, unique=True)
    async def odd() -> object:
        return value

    result = await odd.enqueue()
    assert await ox.run_until_idle() == 1

    await result.refresh()
    assert (result.status, result.return_value) == (TaskStatus.FAILED, None)
    assert result.errors[0]["exception_class_path"] == error
    assert "return value" in result.errors[0]["traceback"]
    assert (await odd.enqueue()).created


async def test_a_long_traceback_is_cut_in_its_middle(ox: Oxpull):
    @ox.task(max_attempts=1)
    async def verbose() -> None:
        raise ValueError("x" * 50_000)

    result = await verbose.enqueue()
    await ox.run_until_idle()

    stored = (await result.refresh()).errors[0]["traceback"]
    assert len(stored.encode()) == 16_384
    assert "bytes left out" in stored


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(timedelta(minutes=3), 180), (1.5, 1.5), (90, 90), ("soon", 5), (-1, 5)],
    ids=["timedelta", "float", "int", "a word", "negative"],
)
async def test_a_backoff_function_decides_the_delay(ox: Oxpull, answer: Any, seconds: float):
    seen: list[Any] = []

    def backoff(error: BaseException, result: Any) -> Any:
        seen.append((type(error), result.status, result.attempts, len(result.errors), result.args))
        assert result.finished_at is not None
        return answer

    @ox.task(backoff=backoff)
    async def failing(number: int) -> None:
        raise KeyError("gone")

    result = await failing.enqueue(7)
    await ox.run_until_idle()

    await result.refresh()
    assert seen == [(KeyError, TaskStatus.FAILED, 1, 1, [7])]
    assert result.status == TaskStatus.READY
    assert result.run_after is not None
    assert result.last_attempted_at is not None
    assert abs((result.run_after - result.last_attempted_at).total_seconds() - seconds) < 1


async def test_a_backoff_function_that_declines_settles_the_row(ox: Oxpull):
    @ox.task(backoff=lambda error, result: None)
    async def failing() -> None:
        raise ValueError

    result = await failing.enqueue()
    await ox.run_until_idle()

    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.FAILED, 1)


async def test_a_backoff_function_that_raises_is_replaced_by_the_default(ox: Oxpull, caplog: pytest.LogCaptureFixture):
    def broken(error: BaseException, result: Any) -> float:
        raise RuntimeError("in the backoff")

    @ox.task(backoff=broken)
    async def failing() -> None:
        raise ValueError

    result = await failing.enqueue()
    await ox.run_until_idle()

    assert (await result.refresh()).status == TaskStatus.READY
    assert [error["exception_class_path"] for error in result.errors] == ["builtins.ValueError"]
    assert "task_policy_error" in events(caplog)


async def test_a_coroutine_beyond_its_timeout_is_cancelled(ox: Oxpull):
    stage = Stage()

    @ox.task(timeout=0.1, max_attempts=1)
    async def hang() -> None:
        await stage.hold()

    result = await hang.enqueue()
    await ox.run_until_idle()

    await result.refresh()
    assert result.status == TaskStatus.FAILED
    assert result.errors[0]["exception_class_path"] == "django_ox.exceptions.TaskTimeout"
    assert stage.cancelled == 1


async def test_a_cancelled_coroutine_may_still_clean_up(ox: Oxpull):
    cleaned: list[str] = []

    @ox.task(timeout=0.05, max_attempts=1)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    await hang.enqueue()
    await ox.run_until_idle()

    assert cleaned == ["up"]


async def test_a_timeout_error_of_the_tasks_own_is_an_ordinary_error(ox: Oxpull):
    @ox.task(timeout=30, max_attempts=1)
    async def raising() -> None:
        raise TimeoutError("the mail server")

    result = await raising.enqueue()
    await ox.run_until_idle()

    assert (await result.refresh()).errors[0]["exception_class_path"] == "builtins.TimeoutError"


@pytest.mark.parametrize(
    ("error", "path"),
    [
        (SystemExit(3), "builtins.SystemExit"),
        (KeyboardInterrupt(), "builtins.KeyboardInterrupt"),
        (asyncio.CancelledError(), "asyncio.exceptions.CancelledError"),
    ],
    ids=["SystemExit", "KeyboardInterrupt", "CancelledError"],
)
@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_no_exception_of_a_task_ends_its_worker(ox: Oxpull, error: BaseException, path: str, kind: str):
    @ox.task(max_attempts=1)
    async def in_coroutine() -> None:
        raise error

    @ox.task(max_attempts=1)
    def in_thread() -> None:
        raise error

    @ox.task
    async def good() -> None: ...

    bad = await (in_coroutine if kind == "coroutine" else in_thread).enqueue()
    result = await good.enqueue()
    assert await ox.run_until_idle() == 2

    assert (await result.refresh()).status == TaskStatus.SUCCESSFUL
    await bad.refresh()
    assert bad.status == TaskStatus.FAILED
    assert bad.errors[0]["exception_class_path"] == path


async def test_what_a_task_does_to_its_arguments_is_forgotten(ox: Oxpull):
    seen: list[Any] = []

    @ox.task(backoff=0, max_attempts=2, unique=True)
    async def spoil(order: dict[str, Any]) -> None:
        seen.append(dict(order))
        order["x"] = object()
        if len(seen) < 2:
            raise ValueError

    given = {"id": 1}
    result = await spoil.enqueue(given)
    given["id"] = 2
    await ox.run_until_idle()

    assert seen == [{"id": 1}, {"id": 1}]
    assert (await result.refresh()).args == [{"id": 1}]


async def test_a_sync_function_runs_in_a_thread(ox: Oxpull):
    @ox.task(takes_context=True)
    def where(context: TaskContext, greeting: str) -> list[Any]:
        return [greeting, threading.current_thread() is threading.main_thread(), context.attempt]

    result = await where.enqueue("hello")
    await ox.run_until_idle()

    assert await result.wait(timeout=10) == ["hello", False, 1]


async def test_a_context_tells_of_the_attempt_and_enqueues(ox: Oxpull):
    @ox.task
    async def follow_up(number: int) -> int:
        return number

    @ox.task(takes_context=True, queue_name="mail", max_attempts=4)
    async def first(context: TaskContext, number: int) -> list[Any]:
        following = await context.enqueue(follow_up, number + 1)
        told = [context.id, context.task_path, following.id]
        return [str(value) for value in told] + [context.attempt, context.max_attempts, context.queue_name]

    result = await first.enqueue(1)
    assert await ox.run_until_idle() == 2

    *told, following = (value := await result.wait(timeout=10))[:2], value[2]
    assert told == [[str(result.id), first.path]]
    assert value[3:] == [1, 4, "mail"]
    assert await (await ox.get_result(following)).wait(timeout=10) == 2


async def test_hooks_are_told_of_the_start_and_the_end(ox: Oxpull):
    told: list[Any] = []
    ox.on("started", lambda result: told.append(("started", result.status, result.attempts)))

    @ox.on("finished")
    async def note(result: Any) -> None:
        told.append(("finished", result.status, result.return_value))

    @ox.on("started")
    def broken(result: Any) -> None:
        raise RuntimeError("a hook's own trouble")

    @ox.task
    async def task() -> int:
        told.append("ran")
        return 3

    await task.enqueue()
    await ox.run_until_idle()

    assert told == [("started", TaskStatus.RUNNING, 1), "ran", ("finished", TaskStatus.SUCCESSFUL, 3)]


async def test_an_older_attempt_does_not_reopen_a_settled_row(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task(backoff=0, max_attempts=3)
    async def failing() -> None:
        await stage.hold()
        raise ValueError("the stale attempt")

    async with ox.running(worker=Worker(ox, queues=["default"])):
        result = await failing.enqueue()
        await stage.reached()
        settled = '[{"exception_class_path": "builtins.OSError", "traceback": "the newer attempt"}]'
        competitor.set_task(
            result.id, status="FAILED", attempts=3, lease_epoch=3, finished_at=datetime.now(UTC),
            locked_by=None, locked_at=None, lease_expires_at=None, errors=settled,
        )  # fmt: skip
        stage.open()
        await eventually(lambda: stage.arrivals == 1)

    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.FAILED, 3)
    assert [error["traceback"] for error in result.errors] == ["the newer attempt"]


async def test_the_error_of_a_task_can_be_raised_to_whoever_runs_it(ox: Oxpull):
    @ox.task
    async def failing() -> None:
        raise LookupError("seen by the test")

    await failing.enqueue()

    with pytest.raises(LookupError, match="seen by the test"):
        await ox.run_until_idle(raise_errors=True)


async def test_a_waiting_caller_is_woken_by_the_settling_worker(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oxpull_async.runtime.reading._FIRST_POLL_SECONDS", 3600)
    monkeypatch.setattr("oxpull_async.runtime.reading._LAST_POLL_SECONDS", 3600)
    stage = Stage()

    @ox.task
    async def hold() -> str:
        await stage.hold()
        return "done"

    async with ox.running(worker=Worker(ox)), asyncio.TaskGroup() as group:
        result = await hold.enqueue()
        waiting = group.create_task(result.wait(timeout=20))
        await stage.reached()
        stage.open()

    assert waiting.result() == "done"
