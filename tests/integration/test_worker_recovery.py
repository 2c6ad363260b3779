"""Claims and outcomes whose fate the worker wasn't told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oxpull_async import ConnectionLost, Oxpull, TaskStatus, Worker
from oxpull_async.ports import Claim
from tests.eventually import eventually
from tests.integration.competitor import Competitor
from tests.integration.stage import Stage
from tests.log_lines import events


def losing_answers(monkeypatch: pytest.MonkeyPatch, ox: Oxpull, operation: str, *, of: str | None = None) -> list[Any]:
    """Let an operation of the store do its work, and its answer get lost, once; returns that answer.

    ``of``: the path of the task that a claim must be of.
    """
    original = getattr(ox.store, operation)
    lost: list[Any] = []

    async def unheard(*args: Any, **kwargs: Any) -> Any:
        answer = await original(*args, **kwargs)
        if answer and not lost and (of is None or answer[0].task_path == of):
            lost.append(answer)
            raise ConnectionLost("the answer was lost on the way")
        return answer

    monkeypatch.setattr(ox.store, operation, unheard)
    return lost


async def test_rows_of_a_claim_whose_answer_was_lost_are_handed_back_and_run(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    ran: list[int] = []

    @ox.task
    async def note(number: int) -> None:
        ran.append(number)

    results = await note.enqueue_many([(number,) for number in range(5)])
    lost = losing_answers(monkeypatch, ox, "claim")
    async with ox.running(worker=Worker(ox, poll_interval=0.05)):
        for result in results:
            await result.wait(timeout=10)

    assert sorted(ran) == [0, 1, 2, 3, 4]
    assert len(lost[0]) == 5
    row = await ox.store.get_task(results[0].id)
    assert row is not None
    assert (row.attempts, row.lease_epoch, len(json.loads(row.worker_ids))) == (1, 3, 1)
    assert "claim_recovered" in events(caplog)


async def test_rows_that_did_come_are_not_handed_back_with_those_that_were_lost(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch
):
    stage = Stage()

    @ox.task
    async def hold() -> str:
        await stage.hold()
        return "held"

    @ox.task
    async def quick() -> str:
        return "done"

    lost = losing_answers(monkeypatch, ox, "claim", of=quick.path)
    async with ox.running(worker=Worker(ox, concurrency=5, poll_interval=0.05)):
        held = await hold.enqueue()
        await stage.reached()
        result = await quick.enqueue()
        assert await result.wait(timeout=10) == "done"
        stage.open()
        assert await held.wait(timeout=10) == "held"

    assert [claim.id for claim in lost[0]] == [result.id]
    assert (stage.arrivals, held.attempts) == (1, 1)


async def test_a_stopping_worker_has_a_last_look(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    @ox.task
    async def task() -> None: ...

    worker = Worker(ox)
    original = ox.store.claim

    async def unheard(request: Any) -> Any:
        claims = await original(request)
        worker.stop()
        raise ConnectionLost(f"the answer was lost on the way: {len(claims)}")

    result = await task.enqueue()
    monkeypatch.setattr(ox.store, "claim", unheard)
    assert await worker.run() == 0

    await result.refresh()
    assert (result.status, result.attempts, result.worker_ids) == (TaskStatus.READY, 0, [])


async def test_a_row_whose_history_does_not_name_this_worker_last_is_left_alone(
    ox: Oxpull, competitor: Competitor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    @ox.task
    async def task() -> None: ...

    result = await task.enqueue()
    original = ox.store.claim

    async def unheard(request: Any) -> list[Claim]:
        claims = await original(request)
        if claims:
            competitor.set_task(result.id, worker_ids='["somebody else"]')
            raise ConnectionLost("the answer was lost on the way")
        return []

    monkeypatch.setattr(ox.store, "claim", unheard)
    async with ox.running(worker=Worker(ox, poll_interval=0.05)):
        await eventually(lambda: "worker_claim_release_refused" in events(caplog))

    assert (await result.refresh()).status == TaskStatus.RUNNING


async def test_an_outcome_whose_answer_was_lost_is_found_written(
    ox: Oxpull, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    finished: list[Any] = []
    ox.on("finished", lambda result: finished.append(result.id))

    @ox.task
    async def task(number: int) -> int:
        return number

    results = await task.enqueue_many([(number,) for number in range(5)])
    lost = losing_answers(monkeypatch, ox, "settle")
    await ox.run_until_idle()

    assert [await result.wait(timeout=10) for result in results] == [0, 1, 2, 3, 4]
    assert sorted(finished) == sorted(result.id for result in results)
    assert len(lost) == 1
    assert "task_lease_lost" not in events(caplog)


@pytest.mark.engines("postgres", "mysql")
async def test_an_outcome_whose_row_is_locked_waits_alone(ox: Oxpull, competitor: Competitor):
    stage = Stage()

    @ox.task
    async def hold() -> str:
        await stage.hold()
        return "held"

    @ox.task
    async def quick() -> str:
        return "done"

    async with ox.running(worker=Worker(ox, concurrency=5)):
        held = await hold.enqueue()
        await stage.reached()
        competitor.begin()
        competitor.set_task(held.id, max_attempts=3)
        stage.open()
        for _ in range(3):
            result = await quick.enqueue()
            assert await result.wait(timeout=10) == "done"
        competitor.commit()
        assert await held.wait(timeout=10) == "held"
