"""Functions in processes of their own: what comes back from there, and that they can be killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oxpull_async import InvalidTask, Oxpull, TaskContext, TaskStatus, Worker
from tests.eventually import eventually
from tests.integration import crunching


@pytest.fixture(autouse=True)
def _crunching(ox: Oxpull) -> None:
    crunching.router._home.enqueuer = None
    ox.include(crunching.router)


async def test_a_function_runs_in_another_process_and_its_value_comes_back(ox: Oxpull):
    result = await crunching.where.enqueue()
    await ox.run_until_idle()

    assert await result.wait(timeout=10) not in (None, os.getpid())


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("task", "path", "words"),
    [
        (crunching.failing, "builtins.ValueError", "no such order"),
        (crunching.picky, "tests.integration.crunching.Picky", "not this one"),
        (crunching.unstorable, "builtins.TypeError", "set"),
        (crunching.die, "oxpull_async.exceptions.TaskProcessDied", "has died"),
    ],
)
async def test_an_error_over_there_is_a_failed_attempt_with_its_traceback(ox: Oxpull, task: Any, path: str, words: str):
    result = await task.enqueue()
    await ox.run_until_idle()

    await result.refresh()
    assert (result.status, result.errors[0]["exception_class_path"]) == (TaskStatus.FAILED, path)
    assert words in result.errors[0]["traceback"]
    if task in (crunching.failing, crunching.picky):
        assert "crunching.py" in result.errors[0]["traceback"]


@pytest.mark.engines("sqlite")
async def test_a_function_over_there_may_discard_or_snooze_its_row(ox: Oxpull):
    discarded, snoozed = await crunching.give_up.enqueue(), await crunching.later.enqueue()
    await ox.run_until_idle()

    assert (await discarded.refresh()).status == TaskStatus.DISCARDED
    await snoozed.refresh()
    assert (snoozed.status, snoozed.attempts) == (TaskStatus.READY, 0)


@pytest.mark.engines("sqlite")
async def test_a_time_limit_kills_the_process(ox: Oxpull, tmp_path: Path):
    await crunching.where.enqueue()
    await ox.run_until_idle()  # starting a process takes a while, which is part of the limit
    result = await crunching.hang.enqueue(str(tmp_path / "pid"))
    await ox.run_until_idle()

    await result.refresh()
    assert (result.status, result.errors[0]["exception_class_path"]) == (
        TaskStatus.FAILED,
        "django_ox.exceptions.TaskTimeout",
    )
    await eventually(is_gone(tmp_path / "pid"))


@pytest.mark.engines("sqlite")
async def test_a_stop_kills_the_process_and_hands_the_row_back(ox: Oxpull, tmp_path: Path):
    async with ox.running(worker=Worker(ox, shutdown_timeout=0)):
        result = await crunching.hold.enqueue(str(tmp_path / "pid"))
        await eventually((tmp_path / "pid").exists, within=30)

    await result.refresh()
    assert (result.status, result.attempts) == (TaskStatus.READY, 0)
    await eventually(is_gone(tmp_path / "pid"))


def is_gone(trace: Path) -> Callable[[], bool]:
    def check() -> bool:
        try:
            os.kill(int(trace.read_text()), 0)
        except ProcessLookupError:
            return True
        return False

    return check


@pytest.mark.engines("sqlite")
async def test_what_cannot_run_over_there_is_refused_at_its_declaration(ox: Oxpull):
    with pytest.raises(InvalidTask, match="top of its module"):

        @ox.task(executor="process")
        def nested() -> None: ...

    with pytest.raises(InvalidTask, match="coroutine"):

        @ox.task(executor="process")
        async def coroutine() -> None: ...

    with pytest.raises(InvalidTask, match="context"):
        ox.task(executor="process", takes_context=True)(with_context)  # type: ignore[call-overload]

    with pytest.raises(InvalidTask, match="executor"):
        ox.task(executor="thread")(with_context)  # type: ignore[call-overload]


def with_context(context: TaskContext) -> None: ...
