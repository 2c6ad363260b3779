"""Every error of this library, in one tree.

::

    OxpullError
    ├── InvalidTask                a task or its options can't be used as declared
    ├── InvalidArguments           a value can't be stored (also a TypeError and a ValueError)
    ├── InvalidSchedule            a schedule can't be read as declared (also a ValueError)
    ├── InvalidSettings            the settings of an Oxpull can't be used (also a ValueError)
    ├── NotOpen                    the Oxpull has no open connections
    ├── WrongDatabase              the server or its tables aren't what this Oxpull needs
    ├── TransactionRequired        a bound connection is in no transaction
    ├── DuplicateTask              the key of a unique task is held, and its task was to say so
    ├── UniqueEnqueueRace          a unique enqueue couldn't be decided; nothing was written
    ├── TransactionRolledBack      the server has undone the caller's whole transaction
    ├── NoReconciler               batches need a reconciler, and this Oxpull was told that there is none
    ├── BatchSealed                the batch takes no further members
    ├── BatchMemberExists          the task is a member of the batch already
    ├── BatchNotFound              no batch has this id
    ├── ExclusiveTimeout           an exclusive key didn't become free in time (also a TimeoutError)
    ├── ExclusiveLost              the lease of an exclusive key ran out, and somebody else may have the key
    ├── ExclusiveBusy              a task was skipped or has failed, for another one had its exclusive key
    ├── TaskResultDoesNotExist     no task row has this id
    ├── TaskFailed                 the awaited task settled without success
    ├── TaskTimeout                an attempt ran beyond its task's timeout (also a TimeoutError)
    ├── TaskProcessDied            the process that ran an attempt has died
    ├── Retry                      raised by a task: this attempt failed, try again after so long
    ├── Snooze                     raised by a task: not now, and this attempt doesn't count
    ├── Discard                    raised by a task: don't try again
    └── StoreError                 the database refused or couldn't be reached
        ├── ConnectionLost         the connection broke, or never came about
        ├── PoolTimeout            no connection of the pool became free in time
        ├── LockNotAvailable       a lock was held by others beyond the wait's bound
        ├── DeadlockDetected       the server chose this transaction as a deadlock's victim
        ├── SerializationFailure   the server couldn't serialise this transaction
        ├── SavepointMissing       the savepoint is gone, and with it the transaction
        ├── StatementTimeout       the statement ran beyond its bound
        └── UniqueViolation        a row with this key exists already

Database drivers' own exceptions never leave the library bare: they are the
``__cause__`` of one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from oxpull_async.results import TaskResult


class OxpullError(Exception):
    """The root of every error that this library raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes as they are, without being made anew from their message alone."""
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[OxpullError], args: tuple[Any, ...], state: dict[str, Any]) -> OxpullError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidTask(OxpullError):
    """A task, or one of its options, can't be used as declared."""


class InvalidArguments(OxpullError, TypeError, ValueError):
    """An argument can't be stored, or doesn't fit the task's signature. Nothing was written."""


class InvalidSchedule(OxpullError, ValueError):
    """A schedule, its timing or its time zone can't be used as declared."""


class InvalidSettings(OxpullError, ValueError):
    """A setting of an ``Oxpull`` can't be used."""


class NotOpen(OxpullError):
    """The ``Oxpull`` is not open, so it has no connection to work with."""


class WrongDatabase(OxpullError):
    """The database can't serve: the engine is too old, tables are missing, or it's another one."""


class TransactionRequired(OxpullError):
    """A bound connection must be inside a transaction, and it is in none."""


class DuplicateTask(OxpullError):
    """The key of a task with ``on_duplicate="raise"`` is held. Nothing was written.

    ``holder`` is the task that holds it, as it was read.
    """

    def __init__(self, message: str, *, holder: TaskResult) -> None:
        super().__init__(message)
        self.holder = holder

    @property
    def holder_id(self) -> UUID:
        """The holder's id."""
        return self.holder.id

    @property
    def holder_status(self) -> str:
        """The holder's status, a ``TaskStatus``."""
        return self.holder.status


class UniqueEnqueueRace(OxpullError):
    """A unique enqueue couldn't be decided. It has written nothing and may be retried.

    ``retry`` says what to repeat: ``"call"`` (this enqueue alone) or
    ``"transaction"`` (everything since the caller's BEGIN). ``reason`` is a
    stable word for programs; the message is for people. The driver's error,
    if there was one, is the ``__cause__``.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        retry: Literal["call", "transaction"],
        attempts: int = 1,
        isolation_level: str | None = None,
        holder_id: UUID | None = None,
        holder_status: str | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry: Literal["call", "transaction"] = retry
        self.attempts = attempts
        self.isolation_level = isolation_level
        self.holder_id = holder_id
        self.holder_status = holder_status


class TransactionRolledBack(OxpullError):
    """The server has rolled back the caller's whole transaction; only the caller can retry it."""


class NoReconciler(OxpullError):
    """Nothing here completes batches: this ``Oxpull`` has ``reconciler=False``. Nothing was written."""


class BatchSealed(OxpullError):
    """The batch is SEALED or COMPLETE: it takes no further members, and isn't sealed again. Nothing was written.

    ``status`` is the batch's status.
    """

    def __init__(self, message: str, *, batch_id: UUID, status: str) -> None:
        super().__init__(message)
        self.batch_id = batch_id
        self.status = status


class BatchMemberExists(OxpullError):
    """The unique task that was to be added is pending, and a member of the batch already. Nothing was written."""

    def __init__(self, message: str, *, batch_id: UUID, task_id: UUID) -> None:
        super().__init__(message)
        self.batch_id = batch_id
        self.task_id = task_id


class BatchNotFound(OxpullError):
    """No batch has this id: it never existed, was rolled back, or was pruned."""


class ExclusiveTimeout(OxpullError, TimeoutError):
    """The wait for an exclusive key is over, and others have it still."""


class ExclusiveLost(OxpullError):
    """The lease of an exclusive key ran out while it was in use, so somebody else may have the key by now."""


class ExclusiveBusy(OxpullError):
    """Another run had the task's exclusive key: the task was skipped, or this attempt has failed."""


class TaskResultDoesNotExist(OxpullError):
    """No task row has this id: it never existed, was rolled back, or was pruned."""


class TaskFailed(OxpullError):
    """The awaited task settled as FAILED, LOST or DISCARDED.

    ``status`` is the row's status, ``errors`` the stored records, oldest
    first, each with ``exception_class_path`` and ``traceback``.
    """

    def __init__(self, message: str, *, task_id: UUID, status: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.status = status
        self.errors = errors


class TaskTimeout(OxpullError, TimeoutError):
    """An attempt ran beyond its task's ``timeout``, in seconds, and was cancelled.

    Rows name it by the path that Django processes know.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(f"the task ran beyond its timeout of {timeout:g} s")
        self.timeout = timeout


class TaskProcessDied(OxpullError):
    """The process of a task with ``executor="process"`` ended before its function did. The attempt has failed."""


class Retry(OxpullError):
    """Raised by a task: this attempt has failed, and the next one waits ``after``, seconds or a ``timedelta``.

    Without ``after`` the backoff decides. The row's attempts still bound it:
    after the last one the row is FAILED.
    """

    def __init__(self, after: float | timedelta | None = None, reason: str = "") -> None:
        super().__init__(after, reason)  # all of it, so that it can be pickled
        self.after = after
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or "the task asked to be tried again"


class Snooze(OxpullError):
    """Raised by a task: run me again ``after``, seconds or a ``timedelta``, as if this attempt had never been."""

    def __init__(self, after: float | timedelta, reason: str = "") -> None:
        super().__init__(after, reason)
        self.after = after
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or "the task asked to run later"


class Discard(OxpullError):
    """Raised by a task: settle the row as DISCARDED, whatever attempts are left. The reason is recorded."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or "the task gave itself up"


class StoreError(OxpullError):
    """The database refused a statement or couldn't be reached.

    ``transient`` is true where the same work may succeed if it is repeated.
    ``code`` is the server's own: an SQLSTATE (PostgreSQL), an error number
    (MySQL family) or an extended result code (SQLite); None where the error
    came from the client's side.
    """

    transient = False

    def __init__(self, message: str, *, code: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLost(StoreError):
    """The connection broke or couldn't be made; whether a COMMIT under way took effect is unknown."""

    transient = True


class PoolTimeout(StoreError):
    """Every connection of the pool stayed busy for as long as the caller may wait."""

    transient = True


class LockNotAvailable(StoreError):
    """Another transaction held a lock for longer than this wait's bound."""

    transient = True


class DeadlockDetected(StoreError):
    """The server ended a deadlock by choosing this transaction as its victim."""

    transient = True


class SerializationFailure(StoreError):
    """This transaction's snapshot can't be reconciled with what others have committed."""

    transient = True


class SavepointMissing(StoreError):
    """The savepoint no longer exists: the server has dropped the transaction that held it."""


class StatementTimeout(StoreError):
    """The server stopped the statement, for it ran too long or was cancelled."""

    transient = True


class UniqueViolation(StoreError):
    """A row with this key exists already. ``table`` is the table's name where the server told it."""

    def __init__(self, message: str, *, code: str | int | None = None, table: str | None = None) -> None:
        super().__init__(message, code=code)
        self.table = table
