"""Plain and bulk enqueue: what is written, what is refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import anyio
import pytest

from oxpull_async import (
    Call,
    EnqueueResult,
    InvalidArguments,
    InvalidTask,
    Oxpull,
    Task,
    TaskResultDoesNotExist,
    TaskStatus,
    UniqueEnqueueRace,
    enqueue,
    enqueue_many,
    enqueue_unique,
    enqueue_unique_many,
)
from tests.integration.competitor import Competitor
from tests.scale import rounds

PATH = "proof.tasks.send"
AnyTask = Task[Any, Any]


class Colour(Enum):
    RED = 1


@pytest.fixture
def plain(ox: Oxpull) -> AnyTask:
    """A task that takes any arguments."""
    return ox.reference(PATH)


@pytest.fixture
def send(ox: Oxpull) -> AnyTask:
    """A unique task that takes any arguments."""
    return ox.reference(PATH, unique=True)


# Plain


async def test_each_plain_call_makes_a_row(ox: Oxpull, plain: AnyTask, competitor: Competitor):
    first, second = await plain.enqueue(1), await plain.enqueue(1)

    assert first.id != second.id
    assert first.created
    assert second.created
    assert competitor.counts() == (2, 0)


async def test_a_new_row_has_nothing_of_a_run_yet(ox: Oxpull, plain: AnyTask):
    result = await plain.enqueue(1)

    row = await ox.store.get_task(result.id)
    assert row is not None
    assert (row.status, row.attempts, row.max_attempts, row.lease_epoch) == ("READY", 0, 3, 0)
    assert (row.errors, row.worker_ids, row.return_value) == ("[]", "[]", None)
    nothing = (row.run_after, row.started_at, row.last_attempted_at, row.finished_at)
    assert {*nothing, row.locked_by, row.locked_at, row.lease_expires_at} == {None}


async def test_the_rows_of_one_call_are_of_one_age(plain: AnyTask):
    results = await plain.enqueue_many([(number,) for number in range(3)])

    assert len({result.enqueued_at for result in results}) == 1


async def test_a_result_is_what_a_reader_of_the_row_gets(ox: Oxpull, competitor: Competitor):
    task = ox.reference(PATH, queue_name="mail", priority=7, max_attempts=9)
    result = await task.using(run_after=3600).enqueue(1, (2, {3: None}), b"x", a={"é": [1.5, True]})

    found = await ox.get_result(result.id)

    assert {**result.model_dump(), "created": None} == {**found.model_dump(), "created": None}
    assert found.args == [1, [2, {"3": None}], "x"]
    assert found.kwargs == {"a": {"é": [1.5, True]}}
    assert (found.status, found.backend_name) == (TaskStatus.READY, "default")
    assert await ox.get_result(str(result.id)) == found


async def test_many_plain_calls_side_by_side_each_make_a_row(ox: Oxpull, plain: AnyTask, competitor: Competitor):
    count = rounds(small=300, full=5_000)
    results = await _at_once([plain.using(priority=n % 7) for n in range(count)])

    assert len({result.id for result in results}) == count
    assert set(competitor.statuses()) == {result.id for result in results}
    rows = competitor.rows("SELECT id, priority FROM django_ox_oxtask")
    stored = {UUID(str(id)): priority for id, priority in rows}
    assert stored == {result.id: result.priority for result in results}


async def test_the_functions_do_what_the_methods_do(ox: Oxpull, plain: AnyTask, competitor: Competitor):
    assert (await enqueue(plain, 1)).created
    assert (await ox.enqueue(plain, 1)).created
    unique = await enqueue_unique(plain, 1)
    assert (await ox.enqueue_unique(plain, 1)).id == unique.id
    assert len(await enqueue_many(plain, [(1,), (2,)])) == 2
    assert len(await ox.enqueue_many(plain, [(1,), (2,)])) == 2
    assert (await enqueue_unique_many(plain, [(1,)]))[0].id == unique.id
    assert (await ox.enqueue_unique_many(plain, [(1,)]))[0].id == unique.id
    assert competitor.counts() == (7, 1)


@pytest.mark.parametrize(
    "task_id", [uuid4(), "zz", "", str(uuid4()), 5], ids=["uuid", "word", "empty", "text", "number"]
)
async def test_an_id_without_a_row_is_told_in_one_way(ox: Oxpull, task_id: Any):
    with pytest.raises(TaskResultDoesNotExist, match="UUID" if task_id in ("zz", "", 5) else "no task row"):
        await ox.get_result(task_id)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_unique", "enqueue_many", "enqueue_unique_many"])
@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), timedelta(1), uuid4(), Decimal("1.5"), {1, 2}, Colour.RED,
        object(), float("nan"), float("inf"), "a\0b", "\ud800", b"\xff", 10**5000, [[{"a": {1}}]], {(1, 2): 3},
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
async def test_a_value_that_cannot_be_stored_is_refused_before_anything_is_written(
    plain: AnyTask, competitor: Competitor, name: str, value: object
):
    call: Any = getattr(plain, name)

    for keyword in (False, True):
        with pytest.raises(InvalidArguments, match="argument") as caught:
            if name.endswith("many"):
                await call([(1,), Call((), {"x": value}) if keyword else (1, value)])
            else:
                await (call(x=value) if keyword else call(1, value))
        assert "'x'" in str(caught.value) if keyword else "argument 2" in str(caught.value)
        assert isinstance(caught.value, TypeError)

    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_unique"])
async def test_a_caller_may_change_its_arguments_while_they_are_being_written(
    ox: Oxpull, plain: AnyTask, competitor: Competitor, name: str
):
    value: dict[str, Any] = {"a": [1]}
    results: list[EnqueueResult] = []

    async def call() -> None:
        results.append(await getattr(plain, name)(value, x=value))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.lowlevel.checkpoint()
        value["a"].append(object())
        value["b"] = object()

    (result,) = results
    assert (result.args, result.kwargs) == ([{"a": [1]}], {"x": {"a": [1]}})
    result.args[0]["a"].append(2)
    assert (await ox.get_result(result.id)).args == [{"a": [1]}]


@pytest.mark.parametrize("size", [9_000, 70_000, 5_000_000])
async def test_a_long_argument_is_stored_whole(ox: Oxpull, send: AnyTask, size: int):
    text = ("é'\"\\%s" * size)[: size // 3]

    result = await send.enqueue(text)

    assert (await ox.get_result(result.id)).args == [text]
    assert (await send.enqueue(text)).id == result.id


async def test_an_argument_that_is_too_long_is_refused_before_anything_is_written(
    send: AnyTask, competitor: Competitor
):
    with pytest.raises(InvalidArguments, match=r"bytes of JSON .* store the data elsewhere"):
        await send.enqueue("x" * 70_000_000)

    assert competitor.counts() == (0, 0)


async def test_a_naive_instant_is_refused_before_anything_is_written(plain: AnyTask, competitor: Competitor):
    with pytest.raises(InvalidArguments, match="no time zone") as caught:
        await plain.using(run_after=datetime(2030, 1, 1)).enqueue(1)

    assert isinstance(caught.value, ValueError)
    assert competitor.counts() == (0, 0)


async def test_an_instant_of_any_zone_is_the_same_instant(ox: Oxpull, plain: AnyTask, competitor: Competitor):
    if competitor.scheme == "postgresql":
        (name,) = competitor.rows("SELECT current_database()")[0]
        competitor.run(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")
    india = datetime(2030, 1, 1, 5, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))

    async with Oxpull(ox.settings.database) as another:
        result = await another.reference(PATH).using(run_after=india).enqueue(1)
        assert result.run_after == datetime(2030, 1, 1, 0, 0, 0, 123456, UTC)
        assert (await another.get_result(result.id)).run_after == india

    found = await ox.get_result(result.id)
    assert found.run_after == india
    assert found.run_after is not None
    assert found.run_after.utcoffset() == timedelta(0)
    if competitor.scheme == "postgresql":
        competitor.run(f"ALTER DATABASE {name} RESET timezone")


async def test_arguments_come_back_as_json_makes_them(ox: Oxpull, send: AnyTask):
    result = await send.enqueue({"a": [1, "é", None]}, x={"b": {"c": [[]]}})

    found = await ox.get_result(result.id)

    assert (found.args, found.kwargs) == ([{"a": [1, "é", None]}], {"x": {"b": {"c": [[]]}}})
    assert (await send.enqueue({"a": [1, "é", None]}, x={"b": {"c": [[]]}})).id == result.id


# Many


async def test_many_plain_calls_are_answered_in_order(ox: Oxpull, plain: AnyTask, competitor: Competitor):
    calls: list[Call | Sequence[Any]] = [(1,), [2], Call((3,), {"a": 1}), Call(kwargs={"a": 2}), ()]

    results = await plain.enqueue_many(calls)

    assert [(result.args, result.kwargs, result.created) for result in results] == [
        ([1], {}, True), ([2], {}, True), ([3], {"a": 1}, True), ([], {"a": 2}, True), ([], {}, True),
    ]  # fmt: skip
    assert set(competitor.statuses()) == {result.id for result in results}
    assert len({result.enqueued_at for result in results}) == 1


# Ours works where the reference refuses
async def test_many_unique_calls_find_what_is_pending_and_create_the_rest(
    ox: Oxpull, send: AnyTask, competitor: Competitor
):
    pending = await send.enqueue(2)
    settled = await send.enqueue(3)
    competitor.set_task(settled.id, status="FAILED")

    results = await send.enqueue_many([(1,), (2,), (3,), (1,), (2,), (3,)])

    assert [result.created for result in results] == [True, False, True, False, False, False]
    assert [result.args for result in results] == [[1], [2], [3], [1], [2], [3]]
    ids = [result.id for result in results]
    assert ids[:3] == ids[3:]
    assert ids[1] == pending.id
    assert ids[2] != settled.id
    assert competitor.counts() == (4, 3)


async def test_rows_with_and_without_keys_do_not_disturb_one_another(
    ox: Oxpull, send: AnyTask, plain: AnyTask, competitor: Competitor
):
    first = await send.enqueue(1)

    assert len({result.id for result in await plain.enqueue_many([(1,), (1,)])} | {first.id}) == 3
    assert {result.id for result in await plain.enqueue_unique_many([(1,), (1,)])} == {first.id}
    assert competitor.counts() == (3, 1)


@pytest.mark.parametrize("name", ["enqueue_many", "enqueue_unique_many"])
async def test_no_calls_are_no_rows(plain: AnyTask, competitor: Competitor, name: str):
    assert await getattr(plain, name)([]) == []
    assert await getattr(plain, name)(iter(())) == []
    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("name", ["enqueue_many", "enqueue_unique_many"])
@pytest.mark.parametrize("item", [5, "text", None, {"a": 1}, b"x"], ids=repr)
async def test_an_item_that_is_no_call_is_named_by_its_index(
    plain: AnyTask, competitor: Competitor, name: str, item: Any
):
    with pytest.raises(InvalidArguments, match="call 1 of"):
        await getattr(plain, name)([(1,), item])

    assert competitor.counts() == (0, 0)


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("name", ["enqueue_many", "enqueue_unique_many"])
async def test_calls_that_are_not_many_are_refused(ox: Oxpull, plain: AnyTask, competitor: Competitor, name: str):
    async def numbers() -> AsyncIterator[tuple[int]]:
        yield (1,)

    for calls in (5, None, numbers()):
        with pytest.raises(InvalidArguments, match=r"an iterable of argument tuples"):
            await getattr(ox, name)(plain, calls)

    assert competitor.counts() == (0, 0)


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("verb", [enqueue, enqueue_unique, enqueue_many, enqueue_unique_many])
async def test_what_is_no_task_is_refused_wherever_it_is_given(ox: Oxpull, competitor: Competitor, verb: Any):
    for nothing in (len, "some.path", None):
        with pytest.raises(InvalidTask, match=r"is no task: decorate the function with @ox\.task"):
            await verb(nothing, [(1,)])
        with pytest.raises(InvalidTask, match=r"is no task: decorate the function with @ox\.task"):
            await getattr(ox, verb.__name__)(nothing, [(1,)])

    assert competitor.counts() == (0, 0)


async def test_an_item_that_does_not_fit_the_function_is_named_by_its_index(ox: Oxpull, competitor: Competitor):
    @ox.task
    async def add(a: int, b: int = 0) -> None: ...

    with pytest.raises(InvalidArguments, match="call 2: .*add"):
        await add.enqueue_many([(1,), (1, 2), (1, 2, 3)])

    assert competitor.counts() == (0, 0)


async def test_a_queue_that_is_not_accepted_is_refused_for_many(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url, queues=["mail"]) as ox:
        with pytest.raises(InvalidTask, match="'default'"):
            await ox.reference(PATH).enqueue_many([(1,)])
        with pytest.raises(InvalidTask, match="'default'"):
            await ox.reference(PATH, unique=True).enqueue_many([(1,)])

    assert competitor.counts() == (0, 0)


@pytest.mark.parametrize("unique", [False, True], ids=["plain", "unique"])
async def test_thousands_of_calls_are_written_together(ox: Oxpull, competitor: Competitor, unique: bool):
    task = ox.reference(PATH, unique=unique)
    count = rounds(small=5_500, full=30_000)

    results = await task.enqueue_many([(number,) for number in range(count)])

    assert [result.args for result in results] == [[number] for number in range(count)]
    assert competitor.counts() == (count, count if unique else 0)
    rows = competitor.rows("SELECT id, args FROM django_ox_oxtask")
    stored = {UUID(str(id)): args if isinstance(args, list) else json.loads(args) for id, args in rows}
    assert stored == {result.id: result.args for result in results}


async def test_many_unique_calls_are_all_or_none_when_one_key_stays_busy(migrated_url: str, competitor: Competitor):
    async with Oxpull(migrated_url, unique_wait=0.3) as ox:
        send = ox.reference(PATH, unique=True)
        busy = await send.enqueue(5)
        (key,) = competitor.locks()
        competitor.run("DELETE FROM oxpull_oxpulluniquelock")
        competitor.delete_task(busy.id)

        with competitor.holding(key), pytest.raises(UniqueEnqueueRace, match=PATH) as caught:
            await send.enqueue_many([(number,) for number in range(10)])
        assert competitor.counts() == (0, 0)
        assert (caught.value.reason, caught.value.retry) == ("lock_wait", "call")

        assert all(result.created for result in await send.enqueue_many([(number,) for number in range(10)]))


async def _at_once(tasks: Sequence[AnyTask]) -> list[EnqueueResult]:
    results: list[EnqueueResult] = []

    async def one(task: AnyTask) -> None:
        results.append(await task.enqueue(1))

    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(one, task)
    return results
