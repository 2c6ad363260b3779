"""Plain rows: insert, get."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from oxpull_async._ids import new_id
from oxpull_async.exceptions import UniqueViolation
from oxpull_async.ports import NewTask, Store, TaskRow
from tests.conformance.rows import AGES_AGO, inserted, new_task, row
from tests.integration.competitor import Competitor

DEEP: object = [[]]
for _ in range(28):  # 30 levels, 31 with the list of arguments: as many as a MariaDB takes
    DEEP = [DEEP]


async def test_an_inserted_row_is_ready_and_has_nothing_behind_it(store: Store):
    (task,) = await inserted(store)

    assert await row(store, task.id) == TaskRow(
        id=task.id, task_path=task.task_path, args="[1]", kwargs="{}", queue_name="default", priority=0,
        takes_context=False, backend_name="default", status="READY", run_after=None, attempts=0, max_attempts=3,
        return_value=None, errors="[]", worker_ids="[]", enqueued_at=task.enqueued_at, started_at=None,
        last_attempted_at=None, finished_at=None, locked_by=None, locked_at=None, lease_expires_at=None,
        lease_epoch=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"enqueued_at": datetime(2026, 11, 30, 1, 2, 3, 456789, UTC)}, id="microseconds"),
        pytest.param({"enqueued_at": datetime(2026, 11, 30, 1, 2, 3, 1, UTC)}, id="one microsecond"),
        pytest.param({"enqueued_at": datetime(2026, 11, 30, 1, 2, 3, 0, UTC)}, id="no microseconds"),
        pytest.param({"run_after": datetime(2999, 12, 31, 23, 59, 59, 999999, UTC)}, id="far ahead"),
        pytest.param({"run_after": AGES_AGO}, id="long ago"),
        pytest.param({"priority": -100, "takes_context": True, "max_attempts": 32767}, id="other numbers"),
        pytest.param({"priority": 100, "max_attempts": 1}, id="highest priority"),
        pytest.param({"task_path": "é" * 255, "queue_name": "漢" * 128, "backend_name": "ß" * 128}, id="long names"),
        pytest.param({"task_path": "a.😀", "queue_name": "q 'x' \"y\" `z` \\ % ? $1 :name %s"}, id="odd names"),
        pytest.param({"queue_name": " padded "}, id="blanks around a name"),
    ],
)
async def test_columns_come_back_as_they_went_in(store: Store, changes: dict[str, Any]):
    (task,) = await inserted(store, **changes)

    found = await row(store, task.id)

    assert {name: getattr(found, name) for name in changes} == changes


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        pytest.param(["plain", "é", "漢字", "😀", "\u2028", "\x7f"], {"ключ": "😀"}, id="text"),
        pytest.param(["'", '"', "\\", "\\'", "%", "%s", "?", ":x", "$1", "\n\t\r"], {}, id="quotes"),
        pytest.param([None, True, False, 0, -1, 2**63, -(2**63), 0.1, 1.5e-7], {}, id="scalars"),
        pytest.param([DEEP], {"a": {"b": [{"c": None}]}}, id="deep"),
        pytest.param([], {}, id="nothing"),
        pytest.param(["null", "", {}, [], {"": None}], {"x": None}, id="emptiness"),
        pytest.param(["x" * 70_000], {}, id="long"),
    ],
)
async def test_arguments_come_back_as_they_went_in(store: Store, args: list[object], kwargs: dict[str, object]):
    (task,) = await inserted(store, args=json.dumps(args), kwargs=json.dumps(kwargs))

    found = await row(store, task.id)

    assert json.loads(found.args) == args
    assert json.loads(found.kwargs) == kwargs


async def test_arguments_of_five_megabytes_come_back_whole(store: Store):
    text = "é" * 400_000 + "x" * 2_600_000
    (task,) = await inserted(store, args=json.dumps([text]))

    assert json.loads((await row(store, task.id)).args) == [text]


async def test_an_instant_is_the_same_in_whatever_zone_it_is_given(store: Store):
    instant = datetime(2027, 3, 28, 1, 30, 0, 123456, UTC)
    india = instant.astimezone(timezone(timedelta(hours=5, minutes=30)))
    (task,) = await inserted(store, run_after=india)

    found = await row(store, task.id)

    assert found.run_after == instant
    assert found.run_after is not None
    assert found.run_after.utcoffset() == timedelta(0)


async def test_inserting_nothing_is_nothing(store: Store, competitor: Competitor):
    await store.insert_tasks([])

    assert competitor.counts() == (0, 0)


async def test_five_thousand_rows_go_in_together(store: Store, competitor: Competitor):
    tasks = await inserted(store, count=5_001)

    assert competitor.counts() == (5_001, 0)
    found = await store.get_tasks([task.id for task in tasks])
    assert sorted(row.id for row in found) == sorted(task.id for task in tasks)


@pytest.mark.parametrize("count", [1, 2, 5_001])
async def test_an_id_that_exists_keeps_every_row_out(store: Store, competitor: Competitor, count: int):
    (first,) = await inserted(store)
    others: list[NewTask] = [new_task() for _ in range(count - 1)]

    with pytest.raises(UniqueViolation):
        await store.insert_tasks([*others, new_task(id=first.id)])

    assert competitor.counts() == (1, 0)


async def test_a_row_that_is_not_there_is_none(store: Store):
    assert await store.get_task(new_id()) is None


async def test_of_many_rows_those_are_returned_that_exist(store: Store):
    first, second = await inserted(store, count=2)

    found = await store.get_tasks([second.id, new_id(), first.id])

    assert {row.id for row in found} == {first.id, second.id}
    assert await row(store, first.id) in found


async def test_no_ids_are_no_rows(store: Store):
    await inserted(store)

    assert list(await store.get_tasks([])) == []
