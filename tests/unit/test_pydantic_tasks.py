"""Tasks declared with ``pydantic=True``: what is written, what is refused, what they get."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from oxpull_async import InvalidArguments, InvalidTask, Oxpull, TaskContext, TaskFailed, Unique
from oxpull_async.core.keys import unique_key
from oxpull_async.testing import assert_enqueued, inline

SOME_ID = UUID("018f0000-0000-7000-8000-000000000001")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Kind(Enum):
    NEW = "new"
    OLD = "old"


class Line(BaseModel):
    article: UUID
    price: Decimal


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(alias="no")
    lines: list[Line]


ORDER = Order(no=1, lines=[Line(article=SOME_ID, price=Decimal("9.90"))])


@pytest.fixture
async def ox() -> Any:
    async with Oxpull.in_memory() as ox:
        yield ox


async def test_a_task_gets_what_was_given_though_json_was_stored(ox: Oxpull):
    got: list[Any] = []

    @ox.task(pydantic=True)
    async def take(order: Order, at: datetime, kind: Kind, *, price: Decimal, days: set[date] | None = None) -> None:
        got.append((order, at, kind, price, days))

    result = await take.enqueue(ORDER, NOON, Kind.OLD, price=Decimal("1.10"), days={date(2026, 1, 2)})
    await ox.run_until_idle(raise_errors=True)

    assert got == [(ORDER, NOON, Kind.OLD, Decimal("1.10"), {date(2026, 1, 2)})]
    assert result.args == [
        {"no": 1, "lines": [{"article": str(SOME_ID), "price": "9.90"}]}, "2026-11-30T12:00:00Z", "old",
    ]  # fmt: skip
    assert result.kwargs == {"price": "1.10", "days": ["2026-01-02"]}
    assert (await ox.get_result(result.id)).args == result.args


async def test_an_argument_that_does_not_fit_is_refused_before_sql(ox: Oxpull):
    @ox.task(pydantic=True)
    async def take(order: Order, number: Annotated[int, Field(gt=0)] = 1) -> None: ...

    with pytest.raises(InvalidArguments, match=r"argument 'order' of .*take: \['no'\]: Field required"):
        await take.enqueue({"lines": []})  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match=r"argument 'number' of .*greater than 0 \(given: -1\)"):
        await take.enqueue(ORDER, -1)
    with pytest.raises(InvalidArguments, match="missing a required argument"):
        await take.enqueue()  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="call 1: argument 'number'"):
        await take.enqueue_many([(ORDER, 1), (ORDER, 0)])
    assert [row async for row in _rows(ox)] == []


async def test_keys_are_of_what_is_written(ox: Oxpull):
    @ox.task(pydantic=True, unique=True)
    async def take(order: Order, at: datetime) -> None: ...

    first = await take.enqueue(ORDER, NOON)
    as_json = await take.enqueue({"no": "1", "lines": [{"article": str(SOME_ID), "price": "9.90"}]}, NOON.isoformat())  # type: ignore[arg-type]
    by_name = await take.enqueue(ORDER, at=NOON)

    assert (as_json.id, as_json.created) == (first.id, False)
    assert by_name.created
    assert unique_key("default", take.path, "default", first.args, first.kwargs) == unique_key(
        "default", take.path, "default", as_json.args, as_json.kwargs
    )


async def test_keys_of_chosen_parameters_and_of_functions(ox: Oxpull):
    @ox.task(pydantic=True, unique=Unique(by=("at",)))
    async def by_instant(at: datetime = NOON, note: str = "") -> None: ...

    @ox.task(pydantic=True, unique=Unique(by=lambda order: order.lines[0]))
    async def by_line(order: Order) -> None: ...

    assert [result.created for result in await by_instant.enqueue_many([(), (NOON, "x"), (NOON + timedelta(1),)])] == [
        True, False, True,
    ]  # fmt: skip
    assert [(await by_line.enqueue(ORDER)).created for _ in range(2)] == [True, False]


async def test_return_values_are_encoded(ox: Oxpull):
    @ox.task(pydantic=True)
    async def give() -> dict[str, Any]:
        return {"order": ORDER, "at": NOON, "kind": Kind.NEW}

    @ox.task(pydantic=True)
    def give_in_a_thread() -> Decimal:
        return Decimal("1.5")

    results = [await give.enqueue(), await give_in_a_thread.enqueue()]
    await ox.run_until_idle(raise_errors=True)

    assert await results[0].wait(1) == {
        "order": {"no": 1, "lines": [{"article": str(SOME_ID), "price": "9.90"}]},
        "at": "2026-11-30T12:00:00Z",
        "kind": "new",
    }
    assert await results[1].wait(1) == "1.5"


async def test_a_value_of_an_unknown_type_is_a_failed_attempt(ox: Oxpull):
    @ox.task(pydantic=True, max_attempts=1)
    async def give() -> object:
        return object()

    result = await give.enqueue()
    await ox.run_until_idle()

    with pytest.raises(TaskFailed, match="Unable to serialize"):
        await result.wait(1)


async def test_a_stored_argument_that_no_longer_fits_fails_the_attempt(ox: Oxpull):
    @ox.task(pydantic=True, max_attempts=1)
    async def take(order: Order) -> None: ...

    result = await ox.reference(take.path, max_attempts=1).enqueue({"old": "shape"})
    await ox.run_until_idle()

    with pytest.raises(TaskFailed, match="argument 'order' of .*, as it is stored"):
        await result.wait(1)


async def test_context_variadic_and_unannotated_parameters(ox: Oxpull):
    got: list[Any] = []

    @ox.task(pydantic=True, takes_context=True)
    async def take(context: TaskContext, /, first, *rest: date, **more: Kind) -> None:
        got.append((context.attempt, first, rest, more))

    await take.enqueue(NOON, date(2026, 1, 1), date(2026, 1, 2), kind=Kind.NEW)
    await ox.run_until_idle(raise_errors=True)

    assert got == [(1, "2026-11-30T12:00:00Z", (date(2026, 1, 1), date(2026, 1, 2)), {"kind": Kind.NEW})]


async def test_strict_models_take_their_own_json(ox: Oxpull):
    got: list[Any] = []

    @ox.task(pydantic=True)
    async def take(event: Strict) -> None:
        got.append(event)

    await take.enqueue(Strict(at=NOON))
    await ox.run_until_idle(raise_errors=True)

    assert got == [Strict(at=NOON)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    at: datetime


async def test_values_that_no_engine_stores_are_refused_all_the_same(ox: Oxpull):
    @ox.task(pydantic=True)
    async def take(number: float, text: str = "") -> None: ...

    for arguments in [(float("nan"),), (1.0, "\0")]:
        with pytest.raises(InvalidArguments):
            await take.enqueue(*arguments)  # type: ignore[arg-type]


async def test_a_reference_encodes_each_argument_by_its_own_type(ox: Oxpull):
    foreign = ox.reference("elsewhere.tasks.take", pydantic=True)

    result = await foreign.enqueue(ORDER, at=NOON)

    assert result.args == [json.loads(ORDER.model_dump_json(by_alias=True))]
    with pytest.raises(InvalidArguments, match=r"elsewhere\.tasks\.take"):
        await foreign.enqueue(object())


async def test_an_annotation_that_pydantic_cannot_use_is_told(ox: Oxpull):
    class Opaque: ...

    async def opaque(x: Any) -> None: ...

    async def unknown(x: Any) -> None: ...

    opaque.__annotations__ = {"x": Opaque}
    unknown.__annotations__ = {"x": "Nowhere"}

    with pytest.raises(InvalidTask, match="parameter 'x' of .*opaque"):
        await ox.task(pydantic=True)(opaque).enqueue(1)
    with pytest.raises(InvalidTask, match="TYPE_CHECKING"):
        await ox.task(pydantic=True)(unknown).enqueue(1)


async def test_without_it_models_are_refused(ox: Oxpull):
    @ox.task
    async def take(order: Order) -> None: ...

    with pytest.raises(InvalidArguments, match="argument 1"):
        await take.enqueue(ORDER)


async def test_the_test_kit_speaks_of_such_arguments_too(ox: Oxpull):
    @ox.task(pydantic=True)
    async def take(order: Order) -> Order:
        return order

    with inline(ox):
        assert (await take.enqueue(ORDER)).return_value == json.loads(ORDER.model_dump_json(by_alias=True))
        await assert_enqueued(take, args=[ORDER])
    assert await take(ORDER) is ORDER


async def _rows(ox: Oxpull) -> Any:
    from oxpull_async.runtime.listing import every_row

    async for row in every_row(ox.store):
        yield row
