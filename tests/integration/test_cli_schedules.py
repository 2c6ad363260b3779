"""``oxpull-async schedules``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.processes import COMMAND, environment
from tests.integration.shared_database import migrated_url, shared_databases

__all__ = ["migrated_url", "shared_databases"]

pytestmark = pytest.mark.engines("sqlite")

APP = """
from oxpull_async import Oxpull

ox = Oxpull()


@ox.scheduled(cron="0 2 29 2 *", name="leap", timezone="Europe/Berlin")
@ox.scheduled(every=3600, phase=600, name="hourly")
@ox.task
async def report():
    pass
"""


def run(folder: Path, database: str, *arguments: str) -> str:
    (folder / "scheduled_app.py").write_text(APP)
    done = subprocess.run(
        [*COMMAND, "schedules", *arguments],
        cwd=folder,
        env={**environment(database), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return done.stdout


def test_each_schedule_is_told_with_its_next_tick(tmp_path: Path, migrated_url: str):
    hourly, leap = json.loads(run(tmp_path, migrated_url, "--app", "scheduled_app:ox", "--json"))

    assert (hourly["name"], hourly["stored"], hourly["last_tick"]) == ("hourly", False, None)
    assert hourly["task_path"] == "scheduled_app.report"
    assert hourly["next_tick"][13:] == ":10:00+00:00"
    assert leap["next_tick"].startswith("2028-02-29 01:00:00")
    assert leap["timing"] == "0 2 29 2 * Europe/Berlin"


def test_people_get_a_table(tmp_path: Path, migrated_url: str):
    printed = run(tmp_path, migrated_url, "--app", "scheduled_app:ox")

    assert printed.splitlines()[0].split() == ["name", "task", "timing", "next", "tick", "last", "tick", "from"]
    assert "no schedule runs here" in run(tmp_path, migrated_url, "--database", migrated_url)
