"""Pausing, resuming and limiting queues."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from oxpull_async import InvalidTask, Oxpull, RateLimit, Worker
from oxpull_async.cli import main
from oxpull_async.ports_limits import LimitedQueue
from tests.eventually import eventually
from tests.integration.shared_database import migrated_url, shared_databases

__all__ = ["migrated_url", "shared_databases"]


async def note(number: int) -> int:
    return number


@pytest.fixture
async def ox(migrated_url: str) -> AsyncIterator[Oxpull]:
    async with Oxpull(migrated_url) as ox:
        ox.task(note)
        yield ox


async def test_a_paused_queue_rests_in_every_process_until_it_is_resumed(ox: Oxpull, migrated_url: str):
    task = ox.tasks[f"{__name__}.note"]
    async with Oxpull(migrated_url) as elsewhere:
        assert await elsewhere.queues.pause("mail")
        mail = await task.using(queue_name="mail").enqueue(1)
        other = await task.enqueue(2)

        async with ox.running(worker=Worker(ox, poll_interval=0.1)):
            assert await other.wait(timeout=20) == 2
            assert (await ox.get_result(mail.id)).status == "READY"

            assert await elsewhere.queues.resume("mail")
            assert await mail.wait(timeout=20) == 1


async def test_resuming_wakes_the_workers_of_this_process(ox: Oxpull):
    await ox.queues.pause("mail")
    mail = await ox.tasks[f"{__name__}.note"].using(queue_name="mail").enqueue(1)
    async with ox.running(worker=Worker(ox, poll_interval=60)):
        await eventually(lambda: _is_ready(ox, mail.id))
        await ox.queues.resume("mail")

        assert await mail.wait(timeout=20) == 1


async def _is_ready(ox: Oxpull, task_id: Any) -> bool:
    return (await ox.get_result(task_id)).status == "READY"


async def test_paused_queues_are_told(ox: Oxpull):
    await ox.queues.pause("mail")
    assert not await ox.queues.pause("mail")

    (paused,) = await ox.queues.paused()

    assert paused.queue_name == "mail"
    assert not await ox.queues.resume("other")


async def test_figures_tell_of_paused_queues(ox: Oxpull):
    await ox.tasks[f"{__name__}.note"].enqueue(1)
    await ox.queues.pause("mail")

    default, mail = await ox.stats.queues()

    assert (default.queue_name, default.paused_at) == ("default", None)
    assert mail.queue_name == "mail"
    assert mail.paused_at is not None
    assert (await ox.stats.queue("mail")).paused_at == mail.paused_at


@pytest.mark.parametrize("name", ["", "q" * 129, 5, "a\0"])
async def test_what_is_no_queue_s_name_is_refused(name: Any):
    ox = Oxpull("sqlite:///:memory:")

    with pytest.raises(InvalidTask):
        await ox.queues.pause(name)


# Limits


class Room:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def visit(self, *names: str) -> None:
        for name in names:
            self.inside[name] += 1
            self.most[name] = max(self.most[name], self.inside[name])
        await asyncio.sleep(0.01)
        self.inside.subtract(names)


@pytest.mark.parametrize("exclusive", [False, True], ids=["plain", "exclusive"])
async def test_no_more_of_a_limited_queue_runs_at_once_over_all_workers(migrated_url: str, exclusive: bool):
    room = Room()

    async def visit(key: str) -> None:
        await room.visit("mail", f"mail {key}")

    async def call() -> None:
        await room.visit("other")

    async with Oxpull(migrated_url) as one, Oxpull(migrated_url) as two:
        for ox in (one, two):
            mail, other = ox.task(exclusive=exclusive, queue_name="mail")(visit), ox.task(call)
        assert await one.queues.limit("mail", 3)
        mails = await one.tasks[mail.path].enqueue_many([(key,) for key in "ababacab"])
        others = await one.tasks[other.path].enqueue_many([() for _ in range(4)])
        worked = [ox.running(worker=Worker(ox, concurrency=8, poll_interval=0.2)) for ox in (one, two)]
        async with worked[0], worked[1]:
            for result in (*mails, *others):
                await result.wait(timeout=30)

    assert room.most["mail"] <= 3
    if exclusive:
        assert {room.most[f"mail {key}"] for key in "abc"} == {1}
    assert [queue.running for queue in await limited(migrated_url)] == [0]


async def limited(url: str) -> Sequence[LimitedQueue]:
    async with Oxpull(url) as ox:
        return await ox.queues.limited()


async def test_a_limited_queue_is_worked_off_by_one_worker_without_polls(ox: Oxpull):
    await ox.queues.limit("mail", 2)
    mail = ox.tasks[f"{__name__}.note"].using(queue_name="mail")
    results = await mail.enqueue_many([(number,) for number in range(7)])

    async with ox.running(worker=Worker(ox, poll_interval=600)):
        assert [await result.wait(timeout=30) for result in results] == list(range(7))


async def test_run_until_idle_keeps_to_limits_and_to_those_that_are_lifted(ox: Oxpull):
    mail = ox.tasks[f"{__name__}.note"].using(queue_name="mail")
    await ox.queues.limit("mail", 1)
    await mail.enqueue_many([(number,) for number in range(3)])
    assert await ox.run_until_idle() == 3

    assert await ox.queues.limit("mail", None)
    await mail.enqueue_many([(number,) for number in range(3)])
    assert await ox.run_until_idle() == 3


async def test_a_rate_limit_holds_in_a_limited_queue(migrated_url: str):
    async with Oxpull(migrated_url, rate_limits=[RateLimit(2, 600, queues=["mail"], name="mail")]) as ox:
        mail = ox.task(note).using(queue_name="mail")
        await ox.queues.limit("mail", 1)
        await mail.enqueue_many([(number,) for number in range(4)])

        assert await ox.run_until_idle() == 2


async def test_figures_tell_of_limited_queues(ox: Oxpull):
    await ox.tasks[f"{__name__}.note"].enqueue(1)
    assert await ox.queues.limit("mail", 4)
    assert not await ox.queues.limit("mail", 4)

    default, mail = await ox.stats.queues()

    assert (default.limit, mail.limit) == (None, 4)
    (found,) = await ox.queues.limited()
    assert (found.queue_name, found.places, found.running) == ("mail", 4, 0)


@pytest.mark.parametrize("places", [0, -1, True, 1.5, "4"])
async def test_a_limit_that_makes_no_sense_is_refused(places: Any):
    ox = Oxpull("sqlite:///:memory:")

    with pytest.raises(InvalidTask, match="limit"):
        await ox.queues.limit("mail", places)


@pytest.mark.engines("sqlite")
def test_the_command_pauses_resumes_and_lists(
    migrated_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["queues", *arguments, "--database", migrated_url])
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    assert run("list") == (0, "no queue is paused\n")
    code, out = run("pause", "mail", "sms", "--json")
    assert (code, json.loads(out)) == (0, {"paused": ["mail", "sms"], "unchanged": []})
    code, out = run("list", "--json")
    assert [found["queue_name"] for found in json.loads(out)] == ["mail", "sms"]
    assert run("list")[1].split()[:3] == ["queue", "paused", "at"]
    assert json.loads(run("limit", "sms", "4", "--json")[1]) == {"queue": "sms", "limit": 4, "changed": True}
    assert run("limit", "sms", "4")[0] == 1
    assert json.loads(run("list", "--json")[1])[-1]["places"] == 4
    assert run("list")[1].splitlines()[-1].split()[:3] == ["sms", "4", "0"]
    assert run("limit", "sms", "--none", "--json")[0] == 0
    assert run("limit", "sms")[0] == run("limit", "sms", "4", "--none")[0] == 2
    code, out = run("resume", "mail", "other", "--json")
    assert (code, json.loads(out)) == (1, {"resumed": ["mail"], "unchanged": ["other"]})
