"""The parts of a worker that need no database."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from typing import Any

import anyio
import pytest

from oxpull_async import InvalidSettings, Oxpull, Worker
from oxpull_async.ports import Claim
from oxpull_async.runtime.attempts import Attempt, Attempts, Interruption
from oxpull_async.runtime.identity import new_worker_id
from oxpull_async.runtime.threads import ThreadCall
from tests.eventually import eventually
from tests.unit.claims import claim


def test_a_worker_id_names_the_host_and_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("socket.gethostname", lambda: "h" * 100)
    name = new_worker_id()
    assert re.fullmatch(rf"h{{40}}-{os.getpid()}-[A-Za-z0-9]{{8}}", name)
    assert len(name) <= 64
    assert new_worker_id() != name


def begun(attempts: Attempts, *claims: Claim) -> list[Attempt]:
    """Attempts that have their places."""
    attempts.wait_for_place(list(claims))
    begun = [attempts.begin_next() for _ in claims]
    return [attempt for attempt in begun if attempt is not None]


async def test_an_attempt_holds_its_place_until_its_code_has_ended():
    attempts = Attempts(2)
    (attempt,) = begun(attempts, claim())
    assert (attempts.free, attempts.is_empty, attempts.at_rest.is_set()) == (1, False, False)

    attempts.end(attempt)
    assert (attempts.free, attempts.is_empty, attempts.at_rest.is_set()) == (2, False, True)
    assert not attempts.nothing_to_write.is_set()

    attempts.remove(attempt)
    assert (attempts.free, attempts.is_empty) == (2, True)
    assert attempts.nothing_to_write.is_set()


async def test_two_grants_of_one_row_are_two_attempts():
    attempts = Attempts(2)
    granted = claim()
    older, newer = begun(attempts, granted, granted._replace(lease_epoch=2))
    attempts.remove(older)
    assert attempts.present == [newer]


async def test_who_finds_no_place_waits_and_may_be_taken_out_again():
    attempts = Attempts(1)
    first, second, third = claim(), claim(), claim()
    running = begun(attempts, first, second, third)
    assert ([attempt.claim for attempt in running], attempts.waiting) == ([first], 2)

    attempts.remove(running[0])
    assert attempts.nothing_to_write.is_set()
    assert attempts.begin_next() is not None
    assert attempts.take_waiting() == [third]
    assert (attempts.waiting, len(attempts.present)) == (0, 1)


async def test_a_claim_is_accounted_for_while_it_is_present_and_where_it_was_given_up():
    attempts = Attempts(1)
    present, abandoned, written, never_seen = claim(), claim(), claim(), claim()
    attempts.wait_for_place([abandoned, written, present])
    for is_written in (False, True):
        attempt = attempts.begin_next()
        assert attempt is not None
        attempts.remove(attempt, is_written=is_written)

    assert attempts.unaccounted([present, abandoned, never_seen]) == [never_seen]


async def test_an_attempt_is_interrupted_once_and_not_after_its_end():
    cancels = 0
    attempt = Attempt(claim(), has_begun=True)

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
        ({"prefetch": -1}, "prefetch"),
        ({"grace": -1}, "grace"),
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
