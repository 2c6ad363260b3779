"""Each side reads, runs, retries and discards the other's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("django_ox", reason="the reference needs Python 3.12")

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.messages.storage.cookie import CookieStorage
from django.core.management import call_command
from django.test import RequestFactory
from django_ox.models import OxTask
from django_project import tasks
from peers import Peer

from oxpull_async import InvalidTask, Oxpull, TaskFailed, TaskStatus
from tests.conformance.rows import request as claim_request
from tests.integration.competitor import Competitor

pytestmark = pytest.mark.timeout(120)

PROJECT = "django_project.tasks"
VALUES: list[Any] = [None, True, 0, -1.5, "ä😀", [1, [2]], {"b": None, "a": {"1": 2}}]


def named(path: str, function: Any) -> Any:
    """The function under a task path of the Django project, as a module of that name would declare it."""
    function.__module__, function.__qualname__ = path.rsplit(".", 1)
    return function


@pytest.fixture
def worked_ox(ox: Oxpull) -> Oxpull:
    """An Oxpull that can run the Django project's tasks."""

    async def plain(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"args": list(args), "kwargs": kwargs, "by": "us"}

    def failing(message: str = "told to fail") -> None:
        raise ValueError(message)

    async def with_context(context: Any) -> dict[str, Any]:
        return {"attempt": context.attempt, "id": str(context.id)}

    ox.task(named(f"{PROJECT}.plain", plain))
    ox.task(named(f"{PROJECT}.failing", failing))
    ox.task(takes_context=True)(named(f"{PROJECT}.with_context", with_context))
    return ox


@pytest.fixture
def watcher(migrated_url: str) -> Iterator[Competitor]:
    with Competitor(migrated_url) as watcher:
        yield watcher


async def test_theirs_reads_a_fresh_row_of_ours(ox: Oxpull, peer: Peer):
    result = await ox.enqueue(tasks.plain, *VALUES, named={"x": [1]})

    seen = await peer.tell("read", str(result.id))

    assert seen == {
        "path": f"{PROJECT}.plain", "args": VALUES, "kwargs": {"named": {"x": [1]}}, "status": "READY", "attempts": 0,
        "worker_ids": [], "value": None, "errors": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "theirs"),
    [("WAITING", "READY"), ("RUNNING", "RUNNING"), ("LOST", "FAILED"), ("DISCARDED", "FAILED"), ("FAILED", "FAILED")],
)
async def test_each_side_has_its_own_word_for_a_status(
    ox: Oxpull, peer: Peer, watcher: Competitor, status: str, theirs: str
):
    task_id = watcher.insert_task(status=status, task_path=f"{PROJECT}.plain", return_value="1")

    seen = await peer.tell("read", str(task_id))
    ours = await ox.get_result(task_id)

    assert (seen["status"], seen["value"]) == (theirs, None)
    assert ours.status == status
    assert ours.is_finished is (theirs == "FAILED")


async def test_theirs_reads_a_row_that_ours_runs(ox: Oxpull, peer: Peer):
    result = await ox.enqueue(tasks.plain, 1)
    (claim,) = await ox.store.claim(claim_request(task_paths=[f"{PROJECT}.plain"]))

    seen = await peer.tell("read", str(result.id))

    assert (seen["status"], seen["attempts"], seen["worker_ids"]) == ("RUNNING", 1, ["worker-1"])
    assert claim.id == result.id


async def test_theirs_reads_what_ours_has_run(worked_ox: Oxpull, peer: Peer):
    results = [await worked_ox.enqueue(tasks.plain, value) for value in VALUES]

    await worked_ox.run_until_idle()

    for result, value in zip(results, VALUES, strict=True):
        seen = await peer.tell("read", str(result.id))
        assert seen["status"] == "SUCCESSFUL"
        assert seen["value"] == {"args": [value], "kwargs": {}, "by": "us"}
        assert seen["attempts"] == len(seen["worker_ids"]) == 1


async def test_theirs_reads_the_errors_of_what_ours_has_run(worked_ox: Oxpull, peer: Peer):
    result = await worked_ox.enqueue(worked_ox.tasks[f"{PROJECT}.failing"].using(max_attempts=1), "no\u2028way")

    await worked_ox.run_until_idle()

    seen = await peer.tell("read", str(result.id))
    assert seen["status"] == "FAILED"
    ((name, trace),) = seen["errors"]
    assert name == "ValueError"
    assert trace.startswith("Traceback (most recent call last):")
    assert "no\u2028way" in trace


async def test_ours_runs_what_theirs_enqueued(worked_ox: Oxpull, peer: Peer):
    (plain,) = await peer.tell("enqueue", "plain", [[1, "ä"]])
    (context,) = await peer.tell("enqueue", "with_context", [[]])

    assert await worked_ox.run_until_idle() == 2

    assert await (await worked_ox.get_result(plain)).wait(1) == {"args": [1, "ä"], "kwargs": {}, "by": "us"}
    assert await (await worked_ox.get_result(context)).wait(1) == {"attempt": 1, "id": context}


async def test_theirs_runs_what_ours_enqueued(ox: Oxpull, peer: Peer):
    results = [await ox.enqueue(tasks.plain, value, key=value) for value in VALUES]
    context = await ox.enqueue(tasks.with_context)
    failing = await ox.enqueue(tasks.failing.using(priority=-5), "on purpose")
    failing_once = await ox.enqueue(ox.reference(f"{PROJECT}.failing", max_attempts=1), "once")

    await peer.tell("work")

    for result, value in zip(results, VALUES, strict=True):
        assert await result.wait(1) == {"args": [value], "kwargs": {"key": value}}
    assert await context.wait(1) == {"attempt": 1, "id": str(context.id)}
    await failing.refresh()
    assert (failing.status, failing.attempts, len(failing.errors)) == (TaskStatus.READY, 1, 1)
    assert failing.run_after is not None
    with pytest.raises(TaskFailed, match="ValueError: once") as caught:
        await failing_once.wait(1)
    assert caught.value.errors[0]["exception_class_path"] == "builtins.ValueError"


async def test_theirs_runs_what_ours_enqueued_in_bulk_and_uniquely(ox: Oxpull, peer: Peer, watcher: Competitor):
    results = await ox.enqueue_many(tasks.unique_plain, [(n % 5,) for n in range(10)])

    await peer.tell("work")

    assert set(watcher.statuses().values()) == {"SUCCESSFUL"}
    assert len({result.id for result in results}) == len(watcher.statuses()) == 5


@pytest.mark.parametrize("by", ["ours", "theirs"])
async def test_an_attempt_fails_here_and_the_next_one_succeeds_there(
    worked_ox: Oxpull, peer: Peer, watcher: Competitor, by: str
):
    """The row's history goes on, whoever wrote its beginning."""
    task = worked_ox.tasks[f"{PROJECT}.plain"]
    result = await worked_ox.enqueue(task, 1)
    watcher.set_task(
        result.id, status="FAILED", attempts=1, worker_ids='["somebody"]', finished_at=result.enqueued_at,
        errors='[{"exception_class_path": "builtins.OSError", "traceback": "OSError: gone"}]', lease_epoch=1,
    )  # fmt: skip
    if by == "ours":
        assert await worked_ox.actions.retry(result.id)
        await peer.tell("work")
    else:
        assert await peer.tell("retry", str(result.id))
        await worked_ox.run_until_idle()

    ours, theirs = await result.refresh(), await peer.tell("read", str(result.id))
    assert (ours.status, theirs["status"]) == ("SUCCESSFUL", "SUCCESSFUL")
    assert ours.attempts == len(ours.worker_ids) == 2
    assert ours.worker_ids == theirs["worker_ids"]
    assert theirs["errors"] == [["OSError", "OSError: gone"]]
    assert watcher.row(result.id, "lease_epoch") == (3,)


@pytest.mark.parametrize("by", ["ours", "theirs"])
async def test_a_discarded_row_is_run_by_nobody(worked_ox: Oxpull, peer: Peer, by: str):
    result = await worked_ox.enqueue(worked_ox.tasks[f"{PROJECT}.plain"], 1)
    if by == "ours":
        assert await worked_ox.actions.discard(result.id)
    else:
        assert await peer.tell("discard", str(result.id))

    await peer.tell("work")
    assert await worked_ox.run_until_idle() == 0

    assert (await result.refresh()).status == TaskStatus.DISCARDED
    assert (await peer.tell("read", str(result.id)))["status"] == "FAILED"  # Django has no word for it


@pytest.mark.usefixtures("django_here")
async def test_the_admin_shows_rows_of_ours_in_every_state(worked_ox: Oxpull):
    fresh = await worked_ox.enqueue(tasks.plain.using(queue_name="later"), *VALUES)
    done = await worked_ox.enqueue(worked_ox.tasks[f"{PROJECT}.plain"], "done")
    failed = await worked_ox.enqueue(worked_ox.tasks[f"{PROJECT}.failing"].using(max_attempts=1), "<b>no</b>")
    await worked_ox.store.claim(claim_request(task_paths=[f"{PROJECT}.plain"], queues=["later"]))
    await worked_ox.run_until_idle()

    await sync_to_async(call_command)("migrate", "contenttypes", verbosity=0)  # the page of a row links to them
    listed = await sync_to_async(_admin_page)()
    pages = {result.id: await sync_to_async(_admin_page)(str(result.id)) for result in (fresh, done, failed)}

    for result, status in ((fresh, "RUNNING"), (done, "SUCCESSFUL"), (failed, "FAILED")):
        assert str(result.id) in listed
        assert status in listed
        assert status in pages[result.id]
    assert "builtins.ValueError" in pages[failed.id]
    assert "&lt;b&gt;no&lt;/b&gt;" in pages[failed.id]


def _admin_page(task_id: str | None = None) -> str:
    request = RequestFactory().get("/")
    request.user = User(username="operator", is_staff=True, is_superuser=True, is_active=True)
    request._messages = CookieStorage(request)
    site = admin.site._registry[OxTask]
    response = site.changelist_view(request) if task_id is None else site.change_view(request, task_id)
    response.render()
    assert response.status_code == 200
    return str(response.content.decode())


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (f"{PROJECT}.plain", {"priority": 101}),
        (f"{PROJECT}.plain", {"priority": -101}),
        (f"{PROJECT}.plain", {"priority": 500}),
        (f"{PROJECT}.plain", {"queue_name": "q" * 129}),
        (f"{PROJECT}.plain", {"queue_name": ""}),
        (f"{PROJECT}.plain", {"max_attempts": 32_768}),
        (f"{PROJECT}.plain", {"backend_name": "b" * 129}),
        ("p" * 256, {}),
        ("", {}),
    ],
)
@pytest.mark.engines("sqlite")
async def test_a_row_that_theirs_could_not_read_is_never_written(
    ox: Oxpull, watcher: Competitor, path: str, options: dict[str, Any]
):
    with pytest.raises(InvalidTask):
        await ox.reference(path, **options).enqueue(1)

    assert watcher.counts() == (0, 0)


@pytest.mark.parametrize("priority", [-100, 100])
async def test_the_outermost_priorities_are_read_by_theirs(ox: Oxpull, peer: Peer, priority: int):
    result = await ox.enqueue(tasks.unique_plain.using(priority=priority), 1)

    assert await peer.tell("enqueue", "unique_plain", [[1]]) == [str(result.id)]
    await peer.tell("work")
    assert (await result.refresh()).status == TaskStatus.SUCCESSFUL


async def test_theirs_passes_over_nothing_that_only_ours_can_run(worked_ox: Oxpull, peer: Peer):
    """What neither side shares stays with its own: ours leaves unknown paths alone."""
    (theirs,) = await peer.tell("enqueue", "on_success", [[1]])

    assert await worked_ox.run_until_idle() == 0

    assert (await worked_ox.get_result(UUID(theirs))).status == TaskStatus.READY
