"""How MariaDB and MySQL carry the statements out: what locks rows looks up those alone, whatever the tables hold."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from oxpull_async._ids import new_id
from oxpull_async.drivers._statements import Statement, load_statements
from oxpull_async.drivers.mysql import claims, tasks, unique
from oxpull_async.drivers.mysql._rows import document, instant
from oxpull_async.drivers.mysql.pool import Pool
from oxpull_async.exceptions import StoreError
from oxpull_async.settings import make_settings
from tests.conformance.rows import PATH, new_task, new_unique, now, request

pytestmark = [pytest.mark.engines("mysql"), pytest.mark.timeout(120)]

SQL: dict[str, Statement] = {}
for file in ("tasks", "unique", "claims", "outcomes", "maintenance"):
    SQL |= load_statements("oxpull_async.drivers.mysql", f"{file}.sql")


class Access(NamedTuple):
    """How one table is read for a statement."""

    table: str
    kind: str
    key: str | None
    extra: str


Explain = Callable[[str, dict[str, Any]], Awaitable[list[Access]]]

IDS = tuple(new_id().hex for _ in range(20))
KEYS = tuple(f"{number:064x}" for number in range(20))
VALUES: dict[str, Any] = {
    "ids": IDS,
    "id": IDS[0],
    "keys": KEYS,
    "key": KEYS[0],
    "fences": tuple((id_, 1) for id_ in IDS),
    "locks": document([{"key": key, "task_id": id_} for key, id_ in zip(KEYS, IDS, strict=True)]),
    "rows": document([{"id": id_, "errors": "[]"} for id_ in IDS]),
    "outcomes": document([{"id": id_, "status": "FAILED", "errors": "[]"} for id_ in IDS]),
    "worker_id": "worker-1",
    "lease_microseconds": 1_000_000,
    "statuses": ("SUCCESSFUL", "DISCARDED"),
    "finished_before": instant(now()),
    "now": instant(now()),
    "limit": 10,
    "task_path": PATH,
    "any_queue": False,
    "queues": ("default", "mail"),
    "passed_queues": (None,),
    "limited_queue": "",
}


@pytest.fixture
async def pool(migrated_url: str) -> AsyncIterator[Pool]:
    pool = Pool(migrated_url, make_settings({}))
    await pool.open()
    yield pool
    await pool.close()


@pytest.fixture(params=[0, 3, 30, 1_000], ids=lambda count: f"{count} rows")
async def explain(pool: Pool, request: pytest.FixtureRequest) -> AsyncIterator[Explain]:
    """Explains a named statement on tables of so many rows, twenty of which the values above name at most."""
    await fill(pool, request.param)
    async with pool.connection() as connection:
        with contextlib.suppress(StoreError):
            await connection.command("SET explain_format = 'TRADITIONAL'")  # MySQL 9 draws a tree otherwise
        await connection.command("ANALYZE TABLE django_ox_oxtask, oxpull_oxpulluniquelock")

        async def explain(name: str, values: dict[str, Any]) -> list[Access]:
            text, names = SQL[name].format
            part = next(
                part for part in text.split(";") if part.strip().split()[0] in ("SELECT", "UPDATE", "DELETE", "(")
            )
            filled = connection._filled(text, names, values)
            index = text.split(";").index(part)
            found = await connection.command(f"EXPLAIN {filled.split(';')[index]}")
            return [_access(row) for row in found.rows]

        yield explain


async def fill(pool: Pool, count: int) -> None:
    """Half of the values name what is there."""
    half = min(count, len(IDS) // 2)
    rows = [new_task(id=UUID(id_)) for id_ in IDS[:half]] + [new_task() for _ in range(count - half)]
    uniques = [new_unique(key) for key in KEYS[:half]] + [new_unique(f"f{n:063x}") for n in range(count - half)]
    await pool.write(tasks.insert(rows))
    await pool.transact(unique.insert_together(uniques, 10, 5))
    await pool.write(claims.claim(request(limit=count)))


def _access(row: Any) -> Access:
    """MySQL's table has two columns more: partitions, and how much is filtered."""
    columns = list(row)
    if len(columns) == 12:
        del columns[10], columns[3]
    return Access(str(columns[2]), str(columns[3]), columns[5], str(columns[9] or ""))


BY_ID = [
    "lock_leases", "lock_unrun", "lock_outcomes", "lock_expired", "lock_retryable", "lock_discardable",
    "lock_prunable", "lock_late", "lock_settled_holders", "lock_holders", "lock_keys", "lock_keys_at_once",
    "grant_claims", "extend_leases", "refund", "requeue", "retry", "discard",
]  # fmt: skip
BY_DOCUMENT = ["write_outcomes", "mark_lost", "delete_tasks", "delete_locks", "take_locks_over"]
IN_LINE = ["find_due", "lock_due", "next_due"]


async def test_rows_are_locked_by_primary_key_and_in_its_order(explain: Explain):
    for name in BY_ID:
        (access,) = await explain(name, values_of(name))

        assert (name, access.key) == (name, "PRIMARY")
        assert access.kind in ("range", "const", "eq_ref"), name
        assert "filesort" not in access.extra, name
        assert "temporary" not in access.extra, name


async def test_rows_that_a_document_names_are_looked_up_one_by_one(explain: Explain):
    for name in BY_DOCUMENT:
        document_access, access = await explain(name, values_of(name))

        assert (name, document_access.table) == (name, "input")
        assert (name, access.kind, access.key) == (name, "eq_ref", "PRIMARY")


async def test_a_line_is_read_in_its_order(explain: Explain):
    for name in IN_LINE:
        # Beside it a few paused queues.
        lines = [access for access in await explain(name, values_of(name)) if access.table == "django_ox_oxtask"]

        assert lines, name
        for access in lines:
            assert (name, access.key) == (name, "oxpull_async_due_idx")
            assert access.kind in ("ref", "range"), name
            assert "filesort" not in access.extra, name


async def test_one_row_is_looked_up(explain: Explain):
    for name in ("read_holder", "get_task"):
        found = await explain(name, values_of(name))

        assert {access.kind for access in found} <= {"const", "eq_ref", "None"}, name


def values_of(name: str) -> dict[str, Any]:
    values = {parameter: VALUES[parameter] for parameter in SQL[name].parameters}
    return {**values, "ids": document(IDS)} if name == "delete_tasks" else values
