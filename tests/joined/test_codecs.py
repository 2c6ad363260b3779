"""A caller's connection may read and write values its own way: what is stored and returned stays the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import NullPool, event
from sqlalchemy.ext.asyncio import create_async_engine

from oxpull_async import ConnectionLost, Oxpull, StoreError, Unique
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import SEND
from tests.joined.handles import Caller, Handle, sqlalchemy_url

VALUE = {"a": [1, "é", None], "😀": {"b": 1.5, "c": True}}


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _wrapped(text: str) -> list[object]:
    return [json.loads(text)]


async def _json(connection: Any) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


async def _other_json(connection: Any) -> None:
    for name in ("json", "jsonb"):
        await connection.set_type_codec(
            name, encoder=_text, decoder=lambda text: [json.loads(text)], schema="pg_catalog"
        )


async def _text_of_ids(connection: Any) -> None:
    await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog", format="text")


async def _text_of_instants(connection: Any) -> None:
    await connection.set_type_codec("timestamptz", encoder=str, decoder=str, schema="pg_catalog", format="text")


async def _nothing(connection: Any) -> None:
    """As it comes."""


@pytest.mark.parametrize("way", ["asyncpg", "asyncpg-pool"], indirect=True)
@pytest.mark.parametrize("codec", [_nothing, _json, _other_json, _text_of_ids, _text_of_instants])
async def test_codecs_of_the_callers_connection_change_nothing(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, codec: Any
):
    await codec(caller.bindable)

    await caller.begin()
    bound = ox.bind(caller.bindable)
    created = await bound.enqueue_unique(send, VALUE, extra=VALUE)
    found = await bound.enqueue_unique(send, VALUE, extra=VALUE)
    many = await bound.enqueue_unique_many(send, [(VALUE,), (VALUE,)])
    batch = await bound.batches.create("b")
    await batch.add(send, VALUE, extra=VALUE)
    window = ox.reference("proof.window", unique=Unique(window=1000))
    first = await bound.enqueue(window)
    await caller.run("UPDATE django_ox_oxtask SET status = 'DISCARDED' WHERE task_path = 'proof.window'")
    assert (await bound.enqueue(window)).id == first.id
    await caller.commit()

    assert (await (await ox.batches.get(batch.id)).progress()).total == 1
    for result in (created, found):
        assert (result.args, result.kwargs) == ([VALUE], {"extra": VALUE})
    assert (found.id, found.created) == (created.id, False)
    assert [result.created for result in many] == [True, False]
    stored = await ox.get_result(created.id)
    assert (stored.args, stored.kwargs, stored.id) == ([VALUE], {"extra": VALUE}, created.id)
    assert (await send.enqueue(VALUE, extra=VALUE)).id == created.id
    assert competitor.rows("SELECT jsonb_typeof(args) FROM django_ox_oxtask") == [("array",)] * 3


@pytest.mark.usefixtures("few")
async def test_every_caller_gets_the_same_key_row_and_values(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    ours = await send.enqueue(VALUE)

    await caller.begin()
    found = await ox.bind(caller.bindable).enqueue_unique(send, VALUE)
    created = await ox.bind(caller.bindable).enqueue_unique(send, [VALUE], n=2**64 - 1)
    await caller.commit()
    read = await ox.get_result(created.id)

    assert (found.id, found.args, found.enqueued_at) == (ours.id, [VALUE], ours.enqueued_at)
    assert (read.args, read.kwargs, read.enqueued_at) == ([[VALUE]], {"n": 2**64 - 1}, created.enqueued_at)
    assert competitor.counts() == (2, 2)


@pytest.mark.parametrize("way", ["postgresql+asyncpg-connection"], indirect=True)
async def test_a_json_serializer_of_the_callers_engine_changes_nothing(
    ox: Oxpull, send: AnyTask, url: str, handle: Handle
):
    engine = create_async_engine(
        sqlalchemy_url(url, "postgresql+asyncpg"),
        poolclass=NullPool,
        json_serializer=_text,
        json_deserializer=lambda text: ["theirs", text],
    )
    async with engine.begin() as connection:
        created = await ox.bind(connection).enqueue_unique(send, VALUE)
        found = await ox.bind(connection).enqueue_unique(send, VALUE)
    await engine.dispose()

    assert (found.id, found.args) == (created.id, [VALUE])
    assert (await ox.get_result(created.id)).args == [VALUE]


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.usefixtures("few")
async def test_a_time_zone_of_the_callers_session_moves_no_instant(
    ox: Oxpull, send: AnyTask, caller: Caller, handle: Handle
):
    zone = "SET TIME ZONE 'Asia/Kolkata'" if handle.dialect == "postgres" else "SET SESSION time_zone = '+05:30'"

    await caller.begin()
    await caller.run(zone)
    bound = ox.bind(caller.bindable)
    created = await bound.enqueue_unique(send.using(run_after=3600), 1)
    found = await bound.enqueue_unique(send, 1)
    await caller.commit()
    read = await ox.get_result(created.id)

    assert created.enqueued_at == found.enqueued_at == read.enqueued_at
    assert created.run_after == found.run_after == read.run_after
    assert found.enqueued_at.utcoffset() == read.enqueued_at.utcoffset()


@pytest.mark.parametrize("way", ["sqlite+aiosqlite-session", "aiosqlite"], indirect=True)
async def test_row_and_text_factories_of_the_callers_connection_change_nothing(
    ox: Oxpull, send: AnyTask, caller: Caller, handle: Handle
):
    def as_theirs(cursor: Any, row: tuple[Any, ...]) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    if handle.is_sqlalchemy:
        engine: Any = caller.engine  # type: ignore[attr-defined]

        @event.listens_for(engine.sync_engine, "connect")
        def set_factory(connection: Any, record: Any) -> None:
            connection.driver_connection._conn.text_factory = str

    else:
        caller.bindable.row_factory = as_theirs
        caller.bindable.text_factory = bytes

    await caller.begin()
    created = await ox.bind(caller.bindable).enqueue_unique(send, VALUE)
    found = await ox.bind(caller.bindable).enqueue_unique(send, VALUE)
    await caller.commit()

    assert (found.id, found.args) == (created.id, [VALUE])
    assert created.task_path == found.task_path == SEND


@pytest.mark.engines("mysql")
async def test_a_character_set_behind_the_drivers_back_ends_the_connection_with_words(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    for number in range(3):
        await send.enqueue(number)
    competitor.run("UPDATE django_ox_oxtask SET args = '[\"é\"]'")

    await caller.begin()
    await caller.run("SET NAMES latin1")
    bound = ox.bind(caller.bindable)
    with pytest.raises(ConnectionLost, match="SET NAMES") as caught:
        await bound.enqueue_unique_many(send, [(number,) for number in range(3)])

    assert not caught.value.transient
    with pytest.raises(Exception, match="(?i)not connected|invalid transaction|connection"):
        await caller.query("SELECT 1")
    assert competitor.counts() == (3, 3)


@pytest.mark.parametrize("way", ["asyncmy"], indirect=True)
async def test_text_that_the_connections_character_set_has_not_is_refused_and_harmless(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor
):
    await caller.begin()
    await caller.run("SET NAMES latin1")
    caller.bindable._encoding = "latin1"  # as it is after a connect(charset="latin1")
    bound = ox.bind(caller.bindable)
    with pytest.raises(StoreError, match="character set") as caught:
        await bound.batches.create("漢")
    batch = await bound.batches.create("é")
    await bound.enqueue_unique(send, VALUE)
    await caller.commit()

    assert not caught.value.transient
    assert [each.name for each in await ox.batches.latest()] == [batch.name] == ["é"]
    assert competitor.counts() == (1, 1)
