"""One asyncmy connection: statements and their results, the ends of transactions, cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from asyncmy.cursors import Cursor

from oxpull_async._shield import shielded
from oxpull_async.drivers._procedure import Result, Step, Values
from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT, ROLLBACK
from oxpull_async.drivers.mysql.errors import DRIVER_ERRORS, NOT_SENT, PACKET_TOO_LARGE, READ_ONLY, classify
from oxpull_async.exceptions import ConnectionLost, StoreError

_CLEANUP_SECONDS = 2.0
_PACKET_BYTES = 1_000_000
_PACKET_MARGIN = 1024
_VALUES = " VALUES "
_NOTHING = "(NULL)"  # for IN: no list may be empty
_LONG_TEXT = 100_000  # characters: longer ones are measured before they are sent


class QuietCursor(Cursor):
    """asyncmy fetches and logs the server's warnings; INSERT IGNORE warns of each duplicate."""

    async def _show_warnings(self, conn: Any) -> None:
        return None


@dataclass(slots=True)
class Limits:
    """What every connection of a pool keeps to."""

    statement_seconds: float
    max_packet_bytes: int = _PACKET_BYTES

    @property
    def chunk_bytes(self) -> int:
        """How long a statement for many rows may become; shorter than the server would take."""
        return min(_PACKET_BYTES, self.max_packet_bytes - _PACKET_MARGIN)


class Connection:
    """A connection as a procedure sees it; it belongs to one procedure at a time.

    A BEGIN travels with the statement after it, which saves a round trip. A
    statement of several parts gives all their rows, or the sum of their counts.
    """

    def __init__(self, raw: Any, connect: Callable[[], Awaitable[Any]], limits: Limits) -> None:
        self.raw: Any = raw
        self._connect = connect
        self._limits = limits
        self._begin_due = False
        self._reading = False
        self._unproven = False
        self._is_cut = False
        self.idle_since: float = 0.0
        self.lost: bool = False
        """Whether a connection of this slot was found broken since it last came to rest."""

    def rest(self) -> None:
        """Remember when it came back to the pool."""
        self.idle_since = time.monotonic()
        self.lost = False
        self._unproven = True

    def begin_work(self, *, reading: bool) -> None:
        """Say what kind of procedure comes next: statements that only read may be repeated."""
        self._reading = reading

    @property
    def usable(self) -> bool:
        """Whether it's open, as far as the client knows, and in no transaction."""
        broken = getattr(self.raw, "_stream_broken", False)  # what the driver's own pool looks at
        return bool(self.raw.connected) and not broken and not self.raw.get_transaction_status()

    @property
    def orphan(self) -> int | None:
        """The server's thread that may be running a statement still, because its caller gave it up."""
        given_up = not self.raw.connected and not self.lost and not self._is_cut
        return int(self.raw.thread_id()) if given_up else None

    async def execute(self, step: Step) -> Result:
        """Run one step. A BEGIN is only noted, a COMMIT runs to its end, many rows share round trips."""
        if step.many is not None:
            return await self._execute_many(step.statement, step.many)
        if step.statement is BEGIN:
            self._begin_due = True
        elif step.statement is COMMIT:
            await self.commit()
        elif step.statement is ROLLBACK:
            await self.roll_back()
        else:
            return await self._execute_one(step.statement, step.values)
        return Result((), 0)

    async def command(self, text: str) -> Result:
        """Run a statement without values."""
        return await self._send(text.encode(), None)

    async def commit(self) -> None:
        """COMMIT to its end although the caller is cancelled. Raises: ConnectionLost where its outcome is unknown."""
        if self._begin_due:
            self._begin_due = False
            return
        try:
            await shielded(self._query(b"COMMIT"), within=self._limits.statement_seconds)
        except TimeoutError as error:
            self.raw.close()
            raise ConnectionLost("the MySQL server did not answer a COMMIT in time; its outcome is unknown") from error

    async def roll_back(self) -> None:
        """End a transaction within a bound, or the connection with it."""
        self._begin_due = False
        if not self.raw.connected or not self.raw.get_transaction_status():
            return
        try:
            await shielded(self._query(b"ROLLBACK"), within=_CLEANUP_SECONDS)
        except (TimeoutError, StoreError):
            self.raw.close()

    async def close(self) -> None:
        """Take leave of the server, and close."""
        try:
            await self.raw.ensure_closed()
        finally:
            self.raw.close()

    def cut(self) -> None:
        """Close without a word, and for good."""
        self._is_cut = True
        self.raw.close()

    async def _execute_one(self, statement: Statement, values: Values) -> Result:
        """As a prepared statement where it can be one: a single statement, single values, nothing long."""
        text, names = statement.format
        arguments = [values[name] for name in names]
        if self._begin_due or ";" in text or not all(map(_is_short, arguments)):
            return await self._send(self._filled(text, names, values).encode(), None)
        return await self._send(text, arguments)

    async def _execute_many(self, statement: Statement, rows: Sequence[Values]) -> Result:
        """As few round trips as their size allows, and one transaction in any case."""
        texts = list(self._texts(statement, rows))
        alone = len(texts) > 1 and not self._begin_due and not self.raw.get_transaction_status()
        self._begin_due = self._begin_due or alone
        results = [await self._send(text, None) for text in texts]
        if alone:
            await self.commit()
        found = [row for result in results for row in result.rows]
        return Result(found, sum(result.count for result in results))

    def _texts(self, statement: Statement, rows: Sequence[Values]) -> Iterator[bytes]:
        """An INSERT gets a list of rows behind its VALUES, a look is a union of looks, all else is repeated."""
        text, names = statement.format
        head, values, row = text.rpartition(_VALUES)
        opening, between, closing = (head + values, ",", "") if values else _repeated(text)
        parts = (self._filled(row, names, each).encode() for each in rows)
        groups = _groups(parts, self._limits.chunk_bytes - len(opening))
        return (opening.encode() + between.encode().join(group) + closing.encode() for group in groups)

    def _filled(self, text: str, names: Sequence[str], values: Values) -> str:
        literal = self.raw.literal
        return text % tuple([literal(value) if (value := values[name]) != () else _NOTHING for name in names])

    async def _send(self, sql: str | bytes, arguments: Sequence[Any] | None) -> Result:
        """Send it; if the connection has died at rest and nothing can have taken effect, over a fresh one."""
        begins, self._begin_due = self._begin_due, False
        unproven, self._unproven = self._unproven, False
        if begins:
            sql = b"BEGIN;" + (sql if isinstance(sql, bytes) else sql.encode())
        try:
            return await self._bounded(sql, arguments)
        except ConnectionLost as lost:
            harmless = begins or self._reading or lost.code in NOT_SENT or _only_looks(sql)
            if not (unproven and harmless) or self._is_cut:
                raise
        self.raw = await self._connect()
        return await self._bounded(sql, arguments)

    async def _bounded(self, sql: str | bytes, arguments: Sequence[Any] | None) -> Result:
        if len(sql) > self._limits.max_packet_bytes - _PACKET_MARGIN:
            raise StoreError(
                f"a statement of {len(sql):,} bytes is larger than the server's max_allowed_packet "
                f"({self._limits.max_packet_bytes:,} bytes); nothing was sent",
                code=PACKET_TOO_LARGE,
            )
        try:
            async with asyncio.timeout(self._limits.statement_seconds):
                return await self._query(sql, arguments)
        except TimeoutError as error:
            raise classify(error) from error

    async def _query(self, sql: str | bytes, arguments: Sequence[Any] | None = None) -> Result:
        try:
            return await self._results(sql, arguments)
        except asyncio.CancelledError:
            self.raw.close()
            raise
        except DRIVER_ERRORS as error:
            found = classify(error)
            read_only = isinstance(found, StoreError) and found.code in READ_ONLY
            if read_only or isinstance(found, ConnectionLost):
                # The primary may be elsewhere by now, and a new connection find it.
                self.lost = True
                self.raw.close()
            raise found from error

    async def _results(self, sql: str | bytes, arguments: Sequence[Any] | None) -> Result:
        cursor = self.raw.cursor()
        await cursor.execute(sql, arguments)
        rows: Sequence[Any] = ()
        changed = 0
        while True:
            if cursor.description is None:
                changed += cursor.rowcount
            elif rows:
                rows = [*rows, *await cursor.fetchall()]
            else:
                rows = await cursor.fetchall()
            if not await cursor.nextset():
                return Result(rows, len(rows) or changed)


def _repeated(text: str) -> tuple[str, str, str]:
    """What stands before, between and after the repetitions. A union isn't sure to lock in its parts' order."""
    if text.startswith("SELECT") and "FOR UPDATE" not in text:
        return "(", ") UNION ALL (", ")"
    if text.startswith("(SELECT"):
        return "", " UNION ALL ", ""
    return "", ";", ""


def _only_looks(sql: str | bytes) -> bool:
    """Whether it's made of SELECTs: what begins with one here goes on with others, or not at all."""
    start = sql[:7] if isinstance(sql, str) else sql[:7].decode()
    return start.startswith(("SELECT", "(SELECT"))


def _is_short(value: Any) -> bool:
    return not isinstance(value, tuple) and not (isinstance(value, str) and len(value) > _LONG_TEXT)


def _groups(parts: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Runs of parts whose joint length stays within the limit; a longer part goes alone."""
    group: list[bytes] = []
    size = 0
    for part in parts:
        if group and size + len(part) >= limit:
            yield group
            group, size = [], 0
        group.append(part)
        size += len(part) + 1
    if group:
        yield group
