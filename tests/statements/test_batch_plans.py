"""Statements about batches look at the batch's own rows, however many others there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.competitor import Competitor
from tests.scale import rounds
from tests.servers.databases import Databases
from tests.statements.filling import LOCKS, TASKS, insert_rows
from tests.statements.samples import BATCH_ID, INSTANT, filled, statements_of

BATCHES, MEMBERS = "oxpull_oxpullbatch", "oxpull_oxpullbatchmember"
FOREIGN = rounds(small=20_000, full=1_000_000)
MEMBER_INDEX = {
    "postgres": "oxpull_batch_member_uniq",
    "sqlite": "sqlite_autoindex_oxpull_oxpullbatchmember_1",
    "mysql": "oxpull_batch_member_uniq",
}
TASK_INDEX = {"postgres": "django_ox_oxtask_pkey", "sqlite": "sqlite_autoindex_django_ox_oxtask_1", "mysql": "PRIMARY"}
OF_MEMBERS = ["scan_members", "read_members", "members_among", "delete_members"]
OF_TASKS = ["scan_members", "read_members", "find_pending", "tally"]
OF_SWEEPS = ["list_sealed", "list_batches", "count_batches", "find_prunable_batches"]


@pytest.fixture(scope="module")
def crowded(databases: Databases) -> Iterator[dict[str, Competitor]]:
    """By engine, a database with a batch of 3,000 among many tasks and members of others, and many complete batches."""
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


def plan_of(competitor: Competitor, room: str, name: str) -> str:
    (found,) = (statement for file, statement in statements_of(room) if (file, statement.name) == ("batches.sql", name))
    (text,) = filled(room, found)
    if room == "sqlite":
        return "\n".join(str(row[-1]) for row in competitor.rows(f"EXPLAIN QUERY PLAN {text}"))
    if room == "postgres":
        return "\n".join(row[0] for row in competitor.rows(f"EXPLAIN (COSTS OFF) {text}"))
    rows = competitor.rows(f"EXPLAIN FORMAT=TRADITIONAL {text}")
    return "\n".join(" | ".join(map(str, row)) for row in rows)


@pytest.mark.parametrize("name", OF_MEMBERS)
def test_members_are_read_by_their_batch(crowded: dict[str, Competitor], engine: str, dialect: str, name: str):
    plan = plan_of(crowded[engine], dialect, name)

    if (dialect, name) != ("mysql", "delete_members"):  # it says no more than that it deletes a range
        assert MEMBER_INDEX[dialect] in plan, plan
    assert not walks(plan), plan


@pytest.mark.parametrize("name", OF_TASKS)
def test_their_tasks_are_looked_up_one_by_one(crowded: dict[str, Competitor], engine: str, dialect: str, name: str):
    plan = plan_of(crowded[engine], dialect, name)

    assert TASK_INDEX[dialect] in plan, plan
    assert not walks(plan), plan


@pytest.mark.parametrize("name", OF_SWEEPS)
def test_sweeps_go_by_status(crowded: dict[str, Competitor], engine: str, dialect: str, name: str):
    plan = plan_of(crowded[engine], dialect, name)

    assert "oxpull_batch_sweep_idx" in plan, plan
    assert not walks(plan), plan


def walks(plan: str) -> list[str]:
    """The whole tables that it reads."""
    tables = f"({TASKS}|{MEMBERS}|{BATCHES}|task|member|batch)"
    return re.findall(rf"Seq Scan on {tables}\b|SCAN {tables}\b(?! USING)|\| {tables} \|[^\n]*\| ALL \|", plan)


def _fill(competitor: Competitor) -> Competitor:
    scheme = competitor.scheme
    insert_rows(competitor, "foreign", FOREIGN, path="elsewhere.task", status="SUCCESSFUL")
    insert_rows(competitor, "mine", 3_000, path="proof.tasks.mine", status="READY")
    batches = [BATCH_ID, *[f"018f0000000970008000{number:012x}" for number in range(2, 500)]]
    for number, batch_id in enumerate(batches):
        competitor.run(
            f"INSERT INTO {BATCHES} (id, name, status, on_complete_path, on_complete_args, on_complete_kwargs, "
            "on_success_path, on_success_args, on_success_kwargs, created_at, completed_at) "
            "VALUES (?, 'x', ?, '', '[]', '{}', '', '[]', '{}', ?, ?)".replace("{}", "{}"),
            batch_id, "SEALED" if number < 3 else "COMPLETE", INSTANT, INSTANT,
        )  # fmt: skip
    for batch_id, kind in ((batches[0], "proof.tasks.mine"), (batches[1], "elsewhere.task")):
        typed = f"CAST('{batch_id}' AS uuid)" if scheme == "postgresql" else f"'{batch_id}'"
        at = f"CAST('{INSTANT}' AS timestamptz)" if scheme == "postgresql" else f"'{INSTANT}'"
        competitor.run(
            f"INSERT INTO {MEMBERS} (task_id, created_at, batch_id) "
            f"SELECT id, {at}, {typed} FROM {TASKS} WHERE task_path = '{kind}'"
        )
    for table in (TASKS, LOCKS, BATCHES, MEMBERS):
        competitor.run({"mysql": "ANALYZE TABLE "}.get(scheme, "ANALYZE ") + table)
    return competitor
