"""Through PgBouncer in transaction mode: no named statements, nothing left behind in the server's sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from oxpull_async import Oxpull, UniqueEnqueueRace
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import SEND, hold, key_of, no_lock_without_task_nor_task_without_lock, own_rows
from tests.joined.handles import REPEATABLE_READ, AsyncpgCaller, Caller, SqlalchemySessionCaller, sqlalchemy_url
from tests.joined.pgbouncer import SERVER_CONNECTIONS, PgBouncer, pgbouncer
from tests.scale import rounds

pytestmark = pytest.mark.parametrize("way", ["asyncpg"], indirect=True)

BOUNDS = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "transaction_isolation")


class PooledAsyncpgCaller(AsyncpgCaller):
    async def open(self) -> None:
        self.bindable = await asyncpg.connect(self.url, statement_cache_size=0)


class PooledSessionCaller(SqlalchemySessionCaller):
    """Set up as SQLAlchemy's manual says for PgBouncer."""

    options: dict[str, Any]

    async def open(self) -> None:
        self.engine = create_async_engine(
            sqlalchemy_url(self.url, self.driver), poolclass=NullPool, connect_args=self.options
        )
        self.bindable = AsyncSession(self.engine)


class PooledSqlalchemyAsyncpg(PooledSessionCaller):
    driver = "postgresql+asyncpg"
    options = {"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str}  # noqa: RUF012


class PooledSqlalchemyPsycopg(PooledSessionCaller):
    driver = "postgresql+psycopg"
    options = {"prepare_threshold": None}  # noqa: RUF012


KINDS: dict[str, type[Caller]] = {
    "asyncpg": PooledAsyncpgCaller,
    "sqlalchemy-asyncpg": PooledSqlalchemyAsyncpg,
    "sqlalchemy-psycopg": PooledSqlalchemyPsycopg,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def pooler(url: str) -> Iterator[PgBouncer]:
    with pgbouncer(url) as pooler:
        yield pooler


@pytest.fixture
async def pooled(pooler: PgBouncer) -> AsyncIterator[Oxpull]:
    """An Oxpull behind the pooler."""
    async with Oxpull(pooler.url, statement_cache=False, unique_wait=2) as ox:
        yield ox


@pytest.fixture
def pooled_send(pooled: Oxpull) -> AnyTask:
    return pooled.reference(SEND, unique=True)


@pytest.fixture
async def pooled_caller(pooler: PgBouncer, kind: str) -> AsyncIterator[Caller]:
    caller = KINDS[kind](pooler.url)
    await caller.open()
    yield caller
    await caller.close()


@pytest.fixture
def clean(pooler: PgBouncer) -> Callable[[], None]:
    """Asserts that every server connection of the pooler is as a new one is."""

    def check() -> None:
        connect = [psycopg.connect(pooler.url, prepare_threshold=None) for _ in range(SERVER_CONNECTIONS)]
        try:
            found = []
            for client in connect:  # each within a transaction, so that each has another server connection
                names = ", ".join(f"current_setting('{name}')" for name in BOUNDS)
                found.append(client.execute(f"SELECT pg_backend_pid(), {names}").fetchone())
            assert len({row[0] for row in found if row}) == SERVER_CONNECTIONS
            assert {row[1:] for row in found if row} == {("0", "0", "0", "read committed")}
        finally:
            for client in connect:
                client.close()

    return check


async def test_the_librarys_own_paths_work_through_a_pooler(
    pooled: Oxpull, pooled_send: AnyTask, competitor: Competitor, clean: Callable[[], None]
):
    work = pooled.reference("proof.work")
    plain = await work.enqueue(1)
    await asyncio.gather(*[work.enqueue(n) for n in range(50)], *[pooled_send.enqueue(n % 7) for n in range(50)])
    many = await pooled.enqueue_unique_many(work, [(n,) for n in range(100)])
    again = await pooled_send.enqueue(3)
    async with pooled.transaction() as transaction:
        inside = await transaction.enqueue_unique(pooled_send, 99)
    competitor.set_task(inside.id, status="FAILED")
    taken_over = await pooled_send.enqueue(99)

    assert (await pooled.get_result(plain.id)).status == "READY"
    assert sum(result.created for result in many) == 100
    assert not again.created
    assert taken_over.created
    assert await pooled.actions.discard(taken_over.id)
    assert await pooled.actions.retry(inside.id)
    assert (await pooled.prune(older_than=0)).locks == 1
    clean()


@every_kind
async def test_callers_behind_a_pooler_are_joined(
    pooled: Oxpull, pooled_send: AnyTask, pooled_caller: Caller, competitor: Competitor, clean: Callable[[], None]
):
    held, settled = hold(competitor, 1), hold(competitor, 2, status="FAILED")
    for end in ("rollback", "commit"):
        for _ in range(3):
            await pooled_caller.begin()
            await pooled_caller.orders()
            bound = pooled.bind(pooled_caller.bindable)
            results = [await bound.enqueue_unique(pooled_send, n) for n in (1, 2, 3)]
            results += await bound.enqueue_unique_many(pooled_send, [(3,), (4,), (5,)])
            await bound.enqueue_unique(pooled_send.using(wait=1), 6)
            await pooled_caller.order(1)
            await getattr(pooled_caller, end)()
            if end == "commit":
                break
        if end == "rollback":
            assert competitor.locks() == {key_of(1): held, key_of(2): settled}
            assert own_rows(competitor) == set()

    assert [result.created for result in results] == [False, True, True, False, True, True]
    assert set(competitor.locks()) == {key_of(n) for n in range(1, 7)}
    assert own_rows(competitor) == {1}
    clean()


@every_kind
async def test_a_recheck_through_a_pooler_finds_the_holder_and_leaves_no_bound_behind(
    pooled: Oxpull, pooled_send: AnyTask, pooled_caller: Caller, competitor: Competitor, clean: Callable[[], None]
):
    holder = hold(competitor, 1)

    await pooled_caller.begin(REPEATABLE_READ)
    await pooled_caller.orders()
    competitor.set_task(holder, status="RUNNING")
    found = await pooled.bind(pooled_caller.bindable).enqueue_unique(pooled_send, 1)
    await pooled_caller.commit()

    assert (found.id, found.status) == (holder, "RUNNING")
    clean()


@pytest.mark.parametrize("kind", ["asyncpg"])
async def test_a_pooler_without_a_connection_to_spare_makes_it_a_race_within_the_bound(
    pooled: Oxpull, pooled_send: AnyTask, pooled_caller: Caller, pooler: PgBouncer, competitor: Competitor
):
    holder = hold(competitor, 1)
    await pooled_caller.begin(REPEATABLE_READ)
    await pooled_caller.orders()
    competitor.set_task(holder, status="RUNNING")
    other = await asyncpg.connect(pooler.url, statement_cache_size=0)
    await other.execute("BEGIN")
    began = time.monotonic()
    with pytest.raises(UniqueEnqueueRace) as caught:
        await pooled.bind(pooled_caller.bindable).enqueue_unique(pooled_send, 1)
    waited = time.monotonic() - began
    other.terminate()
    await pooled_caller.order(1)
    await pooled_caller.commit()

    assert waited < 6
    assert caught.value.reason == "recheck_failed"
    assert own_rows(competitor) == {1}


# Both server connections are the callers', so that nothing of ours may need a third at READ COMMITTED
async def test_as_many_callers_as_the_pooler_has_connections_do_not_wait_for_another(
    pooled: Oxpull, pooled_send: AnyTask, pooler: PgBouncer, competitor: Competitor
):
    callers = [PooledAsyncpgCaller(pooler.url) for _ in range(SERVER_CONNECTIONS)]
    for caller in callers:
        await caller.open()
        await caller.begin()
        await caller.orders()
    async with asyncio.timeout(10):
        results = await asyncio.gather(
            *[pooled.bind(caller.bindable).enqueue_unique(pooled_send, n) for n, caller in enumerate(callers)]
        )
    for caller in callers:
        await caller.commit()
        await caller.close()

    assert all(result.created for result in results)
    assert competitor.counts() == (SERVER_CONNECTIONS, SERVER_CONNECTIONS)


@every_kind
async def test_racers_behind_a_pooler_end_with_one_row_for_each_key(
    pooled: Oxpull,
    pooled_send: AnyTask,
    pooler: PgBouncer,
    competitor: Competitor,
    kind: str,
    clean: Callable[[], None],
):
    callers = [KINDS[kind](pooler.url) for _ in range(6)]
    for caller in callers:
        await caller.open()
    for race in range(rounds(small=4, full=100)):

        async def run(caller: Caller, race: int = race) -> Any:
            await caller.begin()
            try:
                return await pooled.bind(caller.bindable).enqueue_unique(pooled_send, race)
            finally:
                await caller.commit()

        results = await asyncio.gather(*map(run, callers), pooled_send.enqueue(race))
        assert len({result.id for result in results}) == 1
        assert sum(result.created for result in results) == 1
    for caller in callers:
        await caller.close()

    no_lock_without_task_nor_task_without_lock(competitor)
    clean()


@pytest.mark.parametrize("kind", ["asyncpg"])
async def test_a_cancelled_call_behind_a_pooler_leaves_its_transaction_usable(
    pooled: Oxpull, pooled_send: AnyTask, pooled_caller: Caller, competitor: Competitor, clean: Callable[[], None]
):
    competitor.begin()
    hold(competitor, 1)
    await pooled_caller.begin()
    await pooled_caller.order(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await pooled.bind(pooled_caller.bindable).enqueue_unique(pooled_send, 1)
    competitor.rollback()
    result = await pooled.bind(pooled_caller.bindable).enqueue_unique(pooled_send, 1)
    await pooled_caller.commit()

    assert competitor.locks() == {key_of(1): result.id}
    assert own_rows(competitor) == {1}
    clean()
