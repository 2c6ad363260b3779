"""What callers hold in their hands: results, how they are read again and waited for."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import anyio
import pytest

from oxpull_async import DuplicateTask, NotOpen, StoreError, TaskFailed, TaskResult, TaskResultDoesNotExist, TaskStatus
from oxpull_async._ids import new_id
from oxpull_async.ports import NewTask, TaskRow
from oxpull_async.results import EnqueueResult, created_result, duplicate_result, task_result
from oxpull_async.runtime.hints import SettleHints
from oxpull_async.runtime.reading import Reader

NOW = datetime(2026, 11, 30, 1, 2, 3, 456789, UTC)
RECORDS = [
    {"exception_class_path": "builtins.ValueError", "traceback": "Traceback …\nValueError: first\n"},
    {"exception_class_path": "builtins.OSError", "traceback": "Traceback …\nOSError: last\n"},
]


def row(**changes: Any) -> TaskRow:
    plain = TaskRow(
        id=new_id(), task_path="proof.tasks.send", args='[1, {"a": null}]', kwargs='{"b": "é"}', queue_name="default",
        priority=0, takes_context=False, backend_name="default", status="READY", run_after=None, attempts=0,
        max_attempts=3, return_value=None, errors="[]", worker_ids="[]", enqueued_at=NOW, started_at=None,
        last_attempted_at=None, finished_at=None, locked_by=None, locked_at=None, lease_expires_at=None, lease_epoch=0,
    )  # fmt: skip
    return plain._replace(**changes)


class Shelf:
    """A source with one row on it, or none; and a store, for a Reader."""

    def __init__(self, row: TaskRow | None) -> None:
        self.row = row
        self.reads = 0

    async def read_row(self, task_id: UUID) -> TaskRow:
        found = await self.get_task(task_id)
        if found is None:
            raise TaskResultDoesNotExist("gone")
        return found

    async def settled_row(self, task_id: UUID, timeout: float | None) -> TaskRow:
        return await self.read_row(task_id)

    async def get_task(self, task_id: UUID) -> TaskRow | None:
        self.reads += 1
        return self.row


def test_a_result_has_the_fields_of_its_row():
    stored = row(
        status="SUCCESSFUL", return_value='{"x": [1]}', errors=json.dumps(RECORDS), worker_ids='["w1", "w2"]',
        attempts=2, started_at=NOW, last_attempted_at=NOW, finished_at=NOW, run_after=NOW, priority=-5,
    )  # fmt: skip
    result = task_result(stored, Shelf(stored))

    assert result.model_dump() == {
        "id": stored.id, "task_path": "proof.tasks.send", "args": [1, {"a": None}], "kwargs": {"b": "é"},
        "queue_name": "default", "priority": -5, "backend_name": "default", "status": TaskStatus.SUCCESSFUL,
        "run_after": NOW, "attempts": 2, "max_attempts": 3, "return_value": {"x": [1]}, "errors": RECORDS,
        "worker_ids": ["w1", "w2"], "enqueued_at": NOW, "started_at": NOW, "last_attempted_at": NOW,
        "finished_at": NOW,
    }  # fmt: skip
    assert result.is_finished
    json.loads(result.model_dump_json())


def test_a_new_result_is_what_its_row_will_be():
    task = NewTask(
        id=new_id(), task_path="proof.tasks.send", args='[1, {"a": null}]', kwargs='{"b": "é"}', queue_name="mail",
        priority=3, takes_context=False, backend_name="other", run_after=NOW, max_attempts=7, enqueued_at=NOW,
    )  # fmt: skip
    stored = row(id=task.id, queue_name="mail", priority=3, backend_name="other", run_after=NOW, max_attempts=7)

    created = created_result(task, Shelf(stored))
    duplicate = duplicate_result(stored, Shelf(stored))

    assert created.created
    assert not duplicate.created
    assert {**created.model_dump(), "created": None} == {**duplicate.model_dump(), "created": None}
    assert isinstance(created, EnqueueResult)
    assert isinstance(created, TaskResult)


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        ("READY", False), ("RUNNING", False), ("WAITING", False), ("SUCCESSFUL", True), ("FAILED", True),
        ("LOST", True), ("DISCARDED", True),
    ],
)  # fmt: skip
def test_a_settled_result_is_finished(status: str, finished: bool):
    stored = row(status=status)

    assert task_result(stored, Shelf(stored)).is_finished is finished


def test_a_status_of_a_later_version_is_told_as_such():
    stored = row(status="PARKED")

    with pytest.raises(StoreError, match="'PARKED'.*doesn't know"):
        task_result(stored, Shelf(stored))


async def test_a_result_can_be_read_again():
    stored = row()
    shelf = Shelf(stored)
    result = task_result(stored, shelf)
    shelf.row = stored._replace(status="RUNNING", attempts=1)

    assert await result.refresh() is result

    assert (result.status, result.attempts) == (TaskStatus.RUNNING, 1)
    shelf.row = None
    with pytest.raises(TaskResultDoesNotExist):
        await result.refresh()


async def test_a_result_of_nobody_says_so():
    stored = row()
    result = TaskResult.model_validate(task_result(stored, Shelf(stored)).model_dump())

    with pytest.raises(NotOpen, match="get_result"):
        await result.refresh()
    with pytest.raises(NotOpen, match="get_result"):
        await result.wait()


@pytest.mark.parametrize(("stored", "value"), [(None, None), ("null", None), ("[1]", [1]), ('"é"', "é")])
async def test_waiting_gives_the_value(stored: str | None, value: object):
    done = row(status="SUCCESSFUL", return_value=stored)
    result = task_result(row(id=done.id), Shelf(done))

    assert await result.wait() == value
    assert result.status is TaskStatus.SUCCESSFUL


@pytest.mark.parametrize("status", ["FAILED", "LOST", "DISCARDED"])
async def test_waiting_for_what_ended_badly_raises_with_its_errors(status: str):
    done = row(status=status, errors=json.dumps(RECORDS), attempts=2)
    result = task_result(row(id=done.id), Shelf(done))

    with pytest.raises(TaskFailed, match=rf"{status} after 2 attempt.*OSError: last") as caught:
        await result.wait()

    assert (caught.value.task_id, caught.value.status, caught.value.errors) == (done.id, status, RECORDS)
    assert result.status == status


async def test_waiting_for_what_was_given_up_unrun_has_no_errors_to_tell():
    done = row(status="DISCARDED")

    with pytest.raises(TaskFailed, match="DISCARDED after 0 attempt"):
        await task_result(done, Shelf(done)).wait()


class TestTheReader:
    """Polls, and is woken by hints."""

    @staticmethod
    def reader(shelf: Shelf, hints: SettleHints | None = None) -> Reader:
        def store() -> Any:
            return shelf

        return Reader(store, hints or SettleHints())

    async def test_a_settled_row_is_returned_at_once(self):
        shelf = Shelf(row(status="SUCCESSFUL"))

        assert await self.reader(shelf).settled_row(new_id(), None) is shelf.row
        assert shelf.reads == 1

    async def test_a_hint_wakes_who_waits(self):
        stored = row()
        shelf, hints = Shelf(stored), SettleHints()
        found: list[TaskRow] = []

        async def wait() -> None:
            found.append(await self.reader(shelf, hints).settled_row(stored.id, 30))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.lowlevel.checkpoint()
                shelf.row = stored._replace(status="SUCCESSFUL")
                hints.settled([stored.id, new_id()])

        assert found == [shelf.row]

    async def test_without_a_hint_it_is_found_by_polling(self):
        stored = row()
        shelf = Shelf(stored)

        async with anyio.create_task_group() as group:

            async def settle() -> None:
                while shelf.reads < 3:
                    await anyio.lowlevel.checkpoint()
                shelf.row = stored._replace(status="FAILED")

            group.start_soon(settle)
            with anyio.fail_after(5):
                assert (await self.reader(shelf).settled_row(stored.id, None)).status == "FAILED"

    @pytest.mark.parametrize("timeout", [0, 0.05])
    async def test_a_time_that_is_over_is_told(self, timeout: float):
        shelf = Shelf(row(status="RUNNING"))

        with anyio.fail_after(5), pytest.raises(TimeoutError, match="still RUNNING"):
            await self.reader(shelf).settled_row(new_id(), timeout)

        assert shelf.reads >= 1

    async def test_a_row_that_disappears_is_told(self):
        shelf = Shelf(row())

        async with anyio.create_task_group() as group:

            async def delete() -> None:
                while shelf.reads < 2:
                    await anyio.lowlevel.checkpoint()
                shelf.row = None

            group.start_soon(delete)
            with anyio.fail_after(5), pytest.raises(TaskResultDoesNotExist):
                await self.reader(shelf).settled_row(new_id(), None)

    async def test_nothing_is_kept_of_those_who_have_waited(self):
        hints = SettleHints()
        await self.reader(Shelf(row(status="LOST")), hints).settled_row(new_id(), None)

        assert not hints._waiting


class Uncopied(Shelf):
    """As an Oxpull: what it holds can be neither copied nor pickled."""

    def __init__(self, row: TaskRow | None) -> None:
        super().__init__(row)
        self.lock = threading.Lock()


COPIES: dict[str, Callable[[TaskResult], TaskResult]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda result: result.model_copy(deep=True),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
async def test_a_copy_is_read_again_where_its_original_came_from(copied: Callable[[TaskResult], TaskResult]):
    shelf = Uncopied(row())
    result = duplicate_result(row(), shelf)

    other = copied(result)
    assert type(other) is EnqueueResult
    assert other == result

    shelf.row = row(status="SUCCESSFUL", return_value="7")
    assert await other.wait() == 7
    assert (result.status, result.return_value) == (TaskStatus.READY, None)


def test_a_deep_copy_shares_nothing_that_can_be_changed():
    result = task_result(row(), Uncopied(None))

    copy.deepcopy(result).args.append("more")

    assert result.args == [1, {"a": None}]


async def test_a_pickled_result_arrives_without_its_oxpull():
    result = duplicate_result(row(errors=json.dumps(RECORDS)), Uncopied(row()))

    arrived = pickle.loads(pickle.dumps(result))

    assert type(arrived) is EnqueueResult
    assert arrived.model_dump() == result.model_dump()
    with pytest.raises(NotOpen, match="pickled"):
        await arrived.refresh()
    await result.refresh()  # the original still can


def test_the_holder_that_an_error_names_travels_with_it():
    error = DuplicateTask("held", holder=duplicate_result(row(), Uncopied(None)))

    found = pickle.loads(pickle.dumps(error))

    assert (type(found), str(found)) == (DuplicateTask, "held")
    assert found.holder.id == error.holder.id
