"""Background loops: what wakes them, what they survive, and how they end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest

from oxpull_async.exceptions import WrongDatabase
from oxpull_async.runtime.service import Service
from oxpull_async.runtime.supervisor import Supervisor
from oxpull_async.runtime.waiting import first_of
from tests.eventually import eventually
from tests.log_lines import events


class Deed:
    """Counts its turns; each does what the next of ``steps`` says, the last one over and over."""

    def __init__(self, *steps: float | Exception) -> None:
        self.turns = 0
        self._steps = steps

    def has_turned_more_than(self, turns: int) -> bool:
        return self.turns > turns

    async def __call__(self) -> float:
        step = self._steps[min(self.turns, len(self._steps) - 1)]
        self.turns += 1
        if isinstance(step, Exception):
            raise step
        return step


async def running(service: Service, check: Callable[[], Awaitable[object]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(service.run)
        await check()
        service.stop()
    assert service.ended.is_set()


async def test_a_turn_that_asks_for_no_pause_is_followed_by_the_next():
    deed = Deed(0, 0, math.inf)
    await running(Service("test", deed), lambda: eventually(lambda: deed.turns == 3))


async def test_a_wake_up_cuts_the_pause_short():
    deed, wake = Deed(math.inf), asyncio.Event()

    async def wake_twice() -> None:
        for _ in range(3):
            turns = deed.turns
            wake.set()
            await eventually(partial(deed.has_turned_more_than, turns))

    await running(Service("test", deed, wake=wake), wake_twice)


async def test_a_wake_up_during_a_turn_leads_to_another_one():
    wake = asyncio.Event()
    turns = 0

    async def deed() -> float:
        nonlocal turns
        turns += 1
        if turns == 1:
            wake.set()
        return math.inf

    await running(Service("test", deed, wake=wake), lambda: eventually(lambda: turns == 2))


async def test_an_error_ends_nothing_and_is_told_once_per_kind(caplog: pytest.LogCaptureFixture):
    deed = Deed(ValueError("a"), ValueError("b"), OSError("c"), ValueError("d"), math.inf)
    service = Service("test", deed, longest_backoff=0.01)

    await running(service, lambda: eventually(lambda: deed.turns == 5 and service.failures == 0))

    assert events(caplog) == ["service_failed", "service_failed", "service_recovered"]
    assert str(service.last_error) == "d"


async def test_a_missing_table_is_told_without_the_way_there(caplog: pytest.LogCaptureFixture):
    deed = Deed(WrongDatabase("run migrate"), ValueError("why?"), math.inf)

    await running(Service("test", deed, longest_backoff=0.01), lambda: eventually(lambda: deed.turns == 3))

    assert [bool(record.exc_info) for record in caplog.records if record.levelname == "ERROR"] == [False, True]


async def test_a_wake_up_does_not_shorten_the_pause_after_an_error():
    deed, wake = Deed(OSError()), asyncio.Event()
    service = Service("test", deed, wake=wake, longest_backoff=3600)

    async def wake_it() -> None:
        await eventually(lambda: deed.turns >= 6)  # 50 ms doubled: long by now
        turns = deed.turns
        wake.set()
        await anyio.wait_all_tasks_blocked()
        assert deed.turns == turns

    await running(service, wake_it)


async def test_a_stop_ends_a_pause_after_an_error():
    deed = Deed(OSError())
    with anyio.fail_after(5):
        await running(Service("test", deed, longest_backoff=3600), lambda: eventually(lambda: deed.turns == 4))


class Member:
    longest_stop = 0.05

    def __init__(self, *, deaf: bool = False) -> None:
        self.stopped = asyncio.Event()
        self.cancelled = False
        self._deaf = deaf

    async def run(self) -> None:
        try:
            await (asyncio.Event() if self._deaf else self.stopped).wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def stop(self) -> None:
        self.stopped.set()


async def test_a_supervisor_tells_its_members_to_stop():
    members = [Member(), Member()]
    supervisor = Supervisor(members)
    supervisor.start()
    await supervisor.stop()
    assert [member.cancelled for member in members] == [False, False]


async def test_a_supervisor_cancels_a_member_that_does_not_stop():
    deaf = Member(deaf=True)
    supervisor = Supervisor([Member(), deaf])
    supervisor.start()
    await supervisor.stop()
    assert deaf.cancelled


async def test_a_supervisor_may_be_stopped_before_it_was_started():
    await Supervisor([Member()]).stop()


async def test_the_first_of_several_ends_the_wait_for_the_others():
    never, soon = asyncio.Event(), asyncio.Event()
    soon.set()
    with anyio.fail_after(5):
        await first_of(never.wait, soon.wait)
