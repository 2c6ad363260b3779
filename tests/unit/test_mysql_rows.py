"""Values as the MySQL family's drivers give and take them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from oxpull_async.drivers.mysql import _rows
from oxpull_async.ports import Claim, NewTask, NewUnique, TaskRow

ID = UUID("0192f0c1-d5a6-7bcd-8ef0-123456789abc")
MOMENT = datetime(2026, 11, 30, 12, 0, 0, 123456)

STORED: dict[str, Any] = {
    "id": ID.hex, "task_path": "a.b", "args": "[1]", "kwargs": "{}", "queue_name": "default", "priority": 5,
    "takes_context": 1, "backend_name": "default", "status": "READY", "run_after": None, "attempts": 0,
    "max_attempts": 3, "return_value": None, "errors": "[]", "worker_ids": "[]", "enqueued_at": MOMENT,
    "started_at": None, "last_attempted_at": MOMENT, "finished_at": None, "locked_by": None, "locked_at": None,
    "lease_expires_at": MOMENT, "lease_epoch": 0,
}  # fmt: skip


def new_task(**changes: Any) -> NewTask:
    values = {
        "id": ID, "task_path": "a.b", "args": "[1]", "kwargs": "{}", "queue_name": "default", "priority": 0,
        "takes_context": False, "backend_name": "default", "run_after": None, "max_attempts": 3,
        "enqueued_at": MOMENT.replace(tzinfo=UTC),
    }  # fmt: skip
    return NewTask(**{**values, **changes})


@pytest.mark.parametrize("id_", [ID.hex, str(ID)], ids=["char", "uuid"])
def test_a_row_comes_with_ids_instants_and_truths(id_: str):
    row = _rows.task_row(tuple({**STORED, "id": id_}.values()))

    assert row.id == ID
    assert row.takes_context is True
    assert row.enqueued_at == row.last_attempted_at == row.lease_expires_at == MOMENT.replace(tzinfo=UTC)
    assert row.run_after is None


def test_every_other_column_comes_as_it_is():
    row = _rows.task_row(tuple(STORED.values()))

    decoded = {"id", "takes_context", "enqueued_at", "last_attempted_at", "lease_expires_at"}
    assert list(TaskRow._fields) == list(STORED)
    assert {name: value for name, value in zip(STORED, row, strict=True) if name not in decoded} == {
        name: value for name, value in STORED.items() if name not in decoded
    }


def test_a_claim_comes_with_ids_instants_and_truths():
    columns = list(Claim._fields)

    claim = _rows.claim(tuple(STORED[name] for name in columns))

    assert (claim.id, claim.takes_context) == (ID, True)
    assert claim.enqueued_at == claim.lease_expires_at == MOMENT.replace(tzinfo=UTC)


def test_a_lock_may_name_nobody():
    assert _rows.held(None, (None,) * len(STORED)).task_id is None


def test_a_holder_may_be_gone():
    holder = _rows.held(str(ID), (None,) * len(STORED))

    assert (holder.task_id, holder.row) == (ID, None)


def test_an_instant_travels_in_utc_and_without_a_time_zone():
    east = MOMENT.replace(tzinfo=timezone(timedelta(hours=5)))

    values = _rows.task_values(new_task(run_after=east))

    assert values["run_after"] == MOMENT - timedelta(hours=5)
    assert values["enqueued_at"] == MOMENT


def test_an_id_travels_as_digits():
    task = new_task()

    assert _rows.task_values(task)["id"] == ID.hex
    assert _rows.lock_values(NewUnique("k" * 64, task))["task_id"] == ID.hex
    assert _rows.hex_ids([ID]) == (ID.hex,)
    assert _rows.hex_id(None) is None


def test_a_document_writes_instants_as_the_server_reads_them():
    document = _rows.document([{"at": MOMENT, "none": None, "text": 'é"\\'}])

    assert json.loads(document) == [{"at": "2026-11-30 12:00:00.123456", "none": None, "text": 'é"\\'}]


def test_a_document_takes_nothing_else():
    with pytest.raises(TypeError, match="no place"):
        _rows.document([{"id": ID}])


def test_locks_stand_in_key_order():
    document = _rows.lock_document([("b", str(ID)), ("a", None), ("c", ID.hex)])

    assert json.loads(document) == [
        {"key": "a", "task_id": None},
        {"key": "b", "task_id": ID.hex},
        {"key": "c", "task_id": ID.hex},
    ]


@pytest.mark.parametrize(("seconds", "expected"), [(300, 300_000_000), (0.1, 100_000), (1.0000014, 1_000_001)])
def test_a_duration_is_counted_in_microseconds(seconds: float, expected: int):
    assert _rows.microseconds(seconds) == expected
