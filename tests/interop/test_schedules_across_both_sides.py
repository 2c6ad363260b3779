"""Ours and the reference's schedulers share the log of ticks: each tick fires once, whoever is there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from peers import Peer, started_peer

from oxpull_async.core.schedules import Timing, make_timing
from tests.integration.competitor import Competitor
from tests.integration.stored_schedules import insert_schedule, ticks_of
from tests.scale import rounds

pytestmark = pytest.mark.timeout(rounds(small=180, full=3_000))

ZONE = "America/New_York"
PLAIN = "django_project.tasks.plain"
SCHEDULES: dict[str, dict[str, Any]] = {
    "quarterly": {"task": PLAIN, "cron": "*/15 * * * *"},
    "in the repeated hour": {"task": PLAIN, "cron": "30 1 * * *", "args": [1]},
    "every other hour": {"task": PLAIN, "every": 7200, "phase": 600, "kwargs": {"a": "é"}},
}
TIMINGS = {
    name: make_timing(cron=each.get("cron"), every=each.get("every"), phase=each.get("phase", 0), timezone=ZONE)
    for name, each in SCHEDULES.items()
}
START = datetime(2026, 10, 31, 20, 2, tzinfo=UTC)
STEP = timedelta(minutes=5)
STEPS = rounds(small=120, full=6 * 7 * 24 * 12)
KILLS = rounds(small=6, full=200)
OURS, THEIRS = "our_dispatcher", "django_project.peer"


class Fleet:
    """Dispatchers in processes of their own, to be killed and started anew."""

    def __init__(self, url: str, kinds: list[str], schedules: dict[str, dict[str, Any]]) -> None:
        self._url = url
        self._kinds = kinds
        self._schedules = schedules
        self._stack = ExitStack()
        self.peers = [self._start(kind) for kind in kinds]

    def _start(self, kind: str) -> Peer:
        peer = self._stack.enter_context(started_peer(kind))
        peer.order("lead_to", self._url)
        peer.order("schedule", self._schedules, ZONE)
        return peer

    async def dispatch(self, moments: list[datetime], victim: int | None = None, after: float = 0) -> list[int]:
        """A pass of each at once, the victim killed in its midst; how many tasks each survivor enqueued."""
        counts: list[int] = []

        async def one(index: int) -> None:
            try:
                counts.append(await self.peers[index].tell("dispatch", moments[index].isoformat()))
            except (AssertionError, ValueError, BrokenPipeError):
                if index != victim:
                    raise

        async with anyio.create_task_group() as group:
            for index in range(len(self.peers)):
                group.start_soon(one, index)
            if victim is not None:
                await anyio.sleep(after)
                self.peers[victim].kill()
        if victim is not None:
            self.peers[victim] = await anyio.to_thread.run_sync(self._start, self._kinds[victim])
        return counts

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


@pytest.fixture
def start(migrated_url: str) -> Iterator[Any]:
    fleets: list[Fleet] = []

    def start(kinds: list[str], schedules: dict[str, dict[str, Any]] = SCHEDULES) -> Fleet:
        fleets.append(Fleet(migrated_url, kinds, schedules))
        return fleets[-1]

    yield start
    for fleet in fleets:
        fleet.close()


def expected(timing: Timing, end: datetime) -> list[datetime]:
    """Every tick that becomes due after the anchor, as a pass in each step finds it."""
    at, found = START, [timing.latest(START)]
    while at <= end:
        tick = timing.due(at)
        if tick is not None and tick > found[-1]:
            found.append(tick)
        at += STEP
    return found


async def test_each_tick_fires_once_whoever_is_killed(start, watcher: Competitor):
    chance = random.Random(2026)
    fleet = await anyio.to_thread.run_sync(start, [OURS, THEIRS, OURS, THEIRS, OURS])
    victims = {step: chance.randrange(5) for step in chance.sample(range(STEPS), KILLS)}

    now = START
    for step in range(STEPS):
        moments = [now + timedelta(seconds=chance.uniform(0, 20)) for _ in range(5)]
        await fleet.dispatch(moments, victims.get(step), chance.uniform(0, 0.02))
        now += STEP

    await fleet.dispatch([now - STEP + timedelta(seconds=30)] * 5)
    log = ticks_of(watcher)
    for name, timing in TIMINGS.items():
        ticks = [(at, task_id) for key, at, task_id in log if key == name]
        assert [at for at, _ in ticks] == expected(timing, now - STEP)
        assert [task_id is None for _, task_id in ticks] == [True] + [False] * (len(ticks) - 1)
    assert Counter(task_id for _, _, task_id in log if task_id) == Counter(watcher.statuses().keys())


async def test_what_one_side_has_fired_the_other_leaves_alone(start, watcher: Competitor):
    for first, second in ((OURS, THEIRS), (THEIRS, OURS)):
        fleet = await anyio.to_thread.run_sync(start, [first, second])
        now = START if first == OURS else START + timedelta(days=30)

        for _ in range(4):
            one = await fleet.peers[0].tell("dispatch", now.isoformat())
            two = await fleet.peers[1].tell("dispatch", (now + timedelta(seconds=5)).isoformat())
            assert two == 0, (first, now, one)
            now += timedelta(minutes=15)

    rows = watcher.rows("SELECT DISTINCT task_path, queue_name, backend_name, status FROM django_ox_oxtask")
    assert rows == [(PLAIN, "default", "default", "READY")]


async def test_both_sides_fire_the_same_stored_schedules(start, watcher: Competitor):
    start_time = START - timedelta(hours=1)
    local = START.astimezone(ZoneInfo(ZONE))
    key = f"db:{insert_schedule(watcher, cron=f'0 {local.hour} * * *', start_time=start_time)}"
    every = f"db:{insert_schedule(watcher, name='x', trigger='interval', every_seconds=600, start_time=start_time)}"
    fleet = await anyio.to_thread.run_sync(start, [OURS, THEIRS], {})

    fired = []
    for turn in range(4):
        moments = [START + turn * timedelta(minutes=10) + timedelta(seconds=second) for second in (turn % 2, 1)]
        fired.append(sum(await fleet.dispatch(moments)))

    assert fired == [2, 1, 1, 1]
    assert [at for _, at, _ in ticks_of(watcher, key)] == [START - timedelta(minutes=2)]
    assert len(ticks_of(watcher, every)) == 4


async def test_either_side_heals_a_schedule_that_was_retimed_by_hand(start, watcher: Competitor):
    for kind in (OURS, THEIRS):
        watcher.run("DELETE FROM django_ox_oxschedule")
        stale = insert_schedule(watcher, trigger="interval", every_seconds=600, boundary_for="of another timing")
        fleet = await anyio.to_thread.run_sync(start, [kind, OURS if kind == THEIRS else THEIRS], {})

        healed = await fleet.peers[0].tell("dispatch", START.isoformat())
        others = await fleet.peers[1].tell("dispatch", (START + timedelta(minutes=10)).isoformat())

        assert (healed, others) == (0, 1)
        assert watcher.rows("SELECT boundary_generation FROM django_ox_oxschedule WHERE id = ?", stale) == [(1,)]
