"""``oxpull-async batches``, ``batch`` and ``reconcile``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from oxpull_async import Oxpull
from oxpull_async.cli import main
from tests.eventually import eventually
from tests.integration.competitor import aside

Run = Callable[..., tuple[int, str]]

APP = """
from oxpull_async import Oxpull

ox = Oxpull()


@ox.task
async def done():
    pass
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, migrated_url: str) -> Run:
    """Call the command line over the database; returns the exit code and what was printed."""
    (tmp_path / "batch_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("OXPULL_DATABASE_URL", migrated_url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("OXPULL_APP", raising=False)
    monkeypatch.delitem(sys.modules, "batch_app", raising=False)

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    return run


async def answer(run: Run, *arguments: str) -> Any:
    code, out = await aside(run, *arguments, "--json")
    assert code == 0
    return json.loads(out)


async def test_batches_are_listed_with_their_progress(run: Run, ox: Oxpull):
    batch = await ox.batches.create("nightly")
    await batch.add(ox.reference("proof.tasks.work"))
    async with ox.batches.create("other"):
        pass

    listed = await answer(run, "batches")
    assert [(each["name"], each["status"], each["total"], each["pending"]) for each in listed] == [
        ("other", "SEALED", 0, 0), ("nightly", "OPEN", 1, 1),
    ]  # fmt: skip
    assert [each["id"] for each in await answer(run, "batches", "--status", "OPEN")] == [str(batch.id)]
    assert len(await answer(run, "batches", "--limit", "1")) == 1
    code, out = await aside(run, "batches")
    assert (code, "nightly" in out, str(batch.id) in out) == (0, True, True)


async def test_a_batch_is_explained(run: Run, ox: Oxpull):
    batch = await ox.batches.create("nightly")
    member = await batch.add(ox.reference("proof.tasks.work"))

    explained = await answer(run, "batch", str(batch.id))
    assert explained["progress"]["pending"] == 1
    assert explained["waiting"][0]["task_id"] == str(member.id)
    code, out = await aside(run, "batch", str(batch.id))
    assert (code, "isn't sealed" in out, str(member.id) in out) == (0, True, True)
    assert (await aside(run, "batch", "nonsense"))[0] == 1


async def test_a_batch_is_watched_until_it_is_complete(run: Run, ox: Oxpull):
    async with ox.batches.create("nightly") as batch:
        pass
    await ox.batches.reconcile()

    code, out = await aside(run, "batch", str(batch.id), "--watch")
    assert (code, "nightly" in out) == (0, True)
    (line,) = (await aside(run, "batch", str(batch.id), "--watch", "--json"))[1].splitlines()
    assert json.loads(line)["total"] == 0


# A run in a shell's background has SIGINT ignored, and its children inherit that.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from oxpull_async.cli import main
main()
"""


async def test_the_list_is_shown_until_it_is_interrupted(ox: Oxpull, migrated_url: str, tmp_path: Path):
    async with ox.batches.create("nightly") as batch:
        member = await batch.add(ox.reference("proof.tasks.work"))
    printed = tmp_path / "printed"
    environment = os.environ | {"OXPULL_DATABASE_URL": migrated_url, "COLUMNS": "200", "FORCE_COLOR": "1"}
    with printed.open("w") as out:
        process = await anyio.open_process(
            [sys.executable, "-c", INTERRUPTIBLE, "batches", "--watch"], env=environment, stdout=out, stderr=out
        )
        async with process:
            await eventually(lambda: "SEALED" in printed.read_text(), within=30)
            await ox.actions.discard(member.id)
            await ox.batches.reconcile()
            await eventually(lambda: "COMPLETE" in printed.read_text(), within=30)
            process.send_signal(signal.SIGINT)
            with anyio.fail_after(20):
                code = await process.wait()

    assert code == 130
    assert "Traceback" not in printed.read_text()


async def test_one_pass_completes_what_the_app_knows(run: Run, ox: Oxpull):
    async with ox.batches.create("known", on_complete="batch_app.done") as batch:
        pass

    code, out = await aside(run, "reconcile", "--json")
    assert (code, json.loads(out)["completed"]) == (1, 0)
    assert "batch_app.done" in json.loads(out)["stuck"][0]
    assert await answer(run, "reconcile", "--app", "batch_app:ox") == {"completed": 1, "stuck": []}
    assert (await batch.status()) == "COMPLETE"
    pruned = await answer(run, "prune", "--batches-older-than", "0s")
    assert pruned["batches"] == 1


async def test_stuck_batches_are_named_and_nothing_is_said_where_there_are_none(run: Run, ox: Oxpull):
    for command in ("health", "status"):
        assert "batch" not in (await aside(run, command, "--app", "batch_app:ox"))[1]

    async with ox.batches.create("nightly", on_complete="elsewhere.done") as batch:
        pass

    for command in ("health", "status"):
        code, out = await aside(run, command, "--app", "batch_app:ox")
        assert (code, f"batch {batch.id} is stuck: no task here has the path elsewhere.done" in out) == (0, True)
    found = await answer(run, "health", "--app", "batch_app:ox")
    assert [each["id"] for each in found["batches"]["stuck"]] == [str(batch.id)]
