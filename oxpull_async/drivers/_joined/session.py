"""A caller's connection as procedures see it, and how a procedure is run on it without leaving a trace."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from oxpull_async._shield import shielded
from oxpull_async.drivers._procedure import Procedure, Result, Step, run
from oxpull_async.drivers._savepoints import SavepointDeed, SavepointStatement, savepoint
from oxpull_async.exceptions import ConnectionLost, OxpullError, StoreError

T = TypeVar("T")

SAVEPOINT_SECONDS = 10.0
CLEANUP_SECONDS = 2.0


class JoinedSession(Protocol):
    """One connection of a caller's, for the length of one call."""

    @property
    def engine(self) -> str:
        """The room whose statements it takes."""
        ...

    @property
    def identity_holder(self) -> object:
        """The object whose lifetime bounds what was found out about its database."""
        ...

    @property
    def connection(self) -> object:
        """The driver's connection at the bottom of it: calls on one wait for one another."""
        ...

    async def prepare(self) -> None:
        """Make sure that there is a transaction. Raises: TransactionRequired."""
        ...

    async def run(self, procedure: Procedure[T]) -> T:
        """Run a procedure in the caller's transaction; a cancel leaves no savepoint behind."""
        ...


class Otherwise(Protocol):
    """Makes the procedure that does the same with other steps."""

    def __call__(self, procedure: Procedure[T]) -> Procedure[T]: ...


class ChangedSession:
    """A session whose procedures take other steps."""

    def __init__(self, session: JoinedSession, otherwise: Otherwise) -> None:
        self._session = session
        self._otherwise = otherwise

    @property
    def engine(self) -> str:
        return self._session.engine

    @property
    def identity_holder(self) -> object:
        return self._session.identity_holder

    @property
    def connection(self) -> object:
        return self._session.connection

    async def prepare(self) -> None:
        await self._session.prepare()

    async def run(self, procedure: Procedure[T]) -> T:
        return await self._session.run(self._otherwise(procedure))


def garbled(error: UnicodeError) -> StoreError:
    """Text that isn't in the character set which the driver takes for the connection's.

    Met in an answer it leaves the rest of that unread, so the connection must not be used any more.
    """
    if isinstance(error, UnicodeEncodeError):
        return StoreError("the character set of the bound connection can't carry this text; nothing was sent")
    lost = ConnectionLost(
        "the bound connection's text isn't in the character set that its driver expects, as after a SET NAMES, so its "
        "answers can't be read: choose the character set when you connect (utf8mb4 on MySQL). The connection was closed"
    )
    lost.transient = False
    return lost


class StepwiseRunner:
    """Runs procedures statement by statement, and cleans up the savepoint that a cancel would leave open.

    Statements about savepoints never wait for others, so they are shielded: a
    cancel that met one in the middle would leave the transaction in doubt.
    """

    async def execute(self, step: Step) -> Result:
        """Run one statement. Raises: StoreError."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Cut the connection off, since its transaction can't be put right."""
        raise NotImplementedError

    def is_gone(self) -> bool:
        """Whether the connection is closed already."""
        raise NotImplementedError

    async def run(self, procedure: Procedure[T]) -> T:
        """Drive a procedure to its end."""
        left_open: str | None = None

        async def about_savepoint(step: Step, statement: SavepointStatement) -> Result:
            nonlocal left_open
            if statement.deed is SavepointDeed.OPEN:
                left_open = statement.savepoint
            result = await self.execute(step)
            if statement.deed is SavepointDeed.RELEASE:
                left_open = None
            return result

        async def execute(step: Step) -> Result:
            if isinstance(step.statement, SavepointStatement):
                return await self._to_its_end(about_savepoint(step, step.statement))
            return await self.execute(step)

        try:
            return await run(procedure, execute)
        except OxpullError:
            raise  # the procedure has put its savepoint right, or has found the transaction gone
        except BaseException:
            if left_open is not None and not self.is_gone():
                await self._close_savepoint(left_open)
            raise

    async def _to_its_end(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await shielded(work, within=SAVEPOINT_SECONDS)
        except TimeoutError as error:
            self.abandon()
            raise ConnectionLost(f"the database did not answer within {SAVEPOINT_SECONDS:g} s") from error

    async def _close_savepoint(self, name: str) -> None:
        try:
            await shielded(self._roll_back(name), within=CLEANUP_SECONDS)
        except (TimeoutError, OxpullError):
            self.abandon()

    async def _roll_back(self, name: str) -> None:
        await self.execute(savepoint(SavepointDeed.ROLL_BACK, name))
        await self.execute(savepoint(SavepointDeed.RELEASE, name))
