"""The servers themselves read every statement, and say by which index they'd run those that matter."""

from __future__ import annotations

import re
from collections.abc import Iterator

import asyncpg
import pytest

from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.postgres import unique
from tests.conformance.rows import new_unique
from tests.integration.competitor import Competitor
from tests.scale import rounds
from tests.servers.databases import Databases
from tests.statements.filling import LOCKS, TASKS, analyze, insert_rows
from tests.statements.samples import filled, statements_of

ROOMS = ["postgres", "sqlite", "mysql"]
FOREIGN = rounds(small=20_000, full=1_000_000)
DEFERRED = rounds(small=5_000, full=200_000)


@pytest.fixture(scope="module")
def crowded(databases: Databases) -> Iterator[dict[str, Competitor]]:
    """By engine, a database whose tables are full: foreign rows ahead of ours, settled ones, and many locks."""
    opened: dict[str, Competitor] = {}
    contexts = []

    class Crowded(dict[str, Competitor]):
        def __missing__(self, engine: str) -> Competitor:
            context = databases.migrated(engine)
            contexts.append(context)
            opened[engine] = self[engine] = _fill(Competitor(context.__enter__()))
            return self[engine]

    yield Crowded()
    for competitor in opened.values():
        competitor.close()
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def full_database(crowded: dict[str, Competitor], engine: str) -> Competitor:
    return crowded[engine]


def test_every_statement_is_understood(full_database: Competitor, dialect: str):
    complaints = []
    for file, statement in statements_of(dialect):
        for text in filled(dialect, statement):
            try:
                explain(full_database, text)
            except Exception as error:
                complaints.append(f"{file}: {statement.name}: {error}")

    assert not complaints, "\n".join(complaints)


@pytest.mark.engines("postgres")
def test_every_statement_is_understood_with_its_parameters(full_database: Competitor):
    _needs(full_database, 16, "older ones can't EXPLAIN a plan for any values")
    for file, statement in statements_of("postgres"):
        text, _ = statement.numeric_dollar
        if is_explainable(text):
            assert full_database.rows(f"EXPLAIN (GENERIC_PLAN) {text}"), (file, statement.name)


LINES = {"oxpull_async_undeferred_idx", "oxpull_async_deferred_idx", "oxpull_async_deferred_order_idx"}
POSTGRES_INDEXES = {
    "claim": {"oxpull_async_undeferred_idx", "oxpull_async_deferred_idx", "django_ox_oxtask_pkey"},
    "claim_among": {"oxpull_async_undeferred_idx", "oxpull_async_deferred_idx", "django_ox_oxtask_pkey"},
    "find_late_row": {"oxpull_async_deferred_idx"},
    "claim_from_all_lines": {*LINES, "django_ox_oxtask_pkey"},
    "peek": LINES,
    "next_due": {"oxpull_async_deferred_idx"},
    "renew": {"django_ox_oxtask_pkey"},
    "release": {"django_ox_oxtask_pkey"},
    "settle": {"django_ox_oxtask_pkey", "oxpull_async_lock_task_idx"},
    "settle_successes": {"django_ox_oxtask_pkey", "oxpull_async_lock_task_idx"},
    "snooze": {"django_ox_oxtask_pkey"},
    "get_task": {"django_ox_oxtask_pkey"},
    "get_tasks": {"django_ox_oxtask_pkey"},
    "insert_unique": {"oxpull_oxpulluniquelock_pkey", "django_ox_oxtask_pkey"},
    "insert_uniques": {"oxpull_oxpulluniquelock_pkey", "django_ox_oxtask_pkey"},
    "read_holders": {"oxpull_oxpulluniquelock_pkey", "django_ox_oxtask_pkey"},
    "lock_holders": {"django_ox_oxtask_pkey"},
    "delete_stale_locks": {"oxpull_oxpulluniquelock_pkey"},
    "move_task": {"django_ox_oxtask_pkey"},
    "replace_arguments": {"django_ox_oxtask_pkey"},
    "retry": {"django_ox_oxtask_pkey"},
    "discard": {"django_ox_oxtask_pkey"},
    "cancel": {"django_ox_oxtask_pkey"},
    "expire_lease": {"django_ox_oxtask_pkey"},
    "requeue": {"django_ox_oxtask_pkey"},
    "mark_lost": {"django_ox_oxtask_pkey"},
    "delete_tasks": {"django_ox_oxtask_pkey"},
    "lock_settled_holders": {"django_ox_oxtask_pkey"},
    "lock_expired": {"ox_reaper_expiry_idx"},
    "forget_ticks": set(),
    "lock_due_tasks": LINES,
    "grant_tasks": {"django_ox_oxtask_pkey"},
    "postpone_tasks": {"django_ox_oxtask_pkey"},
    "skip_tasks": {"django_ox_oxtask_pkey"},
    "wake_tasks": {"django_ox_oxtask_pkey"},
    "find_heads": {"django_ox_oxtask_pkey"},
    "find_dead_waiters": {"django_ox_oxtask_pkey"},
}
# For a LIMIT that it doesn't know, the server has only a guess.
GENERIC = POSTGRES_INDEXES.keys() - {"lock_expired"}


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("name", POSTGRES_INDEXES)
def test_postgres_goes_by_these_indexes(full_database: Competitor, name: str):
    _needs(full_database, 14, "older ones show both of two subplans of which they take one")
    (text,) = filled("postgres", statement_of("postgres", name))

    assert_goes_by(POSTGRES_INDEXES[name], full_database.rows(f"EXPLAIN (COSTS OFF) {text}"))


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("name", sorted(GENERIC))
def test_postgres_goes_by_these_indexes_whatever_the_values(full_database: Competitor, name: str):
    _needs(full_database, 16, "older ones can't EXPLAIN a plan for any values")
    text, _ = statement_of("postgres", name).numeric_dollar

    assert_goes_by(POSTGRES_INDEXES[name], full_database.rows(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {text}"))


# A plan outlives the tables' growth until they are analyzed again.
@pytest.mark.engines("postgres")
async def test_keys_are_looked_up_one_by_one_even_by_a_plan_made_when_there_were_few(migrated_url: str):
    with Competitor(migrated_url) as competitor:
        insert_rows(competitor, "settled", 1_000, path="proof.tasks.mine", status="SUCCESSFUL")
        competitor.run(
            f"INSERT INTO {LOCKS} (key, task_id, task_path, queue_name, created_at) "
            f"SELECT id::text, id, task_path, queue_name, enqueued_at FROM {TASKS}"
        )
        analyze(competitor)
    step = next(unique.insert([new_unique(f"key-{number}") for number in range(50)], 1.0))
    text, names = step.statement.numeric_dollar

    connection = await asyncpg.connect(migrated_url)
    plan = await connection.fetch(f"EXPLAIN (COSTS OFF) {text}", *[step.values[name] for name in names])
    await connection.close()

    assert_goes_by(POSTGRES_INDEXES["insert_uniques"], [(line,) for (line,) in plan])


def _needs(database: Competitor, version: int, reason: str) -> None:
    ((found,),) = database.rows("SHOW server_version_num")
    if int(found) < version * 10_000:
        pytest.skip(f"needs PostgreSQL {version}: {reason}")


def assert_goes_by(indexes: set[str], plan: list[tuple[str]]) -> None:
    text = "\n".join(line for (line,) in plan)
    # A text key has a second index, which serves as well.
    used = {name.replace("_key_8a7d9668_like", "_pkey") for name in re.findall(r"(?:using|on) (\w+_\w+)", text)}
    assert indexes <= used, text
    assert not set(re.findall(r"Seq Scan on (\w+)", text)) & {TASKS, LOCKS}, text


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("probe", {"oxpull_async_undeferred_idx", "oxpull_async_deferred_idx"}),
        ("find_late_row", {"oxpull_async_deferred_idx"}),
        ("claim", {"oxpull_async_undeferred_idx", "sqlite_autoindex_django_ox_oxtask_1"}),
        ("claim_from_all_lines", {*LINES, "sqlite_autoindex_django_ox_oxtask_1"}),
        ("peek", LINES),
        ("next_due", {"oxpull_async_deferred_idx"}),
        ("renew", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("release", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("cancel", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("expire_lease", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("get_task", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("get_tasks", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("read_holders", {"sqlite_autoindex_oxpull_oxpulluniquelock_1", "sqlite_autoindex_django_ox_oxtask_1"}),
        ("take_over_lock", {"sqlite_autoindex_oxpull_oxpulluniquelock_1"}),
        ("lock_due_tasks", LINES),
        ("grant_tasks", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("postpone_tasks", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("skip_tasks", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("wake_tasks", {"sqlite_autoindex_django_ox_oxtask_1"}),
        ("find_heads", {"sqlite_autoindex_django_ox_oxtask_1"}),
    ],
)
def test_sqlite_goes_by_these_indexes(full_database: Competitor, name: str, indexes: set[str]):
    (text,) = filled("sqlite", statement_of("sqlite", name))
    plan = [row[-1] for row in full_database.rows(f"EXPLAIN QUERY PLAN {text}")]

    assert indexes <= set(re.findall(r"INDEX (\w+)", "\n".join(plan))), "\n".join(plan)
    assert not [line for line in plan if re.match(rf"SCAN ({TASKS}|{LOCKS}|task|unique_lock)\b", line)], "\n".join(plan)


@pytest.mark.engines("mysql")
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("find_due", {"oxpull_async_due_idx"}),
        ("find_due_among_first", {"ox_dequeue_idx", "PRIMARY"}),
        ("find_late", {"oxpull_async_due_idx"}),
        ("next_due", {"oxpull_async_due_idx"}),
        ("lock_due", {"oxpull_async_due_idx"}),
        ("lock_late", {"PRIMARY"}),
        ("grant_claims", {"PRIMARY"}),
        ("lock_leases", {"PRIMARY"}),
        ("lock_outcomes", {"PRIMARY"}),
        ("write_outcomes", {"PRIMARY"}),
        ("find_task_locks", {"oxpull_async_lock_task_idx"}),
        ("get_task", {"PRIMARY"}),
        ("get_tasks", {"PRIMARY"}),
        ("read_holder", {"PRIMARY"}),
        ("read_holders", {"PRIMARY"}),
        ("lock_holders", {"PRIMARY"}),
        ("delete_tasks", {"PRIMARY"}),
        ("lock_cancellable", {"PRIMARY"}),
        ("lock_leased", {"PRIMARY"}),
        ("lock_due_tasks", {"PRIMARY"}),
        ("grant_tasks", {"PRIMARY"}),
        ("postpone_tasks", {"PRIMARY"}),
        ("skip_tasks", {"PRIMARY"}),
        ("lock_sleeping_tasks", {"PRIMARY"}),
        ("wake_tasks", {"PRIMARY"}),
    ],
)
def test_the_mysql_family_goes_by_these_indexes(full_database: Competitor, name: str, keys: set[str]):
    for text in filled("mysql", statement_of("mysql", name)):
        if not is_explainable(text):
            continue
        plan = full_database.rows(f"EXPLAIN FORMAT=TRADITIONAL {text}")
        used = {str(value) for row in plan for value in row}
        assert keys <= used, (text, plan)
        assert not [row for row in plan if "ALL" in row and set(row) & {TASKS, LOCKS, "task", "unique_lock"}], plan


def explain(competitor: Competitor, text: str) -> None:
    """Have the server plan the statement; what it has no plan for is carried out, in a transaction of its own."""
    if is_explainable(text):
        word = "EXPLAIN QUERY PLAN" if competitor.scheme == "sqlite" else "EXPLAIN"
        assert competitor.rows(f"{word} {text}") is not None
        return
    try:
        if not text.startswith(("BEGIN", "COMMIT")):
            competitor.begin()
        if savepoint := re.search(r"(?:ROLLBACK TO|RELEASE) (?:SAVEPOINT )?(\w+)", text):
            competitor.run(f"SAVEPOINT {savepoint[1]}")
        competitor.run(text)
    finally:
        competitor.run("ROLLBACK" if competitor.scheme != "sqlite" else "SELECT 1")


def is_explainable(text: str) -> bool:
    return text.startswith(("SELECT", "(SELECT", "INSERT", "UPDATE", "DELETE", "WITH"))


def statement_of(room: str, name: str) -> Statement:
    (found,) = {statement.text: statement for _, statement in statements_of(room) if statement.name == name}.values()
    return found


def _fill(competitor: Competitor) -> Competitor:
    competitor.insert_task(task_path="proof.tasks.mine")
    insert_rows(competitor, "foreign", FOREIGN, path="elsewhere.task", status="READY", priority=50)
    insert_rows(competitor, "settled", FOREIGN, path="proof.tasks.mine", status="SUCCESSFUL")
    insert_rows(competitor, "running", 2_000, path="proof.tasks.mine", status="RUNNING")
    insert_rows(competitor, "mine", 200, path="proof.tasks.mine", status="READY")
    insert_rows(competitor, "also", 200, path="proof.tasks.also_mine", status="READY")
    insert_rows(
        competitor,
        "deferred",
        DEFERRED,
        path="proof.tasks.mine",
        status="READY",
        priority=9,
        run_after="2099-01-01 00:00:00",
    )
    competitor.run(
        f"INSERT INTO {LOCKS} ({competitor.key_column}, task_id, task_path, queue_name, created_at) "
        f"SELECT CONCAT(REPLACE(CAST(id AS char(36)), '-', ''), 'k'), id, task_path, queue_name, enqueued_at "
        f"FROM {TASKS}"
        if competitor.scheme != "sqlite"
        else f"INSERT INTO {LOCKS} (key, task_id, task_path, queue_name, created_at) "
        f"SELECT id || 'k', id, task_path, queue_name, enqueued_at FROM {TASKS}"
    )
    analyze(competitor)
    return competitor
