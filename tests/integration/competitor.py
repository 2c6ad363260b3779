"""Another client of the same database, over another driver than the library's: it watches, and it meddles.

Synchronous, and in autocommit until `begin()`. Where it might have to wait, call it through `aside`, or the event loop
waits with it.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid4

import anyio
import psycopg
import pymysql

from oxpull_async.ports import NewTask

T = TypeVar("T")

SQLITE_BUSY_SECONDS = 5.0


async def aside(function: Callable[..., T], *values: Any) -> T:
    """Call something that may block, away from the event loop."""
    return await anyio.to_thread.run_sync(lambda: function(*values))


class Competitor:
    """One connection. Statements have `?` for their values; ids go in as `UUID`, instants as `datetime`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.scheme = urlsplit(url).scheme.replace("mariadb", "mysql")
        self._connection: Any = _CONNECT[self.scheme](url)
        self._bystanders = frozenset(self._all_sessions())

    def __enter__(self) -> Competitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another(self) -> Competitor:
        """A further connection, to be closed by the caller."""
        return Competitor(self.url)

    def be_impatient(self) -> None:
        """Wait at most a second or so for a lock from here on."""
        for statement in _IMPATIENCE[self.scheme]:
            self._execute(statement, ())

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a test may have had it killed
            self._connection.close()

    # Statements

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the statement returns."""
        cursor = self._execute(statement, values)
        return [tuple(row) for row in cursor.fetchall()]

    def run(self, statement: str, *values: Any) -> int:
        """How many rows the statement changed."""
        count: int = self._execute(statement, values).rowcount
        return count

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE" if self.scheme == "sqlite" else "BEGIN")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def _execute(self, statement: str, values: tuple[Any, ...]) -> Any:
        cursor = self._connection.cursor()
        if not values:  # so that a % in the statement is a percent sign
            cursor.execute(statement)
        elif self.scheme == "sqlite":
            cursor.execute(statement, [self._encoded(value) for value in values])
        else:
            cursor.execute(statement.replace("?", "%s"), [self._encoded(value) for value in values])
        return cursor

    def _encoded(self, value: Any) -> Any:
        if isinstance(value, UUID):
            return value.hex
        if isinstance(value, datetime):
            zone = "+00" if self.scheme == "postgresql" else ""
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}{zone}"
        return value

    # What is there

    def counts(self) -> tuple[int, int]:
        """How many task rows, and how many locks."""
        return self._count("django_ox_oxtask"), self._count("oxpull_oxpulluniquelock")

    def locks(self) -> dict[str, UUID | None]:
        """Which task each key's lock names."""
        found = self.rows("SELECT key_, task_id FROM oxpull_oxpulluniquelock".replace("key_", self.key_column))
        return {key: None if task_id is None else UUID(str(task_id)) for key, task_id in found}

    def statuses(self) -> dict[UUID, str]:
        """The status of each task row."""
        return {UUID(str(id)): status for id, status in self.rows("SELECT id, status FROM django_ox_oxtask")}

    def row(self, task_id: UUID, *columns: str) -> tuple[Any, ...]:
        """Columns of one task row, as the driver gives them."""
        (row,) = self.rows(f"SELECT {', '.join(columns) or '*'} FROM django_ox_oxtask WHERE id = ?", task_id)
        return row

    @property
    def key_column(self) -> str:
        """`key` is a reserved word of the MySQL family."""
        return "`key`" if self.scheme == "mysql" else '"key"'

    def open_transactions(self) -> int:
        """How many other sessions of this database are in a transaction and at rest."""
        if self.scheme == "sqlite":
            return self._sqlite_is_taken()
        return int(self.rows(_OPEN_TRANSACTIONS[self.scheme])[0][0])

    def sessions(self) -> list[int]:
        """The sessions of this database that began after this one, by the id that ends them."""
        return [session for session in self._all_sessions() if session not in self._bystanders]

    def waiting_sessions(self) -> int:
        """How many other sessions of this database are waiting for a lock at this moment."""
        return int(self.rows(_WAITING[self.scheme])[0][0])

    def kill(self, session: int) -> None:
        """End a session of this server, as an administrator or a failing network would."""
        if self.scheme == "postgresql":
            self.rows("SELECT pg_terminate_backend(?)", session)
        else:
            with contextlib.suppress(pymysql.MySQLError):  # it may have ended by itself
                self.run(f"KILL {session}")

    def _all_sessions(self) -> list[int]:
        return [] if self.scheme == "sqlite" else [int(row[0]) for row in self.rows(_SESSIONS[self.scheme])]

    def _count(self, table: str) -> int:
        return int(self.rows(f"SELECT COUNT(*) FROM {table}")[0][0])

    def _sqlite_is_taken(self) -> int:
        self._connection.execute("PRAGMA busy_timeout = 100")
        try:
            self.begin()
        except sqlite3.OperationalError:
            return 1
        else:
            self.rollback()
            return 0
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_SECONDS * 1000:.0f}")

    # What it does to others

    def set_task(self, task_id: UUID, **columns: Any) -> None:
        """Write columns of a task row."""
        assignments = ", ".join(f"{name} = ?" for name in columns)
        changed = self.run(f"UPDATE django_ox_oxtask SET {assignments} WHERE id = ?", *columns.values(), task_id)
        assert changed == 1, f"{task_id} isn't there, or had these values already"

    def delete_task(self, task_id: UUID) -> None:
        assert self.run("DELETE FROM django_ox_oxtask WHERE id = ?", task_id) == 1

    def insert_lock(self, key: str, task_id: UUID | None) -> None:
        """Take a key; raises what the driver raises where it is taken."""
        self.run(
            f"INSERT INTO oxpull_oxpulluniquelock ({self.key_column}, task_id, task_path, queue_name, created_at) "
            "VALUES (?, ?, ?, ?, ?)",
            key, task_id, "elsewhere.task", "default", datetime.now(UTC),
        )  # fmt: skip

    def insert_task(self, *, id: UUID | None = None, status: str = "READY", **columns: Any) -> UUID:
        """Write a task row as another program would."""
        task_id = id or uuid4()
        row = {**_ROW, "id": task_id, "status": status, "enqueued_at": datetime.now(UTC), **columns}
        marks = ", ".join("?" * len(row))
        self.run(f"INSERT INTO django_ox_oxtask ({', '.join(row)}) VALUES ({marks})", *row.values())
        return task_id

    def insert_unique(self, key: str, **columns: Any) -> UUID:
        """Write a lock and its task row; within `begin()`, others that want the key wait from here on."""
        task_id = uuid4()
        self.insert_lock(key, task_id)
        return self.insert_task(id=task_id, **columns)

    def insert_tasks(self, tasks: list[NewTask]) -> None:
        """Write many rows in one transaction."""
        self.begin()
        for task in tasks:
            self.insert_task(
                id=task.id, task_path=task.task_path, queue_name=task.queue_name, priority=task.priority,
                enqueued_at=task.enqueued_at,
            )  # fmt: skip
        self.commit()

    @contextlib.contextmanager
    def holding(self, key: str) -> Iterator[UUID]:
        """Hold a key uncommitted for as long as the block lasts, then roll back."""
        self.begin()
        task_id = self.insert_unique(key)
        try:
            yield task_id
        finally:
            self.rollback()


_ROW: dict[str, Any] = {
    "task_path": "elsewhere.task", "args": "[]", "kwargs": "{}", "queue_name": "default", "priority": 0,
    "takes_context": False, "backend_name": "default", "attempts": 0, "max_attempts": 3, "errors": "[]",
    "worker_ids": "[]", "lease_epoch": 0,
}  # fmt: skip

_IMPATIENCE = {
    "postgresql": ["SET lock_timeout = '1s'"],
    "mysql": ["SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION lock_wait_timeout = 1"],
    "sqlite": ["PRAGMA busy_timeout = 1000"],
}

_OPEN_TRANSACTIONS = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND state IN ('idle in transaction', 'idle in transaction (aborted)')",
    "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx AS trx JOIN information_schema.processlist AS list "
    "ON list.id = trx.trx_mysql_thread_id WHERE list.db = DATABASE() AND list.id <> CONNECTION_ID()",
}

_SESSIONS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend'",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
}

_WAITING = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock'",
    "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx AS trx JOIN information_schema.processlist AS list "
    "ON list.id = trx.trx_mysql_thread_id WHERE list.db = DATABASE() AND trx.trx_state = 'LOCK WAIT'",
}


def _connect_postgres(url: str) -> Any:
    return psycopg.connect(re.sub("^postgres:", "postgresql:", url), autocommit=True)


def _connect_mysql(url: str) -> Any:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "127.0.0.1", port=parts.port or 3306, database=parts.path.lstrip("/"),
        user=unquote(parts.username or ""), password=unquote(parts.password or ""), autocommit=True,
        client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )  # fmt: skip


def _connect_sqlite(url: str) -> Any:
    return sqlite3.connect(
        url.removeprefix("sqlite:///"), isolation_level=None, timeout=SQLITE_BUSY_SECONDS, check_same_thread=False
    )


_CONNECT: dict[str, Callable[[str], Any]] = {
    "postgresql": _connect_postgres,
    "mysql": _connect_mysql,
    "sqlite": _connect_sqlite,
}
