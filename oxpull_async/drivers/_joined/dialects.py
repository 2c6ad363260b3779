"""SQLAlchemy's dialects that can be bound, and what each of their drivers tells of its transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from oxpull_async.exceptions import OxpullError


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of SQLAlchemy's async dialects."""

    engine: str
    style: Literal["numeric_dollar", "qmark", "format"]
    in_transaction: Callable[[Any], bool]
    """Whether the driver's connection is in a transaction on the server."""
    begin: Callable[[Any], str | None]
    """What to run so that a transaction begins: SQLAlchemy itself begins with its first statement at the earliest."""
    interruptible: bool = True
    """A cancelled statement ends. Otherwise it goes on in its thread, and SQLAlchemy drops the connection beside it
    with all its locks, so that a cancel has to wait: no longer than the statement does, which is the busy time-out."""

    def classify(self, error: BaseException) -> OxpullError:
        """The library's error for the driver's."""
        found: OxpullError = import_module(f"oxpull_async.drivers.{self.engine}.errors").classify(error)
        return found


def dialect_of(name: str, driver: str) -> Dialect:
    """Raises: TypeError for a dialect that isn't served."""
    dialect = _DIALECTS.get((name, driver))
    if dialect is None:
        served = ", ".join("+".join(key) for key in _DIALECTS)
        raise TypeError(f"SQLAlchemy's dialect {name}+{driver} can't be bound; these can: {served}")
    return dialect


def _psycopg_in_transaction(driver: Any) -> bool:
    return int(driver.info.transaction_status) != 0  # 0: idle


def _sqlite_begin(driver: Any) -> str | None:
    # In the sqlite3 module's legacy mode a SAVEPOINT that comes first would be a transaction of its own, which its
    # RELEASE commits. Without any mode (isolation_level None) the driver never begins, and neither do we.
    return None if driver.isolation_level is None else "BEGIN IMMEDIATE"


def _mysql_in_transaction(driver: Any) -> bool:
    # Off, every statement belongs to a transaction. The flag of the server's status is no help after an error.
    return not driver.get_autocommit() or bool(driver.get_transaction_status())


def _select(driver: Any) -> str:
    return "SELECT 1"


_DIALECTS = {
    ("postgresql", "asyncpg"): Dialect(
        "postgres", "numeric_dollar", lambda driver: bool(driver.is_in_transaction()), _select
    ),
    ("postgresql", "psycopg"): Dialect("postgres", "format", _psycopg_in_transaction, _select),
    ("sqlite", "aiosqlite"): Dialect(
        "sqlite", "qmark", lambda driver: bool(driver.in_transaction), _sqlite_begin, interruptible=False
    ),
    ("mysql", "asyncmy"): Dialect("mysql", "format", _mysql_in_transaction, _select),
    ("mysql", "aiomysql"): Dialect("mysql", "format", _mysql_in_transaction, _select),
    ("mariadb", "asyncmy"): Dialect("mysql", "format", _mysql_in_transaction, _select),
    ("mariadb", "aiomysql"): Dialect("mysql", "format", _mysql_in_transaction, _select),
}
