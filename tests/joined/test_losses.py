"""The connection dies before any statement of any path, or never answers: a typed error, and nothing half done."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from oxpull_async import ConnectionLost, LockNotAvailable, Oxpull, OxpullError, StoreError, TransactionRolledBack
from oxpull_async.drivers._joined import session as joined_session
from oxpull_async.tasks import AnyTask
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside
from tests.joined.calls import hold, key_of, no_lock_without_task_nor_task_without_lock, own_rows
from tests.joined.handles import HANDLES, ORDERS, READ_COMMITTED, REPEATABLE_READ, Caller, Handle
from tests.joined.interrupts import Statements
from tests.joined.test_cancels import PATHS
from tests.scale import points
from tests.servers import PostgresServer, mariadb_server

Callers = Callable[[], Awaitable[Caller]]

MOST_STATEMENTS = 30
IDENTITY = {"postgres": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("path", PATHS)
async def test_a_connection_that_is_killed_before_any_statement_leaves_nothing(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor, handle: Handle, path: str,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    call, status = PATHS[path]
    holder = hold(competitor, 1, status=status) if status else None
    before = competitor.counts()
    statements = Statements(monkeypatch)
    for number in points(MOST_STATEMENTS):
        caller = await new_caller()
        await caller.begin(READ_COMMITTED)
        await caller.order(number)
        victim = int((await caller.query(IDENTITY[handle.dialect]))[0][0])
        statements.names.clear()
        statements.before = _killer(number, competitor, victim)
        try:
            await call(ox.bind(caller.bindable), send, 1)
        except OxpullError as error:
            assert isinstance(error, ConnectionLost), (statements.names, error)
            assert error.__cause__ is not None
        else:
            assert len(statements.names) < number
            await caller.rollback()
            break
        assert own_rows(competitor) == set()
        assert competitor.counts() == before
        await _is_gone_or_new(caller)
        await caller.close()

    assert number >= 3
    assert competitor.locks() == ({key_of(1): holder} if holder else {})


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.usefixtures("few")
async def test_a_connection_that_is_killed_around_a_recheck_leaves_nothing(
    ox: Oxpull, send: AnyTask, new_caller: Callers, competitor: Competitor, handle: Handle,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    statements = Statements(monkeypatch)
    held = 0
    for number in points(MOST_STATEMENTS):
        holder = hold(competitor, number)
        held += 1
        caller = await new_caller()
        await caller.begin(REPEATABLE_READ)
        await caller.order(number)
        victim = int((await caller.query(IDENTITY[handle.dialect]))[0][0])
        competitor.set_task(holder, status="RUNNING")
        statements.names.clear()
        statements.before = _killer(number, competitor, victim)
        try:
            found = await ox.bind(caller.bindable).enqueue_unique(send, number)
        except OxpullError as error:
            assert isinstance(error, ConnectionLost), (statements.names, error)
        else:
            assert found.id == holder
            await caller.rollback()
            break
        assert own_rows(competitor) == set()
        await caller.close()

    no_lock_without_task_nor_task_without_lock(competitor)
    assert len(competitor.locks()) == held > 1


def _killer(number: int, competitor: Competitor, victim: int) -> Callable[[int], Awaitable[None]]:
    async def before(reached: int) -> None:
        if reached == number:
            await aside(competitor.kill, victim)
            await eventually(lambda: victim not in competitor.sessions())

    return before


async def _is_gone_or_new(caller: Caller) -> None:
    """The caller can't go on as if nothing had happened; a session of SQLAlchemy's connects anew after its rollback."""
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the driver says of it
        await caller.order(1000)
    if isinstance(caller.bindable, AsyncSession):
        await caller.rollback()
        assert await caller.orders() == set()
        await caller.rollback()


@pytest.mark.parametrize("way", ["asyncpg", "postgresql+asyncpg-session", "postgresql+psycopg-session"], indirect=True)
async def test_a_server_that_falls_silent_is_a_lost_connection_within_the_bound(
    way: object, handle: Handle, own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(joined_session, "SAVEPOINT_SECONDS", 0.5)
    monkeypatch.setattr(joined_session, "CLEANUP_SECONDS", 0.5)
    statements = Statements(monkeypatch)
    async with Oxpull(own_postgres.url, close_timeout=1) as ox:
        await ox.migrate()
        with Competitor(own_postgres.url) as competitor:
            competitor.run(ORDERS)
        send = ox.reference("proof.send", unique=True)
        caller = HANDLES[handle.name].make(own_postgres.url)
        await caller.open()
        await caller.begin()
        await ox.bind(caller.bindable).enqueue_unique(send, 1)
        own_postgres.freeze()
        statements.names.clear()
        began = time.monotonic()
        try:
            with pytest.raises(ConnectionLost, match="did not answer within"):
                await ox.bind(caller.bindable).enqueue_unique(send, 2)
            waited = time.monotonic() - began
            with contextlib.suppress(Exception):
                await caller.close()
        finally:
            own_postgres.thaw()

    assert statements.names == ["open"]
    assert waited < 5


@pytest.mark.parametrize("way", ["asyncmy"], indirect=True)
async def test_a_server_that_undoes_the_transaction_with_a_wait_in_vain_has_it_told(way: object):
    with mariadb_server({"innodb-rollback-on-timeout": "ON"}, durable=False) as server:
        async with Oxpull(server.url) as ox:
            await ox.migrate()
            send = ox.reference("proof.send", unique=True)
            with Competitor(server.url) as competitor:
                competitor.run(ORDERS)
                for handle in (handle for handle in HANDLES.values() if handle.dialect == "mysql"):
                    caller = handle.make(server.url)
                    await caller.open()
                    await caller.begin(READ_COMMITTED)
                    await caller.order(1)
                    undone = pytest.raises(TransactionRolledBack, match=r"1205.*repeat all of it")
                    with competitor.holding(key_of(1)), undone as caught:
                        await ox.bind(caller.bindable).enqueue_unique(send.using(wait=1), 1)
                    await caller.rollback()
                    await caller.close()

                    assert isinstance(caught.value.__cause__, LockNotAvailable)
                    assert own_rows(competitor) == set()
                    assert competitor.counts() == (0, 0)


# Whether the transaction is gone is seen by its missing savepoint, never told by a code
@pytest.mark.engines("postgres", "mysql")
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("path", ["new", "bulk-new", "plain", "plain-bulk"])
async def test_a_transaction_that_is_rolled_back_under_our_hands_is_told_as_such(
    ox: Oxpull, send: AnyTask, caller: Caller, competitor: Competitor, handle: Handle, path: str,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    call, _ = PATHS[path]
    await caller.begin()
    await caller.order(1)
    await ox.bind(caller.bindable).enqueue(ox.reference("proof.work"))
    statements = Statements(monkeypatch)

    async def roll_back(reached: int) -> None:
        if statements.names[-1] == "release" and statements.names.count("release") == 1:
            statements.before = None
            await caller.run("ROLLBACK")
            await caller.run("BEGIN")

    statements.before = roll_back
    with pytest.raises((TransactionRolledBack, StoreError)) as caught:
        await call(ox.bind(caller.bindable), send, 1)
    with contextlib.suppress(Exception):
        await caller.rollback()

    assert isinstance(caught.value, TransactionRolledBack)
    assert caught.value.__cause__ is not None
    assert own_rows(competitor) == set()
    assert competitor.counts() == (0, 0)
