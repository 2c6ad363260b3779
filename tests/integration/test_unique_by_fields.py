"""What makes two calls the same may be a field of an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from oxpull_async import InvalidArguments, InvalidTask, Oxpull, Unique

pytestmark = pytest.mark.engines("sqlite")


class Address(BaseModel):
    city: str
    street: str = ""


class Order(BaseModel):
    id: int
    to: Address
    note: str = ""


@dataclass
class Point:
    x: int
    y: int


async def test_a_field_of_a_model_makes_the_key(ox: Oxpull) -> None:
    @ox.task(pydantic=True, unique=Unique(by=("order.id", "order.to.city")))
    async def ship(order: Order) -> None: ...

    first = await ship.enqueue(Order(id=1, to=Address(city="Turin"), note="a"))
    again = await ship.enqueue(order=Order(id=1, to=Address(city="Turin", street="Po"), note="b"))
    other = await ship.enqueue(Order(id=1, to=Address(city="Rome")))

    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.id == first.id


async def test_a_model_replaces_the_waiting_one(ox: Oxpull) -> None:
    @ox.task(pydantic=True, unique=Unique(by=("order.id",), on_duplicate="replace"))
    async def save(order: Order) -> None: ...

    first = await save.enqueue(Order(id=1, to=Address(city="Turin")))
    again = await save.enqueue(Order(id=1, to=Address(city="Rome")))

    assert again.id == first.id
    assert again.args[0]["to"]["city"] == "Rome"


async def test_dicts_have_fields_too(ox: Oxpull) -> None:
    @ox.task(unique=Unique(by=("event.kind",)))
    async def note(event: dict[str, Any]) -> None: ...

    assert (await note.enqueue({"kind": "a", "n": 1})).created
    assert not (await note.enqueue({"kind": "a", "n": 2})).created
    with pytest.raises(InvalidArguments, match="kind"):
        await note.enqueue({"n": 3})


async def test_dataclasses_have_fields_too(ox: Oxpull) -> None:
    @ox.task(pydantic=True, unique=Unique(by=("at.x",)))
    async def draw(at: Point) -> None: ...

    assert (await draw.enqueue(Point(1, 1))).created
    assert not (await draw.enqueue(Point(1, 2))).created


async def test_a_parameter_that_isn_t_there_is_refused(ox: Oxpull) -> None:
    async def note(other: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidTask, match="event"):
        ox.task(unique=Unique(by=("event.kind",)))(note)
