"""Figures cost what there is to do, and no more for all that is done."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.competitor import Competitor
from tests.scale import rounds
from tests.servers.databases import Databases
from tests.statements.filling import analyze, insert_rows
from tests.statements.samples import filled, statements_of

SETTLED = rounds(small=20_000, full=1_000_000)
NAMES = ["count_pending", "count_undecided", "count_finished", "list_locks"]
PRUNE = {"postgres": "lock_prunable", "sqlite": "lock_prunable", "mysql": "find_prunable"}


@pytest.fixture(scope="module")
def aged(databases: Databases) -> Iterator[dict[str, Competitor]]:
    """By engine, a database with many settled rows and few others."""
    opened: dict[str, Competitor] = {}
    contexts = []

    class Aged(dict[str, Competitor]):
        def __missing__(self, engine: str) -> Competitor:
            context = databases.migrated(engine)
            contexts.append(context)
            competitor = opened[engine] = self[engine] = Competitor(context.__enter__())
            insert_rows(competitor, "settled", SETTLED, path="proof.tasks.mine", status="SUCCESSFUL")
            for kind, status in [("mine", "READY"), ("running", "RUNNING"), ("foreign", "FAILED"), ("also", "WAITING")]:
                insert_rows(competitor, kind, 100, path="proof.tasks.mine", status=status)
            analyze(competitor)
            return competitor

    yield Aged()
    for competitor in opened.values():
        competitor.close()
    for context in contexts:
        context.__exit__(None, None, None)


def statement(room: str, name: str) -> str:
    (found,) = (text for _, text in statements_of(room) if text.name == name)
    (text,) = filled(room, found)
    return text.replace("LIMIT 10", "LIMIT 1000")


@pytest.mark.parametrize("name", [*NAMES, "prune"])
def test_settled_rows_are_not_walked(aged: dict[str, Competitor], engine: str, dialect: str, name: str):
    text = statement(dialect, PRUNE[dialect] if name == "prune" else name)
    if name == "prune":
        text = text.replace("2026-01-01 00:00:00", "2025-01-01 00:00:00")

    plan = WALKS[dialect](aged[engine], text)

    assert not plan.walks, plan.text
    if name in ("count_finished", "prune"):
        assert "oxpull_async_finished_idx" in plan.text, plan.text


class Plan:
    def __init__(self, text: str, walk: str) -> None:
        self.text = text
        self.walks = re.findall(walk, text)


def postgres_plan(competitor: Competitor, text: str) -> Plan:
    rows = competitor.rows(f"EXPLAIN (COSTS OFF) {text}")
    return Plan("\n".join(line for (line,) in rows), "Seq Scan on django_ox_oxtask")


def sqlite_plan(competitor: Competitor, text: str) -> Plan:
    rows = competitor.rows(f"EXPLAIN QUERY PLAN {text}")
    return Plan("\n".join(str(row[-1]) for row in rows), r"SCAN (?:django_ox_oxtask|task)\b")


def mysql_plan(competitor: Competitor, text: str) -> Plan:
    rows = competitor.rows(f"EXPLAIN FORMAT=TRADITIONAL {text}")
    lines = [" ".join(map(str, row)) for row in rows if "django_ox_oxtask" in row or "task" in row]
    return Plan("\n".join(lines), r"(?<=django_ox_oxtask ).*\b(?:ALL|index [^o]*PRIMARY)\b")


WALKS = {"postgres": postgres_plan, "sqlite": sqlite_plan, "mysql": mysql_plan}
