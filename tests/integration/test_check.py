"""``ox.check()``: each thing that it finds, and silence where all is well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oxpull_async import NotOpen, Oxpull
from oxpull_async.cli import main
from oxpull_async.runtime.checkup import Finding
from tests.integration.competitor import Competitor


async def names_of(ox: Oxpull) -> list[tuple[str, str]]:
    return [(finding.level, finding.name) for finding in await ox.check()]


async def finding_of(ox: Oxpull) -> Finding:
    (finding,) = await ox.check()
    return finding


async def test_where_all_is_well_nothing_is_found(ox: Oxpull):
    @ox.task(unique=True)
    async def send() -> None: ...

    await send.enqueue()

    assert await ox.check() == []


async def test_missing_tables_are_an_error(database_url: str):
    async with Oxpull(database_url) as ox:
        assert await names_of(ox) == [("error", "tables_missing")]


async def test_a_step_that_was_not_applied_is_told(ox: Oxpull, competitor: Competitor):
    competitor.run("DELETE FROM oxpull_async_migration WHERE name LIKE '0004%'")
    try:
        finding = await finding_of(ox)
    finally:
        await ox.migrate()

    assert finding.name == "schema_behind"
    assert "0004_own_indexes" in finding.message


async def test_due_rows_that_nobody_here_can_run_are_told_with_the_nearest_path(ox: Oxpull):
    @ox.task
    async def send_invoice() -> None: ...

    await ox.reference(f"{send_invoice.path}s", queue_name="mail").enqueue()
    await ox.reference("elsewhere.tasks.later", run_after=3600).enqueue()

    finding = await finding_of(ox)

    assert (finding.level, finding.name) == ("warning", "unknown_path")
    assert f"1 due row(s) of {send_invoice.path}s in the queue 'mail'" in finding.message
    assert f"did you mean '{send_invoice.path}'" in finding.message


async def test_queues_that_are_not_served_here_are_not_looked_at(migrated_url: str):
    async with Oxpull(migrated_url, queues=["ours"]) as ox, Oxpull(migrated_url) as theirs:

        @ox.task(queue_name="ours")
        async def send() -> None: ...

        await theirs.reference("elsewhere.tasks.send", queue_name="theirs").enqueue()
        assert await ox.check() == []


async def test_a_process_that_only_enqueues_has_nothing_to_run(ox: Oxpull):
    await ox.reference("elsewhere.tasks.send").enqueue()

    assert await ox.check() == []


async def test_a_unique_task_on_a_schedule_is_told(ox: Oxpull):
    @ox.task(unique=True)
    async def report() -> None: ...

    ox.schedule(report, every=3600, name="hourly report")

    finding = await finding_of(ox)
    assert (finding.level, finding.name) == ("warning", "scheduled_unique")
    assert "'hourly report'" in finding.message


async def test_a_unique_path_that_nobody_declares_may_be_misspelt(migrated_url: str):
    async with Oxpull(migrated_url) as declared:

        @declared.task
        async def send_invoice() -> None: ...

    async with Oxpull(migrated_url, unique_tasks=[f"{send_invoice.path}_"]) as ox:
        ox.task(send_invoice.function)  # type: ignore[arg-type]
        finding = await finding_of(ox)

    assert (finding.level, finding.name) == ("info", "unknown_unique_path")
    assert f"did you mean '{send_invoice.path}'" in finding.message


async def test_batches_without_a_reconciler_are_an_error(migrated_url: str):
    async with Oxpull(migrated_url) as ox:
        async with ox.batches.create("nightly"):
            pass
        assert await names_of(ox) == [("error", "no_reconciler")]

    async with Oxpull(migrated_url, reconciler="external") as ox:
        assert await ox.check() == []

    async with Oxpull(migrated_url) as ox, ox.running():
        await asyncio.wait_for(_until_fine(ox), 20)


async def _until_fine(ox: Oxpull) -> None:
    while await ox.check():
        await asyncio.sleep(0.05)


async def test_one_that_is_not_open_cannot_be_checked(database_url: str):
    with pytest.raises(NotOpen):
        await Oxpull(database_url).check()


@pytest.mark.engines("sqlite")
def test_the_command_says_what_to_do(
    database_url: str, migrated_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def said(*arguments: str) -> tuple[Any, str]:
        with pytest.raises(SystemExit) as ended:
            main(["check", *arguments])
        return ended.value.code, capsys.readouterr().out

    code, words = said("--database", database_url)
    assert code == 1
    assert words.startswith("error: ")
    assert "oxpull-async migrate" in words

    assert said("--database", migrated_url) == (0, "Nothing found.\n")
    assert said("--database", migrated_url, "--json") == (0, "[]\n")
