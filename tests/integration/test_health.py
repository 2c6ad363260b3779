"""``ox.health()``: whether this process can do its work."""

from __future__ import annotations

import anyio
import pytest

from oxpull_async import ConnectionLost, NotOpen, Oxpull, Worker, WrongDatabase
from oxpull_async.runtime.supervisor import Supervisor
from tests.eventually import eventually
from tests.servers import PostgresServer


async def test_a_process_that_only_enqueues_is_well_with_its_tables_there(ox: Oxpull):
    health = await ox.health()

    assert (health.ok, health.problems, health.is_reachable, health.is_migrated) == (True, (), True, True)
    assert health.latency is not None
    assert health.services == ()


async def test_missing_tables_are_told(database_url: str):
    async with Oxpull(database_url) as ox:
        health = await ox.health()

    assert (health.ok, health.is_reachable, health.is_migrated) == (False, True, False)
    assert "migrate" in health.problems[0]


async def test_a_worker_s_services_are_at_work_while_it_runs(ox: Oxpull):
    async with ox.running(worker=Worker(ox, poll_interval=0.05)):

        async def all_have_turned() -> None:
            services = (await ox.health()).services
            assert {"claimer", "settler", "heartbeat", "reaper"} <= {service.name for service in services}
            assert all(
                service.running_since and service.last_turn_at for service in services if service.name != "settler"
            )

        await eventually(all_have_turned)
        assert (await ox.health()).ok

    assert (await ox.health()).services == ()


async def test_a_service_that_fails_is_a_problem_until_it_succeeds(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    @ox.task
    async def task() -> None: ...

    claim = ox.store.claim

    async def broken(request: object) -> object:
        raise ConnectionLost("cut off")

    async with ox.running(worker=Worker(ox, poll_interval=0.02)):
        monkeypatch.setattr(ox.store, "claim", broken)

        async def told() -> None:
            health = await ox.health()
            assert not health.ok
            assert "claimer" in health.problems[0]
            assert "cut off" in health.problems[0]

        await eventually(told)
        monkeypatch.setattr(ox.store, "claim", claim)

        async def well() -> None:
            health = await ox.health()
            assert health.ok
            assert [service.last_error for service in health.services if service.name == "claimer"] == [
                "ConnectionLost: cut off"
            ]

        await eventually(well)


async def test_background_work_that_ended_by_an_error_is_told_until_it_is_stopped(ox: Oxpull):
    class Broken:
        longest_stop = 1.0

        def __repr__(self) -> str:
            return "the gardener"

        async def run(self) -> None:
            raise RuntimeError("no more water")

        def stop(self) -> None: ...

    supervisor = Supervisor([Broken()], ox.health.roster)
    supervisor.start()

    async def told() -> None:
        assert (await ox.health()).problems == ("the gardener ended by an error: no more water",)

    await eventually(told)
    await supervisor.stop()
    assert (await ox.health()).ok


async def test_an_unreachable_database_is_an_answer(own_postgres: PostgresServer):
    async with Oxpull(own_postgres.url) as ox:
        await ox.migrate()
        own_postgres.freeze()
        with anyio.fail_after(15):
            frozen = await ox.health(timeout=0.2)
        own_postgres.thaw()
        assert (frozen.ok, frozen.is_reachable, frozen.latency, frozen.is_migrated) == (False, False, None, None)
        assert "0.2 s" in frozen.problems[0]
        await eventually(lambda: _is_well(ox), within=20)

        own_postgres.kill()
        assert not (await ox.health()).ok
        own_postgres.start()
        await eventually(lambda: _is_well(ox), within=20)


async def _is_well(ox: Oxpull) -> None:
    assert (await ox.health()).ok


async def test_a_closed_oxpull_cannot_tell():
    with pytest.raises(NotOpen):
        await Oxpull.in_memory().health()


async def test_a_wrong_schema_is_told_of_by_its_own_words(ox: Oxpull, monkeypatch: pytest.MonkeyPatch):
    async def probe() -> None:
        raise WrongDatabase("column lease_epoch is missing")

    monkeypatch.setattr(ox.store, "probe", probe)

    assert "lease_epoch" in (await ox.health()).problems[0]
