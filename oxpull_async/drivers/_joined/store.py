"""The ports inside a caller's transaction: one lock per connection, one look at its database."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import ClassVar, TypeVar
from uuid import UUID

from oxpull_async._shield import shielded
from oxpull_async.drivers._joined.batches import JoinedSqlBatchStore
from oxpull_async.drivers._joined.keys import JoinedSqlKeyStore
from oxpull_async.drivers._joined.packets import fitting
from oxpull_async.drivers._joined.session import CLEANUP_SECONDS, ChangedSession, JoinedSession
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room import Room
from oxpull_async.drivers._savepoints import new_name, opened, released, roll_back
from oxpull_async.exceptions import (
    ConnectionLost,
    OxpullError,
    StoreError,
    TransactionRequired,
    TransactionRolledBack,
    WrongDatabase,
)
from oxpull_async.ports import Inserted, NewTask, NewUnique
from oxpull_async.ports_joined import JoinedAnswers

T = TypeVar("T")

_REMEMBERED = 1000
_IN_FAILED_TRANSACTION = "25P02"
_READ_ONLY_TRANSACTION = "25006"


class Identities:
    """Which connections (or engines) were found to reach the same database as the library's own."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._own: tuple[object, ...] | None = None
        self._checked: weakref.WeakSet[object] = weakref.WeakSet()

    async def learn(self) -> None:
        """Ask for our own. Best done beforehand: the caller whose connection is compared may hold the last one."""
        self._own = await self._room.pool.read(self._room.joined.identify())

    async def check(self, session: JoinedSession) -> None:
        """Compare once for each holder. Raises: WrongDatabase."""
        holder = session.identity_holder
        if holder in self._checked:
            return
        theirs = await looked_up(session, self._room.joined.identify())
        if theirs != self._own:
            await self.learn()
        if theirs != self._own:
            raise WrongDatabase(
                "the bound connection reaches another database than this Oxpull: "
                f"it is {_shown(theirs)}, and the Oxpull's is {_shown(self._own)}. A task row there would never be "
                "seen by workers here; bind a connection to the Oxpull's own database."
            )
        self._checked.add(holder)


class Locks:
    """One lock for each connection that is in use, whatever handle and whatever Oxpull it's reached by."""

    _locks: ClassVar[weakref.WeakValueDictionary[int, asyncio.Lock]] = weakref.WeakValueDictionary()

    def of(self, connection: object) -> asyncio.Lock:
        """The connection's lock; it lives for as long as somebody holds it or waits for it."""
        lock = self._locks.get(id(connection))
        if lock is None:
            lock = self._locks[id(connection)] = asyncio.Lock()
        return lock


class Written:
    """The latest task ids that each connection has written, so that a transaction knows its own rows."""

    def __init__(self) -> None:
        self._ids: weakref.WeakKeyDictionary[object, deque[UUID]] = weakref.WeakKeyDictionary()

    def note(self, connection: object, task_ids: Iterable[UUID]) -> None:
        """Remember these ids; the oldest of more than a thousand are forgotten."""
        self._ids.setdefault(connection, deque(maxlen=_REMEMBERED)).extend(task_ids)

    def has(self, connection: object, task_ids: Iterable[UUID]) -> bool:
        """Whether this connection has written all of them."""
        return set(task_ids) <= set(self._ids.get(connection, ()))


class Callers:
    """What is known of callers' connections from one call to the next."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.identities = Identities(room)
        self.locks = Locks()
        self.written = Written()


class JoinedSqlStore:
    """A ``ports.JoinedStore``. ``own``: the connection is one of the library's, so there's nothing to compare.

    ``tells``: the caller's COMMIT tells other processes of new task rows, where there are notifications.
    """

    def __init__(self, session: JoinedSession, callers: Callers, *, own: bool = False, tells: bool = False) -> None:
        self._connection = session.connection
        # Of a session that has to ask for the driver's connection, for which calls through other handles may wait.
        self._connect: Callable[[], Awaitable[object]] | None = getattr(session, "connect", None)
        self._callers = callers
        self._room = callers.room
        self._own = own
        self._is_over = False
        self._undone: TransactionRolledBack | None = None
        self._abandon: Callable[[], None] | None = getattr(session, "abandon", None)
        if (limit := self._room.pool.largest_packet) is not None:
            session = ChangedSession(session, partial(fitting, limit=limit))
        self._session: JoinedSession = ChangedSession(session, self._room.joined.telling) if tells else session
        session = self._session
        self.batches: JoinedSqlBatchStore = JoinedSqlBatchStore(session, callers.room)
        self._keys = JoinedSqlKeyStore(session, callers.room, self._note)

    @property
    def engine(self) -> str:
        """The room whose statements the caller's connection takes."""
        return self._session.engine

    @property
    def keys(self) -> JoinedSqlKeyStore:
        return self._keys

    @asynccontextmanager
    async def call(self, *, several: bool) -> AsyncIterator[None]:
        session, locks = self._session, self._callers.locks
        async with AsyncExitStack() as held:
            held.enter_context(_failed_before_told())
            await held.enter_async_context(locks.of(session.connection))
            if self._connect is not None:
                self._connection = await self._connect()
                await held.enter_async_context(locks.of(self._connection))
            if self._is_over:
                raise TransactionRequired("this transaction has ended: enqueue within the block of ox.transaction()")
            if self._undone is not None:
                raise self._again(self._undone)
            held.enter_context(self._undoing_noted())
            await self._prepare()
            if not self._own:
                await self._callers.identities.check(session)
            if not several:
                yield
                return
            async with self._savepoint():
                yield

    async def _prepare(self) -> None:
        try:
            await self._session.prepare()
        except TransactionRequired as error:
            if not self._own:
                raise
            raise ConnectionLost("the connection of this transaction was lost, and all that was done in it") from error

    @contextlib.contextmanager
    def _undoing_noted(self) -> Iterator[None]:
        """Who goes on in a transaction of ours that the server has undone must not believe in its commit."""
        try:
            yield
        except TransactionRolledBack as error:
            if self._own:
                self._undone = error
            raise

    def _again(self, undone: TransactionRolledBack) -> TransactionRolledBack:
        again = TransactionRolledBack(str(undone))
        again.__cause__ = undone
        return again

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[None]:
        """Takes calls for as long as the block lasts; its connection is somebody else's after that.

        Calls that are under way then are waited for, or cut off where the block has failed.
        """
        try:
            yield
        except BaseException:
            self._is_over = True
            try:
                await shielded(self._at_rest(), within=CLEANUP_SECONDS)
            except TimeoutError:
                if self._abandon is not None:
                    self._abandon()
            raise
        self._is_over = True
        await self._at_rest()
        if self._undone is not None:
            raise self._again(self._undone)

    async def _at_rest(self) -> None:
        async with self._callers.locks.of(self._connection):
            pass

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[None]:
        name = new_name()
        try:
            await looked_up(self._session, opened(name))
        except asyncio.CancelledError:
            await self._undo_as_far_as_possible(name)
            raise
        try:
            yield
        except (ConnectionLost, TransactionRolledBack):
            raise
        except OxpullError:
            await self._undo(name)
            raise
        except BaseException:
            await self._undo_as_far_as_possible(name)
            raise
        await self._session.run(released(name))

    async def _undo_as_far_as_possible(self, name: str) -> None:
        """What stopped the call is what its caller has to see, even if the connection is beyond repair."""
        with contextlib.suppress(OxpullError, TimeoutError):
            await self._undo(name)

    async def _undo(self, name: str) -> None:
        await _to_its_end(self._session, roll_back(name, None))

    async def insert_tasks(self, tasks: Sequence[NewTask]) -> None:
        await self._session.run(self._room.joined.insert_tasks(tasks))

    async def insert_unique(
        self, uniques: Sequence[NewUnique], *, wait_seconds: float | None, passes: int, current: bool
    ) -> JoinedAnswers:
        procedure = self._room.joined.insert_unique(uniques, wait_seconds, passes, current)
        joined = await self._session.run(procedure)
        pairs = zip(uniques, joined.answers, strict=True)
        self._note(unique.task.id for unique, answer in pairs if isinstance(answer, Inserted))
        return joined

    def _note(self, task_ids: Iterable[UUID]) -> None:
        self._callers.written.note(self._connection, task_ids)

    async def unchanged(self, task_ids: Sequence[UUID]) -> bool:
        if await self._session.run(self._room.joined.unchanged(task_ids)):
            return True
        if not self._callers.written.has(self._connection, task_ids):
            return False
        # Written over this connection, but maybe in an earlier transaction of it.
        return await self._room.pool.recheck(self._room.joined.uncommitted(task_ids))

    async def isolation_level(self) -> str | None:
        return await looked_up(self._session, self._room.joined.isolation_level())


@contextlib.contextmanager
def _failed_before_told() -> Iterator[None]:
    """Of a transaction in which a statement of the caller's has failed, PostgreSQL takes nothing but its end."""
    try:
        yield
    except StoreError as error:
        if error.code == _READ_ONLY_TRANSACTION:
            error.transient = False  # whatever server this is, the transaction won't ever write
        if error.code != _IN_FAILED_TRANSACTION:
            raise
        raise TransactionRolledBack(
            "an earlier statement of the caller's transaction has failed, so that nothing done in it can be kept: "
            "roll it back and repeat all of it, or set a savepoint before what may fail"
        ) from error


async def looked_up(session: JoinedSession, procedure: Procedure[T]) -> T:
    """Run a procedure that reads without waiting for others, although the caller is cancelled meanwhile.

    Outside of any savepoint a statement that is stopped would cost the caller the transaction.
    """
    return await _to_its_end(session, procedure)


async def _to_its_end(session: JoinedSession, procedure: Procedure[T]) -> T:
    try:
        return await shielded(session.run(procedure), within=CLEANUP_SECONDS)
    except TimeoutError as error:
        raise ConnectionLost(
            f"the bound connection did not answer within {CLEANUP_SECONDS:g} s, so what became of it is not known: "
            "roll the transaction back"
        ) from error


def _shown(identity: tuple[object, ...] | None) -> str:
    return " / ".join(str(part) for part in identity or ())
