"""What becomes of SQLite's errors, raised by SQLite itself where that's easy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oxpull_async.drivers.sqlite.errors import classify, is_busy
from oxpull_async.exceptions import (
    ConnectionLost,
    LockNotAvailable,
    SavepointMissing,
    SerializationFailure,
    StatementTimeout,
    StoreError,
    UniqueViolation,
    WrongDatabase,
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "some.db")


@pytest.fixture
def connection(file: str) -> Iterator[sqlite3.Connection]:
    with connected(file) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        yield connection


def connected(file: str) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(file, isolation_level=None, timeout=0))


def error_of(connection: sqlite3.Connection, statement: str) -> sqlite3.Error:
    with pytest.raises(sqlite3.Error) as caught:
        connection.execute(statement)
    return caught.value


@pytest.mark.parametrize("column", ["id", "name"])
def test_a_key_that_exists_names_its_table(connection: sqlite3.Connection, column: str):
    connection.execute(f"INSERT INTO note ({column}) VALUES (1)")

    found = classify(error_of(connection, f"INSERT INTO note ({column}) VALUES (1)"))

    assert isinstance(found, UniqueViolation)
    assert found.table == "note"
    assert found.code in (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE)


def test_a_file_that_another_writes_is_a_lock_to_wait_for(connection: sqlite3.Connection, file: str):
    with connected(file) as other:
        other.execute("BEGIN IMMEDIATE")
        error = error_of(connection, "BEGIN IMMEDIATE")

    found = classify(error)
    assert isinstance(found, LockNotAvailable)
    assert found.transient
    assert found.code == sqlite3.SQLITE_BUSY
    assert is_busy(error)


def test_a_snapshot_that_others_left_behind_needs_a_new_transaction(connection: sqlite3.Connection, file: str):
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM note").fetchall()
    with connected(file) as other:
        other.execute("INSERT INTO note DEFAULT VALUES")
    error = error_of(connection, "INSERT INTO note DEFAULT VALUES")

    found = classify(error)
    assert isinstance(found, SerializationFailure)
    assert found.code == sqlite3.SQLITE_BUSY_SNAPSHOT
    assert not is_busy(error)


def test_an_interrupted_statement_ran_too_long(connection: sqlite3.Connection):
    connection.set_progress_handler(lambda: 1, 100)
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"

    assert isinstance(classify(error_of(connection, endless)), StatementTimeout)


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM django_ox_oxtask", "SELECT lease_epoch FROM note", "INSERT INTO note (lease_epoch) VALUES (1)"],
)
def test_a_missing_table_or_column_tells_to_migrate(connection: sqlite3.Connection, statement: str):
    found = classify(error_of(connection, statement))

    assert isinstance(found, WrongDatabase)
    assert "oxpull-async migrate" in str(found)


def test_a_full_disk_is_worth_another_try(connection: sqlite3.Connection):
    connection.execute("PRAGMA max_page_count = 1")

    found = classify(error_of(connection, f"INSERT INTO note (name) VALUES ('{'x' * 20_000}')"))

    assert type(found) is StoreError
    assert found.transient


def test_a_savepoint_that_is_gone_is_told_apart(connection: sqlite3.Connection):
    assert isinstance(classify(error_of(connection, "ROLLBACK TO SAVEPOINT nowhere")), SavepointMissing)


def test_a_file_of_something_else_is_the_wrong_database(tmp_path: Path):
    path = tmp_path / "letter.txt"
    path.write_text("Dear database,\n" * 100)

    with connected(str(path)) as connection:
        assert isinstance(classify(error_of(connection, "SELECT * FROM sqlite_master")), WrongDatabase)


def test_a_file_that_cannot_be_opened_is_no_connection(tmp_path: Path):
    with pytest.raises(sqlite3.Error) as caught:
        sqlite3.connect(tmp_path / "nowhere" / "some.db")

    assert isinstance(classify(caught.value), ConnectionLost)


def test_a_file_that_cannot_be_written_says_so(connection: sqlite3.Connection, file: str):
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as reader:
        found = classify(error_of(reader, "INSERT INTO note DEFAULT VALUES"))

    assert type(found) is StoreError
    assert "can't be written" in str(found)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no active connection"),
        ValueError("Connection closed"),
        sqlite3.ProgrammingError("Cannot operate on a closed database."),
    ],
)
def test_a_closed_connection_is_lost(error: Exception):
    assert isinstance(classify(error), ConnectionLost)


def test_anything_else_is_a_plain_store_error_that_keeps_its_code(connection: sqlite3.Connection):
    found = classify(error_of(connection, "SELEKT 1"))

    assert type(found) is StoreError
    assert found.code == sqlite3.SQLITE_ERROR
