"""``oxpull-async``: every command but ``worker``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from oxpull_async.cli import main
from tests.integration.competitor import Competitor

Run = Callable[..., tuple[int, str, str]]
DAY = timedelta(days=1)
COMMANDS = [
    "worker", "status", "health", "locks", "batches", "batch", "reconcile", "retry", "discard", "cancel", "reap",
    "prune", "migrate", "sql", "bench",
]  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Call the command line; returns the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delenv("OXPULL_APP", raising=False)
    monkeypatch.delenv("OXPULL_DATABASE_URL", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return run


def answer(run: Run, *arguments: str) -> Any:
    """What a command prints as JSON."""
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_migrate_makes_the_tables_once(run: Run, database_url: str):
    assert "0001_reference_tasks" in answer(run, "migrate", "--database", database_url)["applied"]
    assert answer(run, "migrate", "--database", database_url) == {"applied": []}
    with Competitor(database_url) as competitor:
        assert competitor.counts() == (0, 0)


def test_retry_and_discard_change_what_they_may(run: Run, migrated_url: str, competitor: Competitor):
    failed, ready = competitor.insert_task(status="FAILED"), competitor.insert_task()
    where = ("--database", migrated_url)

    assert answer(run, "retry", str(failed), *where) == {"retried": 1, "skipped": 0}
    assert competitor.statuses() == {failed: "READY", ready: "READY"}
    assert run("retry", str(failed), str(uuid4()), "no-uuid", *where)[0] == 1

    assert answer(run, "discard", str(failed), str(ready), *where) == {"discarded": 2, "skipped": 0}
    code, out, _ = run("discard", str(ready), *where)
    assert code == 1
    assert out.split() == ["discarded", "0", "skipped", "1"]


def test_cancel_stops_what_has_not_ended(run: Run, migrated_url: str, competitor: Competitor):
    running, done = competitor.insert_task(status="RUNNING"), competitor.insert_task(status="SUCCESSFUL")
    where = ("--database", migrated_url)

    assert answer(run, "cancel", str(running), *where) == {"cancelled": 1, "skipped": 0}
    assert run("cancel", str(done), *where)[0] == 1
    assert competitor.statuses() == {running: "DISCARDED", done: "SUCCESSFUL"}


def test_status_tells_of_each_queue(run: Run, migrated_url: str, competitor: Competitor):
    now = datetime.now(UTC)
    competitor.insert_task(queue_name="mail", enqueued_at=now - timedelta(minutes=5, seconds=4))
    competitor.insert_task(queue_name="mail", run_after=now + DAY)
    competitor.insert_task(status="FAILED", queue_name="news", finished_at=now)
    where = ("--database", migrated_url)

    mail, news = answer(run, "status", *where)
    assert (mail["queue_name"], mail["eligible"], mail["scheduled"], mail["counts"]["READY"]) == ("mail", 1, 1, 2)
    assert (news["queue_name"], news["failure_rate"]) == ("news", 1.0)

    code, out, err = run("status", *where)
    assert (code, err) == (0, "")
    assert {"mail", "news", "queue", "100%"} <= set(out.split())
    assert "5m" in out


def test_health_says_whether_the_database_can_be_worked_with(
    run: Run, migrated_url: str, database_url: str, tmp_path: Path
):
    found = answer(run, "health", "--database", migrated_url)
    assert (found["ok"], found["problems"]) == (True, [])
    assert found["latency"] > 0
    assert run("health", "--database", migrated_url)[1].startswith("ok")

    code, out, _ = run("health", "--database", database_url, "--json")
    assert code == 1
    assert "migrate" in json.loads(out)["problems"][0]
    code, out, _ = run("health", "--database", "postgresql://nobody@127.0.0.1:1/x")
    assert code == 1
    assert "can't be reached" in out


def test_health_of_a_worker_is_the_age_of_its_file(run: Run, tmp_path: Path):
    file = tmp_path / "alive"
    assert run("health", "--heartbeat-file", str(file))[0] == 1

    file.touch()
    well: dict[str, Any] = {"ok": True, "latency": None, "problems": [], "batches": None}
    assert answer(run, "health", "--heartbeat-file", str(file)) == well
    os.utime(file, (1000, 1000))
    code, out, _ = run("health", "--heartbeat-file", str(file))
    assert code == 1
    assert "last touched" in out
    assert run("health", "--heartbeat-file", str(file), "--max-age", "1e12")[0] == 0


def test_locks_are_listed_the_stale_ones_alone_if_asked_for(run: Run, migrated_url: str, competitor: Competitor):
    held = competitor.insert_unique("a" * 64)
    competitor.insert_lock("b" * 64, None)
    where = ("--database", migrated_url)

    both = answer(run, "locks", *where)
    assert [(lock["key"][0], lock["is_held"], lock["task_id"]) for lock in both] == [
        ("a", True, str(held)),
        ("b", False, None),
    ]
    assert answer(run, "locks", "--stale", *where) == both[1:]
    assert answer(run, "locks", "--limit", "1", *where) == both[:1]
    assert "(gone)" in run("locks", *where)[1]


def test_reap_frees_expired_rows(run: Run, migrated_url: str, competitor: Competitor):
    then = datetime.now(UTC) - DAY
    lease: dict[str, Any] = {
        "locked_by": "dead-1-abcdefgh",
        "locked_at": then,
        "lease_expires_at": then,
        "lease_epoch": 1,
    }
    again = competitor.insert_task(status="RUNNING", attempts=1, **lease)
    lost = competitor.insert_task(status="RUNNING", attempts=3, **lease)

    assert answer(run, "reap", "--database", migrated_url) == {"requeued": [str(again)], "lost": [str(lost)]}
    assert competitor.statuses() == {again: "READY", lost: "LOST"}


def test_prune_deletes_what_is_old_enough(run: Run, migrated_url: str, competitor: Competitor):
    now = datetime.now(UTC)
    for status, age in [("SUCCESSFUL", 8), ("SUCCESSFUL", 6), ("FAILED", 8), ("DISCARDED", 2)]:
        competitor.insert_task(status=status, finished_at=now - age * DAY)
    where = ("--database", migrated_url)

    assert answer(run, "prune", *where) == {"tasks": 1, "locks": 0, "ticks": 0, "batches": 0}
    assert answer(run, "prune", "--older-than", "36h", *where) == {"tasks": 2, "locks": 0, "ticks": 0, "batches": 0}
    assert answer(run, "prune", "--older-than", "1w", "--include-failed", *where) == {
        "tasks": 1,
        "locks": 0,
        "ticks": 0,
        "batches": 0,
    }


def test_the_app_comes_from_the_working_directory(
    run: Run, migrated_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name = f"app_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(f"from oxpull_async import Oxpull\nqueue = Oxpull({migrated_url!r})\n")
    monkeypatch.setenv("OXPULL_DATABASE_URL", "sqlite:////nowhere/at/all.db")

    assert answer(run, "reap", "--app", f"{name}:queue") == {"requeued": [], "lost": []}
    monkeypatch.setenv("OXPULL_APP", f"{name}:queue")
    assert answer(run, "reap") == {"requeued": [], "lost": []}
    assert answer(run, "reap", "--database", migrated_url) == {"requeued": [], "lost": []}
    assert run("migrate", "--app", name)[0] == 2


def test_the_database_may_come_from_the_environment(run: Run, migrated_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OXPULL_DATABASE_URL", migrated_url)
    assert answer(run, "migrate") == {"applied": []}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///queue.db", "char(32)"),
        ("postgresql://nobody@nowhere.invalid/x", "jsonb"),
        ("mysql://nobody@nowhere.invalid/x", "char(32)"),
        ("mariadb://nobody@nowhere.invalid/x", "uuid"),
    ],
)
def test_sql_prints_the_schema_without_connecting(run: Run, url: str, words: str, tmp_path: Path):
    code, out, _ = run("sql", "--database", url)
    assert code == 0
    assert "CREATE TABLE IF NOT EXISTS django_ox_oxtask" in out
    assert words in out
    assert list(tmp_path.iterdir()) == []

    lean = run("sql", "--database", url, "--lean")[1]
    assert "CREATE TABLE IF NOT EXISTS django_ox_oxtask" in lean


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["reap"], 2, "which queue?"),
        (["worker"], 2, "whose tasks?"),
        (["reap", "--app", "a:b", "--database", "sqlite:///x.db"], 2, "give one of them"),
        (["reap", "--app", "no_such_module:ox"], 2, "no module 'no_such_module'"),
        (["reap", "--app", ".relative:ox"], 2, "no module"),
        (["reap", "--app", "shop.py:ox"], 2, "without .py: shop:ox"),
        (["worker", "json:dumps"], 2, "not an Oxpull"),
        (["worker", "json:ox"], 2, "has no ox"),
        (["reap", "--database", "oracle://x"], 2, "scheme 'oracle'"),
        (["prune", "--database", "sqlite:///x.db", "--older-than", "soon"], 2, "is no period"),
        (["prune", "--database", "sqlite:///x.db", "--older-than", "99999999999d"], 2, "longer than"),
        (["reap", "--database", "postgresql://nobody@127.0.0.1:1/x"], 1, "can't be reached"),
        (["reap", "--database", "sqlite:///empty.db"], 1, "migrate"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(run: Run, arguments: list[str], code: int, words: str):
    ended, out, err = run(*arguments)
    assert ended == code
    assert out == ""
    assert err.startswith("oxpull-async: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_module_that_starts_an_event_loop_when_imported_is_told_how_not_to(run: Run, tmp_path: Path):
    # A coroutine would be left over, of which Python warns whenever it notices.
    (tmp_path / "eager.py").write_text("import asyncio\nasyncio.run(None)\n")

    code, _, err = run("reap", "--app", "eager:ox")

    assert code == 2
    assert 'put asyncio.run(…) beneath if __name__ == "__main__":' in err


@pytest.mark.engines("sqlite")
def test_status_leaves_out_what_there_seldom_is(run: Run, migrated_url: str, competitor: Competitor):
    competitor.insert_task()

    assert run("status", "--database", migrated_url)[1].split() == [
        *("queue", "due", "running", "successful", "failed", "oldest", "a", "minute", "failing"),
        *("default", "1", "0", "0", "0", "0s", "0.0", "-"),
    ]

    competitor.insert_task(status="LOST")
    assert "lost" in run("status", "--database", migrated_url)[1].split()


def test_without_its_packages_the_command_line_says_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "oxpull_async.cli.commands", raising=False)
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    code, _, err = run("reap")
    assert code == 2
    assert "oxpull_async[cli]" in err


def test_help_names_every_command(run: Run):
    code, out, _ = run("--help")
    assert code == 0
    assert set(COMMANDS) <= set(out.split())
