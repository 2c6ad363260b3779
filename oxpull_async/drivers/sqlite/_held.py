"""A transaction of our own that outlives one hop: it keeps the writer's turn until its block ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from oxpull_async._shield import shielded
from oxpull_async.drivers._procedure import REFUSALS, Procedure, run_sync
from oxpull_async.drivers.sqlite._line import Line
from oxpull_async.drivers.sqlite._turn import CalledOff, Turn
from oxpull_async.exceptions import NotOpen, StatementTimeout, StoreError

T = TypeVar("T")

_LOOK_SECONDS = 0.1

Order: TypeAlias = Callable[[Turn], None]


@asynccontextmanager
async def held(writer: Line, *, patience: float, order_seconds: float) -> AsyncIterator[HeldTransaction]:
    """Commits at the block's end, rolls back on an error. Nobody else in the process writes meanwhile."""
    transaction = HeldTransaction(order_seconds)
    turn = asyncio.ensure_future(writer.run(transaction.hold, patience=patience))
    try:
        await asyncio.wait([turn, transaction.begun], return_when=asyncio.FIRST_COMPLETED)
        if turn.done():
            turn.result()
        yield transaction
    except BaseException as error:
        transaction.abort(error)
        if not transaction.begun.done():
            turn.cancel()
        await shielded(_settled(turn), within=order_seconds)
        raise
    transaction.commit()
    await shielded(_settled(turn), within=order_seconds)
    turn.result()


async def _settled(turn: asyncio.Task[None]) -> None:
    await asyncio.wait([turn])
    if not turn.cancelled():
        turn.exception()  # looked at here, since after an abort nobody else does


class TransactionOver(StoreError):
    """The transaction has ended, so the procedure was not begun."""


class HeldTransaction:
    """A ``JoinedSession``: each procedure is one hop into the thread that holds the transaction."""

    engine = "sqlite"

    def __init__(self, order_seconds: float) -> None:
        self._order_seconds = order_seconds
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._doomed: BaseException | None = None
        self._over = False
        self._loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = self._loop.create_future()

    @property
    def identity_holder(self) -> object:
        return self

    @property
    def connection(self) -> object:
        return self

    async def prepare(self) -> None:
        """The transaction began before anybody could get hold of this."""

    async def run(self, procedure: Procedure[T]) -> T:
        """Not interrupted by a cancel, which is raised when the procedure has ended: it happens whole or not at all."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._orders.put(lambda turn: self._obey(turn, procedure, answer))
        if self._over:
            raise TransactionOver("this transaction is over")
        try:
            return await shielded(_awaited(answer), within=self._order_seconds)
        except TimeoutError as error:
            self._doomed = error
            raise StatementTimeout("the transaction's statement ran too long; it is being rolled back") from error

    def commit(self) -> None:
        """Let the turn end well, unless something has gone wrong that the block didn't tell of."""
        self._orders.put(None)

    def abort(self, error: BaseException) -> None:
        """Let the turn end in a rollback."""
        self._doomed = error
        self._orders.put(None)

    def hold(self, turn: Turn) -> None:
        """In the connection's thread: do as told until it's time to commit. Raises: whatever dooms the transaction."""
        self._deliver(self.begun, None, None)
        try:
            while (order := self._next(turn)) is not None:
                order(turn)
        finally:
            self._over = True
            self._doomed = self._doomed or NotOpen("the SQLite connections were closed during this transaction")
            while (late := self._left()) is not None:
                late(turn)

    def _next(self, turn: Turn) -> Order | None:
        while True:
            if turn.is_called_off():
                raise CalledOff
            with suppress(Empty):
                order = self._orders.get(timeout=_LOOK_SECONDS)
                if order is None and self._doomed is not None:
                    raise self._doomed
                return order
            turn.dismiss_impatient()

    def _left(self) -> Order | None:
        with suppress(Empty):
            return self._orders.get_nowait()
        return None

    def _obey(self, turn: Turn, procedure: Procedure[T], answer: asyncio.Future[T]) -> None:
        if self._doomed is not None:
            over = TransactionOver("this transaction can't go on: it is rolled back")
            over.__cause__ = self._doomed
            self._deliver(answer, None, over)
            return
        try:
            result = run_sync(procedure, turn.execute)
        except REFUSALS as refused:
            self._deliver(answer, None, refused)  # its savepoint has undone what there was
        except BaseException as raised:
            self._doomed = NotOpen("the SQLite connections were closed") if isinstance(raised, CalledOff) else raised
            self._deliver(answer, None, self._doomed)
        else:
            self._deliver(answer, result, None)

    def _deliver(self, answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_settle, answer, result, error)


async def _awaited(answer: asyncio.Future[T]) -> T:
    return await answer


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
