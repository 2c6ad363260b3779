"""The Django app: its commands, and what ``manage.py check`` tells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from tests.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django_ox", "oxpull", "oxpull_async.integrations.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db"}}
TASKS = {"default": {"BACKEND": "oxpull.backend.OxpullBackend", "QUEUES": [],
    "OPTIONS": {"SCHEDULES": {"reconcile": {"task": "oxpull.batches.reconcile", "cron": "* * * * *"}}}}}
"""

SHOP = """
from oxpull_async.integrations.django import from_django

ox = from_django()


@ox.task(unique=True)
async def send(order_id: int) -> None:
    print("sent", order_id, flush=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "site_settings.py").write_text(SETTINGS + 'OXPULL_ASYNC_APP = "shop:ox"\n')
    (tmp_path / "shop.py").write_text(SHOP)
    manage(tmp_path, "migrate", "--verbosity", "0")
    return tmp_path


def test_the_commands_work_on_the_project_s_queue(project: Path):
    assert "applied" in manage(project, "oxpull_async", "migrate")
    enqueue = "import asyncio, shop\nasync def main():\n    async with shop.ox: await shop.send.enqueue(42)\n"
    manage(project, "shell", "-c", f"{enqueue}asyncio.run(main())")
    assert "sent 42" in manage(project, "oxpull_async", "worker", "--burst")
    assert "--burst" in manage(project, "oxpull_async", "worker", "--help")
    call = "from django.core.management import call_command; call_command('oxpull_async', 'status')"
    assert "default" in manage(project, "shell", "-c", call)


async def test_a_process_completes_batches_until_it_is_told_to_stop(project: Path):
    manage(project, "oxpull_async", "migrate")
    create = (
        "import asyncio, shop\nasync def main():\n    async with shop.ox:\n"
        "        async with shop.ox.batches.create('empty') as batch: pass\n"
    )
    manage(project, "shell", "-c", f"{create}asyncio.run(main())")
    process = subprocess.Popen([sys.executable, "-m", "django", "oxpull_async_reconciler"], **_surroundings(project))
    try:
        await eventually(lambda: "COMPLETE" in manage(project, "oxpull_async", "batches"), within=40)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_a_sound_project_has_nothing_to_tell(project: Path):
    manage(project, "oxpull_async", "migrate")

    assert "no issues" in manage(project, "check", "--database", "default")


def test_missing_tables_are_told_where_the_database_may_be_asked(project: Path):
    (project / "site.db").unlink()

    assert "oxpull_async.tables_missing" in manage(project, "check", "--database", "default")
    assert "no issues" in manage(project, "check")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param('OXPULL_ASYNC_APP = "shop:nothing"', "oxpull_async.E001", id="not there"),
        pytest.param('OXPULL_ASYNC_APP = "os:path"', "not an Oxpull", id="something else"),
    ],
)
def test_a_setting_that_leads_nowhere_is_an_error(project: Path, line: str, told: str):
    (project / "site_settings.py").write_text(f"{SETTINGS}{line}\n")

    assert told in manage(project, "check", fails=True)


def test_a_database_of_its_own_and_a_unique_task_on_a_schedule_are_warnings(project: Path):
    shop = SHOP.replace("from_django()", 'from_django(database="sqlite:///other.db")')
    (project / "shop.py").write_text(f'{shop}\nox.schedule(send, every=3600, name="hourly", args=(1,))\n')

    told = manage(project, "check")

    assert "oxpull_async.W001" in told
    assert "oxpull_async.scheduled_unique" in told


def test_without_the_setting_it_is_the_oxpull_that_the_settings_describe(project: Path):
    (project / "site_settings.py").write_text(SETTINGS)
    manage(project, "oxpull_async", "migrate")

    assert manage(project, "oxpull_async", "status") is not None
    assert "no issues" in manage(project, "check", "--database", "default")


def manage(project: Path, *arguments: str, fails: bool = False) -> str:
    """What a management command prints."""
    command = [sys.executable, "-m", "django", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **_surroundings(project))
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout + done.stderr


def _surroundings(project: Path) -> dict[str, Any]:
    path = os.pathsep.join([str(project), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "site_settings", "COLUMNS": "200"}
    return {"cwd": project, "env": environment}
