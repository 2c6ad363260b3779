"""Pausing and resuming queues."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oxpull_async import InvalidTask, Oxpull, Worker
from oxpull_async.cli import main
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
    code, out = run("resume", "mail", "other", "--json")
    assert (code, json.loads(out)) == (1, {"resumed": ["mail"], "unchanged": ["other"]})
