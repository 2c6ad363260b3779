"""Tasks of ``django.tasks``, enqueued as they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from asgiref.sync import sync_to_async
from django_ox.models import OxTask
from django_project import tasks

from oxpull_async import Call, InvalidArguments, InvalidTask, Oxpull, enqueue, enqueue_unique_many
from oxpull_async.integrations.django import DjangoConnection, aatomic

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("django_here")]

COLUMNS = [
    "task_path", "args", "kwargs", "queue_name", "priority", "takes_context", "backend_name", "status", "run_after",
    "attempts", "max_attempts", "return_value", "errors", "worker_ids", "started_at", "last_attempted_at",
    "finished_at", "locked_by", "locked_at", "lease_expires_at", "lease_epoch",
]  # fmt: skip
SOON = datetime(2126, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def stored(task_id: object) -> dict[str, object]:
    return await OxTask.objects.values(*COLUMNS).aget(id=task_id)


@pytest.mark.parametrize(
    "task",
    [
        tasks.plain,
        tasks.with_priority,
        tasks.with_context,
        tasks.patient,
        tasks.listed,
        tasks.marked_in_vain,
        tasks.plain.using(queue_name="elsewhere", priority=-100, run_after=SOON),
        tasks.plain.using(backend="listed", run_after=datetime(2126, 1, 1, tzinfo=UTC)),
    ],
    ids=lambda task: f"{task.name}-{task.backend}-{task.queue_name}",
)
@pytest.mark.engines("sqlite", "postgres")
async def test_the_row_is_the_one_that_django_writes(ox: Oxpull, task):
    arguments = () if task.takes_context else (5,)
    theirs = await sync_to_async(task.enqueue)(*arguments)
    await OxTask.objects.filter(id=theirs.id).aupdate(status="SUCCESSFUL")  # a unique one would be found again
    ours = await ox.enqueue(task, *arguments)

    assert ours.created
    assert await stored(ours.id) == await stored(theirs.id) | {"status": "READY"}


@pytest.mark.parametrize(
    ("task", "is_unique"),
    [
        (tasks.plain, False),
        (tasks.unique_plain, True),
        (tasks.unique_plain.using(priority=5), True),
        (tasks.listed, True),
        (tasks.listed.using(backend="default"), False),
        (tasks.marked_in_vain, False),
        (tasks.marked_in_vain.using(backend="default"), True),
    ],
)
@pytest.mark.engines("sqlite")
async def test_a_task_is_unique_where_django_takes_it_as_such(ox: Oxpull, task, is_unique: bool):
    first, again = await ox.enqueue(task, 1), await ox.enqueue(task, 1)
    theirs = await sync_to_async(task.enqueue)(1)

    assert again.created == (not is_unique)
    assert (theirs.id == str(first.id)) == is_unique


@pytest.mark.engines("sqlite")
async def test_settings_of_an_oxpull_make_a_task_of_django_unique_too(migrated_url: str):
    async with Oxpull(migrated_url, unique_tasks=["django_project.tasks.plain"]) as ox:
        results = [await ox.enqueue(tasks.plain, 1) for _ in range(2)]

    assert [result.created for result in results] == [True, False]


@pytest.mark.engines("sqlite")
async def test_every_verb_takes_a_task_of_django(ox: Oxpull):
    bound = ox.bind(DjangoConnection())
    await ox.enqueue_unique(tasks.plain, 1)
    await ox.enqueue_many(tasks.plain, [(2,), Call((3,), {"a": 4})])
    await ox.enqueue_unique_many(tasks.plain, [(1,), (5,), (5,)])
    async with aatomic():
        await bound.enqueue(tasks.plain, 1)
        await bound.enqueue_unique(tasks.plain, 1)
        await bound.enqueue_many(tasks.unique_plain, [(1,), (1,), (2,)])
        await bound.enqueue_unique_many(tasks.plain, [(1,), (6,)])

    rows = [(row["args"], row["kwargs"]) async for row in OxTask.objects.values("args", "kwargs")]
    assert sorted(args[0] for args, _ in rows) == [1, 1, 1, 2, 2, 3, 5, 6]
    assert {"a": 4} in [kwargs for _, kwargs in rows]


@pytest.mark.engines("sqlite")
async def test_arguments_that_do_not_fit_are_refused_before_any_row(ox: Oxpull):
    with pytest.raises(InvalidArguments, match="with_priority"):
        await ox.enqueue(tasks.with_priority)
    with pytest.raises(InvalidArguments, match="with_context"):
        await ox.enqueue(tasks.with_context, 1)

    assert await OxTask.objects.acount() == 0


@pytest.mark.engines("sqlite")
async def test_a_task_without_rows_is_refused_by_name(ox: Oxpull):
    with pytest.raises(InvalidTask, match="ImmediateBackend"):
        await ox.enqueue(tasks.immediate, 1)


@pytest.mark.parametrize("what", [tasks.plain.func, "django_project.tasks.plain", None, 5])
@pytest.mark.engines("sqlite")
async def test_what_is_no_task_is_refused(ox: Oxpull, what):
    with pytest.raises(InvalidTask, match="no task"):
        await ox.enqueue(what, 1)
    with pytest.raises(InvalidTask, match="no task"):
        await ox.bind(DjangoConnection()).enqueue_many(what, [(1,)])


@pytest.mark.engines("sqlite")
async def test_a_task_that_belongs_to_no_oxpull_has_to_be_enqueued_by_one(ox: Oxpull):
    verbs: list[tuple[Any, Any]] = [(enqueue, 1), (enqueue_unique_many, [(1,)])]
    for verb, calls in verbs:
        with pytest.raises(InvalidTask, match=r"belongs to no Oxpull: use ox\.enqueue"):
            await verb(tasks.plain, calls)

    assert await OxTask.objects.acount() == 0


@pytest.mark.engines("sqlite")
async def test_a_queue_is_checked_against_that_of_the_own_backend_alone(migrated_url: str):
    async with Oxpull(migrated_url, queues=["default"]) as ox:
        with pytest.raises(InvalidTask, match="mail"):
            await ox.enqueue(tasks.with_priority, 1)
        assert (await ox.enqueue(tasks.patient, 1)).queue_name == "mail"  # of another backend, which has checked it


@pytest.mark.engines("sqlite")
async def test_a_delay_counts_from_the_enqueue(ox: Oxpull):
    due = datetime.now(UTC) + timedelta(hours=1)
    result = await ox.enqueue(tasks.plain.using(run_after=due), 1)

    assert result.run_after == due
