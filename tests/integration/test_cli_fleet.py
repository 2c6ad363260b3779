"""``oxpull-async worker`` with several processes, with ``--reload`` and with a heartbeat file."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from oxpull_async import EnqueueResult, Oxpull, TaskStatus
from oxpull_async.cli.vital_signs import age
from tests.eventually import eventually
from tests.integration.processes import APP, until_begun, worker_process, write_app
from tests.scale import ONE_ENGINE
from tests.servers.process import children_of

pytestmark = [pytest.mark.engines(*ONE_ENGINE), pytest.mark.timeout(120)]

WHO = """

@ox.task
async def who():
    import os
    return os.getpid()


@ox.task
async def die():
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


async def workers_of(pid: int, count: int) -> set[int]:
    async def there() -> set[int]:
        found = set(children_of(pid))
        assert len(found) == count
        return found

    return await eventually(there, within=30)


async def all_are(status: TaskStatus, results: list[EnqueueResult]) -> None:
    assert {(await result.refresh()).status for result in results} == {status}


async def test_a_fleet_works_and_ends_in_order(ox: Oxpull, migrated_url: str, tmp_path: Path):
    results = await ox.enqueue_many(ox.reference("queue_app.quick"), [(number,) for number in range(20)])

    async with worker_process(tmp_path, migrated_url, "--processes", "2") as fleet:
        for number, result in enumerate(results):
            assert await result.wait(timeout=30) == number
        nap = await ox.reference("queue_app.nap").enqueue()
        await until_begun(tmp_path)
        fleet.signal()
        assert await fleet.exit_code() == 0

    assert await nap.wait(timeout=0) == "rested"


async def test_a_fleet_bursts_and_ends(ox: Oxpull, migrated_url: str, tmp_path: Path):
    results = await ox.enqueue_many(ox.reference("queue_app.quick"), [(number,) for number in range(20)])

    async with worker_process(tmp_path, migrated_url, "--processes", "2", "--burst") as fleet:
        assert await fleet.exit_code(within=60) == 0

    assert [await result.wait(timeout=0) for result in results] == list(range(20))


async def test_a_process_that_dies_is_started_again(ox: Oxpull, migrated_url: str, tmp_path: Path):
    write_app(tmp_path, APP + WHO)
    async with worker_process(tmp_path, migrated_url, "--processes", "2") as fleet:
        first = await workers_of(fleet.pid, 2)
        await ox.reference("queue_app.die", max_attempts=1).enqueue()
        await fleet.says("by SIGKILL")
        await fleet.says("has the pid")
        second = await workers_of(fleet.pid, 2)
        assert len(first & second) == 1
        assert await (await ox.reference("queue_app.who").enqueue()).wait(timeout=30) in second
        fleet.signal()
        assert await fleet.exit_code() == 0


async def test_the_second_signal_has_every_process_hand_its_rows_back(ox: Oxpull, migrated_url: str, tmp_path: Path):
    results = await ox.enqueue_many(ox.reference("queue_app.hold"), [()] * 4)

    async with worker_process(tmp_path, migrated_url, "--processes", "2", "--concurrency", "2") as fleet:
        await eventually(lambda: all_are(TaskStatus.RUNNING, results), within=30)  # begun or claimed ahead
        fleet.signal(signal.SIGINT)
        fleet.signal(signal.SIGTERM)
        assert await fleet.exit_code() == 130

    assert {(await result.refresh()).status for result in results} == {TaskStatus.READY}


async def test_the_third_signal_kills_what_hangs(ox: Oxpull, migrated_url: str, tmp_path: Path):
    await ox.reference("queue_app.block").enqueue()

    async with worker_process(tmp_path, migrated_url, "--processes", "2") as fleet:
        await until_begun(tmp_path)
        fleet.signal()
        await fleet.says("stopping")
        fleet.signal()
        await fleet.says("cancelling")
        fleet.signal()
        assert await fleet.exit_code() in (130, 137)


HANGING = """

@ox.task(timeout=0.2)
def hang_on():
    threading.Event().wait()
"""


async def test_a_thread_that_only_the_end_of_its_process_can_end_has_it_recycled(
    ox: Oxpull, migrated_url: str, tmp_path: Path
):
    write_app(tmp_path, APP + HANGING + WHO)
    await ox.reference("queue_app.hang_on", max_attempts=1).enqueue()
    async with worker_process(tmp_path, migrated_url, "--grace", "0.2", "--processes", "2") as fleet:
        await fleet.says("with exit code 75")
        await fleet.says("has the pid")
        workers = await workers_of(fleet.pid, 2)
        assert await (await ox.reference("queue_app.who").enqueue()).wait(timeout=30) in workers
        fleet.signal()
        assert await fleet.exit_code() == 0


async def test_orphans_end_in_order(ox: Oxpull, migrated_url: str, tmp_path: Path):
    result = await ox.reference("queue_app.nap").enqueue()

    async with worker_process(tmp_path, migrated_url, "--processes", "2") as fleet:
        workers = await workers_of(fleet.pid, 2)
        await until_begun(tmp_path)
        fleet.signal(signal.SIGKILL)
        assert await fleet.exit_code() == -signal.SIGKILL  # once nobody writes to its stderr any more

    await eventually(lambda: not any(_is_alive(pid) for pid in workers), within=20)
    assert await result.wait(timeout=0) == "rested"


async def test_a_call_that_cannot_work_is_not_repeated(migrated_url: str, tmp_path: Path):
    write_app(tmp_path, "ox = None\n")

    async with worker_process(tmp_path, migrated_url, "--processes", "2") as fleet:
        assert await fleet.exit_code() == 2


async def test_every_process_shows_signs_of_life(ox: Oxpull, migrated_url: str, tmp_path: Path):
    file = tmp_path / "alive"
    async with worker_process(tmp_path, migrated_url, "--processes", "2", "--heartbeat-file", str(file)) as fleet:
        for suffix in ("supervisor", "0", "1"):
            await eventually(Path(f"{file}.{suffix}").exists, within=30)
        fleet.signal()
        assert await fleet.exit_code() == 0


async def test_a_worker_keeps_touching_its_file_until_its_loop_is_blocked(
    ox: Oxpull, migrated_url: str, tmp_path: Path
):
    file = tmp_path / "alive"
    async with worker_process(tmp_path, migrated_url, "--heartbeat-file", str(file)) as worker:
        await eventually(lambda: file.exists(), within=30)
        for _ in range(2):
            os.utime(file, (1000, 1000))
            await eventually(lambda: (age(file) or 0) < 1000, within=30)
        await ox.reference("queue_app.block").enqueue()
        await until_begun(tmp_path)
        os.utime(file, (1000, 1000))
        with pytest.raises(AssertionError):
            await eventually(lambda: (age(file) or 0) < 1000, within=1.5)
        worker.signal(signal.SIGKILL)
        await worker.exit_code()


async def test_a_changed_file_starts_the_worker_anew(ox: Oxpull, migrated_url: str, tmp_path: Path):
    write_app(tmp_path, APP + "\n\n@ox.task\nasync def version():\n    return 1\n")
    version = ox.reference("queue_app.version")

    async with worker_process(tmp_path, migrated_url, "--reload") as worker:
        assert await (await version.enqueue()).wait(timeout=30) == 1
        write_app(tmp_path, APP + "\n\n@ox.task\nasync def version(:\n")
        await worker.says("started again when a file changes", within=30)
        write_app(tmp_path, APP + "\n\n@ox.task\nasync def version():\n    return 22\n")
        assert await (await version.enqueue()).wait(timeout=30) == 22
        worker.signal()
        assert await worker.exit_code() == 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
