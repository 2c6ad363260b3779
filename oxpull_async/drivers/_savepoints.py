"""Savepoints: how a procedure takes part in a transaction that belongs to a caller."""

from __future__ import annotations

from enum import Enum
from itertools import count
from typing import TypeVar

from oxpull_async.drivers._procedure import REFUSALS, Procedure, Step
from oxpull_async.drivers._statements import Statement
from oxpull_async.exceptions import ConnectionLost, OxpullError, SavepointMissing, TransactionRolledBack

T = TypeVar("T")

_numbers = count(1)


class SavepointDeed(Enum):
    """What a savepoint's statement does."""

    OPEN = "SAVEPOINT"
    RELEASE = "RELEASE SAVEPOINT"
    ROLL_BACK = "ROLLBACK TO SAVEPOINT"


class SavepointStatement(Statement):
    """A statement that never waits for a lock, so that a runner may shield it from a cancel."""

    def __init__(self, deed: SavepointDeed, name: str) -> None:
        super().__init__(deed.name.lower(), f"{deed.value} {name}")
        self.deed = deed
        self.savepoint = name


def savepoint(deed: SavepointDeed, name: str) -> Step:
    """The step that opens, releases or rolls back to a savepoint."""
    return SavepointStatement(deed, name)()


def new_name() -> str:
    """A name that no other savepoint of this process has: one name used twice would hide the first on MySQL."""
    return f"oxpull_{next(_numbers)}"


def guarded(procedure: Procedure[T]) -> Procedure[T]:
    """Run a procedure inside a savepoint: an error of it leaves the caller's transaction as it was before.

    Raises what the procedure raised, or TransactionRolledBack where the
    savepoint is gone, for then the server has undone the whole transaction.
    """
    name = new_name()
    yield savepoint(SavepointDeed.OPEN, name)
    try:
        answer = yield from procedure
    except ConnectionLost:
        raise
    except REFUSALS as error:
        yield from roll_back(name, error)
        raise
    yield from released(name)
    return answer


def undone(procedure: Procedure[T]) -> Procedure[T]:
    """Run a procedure inside a savepoint that is rolled back in any case: a look that leaves no trace."""
    name = new_name()
    yield savepoint(SavepointDeed.OPEN, name)
    try:
        answer = yield from procedure
    except ConnectionLost:
        raise
    except REFUSALS as error:
        yield from roll_back(name, error)
        raise
    yield from roll_back(name, None)
    return answer


def opened(name: str) -> Procedure[None]:
    """Open a savepoint that the caller of this ends with ``released`` or ``roll_back``."""
    yield savepoint(SavepointDeed.OPEN, name)


def released(name: str) -> Procedure[None]:
    """Keep what was done since the savepoint."""
    try:
        yield savepoint(SavepointDeed.RELEASE, name)
    except SavepointMissing as missing:
        raise _rolled_back(None) from missing


def roll_back(name: str, cause: OxpullError | None) -> Procedure[None]:
    """Undo what was done since the savepoint. Whether it still exists is seen here, never told by an error's code."""
    try:
        yield savepoint(SavepointDeed.ROLL_BACK, name)
        yield savepoint(SavepointDeed.RELEASE, name)
    except SavepointMissing as missing:
        raise _rolled_back(cause) from (cause or missing)


def _rolled_back(cause: OxpullError | None) -> TransactionRolledBack:
    because = f" ({cause})" if cause else ""
    return TransactionRolledBack(
        f"the database has rolled back the caller's whole transaction{because}. "
        "Nothing done in it survives: begin again and repeat all of it."
    )
