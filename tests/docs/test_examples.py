"""Every file in docs/examples does what its page says, run as a reader would run it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from alembic import command
from alembic.config import Config

from oxpull_async import Oxpull
from tests.asgi.clients import serving
from tests.docs.pages import EXAMPLES
from tests.eventually import eventually
from tests.log_lines import logging_restored
from tests.servers.databases import Databases
from tests.servers.process import free_port

# django_accounts is run by tests/interop, since it needs the tasks of Django 6.
RUN_HERE = {
    "batch_progress", "demo", "dependencies", "django_accounts", "django_fleet", "fastapi_app", "fastapi_progress",
    "fastapi_with_worker", "feeds", "flaky", "invoices", "json_lines", "limited", "litestar_app", "look",
    "mail_service", "nightly", "order", "orders_service", "readme", "remind", "shop", "test_inline", "test_shop",
    "typed_arguments", "unique_keys", "unique_policies",
}  # fmt: skip


DUPLICATES = """\
raise: DuplicateTask, the holder is READY
reschedule: one row, 60 s later at most
replace: one row, for ['news', 3]
rerun: ran for [1, 3]
hold="ready": ran for [1, 2]
window: ran for [1]
"""


def test_every_example_is_run_here() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == RUN_HERE


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_the_readme_s_example_prints_what_its_comments_say(databases: Databases, engine: str, tmp_path: Path) -> None:
    with databases.empty(engine) as url:
        assert run("readme.py", tmp_path, OXPULL_DATABASE_URL=url) == "True False\ninvoice for order 42\n"


def test_imports_of_a_feed_keep_one_another_out(tmp_path: Path) -> None:
    assert run("feeds.py", tmp_path) == (
        "check: DISCARDED, another run has the exclusive key 'feed:https://a.example/rss'\n"
        "at most 1 import of a feed at a time, 3 imports\n"
    )


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    told = run("demo.py", tmp_path)

    assert re.search(r"200 calls, 1 created, 1 id .*\n.* 1\n", told)
    assert "order 42: SUCCESSFUL after 3 attempts, and wait() returned 'charged'" in told
    assert "order 43: FAILED after 3 attempts, and the row keeps all 3 errors" in told
    assert "created again: True" in told
    assert list(tmp_path.iterdir()) == []


async def test_the_tutorial_works_step_by_step(tmp_path: Path) -> None:
    called = python("-c", "import asyncio, shop; print(asyncio.run(shop.send_invoice(7)))", cwd=tmp_path)
    assert called == "invoice for order 7 sent\n"
    (forty_one, forty_two, again) = [line.split(maxsplit=2) for line in run("order.py", tmp_path).splitlines()]
    assert [forty_one[2], forty_two[2], again[2]] == ["new", "new", "pending"]
    assert forty_two[1] == again[1] != forty_one[1]
    assert run("order.py", tmp_path).count(" pending\n") == 3

    with worker("shop:ox", tmp_path):
        await eventually(lambda: "SUCCESSFUL 1 " in run("look.py", tmp_path, forty_two[1]), within=30)
        assert run("look.py", tmp_path, forty_two[1]).endswith("value: invoice for order 42 sent\n")


def test_limits_keep_tasks_waiting(tmp_path: Path) -> None:
    assert run("limited.py", tmp_path) == "reminding ann\n" * 3 + "reminding bob\n" + "2 wait for their hour\n"


def test_schedules_tell_their_next_ticks(tmp_path: Path) -> None:
    assert run("nightly.py", tmp_path) == (
        "__main__.report 2026-06-08 02:30:00+02:00\npoll-news 2026-06-05 12:01:00+02:00\n"
    )


def test_a_backoff_decides_whether_an_attempt_is_repeated(tmp_path: Path) -> None:
    said = run("flaky.py", tmp_path)

    assert said == "order 42 charged at attempt 3\nFAILED __main__.PaymentRefused\n"


def test_a_log_line_becomes_a_line_of_json(tmp_path: Path) -> None:
    (tmp_path / "shout.py").write_text(
        "import asyncio, logging, json_lines, oxpull_async\n"
        "logging.getLogger('oxpull_async').setLevel(logging.INFO)\n"
        "async def main():\n"
        "    async with oxpull_async.Oxpull.in_memory() as ox:\n"
        "        await ox.run_until_idle()\n"
        "asyncio.run(main())\n"
    )
    said = subprocess.run(
        [sys.executable, "shout.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=True,
    ).stderr

    lines = [json.loads(line) for line in said.splitlines()]
    assert {"worker_started", "worker_stopped"} <= {line["event"] for line in lines}
    assert {"level", "message", "event", "worker_id"} <= lines[0].keys()


def test_sameness_is_what_unique_says(tmp_path: Path) -> None:
    said = [line.split(maxsplit=1)[1] for line in run("unique_keys.py", tmp_path).splitlines()]

    assert said == ["[True, True, True, True]", "[True, False, False, True]", "[True, False, False, False]"]


def test_models_and_dates_become_json_and_come_back(tmp_path: Path) -> None:
    page = (EXAMPLES.parent / "how-to" / "typed-arguments.md").read_text()

    assert f"```text\n{run('typed_arguments.py', tmp_path)}```" in page


def test_a_task_has_a_session_of_its_own(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (customer TEXT)")
        connection.execute("INSERT INTO orders VALUES ('ada')")
        connection.commit()

    assert run("dependencies.py", tmp_path) == "1 True\n"


def test_duplicates_do_what_their_page_says(tmp_path: Path) -> None:
    assert run("unique_policies.py", tmp_path) == DUPLICATES


def test_the_tests_of_the_testing_page_pass(tmp_path: Path) -> None:
    plugins = ["-p", "no:cacheprovider", "-p", "anyio.pytest_plugin", "-p", "oxpull_async.testing.plugin"]
    for name in ("test_shop.py", "test_inline.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    said = python("-m", "pytest", "-q", *plugins, cwd=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")

    assert "4 passed" in said


async def test_workers_take_the_queues_they_were_given(tmp_path: Path) -> None:
    url = {"OXPULL_DATABASE_URL": f"sqlite:///{tmp_path}/mail.db"}
    async with Oxpull(url["OXPULL_DATABASE_URL"]) as ox:
        await ox.migrate()
        mail = await ox.reference("mail_service.send_mail", queue_name="mail").enqueue("a@example.com", "hello")
        report = await ox.reference("mail_service.build_report", queue_name="reports").enqueue("today")

        with worker("mail_service:ox", tmp_path, "--queue", "mail", **url):
            await mail.wait(timeout=30)
        assert (await report.refresh()).status == "READY"

        with worker("mail_service:ox", tmp_path, "--queue", "reports", "--concurrency", "2", **url):
            assert await report.wait(timeout=30) == "report of today"


async def test_a_reference_is_unique_like_the_task_it_names(in_examples: Any) -> None:
    fleet = in_examples("django_fleet")

    async with fleet.ox:
        await fleet.ox.migrate()
        assert [await fleet.invoice_paid_order(42) for _ in range(2)] == [True, False]


async def test_a_fastapi_service_enqueues_and_answers(in_examples: Any) -> None:
    service = in_examples("fastapi_app")
    async with service.ox:
        await service.ox.migrate()

    async with serving(service.app) as client:
        answers = [(await client.post("/orders/42/invoice")).json() for _ in range(2)]
        task = (await client.get(f"/tasks/{answers[0]['task']}")).json()
        unknown = await client.get("/tasks/00000000-0000-0000-0000-000000000000")

    assert [answer["created"] for answer in answers] == [True, False]
    assert (task["status"], task["args"], unknown.status_code) == ("READY", [42], 404)


async def test_a_fastapi_service_works_off_its_own_queue(in_examples: Any) -> None:
    service = in_examples("fastapi_with_worker")

    async with serving(service.app) as client:
        task = (await client.post("/orders/42/invoice")).json()["task"]

        async def is_done() -> None:
            found = (await client.get(f"/tasks/{task}")).json()
            assert found["return_value"] == "invoice for order 42 sent"

        await eventually(is_done, within=30)


async def test_the_states_of_a_task_are_events(in_examples: Any) -> None:
    service = in_examples("fastapi_progress")
    async with service.ox:
        await service.ox.migrate()

    async with serving(service.app) as client:
        assert (await client.get("/health")).json()["ok"] is True
        task = (await client.post("/renderings", params={"pages": 3})).json()
        await service.ox.run_until_idle()
        told = (await client.get(f"/tasks/{task}/events")).text

    assert told.startswith("event: state\ndata: {")
    assert '"return_value":"3 pages"' in told


async def test_a_litestar_service_enqueues(in_examples: Any) -> None:
    from litestar.testing import AsyncTestClient

    with logging_restored():
        service = in_examples("litestar_app")
        async with service.ox:
            await service.ox.migrate()

        async with AsyncTestClient(service.app) as client:
            answers = [(await client.post("/orders/42/invoice")).json() for _ in range(2)]
    assert [answer["created"] for answer in answers] == [True, False]


async def test_an_order_and_its_task_live_or_die_together(databases: Databases, tmp_path: Path) -> None:
    with databases.empty("postgres") as url, uvicorn("orders_service:app", tmp_path, DATABASE=bare(url)) as address:
        # A server closes the connection of a request that failed, perhaps when the next one is just under way in it.
        one_each = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=address, timeout=30, limits=one_each) as client:
            await eventually(lambda: answers(address), within=30)
            with psycopg.connect(url, autocommit=True) as witness:
                for _ in range(20):
                    order = (await client.post("/orders", params={"customer": "ada"})).json()
                    assert order["created"]
                    assert stored(witness, order) == (1, 1)  # the commit has come before the response

                undone = await client.post("/orders", params={"customer": "nobody"})
                crowd = [client.post("/orders", params={"customer": name}) for name in ["bob", "nobody"] * 10]
                codes = sorted([answer.status_code for answer in await asyncio.gather(*crowd)])

                assert undone.status_code == 500
                assert codes == [201] * 10 + [500] * 10
                assert counted(witness) == (30, 30, 30)


def stored(witness: Any, order: dict[str, Any]) -> tuple[int, int]:
    found = witness.execute(
        "SELECT (SELECT count(*) FROM orders WHERE id = %s), (SELECT count(*) FROM django_ox_oxtask WHERE id = %s)",
        [order["order"], order["task"]],
    ).fetchone()
    return found[0], found[1]


def counted(witness: Any) -> tuple[int, int, int]:
    """Orders, tasks and locks."""
    tables = ("orders", "django_ox_oxtask", "oxpull_oxpulluniquelock")
    orders, tasks, locks = (witness.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)
    return orders, tasks, locks


def test_a_script_marks_its_orders_and_enqueues_their_reminders_or_neither(
    databases: Databases, tmp_path: Path
) -> None:
    with databases.migrated("postgres") as url, psycopg.connect(url, autocommit=True) as witness:
        witness.execute("CREATE TABLE orders (id int PRIMARY KEY, paid bool NOT NULL, reminded bool DEFAULT false)")
        witness.execute("INSERT INTO orders (id, paid) SELECT n, n % 10 = 0 FROM generate_series(1, 250) n")
        witness.execute(REFUSE_AT_COMMIT)

        refused = attempted(str(EXAMPLES / "remind.py"), cwd=tmp_path, DATABASE=bare(url))
        witness.execute("DROP TRIGGER refuse ON orders")
        reminded = witness.execute("SELECT count(*) FROM orders WHERE reminded").fetchone()
        after_refusal = counted(witness)
        said = run("remind.py", tmp_path, DATABASE=bare(url))
        again = run("remind.py", tmp_path, DATABASE=bare(url))

        assert refused.returncode == 1
        assert "not this one" in refused.stderr
        assert (reminded, after_refusal) == ((100,), (250, 100, 100))
        assert said.splitlines() == [f"{n} orders marked, {n} reminders enqueued" for n in (100, 25, 0)]
        assert again == "0 orders marked, 0 reminders enqueued\n"
        assert counted(witness) == (250, 225, 225)


# The second hundred is refused when all of it is done but the commit.
REFUSE_AT_COMMIT = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not this one''; END';
    CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON orders DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (NEW.id = 181) EXECUTE FUNCTION refuse();
"""


def test_a_night_of_invoices_is_reported(tmp_path: Path) -> None:
    said = run("invoices.py", tmp_path).splitlines()

    assert said[:2] == ["monday: 2 of 2 members pending", "tuesday: 2 of 2 members pending"]
    assert sorted(said[2:]) == ["monday: 2 sent, 0 failed", "monday: all sent", "tuesday: 1 sent, 1 failed"]


async def test_a_page_follows_a_batch(in_examples: Any) -> None:
    service = in_examples("batch_progress")
    async with service.ox:
        await service.ox.migrate()

    async with serving(service.app) as client:
        made = (await client.post("/albums/summer", params={"pictures": 40})).json()
        page = (await client.get(made["page"])).text
        told = (await client.get(f"{made['page']}/events")).text
        unknown = await client.get("/batches/00000000-0000-0000-0000-000000000000/events")

    assert f"/batches/{made['batch']}/events" in page
    events = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
    assert (events[0]["total"], events[-2]["finished"], events[-2]["succeeded"]) == (40, 40, 40)
    assert told.endswith("event: complete\ndata: {}\n\n")
    assert unknown.status_code == 404


@pytest.fixture
def in_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Imports examples as modules, in a folder of their own, with an empty database that they find by themselves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("OXPULL_DATABASE_URL", "sqlite:///examples.db")
    yield importlib.import_module
    for name in RUN_HERE:
        sys.modules.pop(name, None)


@contextlib.contextmanager
def uvicorn(app: str, cwd: Path, **environment: str) -> Iterator[str]:
    """A real server with this app, by its address; stopped as a supervisor would."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port)]
    with started(command, cwd, environment) as (process, said):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=20)
        assert "Application shutdown complete" in said.read_text(), said.read_text()


@contextlib.contextmanager
def started(
    command: list[str], cwd: Path, environment: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process, and the file of what it says: a pipe that nobody reads would block it when it's full."""
    said = cwd / "said.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=_environment(**environment), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process, said
        finally:
            process.kill()
            process.wait()


def answers(address: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{address}/openapi.json").status_code == 200
    return False


def bare(url: str) -> str:
    """Without its scheme."""
    return url.partition("://")[2]


@contextlib.contextmanager
def worker(app: str, cwd: Path, *options: str, **environment: str) -> Iterator[None]:
    """`oxpull-async worker` as a process, stopped as Ctrl-C would."""
    command = [str(Path(sys.executable).with_name("oxpull-async")), "worker", app, *options]
    if not Path(command[0]).exists():  # not installed: the same program
        command[:1] = [sys.executable, "-m", "oxpull_async"]
    with started(command, cwd, environment) as (process, said):
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)
        assert process.returncode == 0, said.read_text()


def run(example: str, cwd: Path, *arguments: str, **environment: str) -> str:
    return python(str(EXAMPLES / example), *arguments, cwd=cwd, **environment)


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    """What a Python program prints. It must succeed, and warn of nothing."""
    done = attempted(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def attempted(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd, env=_environment(**environment), capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


def _environment(**more: str) -> dict[str, str]:
    """A reader's: the library is installed or at hand, and nothing is set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OXPULL_", "PYTEST_"))}
    path = os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parents[1])])
    return {**kept, "PYTHONPATH": path, "COLUMNS": "120", "NO_COLOR": "1", **more}


async def test_the_alembic_revision_makes_what_migrate_would(migrations_url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(EXAMPLES / "alembic"))
    config.set_main_option("sqlalchemy.url", migrations_url.replace("postgresql://", "postgresql+psycopg://"))

    await asyncio.to_thread(command.upgrade, config, "head")

    async with Oxpull(migrations_url) as ox:
        await ox.migrate()
        assert (await ox.enqueue_unique(ox.reference("shop.send", queue_name="mail"), 42)).created


@pytest.fixture(params=["sqlite", "postgres"])
def migrations_url(databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    with databases.empty(request.param) as url:
        yield url
