"""How statements are put together, sent, and sent again, over a driver that is played here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncmy.errors
import pytest

from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.mysql._connection import Connection, Limits
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT, ROLLBACK
from oxpull_async.exceptions import ConnectionLost, LockNotAvailable, StatementTimeout, StoreError

INSERT = Statement("insert_note", "INSERT INTO note (id, text) VALUES (:id, :text)")
UPDATE = Statement("update_note", "UPDATE note SET text = :text WHERE id = :id")
SELECT = Statement("select_notes", "SELECT id FROM note WHERE id IN :ids AND text LIKE '%x'")
GET = Statement("get_note", "SELECT text FROM note WHERE id = :id")
LOCK = Statement("lock_note", "SELECT text FROM note WHERE id = :id FOR UPDATE")
UNION = Statement("look_twice", "(SELECT :id) UNION ALL (SELECT :id LIMIT 1)")
TWO = Statement("two", "UPDATE note SET text = :text; SELECT id FROM note; COMMIT")

LOST_UNSENT = asyncmy.errors.OperationalError(2006, "MySQL server has gone away")
LOST_UNHEARD = asyncmy.errors.OperationalError(2013, "Lost connection to MySQL server during query")


class PlayedServer:
    """Answers as it is told: one list of parts for each query. A part is rows, a count, or an error."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.answers: list[list[Any]] = []
        self.connected = True
        self.in_transaction = False

    def cursor(self) -> PlayedCursor:
        return PlayedCursor(self)

    def literal(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({','.join(map(self.literal, value))})"
        return repr(value)

    def get_transaction_status(self) -> bool:
        return self.in_transaction

    def thread_id(self) -> int:
        return 7

    def close(self) -> None:
        self.connected = False


class PlayedCursor:
    def __init__(self, server: PlayedServer) -> None:
        self._server = server
        self._parts: list[Any] = []
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = 0

    async def execute(self, sql: str | bytes, arguments: Any = None) -> None:
        self._server.heard.append((sql.decode() if isinstance(sql, bytes) else sql, arguments))
        answers = self._server.answers
        self._parts = list(answers.pop(0)) if answers else [0]
        await self._next()

    async def nextset(self) -> bool:
        if not self._parts:
            return False
        await self._next()
        return True

    async def fetchall(self) -> list[Any]:
        return self._rows

    async def _next(self) -> None:
        part = self._parts.pop(0)
        if callable(part):
            await part()
            part = 0
        if isinstance(part, Exception):
            raise part
        self._rows = part if isinstance(part, list) else []
        self.description = () if isinstance(part, list) else None
        self.rowcount = len(part) if isinstance(part, list) else part


Opened = Callable[..., Connection]


@pytest.fixture
def server() -> PlayedServer:
    return PlayedServer()


@pytest.fixture
def fresh() -> PlayedServer:
    """What a new connection reaches."""
    return PlayedServer()


@pytest.fixture
def connection(server: PlayedServer, fresh: PlayedServer) -> Connection:
    async def connect() -> PlayedServer:
        return fresh

    return Connection(server, connect, Limits(statement_seconds=60))


async def test_single_values_go_to_a_prepared_statement(connection: Connection, server: PlayedServer):
    server.answers = [[[("text",)]]]

    result = await connection.execute(GET(id=1))

    assert server.heard == [("SELECT text FROM note WHERE id = %s", [1])]
    assert (list(result.rows), result.count) == ([("text",)], 1)


async def test_lists_are_written_out(connection: Connection, server: PlayedServer):
    await connection.execute(SELECT(ids=("a", "b")))

    assert server.heard == [("SELECT id FROM note WHERE id IN ('a','b') AND text LIKE '%x'", None)]


async def test_an_empty_list_finds_nothing(connection: Connection, server: PlayedServer):
    await connection.execute(SELECT(ids=()))

    assert "IN (NULL)" in server.heard[0][0]


async def test_long_texts_are_measured_before_they_are_sent(connection: Connection, server: PlayedServer):
    with pytest.raises(StoreError, match="max_allowed_packet") as caught:
        await connection.execute(INSERT(id=1, text="x" * 1_000_000))

    assert caught.value.code == 1153
    assert not caught.value.transient
    assert server.heard == []


async def test_a_begin_travels_with_the_statement_after_it(connection: Connection, server: PlayedServer):
    server.answers = [[0, 1]]

    await connection.execute(BEGIN())
    result = await connection.execute(UPDATE(id=1, text="x"))

    assert server.heard == [("BEGIN;UPDATE note SET text = 'x' WHERE id = 1", None)]
    assert result.count == 1


async def test_a_transaction_without_statements_is_never_sent(connection: Connection, server: PlayedServer):
    await connection.execute(BEGIN())
    await connection.execute(COMMIT())
    await connection.execute(BEGIN())
    await connection.execute(ROLLBACK())

    assert server.heard == []


async def test_several_parts_give_the_rows_of_all(connection: Connection, server: PlayedServer):
    server.answers = [[3, [(1,), (2,)], 0]]

    result = await connection.execute(TWO(text="x"))

    assert (list(result.rows), result.count) == ([(1,), (2,)], 2)


async def test_several_parts_without_rows_give_the_sum_of_their_counts(connection: Connection, server: PlayedServer):
    server.answers = [[0, 1, 1, 0]]

    result = await connection.execute(TWO(text="x"))

    assert (list(result.rows), result.count) == ([], 2)


async def test_an_error_in_a_later_part_is_raised(connection: Connection, server: PlayedServer):
    server.answers = [[0, asyncmy.errors.OperationalError(1205, "Lock wait timeout exceeded")]]

    with pytest.raises(LockNotAvailable):
        await connection.execute(TWO(text="x"))


async def test_many_rows_are_one_insert(connection: Connection, server: PlayedServer):
    server.answers = [[2]]

    result = await connection.execute(INSERT.many([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]))

    assert server.heard == [("INSERT INTO note (id, text) VALUES (1, 'a'),(2, 'b')", None)]
    assert result.count == 2


async def test_any_other_statement_for_many_rows_is_one_round_trip(connection: Connection, server: PlayedServer):
    await connection.execute(UPDATE.many([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]))

    assert [sql for sql, _ in server.heard] == [
        "UPDATE note SET text = 'a' WHERE id = 1;UPDATE note SET text = 'b' WHERE id = 2"
    ]


async def test_many_looks_are_one(connection: Connection, server: PlayedServer):
    server.answers = [[[("a",), ("b",)]]]

    result = await connection.execute(GET.many([{"id": 1}, {"id": 2}]))

    assert [sql for sql, _ in server.heard] == [
        "(SELECT text FROM note WHERE id = 1) UNION ALL (SELECT text FROM note WHERE id = 2)"
    ]
    assert list(result.rows) == [("a",), ("b",)]


async def test_many_looks_that_are_unions_are_one_too(connection: Connection, server: PlayedServer):
    server.answers = [[[("a",), ("b",)]]]

    await connection.execute(UNION.many([{"id": 1}, {"id": 2}]))

    assert [sql for sql, _ in server.heard] == [
        "(SELECT 1) UNION ALL (SELECT 1 LIMIT 1) UNION ALL (SELECT 2) UNION ALL (SELECT 2 LIMIT 1)"
    ]


async def test_many_locking_reads_are_one_round_trip(connection: Connection, server: PlayedServer):
    server.answers = [[[("a",)], [], [("b",)]]]

    result = await connection.execute(LOCK.many([{"id": 1}, {"id": 2}, {"id": 3}]))

    assert [sql.count(";") for sql, _ in server.heard] == [2]
    assert list(result.rows) == [("a",), ("b",)]


async def test_no_rows_are_no_round_trip(connection: Connection, server: PlayedServer):
    result = await connection.execute(INSERT.many([]))

    assert (server.heard, result.count) == ([], 0)


async def test_rows_that_need_several_inserts_share_a_transaction(connection: Connection, server: PlayedServer):
    server.answers = [[0, 1], [1], [1], [0]]

    result = await connection.execute(INSERT.many([{"id": n, "text": "x" * 600_000} for n in range(3)]))

    starts = [sql[:12] for sql, _ in server.heard]
    assert starts == ["BEGIN;INSERT", "INSERT INTO ", "INSERT INTO ", "COMMIT"]
    assert result.count == 3


async def test_within_a_transaction_they_leave_its_end_to_others(connection: Connection, server: PlayedServer):
    server.in_transaction = True

    await connection.execute(INSERT.many([{"id": n, "text": "x" * 600_000} for n in range(2)]))

    assert [sql[:6] for sql, _ in server.heard] == ["INSERT", "INSERT"]


async def test_what_was_never_sent_is_sent_over_a_fresh_connection(
    connection: Connection, server: PlayedServer, fresh: PlayedServer
):
    server.answers = [[LOST_UNSENT]]
    connection.rest()

    await connection.execute(INSERT(id=1, text="x"))

    assert len(fresh.heard) == 1
    assert connection.raw is fresh
    assert connection.lost


async def test_a_connection_to_a_server_that_only_reads_is_given_up(connection: Connection, server: PlayedServer):
    server.answers = [[asyncmy.errors.OperationalError(1290, "running with the --read-only option")]]
    connection.rest()

    with pytest.raises(StoreError) as caught:
        await connection.execute(UPDATE(id=1, text="x"))

    assert caught.value.transient
    assert not server.connected
    assert connection.lost


async def test_what_may_have_taken_effect_is_not_sent_again(
    connection: Connection, server: PlayedServer, fresh: PlayedServer
):
    server.answers = [[LOST_UNHEARD]]
    connection.rest()

    with pytest.raises(ConnectionLost):
        await connection.execute(INSERT(id=1, text="x"))

    assert fresh.heard == []


async def test_the_beginning_of_a_transaction_has_no_effect_yet(
    connection: Connection, server: PlayedServer, fresh: PlayedServer
):
    server.answers = [[LOST_UNHEARD]]
    connection.rest()

    await connection.execute(BEGIN())
    await connection.execute(UPDATE(id=1, text="x"))

    assert [sql[:12] for sql, _ in fresh.heard] == ["BEGIN;UPDATE"]


async def test_a_reading_procedure_may_be_repeated(connection: Connection, server: PlayedServer, fresh: PlayedServer):
    server.answers = [[LOST_UNHEARD]]
    connection.rest()
    connection.begin_work(reading=True)

    await connection.execute(GET(id=1))

    assert len(fresh.heard) == 1


async def test_a_connection_that_has_answered_is_not_replaced(
    connection: Connection, server: PlayedServer, fresh: PlayedServer
):
    server.answers = [[0], [LOST_UNSENT]]
    connection.rest()
    await connection.execute(UPDATE(id=1, text="x"))

    with pytest.raises(ConnectionLost):
        await connection.execute(UPDATE(id=2, text="x"))

    assert fresh.heard == []


async def test_a_fresh_connection_is_not_replaced(connection: Connection, server: PlayedServer, fresh: PlayedServer):
    server.answers = [[LOST_UNSENT]]

    with pytest.raises(ConnectionLost):
        await connection.execute(GET(id=1))

    assert fresh.heard == []


async def test_a_cancelled_statement_leaves_an_orphan(connection: Connection, server: PlayedServer):
    reached = asyncio.Event()

    async def never() -> None:
        reached.set()
        await asyncio.Event().wait()

    server.answers = [[never]]
    call = asyncio.ensure_future(connection.execute(GET(id=1)))
    await reached.wait()

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert connection.orphan == 7
    assert not server.connected


async def test_a_statement_is_given_up_after_its_time(server: PlayedServer, fresh: PlayedServer):
    async def connect() -> PlayedServer:
        return fresh

    connection = Connection(server, connect, Limits(statement_seconds=0.01))
    server.answers = [[asyncio.Event().wait]]

    with pytest.raises(StatementTimeout):
        await connection.execute(GET(id=1))

    assert connection.orphan == 7


async def test_a_commit_is_not_cut_off_by_a_cancel(connection: Connection, server: PlayedServer):
    server.in_transaction = True
    reached, answer = asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        reached.set()
        await answer.wait()

    server.answers = [[slowly]]
    call = asyncio.ensure_future(connection.commit())
    await reached.wait()

    call.cancel()
    await asyncio.sleep(0)
    assert not call.done()
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert server.connected
    assert connection.orphan is None


async def test_a_commit_without_an_answer_is_a_lost_connection(server: PlayedServer, fresh: PlayedServer):
    async def connect() -> PlayedServer:
        return fresh

    connection = Connection(server, connect, Limits(statement_seconds=0.01))
    server.answers = [[asyncio.Event().wait]]

    with pytest.raises(ConnectionLost, match="outcome is unknown"):
        await connection.commit()

    assert not server.connected


async def test_a_rollback_that_fails_costs_the_connection(connection: Connection, server: PlayedServer):
    server.in_transaction = True
    server.answers = [[asyncmy.errors.OperationalError(1317, "Query execution was interrupted")]]

    await connection.roll_back()

    assert not server.connected
