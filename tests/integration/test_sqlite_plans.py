"""Plans that SQLite gets right only because it's told to: it has no statistics, and takes any status for a rare one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.sqlite import migrations

FILES = ["claims", "maintenance", "outcomes", "tasks", "unique"]
STATEMENTS = {
    name: statement
    for file in FILES
    for name, statement in load_statements("oxpull_async.drivers.sqlite", f"{file}.sql").items()
}
BY_KEY = "sqlite_autoindex_django_ox_oxtask_1"


@pytest.fixture(params=[False, True], ids=["ordinary", "lean"])
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrations.migrate(connection, lean=request.param)
        yield connection


def plan(connection: sqlite3.Connection, statement: Statement) -> str:
    text, names = statement.qmark
    steps = connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * len(names)).fetchall()
    return "\n".join(step[3] for step in steps)


@pytest.mark.parametrize("name", ["renew", "release", "settle", "requeue", "mark_lost", "retry", "discard"])
def test_rows_that_are_named_are_found_by_their_key(connection: sqlite3.Connection, name: str):
    found = plan(connection, STATEMENTS[name])

    assert BY_KEY in found
    assert "SCAN django_ox_oxtask" not in found
    assert "SCAN task" not in found


@pytest.mark.parametrize("name", ["probe", "claim"])
def test_claims_walk_the_rows_of_their_own_paths_alone(connection: sqlite3.Connection, name: str):
    assert "USING INDEX oxpull_async_claim_idx (task_path=?)" in plan(connection, STATEMENTS[name])


def test_the_reaper_looks_at_running_rows_alone(connection: sqlite3.Connection):
    found = plan(connection, STATEMENTS["lock_expired"])

    assert BY_KEY not in found
    assert "(status=?" in found or "oxpull_async_running_idx" in found
