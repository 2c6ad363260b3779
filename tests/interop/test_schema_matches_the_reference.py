"""``ox.migrate()`` makes the tables that Django makes for the reference, and leaves Django's as they are."""

from __future__ import annotations

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from django_commands import run_django, run_in_django
from introspection import (
    Schema,
    column_order,
    empty_database,
    own_objects,
    read_schema,
    reference_part,
)

from oxpull_async import Oxpull

pytestmark = pytest.mark.timeout(120)

TASK_INDEXES = {"ox_dequeue_idx", "ox_dequeue_queue_idx", "ox_reaper_idx", "ox_reaper_expiry_idx"}
OWN_OBJECTS = {
    "oxpull_async_migration",
    "oxpull_async_leader",
    "oxpull_async_mutex",
    "oxpull_async_mutex_holder",
    "oxpull_async_mutex_waiter",
    "oxpull_async_lock_task_idx",
}


async def test_migrate_makes_the_tables_that_django_makes(database_url: str) -> None:
    djangos = migrated_by_django(database_url)
    empty_database(database_url)

    ours = await migrated_by_us(database_url)

    assert reference_part(ours) == djangos
    assert column_order(reference_part(ours)) == column_order(djangos)
    assert own_objects(ours) >= OWN_OBJECTS


async def test_migrate_adds_only_objects_of_its_own_to_tables_that_django_made(database_url: str) -> None:
    djangos = migrated_by_django(database_url)

    adopted = await migrated_by_us(database_url)

    assert reference_part(adopted) == djangos
    assert own_objects(adopted) >= OWN_OBJECTS


async def test_a_lean_migrate_leaves_the_indexes_of_tables_that_django_made(database_url: str) -> None:
    djangos = migrated_by_django(database_url)

    adopted = await migrated_by_us(database_url, lean=True)

    assert reference_part(adopted) == djangos


async def test_migrate_adds_the_tables_that_a_project_without_the_oxpull_app_lacks(database_url: str) -> None:
    djangos = migrated_by_django(database_url)
    tasks_alone = migrated_by_django(database_url, "django_ox")

    completed = await migrated_by_us(database_url)

    assert tasks_alone.keys() < djangos.keys()
    assert reference_part(completed) == djangos


async def test_a_second_migrate_changes_nothing(database_url: str) -> None:
    empty_database(database_url)
    once = await migrated_by_us(database_url)

    twice = await migrated_by_us(database_url)

    assert twice == once


async def test_a_lean_migrate_replaces_the_task_indexes_and_nothing_else(database_url: str) -> None:
    if database_url.startswith(("mysql", "mariadb")):
        pytest.skip("without partial indexes there is no lean variant")
    djangos = migrated_by_django(database_url)
    empty_database(database_url)

    lean = await migrated_by_us(database_url, lean=True)

    assert {"oxpull_async_ready_idx", "oxpull_async_running_idx"} <= own_objects(lean)
    for name in TASK_INDEXES:
        del djangos["django_ox_oxtask"].indexes[name]
    assert reference_part(lean) == djangos


async def test_on_mysql_a_lean_migrate_is_an_ordinary_one(database_url: str) -> None:
    if not database_url.startswith(("mysql", "mariadb")):
        pytest.skip("elsewhere there is a lean variant")
    empty_database(database_url)

    lean = await migrated_by_us(database_url, lean=True)

    assert lean["django_ox_oxtask"].indexes.keys() >= TASK_INDEXES


@pytest.mark.parametrize("lean", [False, True])
async def test_django_works_on_our_tables_once_its_migrations_are_faked(database_url: str, lean: bool) -> None:
    empty_database(database_url)
    await migrated_by_us(database_url, lean=lean)

    run_django(database_url, "migrate", "--fake", "-v0")

    assert "no issues" in run_django(database_url, "check", "--database", "default")
    assert run_in_django(database_url, ENQUEUE_TWICE_AND_WORK).split() == ["True", "SUCCESSFUL"]


ENQUEUE_TWICE_AND_WORK = """
from contextlib import suppress
from django.core.management import call_command
from django_project.tasks import unique_plain

first, second = unique_plain.enqueue(1), unique_plain.enqueue(1)
print(first.id == second.id)
with suppress(SystemExit):
    call_command("ox_worker", "--batch", verbosity=0)
first.refresh()
print(first.status.value)
"""


def migrated_by_django(url: str, *app: str) -> Schema:
    """What the reference's own migrations make of the database, emptied first."""
    empty_database(url)
    run_django(url, "migrate", *app, "-v0")
    return read_schema(url)


async def migrated_by_us(url: str, *, lean: bool = False) -> Schema:
    """What our migrations make of the database as it is."""
    async with Oxpull(url) as ox:
        await ox.migrate(lean=lean)
    return read_schema(url)
