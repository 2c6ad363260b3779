"""Callers are cancelled at every await of an enqueue: nothing is written by half, no transaction stays open."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from oxpull_async import Oxpull
from tests.eventually import eventually
from tests.integration.cancelling import Kind, Moment, cancelled_at
from tests.integration.competitor import Competitor, aside
from tests.integration.operations import BY_NAME, OPERATIONS, PATH, Operation, assert_done, assert_sound, key_of
from tests.integration.shared_database import empty_tables
from tests.scale import points

MOST_AWAITS = 60

every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
every_kind = pytest.mark.parametrize("kind", ["task", "scope"])
every_moment = pytest.mark.parametrize("moment", ["waiting", "answered"])


async def at_rest(competitor: Competitor) -> None:
    """Once the server has done with what was cancelled: nothing is open, and nothing is written by half."""

    def look() -> None:
        assert competitor.open_transactions() == 0
        if competitor.scheme != "sqlite":
            assert competitor.waiting_sessions() == 0
        assert_sound(competitor)

    await eventually(lambda: aside(look), within=5)


# The same for the others
@every_operation
@every_kind
@every_moment
async def test_a_call_is_all_or_nothing_wherever_it_is_cancelled(
    migrated_url: str, competitor: Competitor, operation: Operation, kind: Kind, moment: Moment
):
    async with Oxpull(migrated_url, pool_size=2, pool_timeout=5) as ox:
        for at in points(MOST_AWAITS):
            empty_tables(competitor)
            operation.prepare(competitor)

            outcome = await cancelled_at(operation.results(ox), at, moment, kind)

            await at_rest(competitor)
            if outcome.value is not None:
                assert_done(competitor, operation, outcome.value)
            with anyio.fail_after(5):
                assert_done(competitor, operation, await operation.results(ox))
            if not outcome.struck:
                assert at > 1
                return
    raise AssertionError("it never came to an end")


# A cancel while a competitor has the key: the wait ends, here and at the server, and the key goes to whoever is next.
@every_kind
@pytest.mark.parametrize(
    "operation", [BY_NAME["a new key"], BY_NAME["many keys"]], ids=lambda operation: operation.name
)
async def test_a_call_that_waits_for_a_competitor_can_be_cancelled(
    migrated_url: str, competitor: Competitor, operation: Operation, kind: Kind
):
    async with Oxpull(migrated_url, pool_size=2, pool_timeout=5) as ox:
        for at in points(MOST_AWAITS):
            empty_tables(competitor)

            with competitor.holding(key_of("a")), anyio.move_on_after(0.2) as waiting:
                outcome = await cancelled_at(operation.results(ox), at, "waiting", kind)
                assert outcome.value is None

            await at_rest(competitor)
            with anyio.fail_after(5):
                assert_done(competitor, operation, await operation.results(ox))
            if waiting.cancel_called:  # it has come to its last await, which is the wait itself
                return
    raise AssertionError("it never came to an end")


@every_kind
@every_moment
async def test_an_opening_that_is_cancelled_leaves_nothing_behind(
    migrated_url: str, competitor: Competitor, kind: Kind, moment: Moment
):
    # asyncpg reports the handshakes that it broke off, of which nobody wants to know.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    ox = Oxpull(migrated_url)
    for at in points(MOST_AWAITS):
        outcome = await cancelled_at(ox.open(), at, moment, kind)
        await ox.close()

        await eventually(lambda: competitor.sessions() == [])
        if not outcome.struck:
            break

    async with ox:
        assert (await ox.reference(PATH, unique=True).enqueue("a")).created


@every_kind
@every_moment
async def test_a_closing_that_is_cancelled_still_closes(
    migrated_url: str, competitor: Competitor, kind: Kind, moment: Moment
):
    ox = Oxpull(migrated_url)
    for at in points(MOST_AWAITS):
        await ox.open()
        await ox.reference(PATH, unique=True).enqueue("a")

        outcome = await cancelled_at(ox.close(), at, moment, kind)

        await eventually(lambda: competitor.sessions() == [])
        if not outcome.struck:
            return
    raise AssertionError("it never came to an end")
