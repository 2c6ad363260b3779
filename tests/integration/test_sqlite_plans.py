"""Plans that SQLite gets right only because it's told to: it has no statistics, and takes any status for a rare one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.sqlite import migrations

FILES = ["claims", "limits", "maintenance", "outcomes", "tasks", "unique"]
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


WALK = "USING INDEX oxpull_async_undeferred_idx (task_path=?)"
FEW = "USING INDEX oxpull_async_deferred_idx (task_path=? AND run_after<?)"
MANY = "USING INDEX oxpull_async_deferred_order_idx (task_path=?)"
NEXT = "USING INDEX oxpull_async_deferred_idx (task_path=? AND run_after>?)"


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("probe", [WALK, FEW]),
        ("find_late_row", [FEW]),
        ("claim", [WALK]),
        ("claim_from_all_lines", [WALK, FEW, MANY]),
        ("lock_due_tasks", [WALK, FEW, MANY]),
        ("peek", [WALK, FEW, MANY]),
        ("next_due", [NEXT]),
    ],
)
def test_claims_look_at_rows_of_their_own_paths_and_not_at_those_that_are_not_due(
    connection: sqlite3.Connection, name: str, ways: list[str]
):
    found = plan(connection, STATEMENTS[name])

    for way in ways:
        assert way in found
    assert "SCAN django_ox_oxtask" not in found


def test_the_reaper_looks_at_running_rows_alone(connection: sqlite3.Connection):
    found = plan(connection, STATEMENTS["lock_expired"])

    assert BY_KEY not in found
    assert "(status=?" in found or "oxpull_async_running_idx" in found
