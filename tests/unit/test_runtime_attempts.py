"""The parts of a worker that need no database."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import anyio
import pytest

from oxpull_async import InvalidSettings, Oxpull, Worker
from oxpull_async.ports import Claim
from oxpull_async.runtime.attempts import Attempt, Attempts, Interruption
from oxpull_async.runtime.identity import new_worker_id
from oxpull_async.runtime.threads import ThreadCall
from tests.eventually import eventually


def claim(**values: Any) -> Claim:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    row = {
        "id": uuid4(), "task_path": "tests.task", "args": "[]", "kwargs": "{}", "queue_name": "default",
        "priority": 0, "takes_context": False, "backend_name": "default", "attempts": 1, "max_attempts": 3,
        "errors": "[]", "worker_ids": "[]", "lease_epoch": 1, "enqueued_at": now, "lease_expires_at": now,
    }  # fmt: skip
    return Claim(**{**row, **values})


def test_a_worker_id_names_the_host_and_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("socket.gethostname", lambda: "h" * 100)
    name = new_worker_id()
    assert re.fullmatch(rf"h{{40}}-{os.getpid()}-[A-Za-z0-9]{{8}}", name)
    assert len(name) <= 64
    assert new_worker_id() != name


async def test_an_attempt_holds_its_place_until_its_code_has_ended():
    attempts, attempt = Attempts(2), Attempt(claim())
    attempts.add(attempt)
    assert (attempts.free, attempts.is_empty, attempts.at_rest.is_set()) == (1, False, False)

    attempts.end(attempt)
    assert (attempts.free, attempts.is_empty, attempts.at_rest.is_set()) == (2, False, True)
    assert not attempts.nothing_to_write.is_set()

    attempts.remove(attempt)
    assert (attempts.free, attempts.is_empty) == (2, True)
    assert attempts.nothing_to_write.is_set()


async def test_two_grants_of_one_row_are_two_attempts():
    attempts = Attempts(2)
    older = Attempt(granted := claim())
    newer = Attempt(claim(id=granted.id, lease_epoch=2))
    attempts.add(older)
    attempts.add(newer)
    attempts.remove(older)
    assert attempts.present == [newer]


async def test_an_attempt_is_interrupted_once_and_not_after_its_end():
    cancels = 0
    attempt = Attempt(claim())

    async def count_cancels() -> None:
        nonlocal cancels
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels += 1
                if cancels == 2:
                    raise

    attempt.runner = asyncio.create_task(count_cancels())
    await asyncio.sleep(0)
    attempt.interrupt(Interruption.LEASE_LOST)
    attempt.interrupt(Interruption.SHUTDOWN)
    attempt.is_running = False
    attempt.interrupt(Interruption.SHUTDOWN)
    await asyncio.sleep(0)
    assert (cancels, attempt.interrupted) == (1, Interruption.LEASE_LOST)

    attempt.runner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt.runner


async def test_a_thread_call_that_was_revoked_never_begins():
    made: list[int] = []
    call = ThreadCall(lambda: made.append(1))
    assert call.revoke()
    await call.run(anyio.CapacityLimiter(1))
    assert made == []


async def test_a_thread_call_that_is_under_way_cannot_be_revoked():
    begun, release = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        release.wait(30)

    call = ThreadCall(work)
    running = asyncio.create_task(call.run(anyio.CapacityLimiter(1)))
    await eventually(begun.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not call.revoke()
    release.set()
    await eventually(call.revoke)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"lease": 0.5}, "lease"),
        ({"lease": "soon"}, "lease"),
        ({"shutdown_timeout": -1}, "shutdown_timeout"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"queues": "mail"}, "queues"),
    ],
)
def test_a_worker_refuses_what_it_cannot_use(options: dict[str, Any], words: str):
    with pytest.raises(InvalidSettings, match=words):
        Worker(Oxpull("sqlite:///:memory:"), **options)
