"""A Django process that does what it's told: one JSON order a line on stdin, one JSON answer a line on stdout.

An order is ``[name, arguments]`` of a function here, an answer ``{"value": …}`` or ``{"error": "Class: words"}``.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import OperationalError, connections, transaction  # noqa: E402
from django.tasks import default_task_backend, task_backends  # noqa: E402
from django.utils import timezone  # noqa: E402
from django.utils.module_loading import import_string  # noqa: E402
from django_ox import actions, registry  # noqa: E402
from django_ox.models import OxTask  # noqa: E402
from django_ox.stored import DatabaseScheduleSource  # noqa: E402
from django_ox.worker import Worker  # noqa: E402
from oxpull.worker import OxpullWorker  # noqa: E402

from django_project.databases import lead_django_to  # noqa: E402

INNODB_DEADLOCK = 1213
Orders = dict[str, Callable[..., Any]]


def lead_to(url: str) -> None:
    lead_django_to(url)


def enqueue(path: str, calls: list[list[Any]], repeats: int = 1) -> list[str]:
    """Enqueue each call, so often in a row; the ids in order."""
    task = import_string(f"django_project.tasks.{path}")
    return [task.enqueue(*arguments).id for arguments in calls for _ in range(repeats)]


def enqueue_in_a_block(path: str, arguments: list[Any], commit: bool) -> str:
    """Within a transaction that commits, or is rolled back."""
    task = import_string(f"django_project.tasks.{path}")
    with transaction.atomic():
        found = task.enqueue(*arguments).id
        if not commit:
            transaction.set_rollback(True)
    return str(found)


def work() -> None:
    """Run everything that is due."""
    with contextlib.suppress(SystemExit):
        call_command("ox_worker", "--batch", "--interval", "0.05", verbosity=0)


def prune_for(seconds: float) -> int:
    """Prune again and again; how often that was."""
    count, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            call_command("oxpull_prune", "--batch-size", "3", stdout=_Nowhere())
            count += 1
        except OperationalError as error:
            if error.args[0] != INNODB_DEADLOCK:
                raise
    return count


def read(task_id: str) -> dict[str, Any]:
    """What ``get_result`` makes of a row."""
    result = default_task_backend.get_result(task_id)
    finished = result.is_finished
    return {
        "path": result.task.module_path,
        "args": result.args,
        "kwargs": result.kwargs,
        "status": result.status.value,
        "attempts": result.attempts,
        "worker_ids": result.worker_ids,
        "value": result.return_value if finished and result.status.value == "SUCCESSFUL" else None,
        "errors": [[error.exception_class.__qualname__, error.traceback] for error in result.errors],
    }


def settle(task_id: str, status: str = "SUCCESSFUL") -> None:
    """Make a row look settled."""
    OxTask.objects.filter(id=task_id).update(status=status, finished_at=django.utils.timezone.now())


def retry(task_id: str) -> bool:
    return actions.retry(task_id)


def discard(task_id: str) -> bool:
    return actions.discard(task_id)


_dispatchers: list[Worker] = []


def schedule(schedules: dict[str, dict[str, Any]], zone: str) -> None:
    """Dispatch these schedules from now on, beside those that are stored as rows for ``plain``."""
    registry.register(registry.ScheduleKind("work", import_string("django_project.tasks.plain")))
    timezone.activate(ZoneInfo(zone))
    worker = Worker()
    worker._schedule_source = DatabaseScheduleSource({"SCHEDULES": schedules}, "default")
    _dispatchers[:] = [worker]


def dispatch(at: str) -> int:
    """One pass as of that instant; how many tasks it enqueued."""
    instant = datetime.fromisoformat(at)
    timezone.now = lambda: instant  # type: ignore[method-assign, unused-ignore]
    return int(_dispatchers[0].dispatch_schedules())


_limited: list[OxpullWorker] = []


def limit(limits: dict[str, dict[str, Any]]) -> None:
    """Claim within these rate limits from now on."""
    options = task_backends["default"].options
    options["RATE_LIMITS"] = limits
    try:
        _limited[:] = [OxpullWorker()]
    finally:
        del options["RATE_LIMITS"]


def claim_within_limits(tries: int) -> list[str]:
    """Claim so often; the paths of what was found."""
    found = [_limited[0].claim_one() for _ in range(tries)]
    return [row.task_path for row in found if row is not None]


class _Nowhere:
    def write(self, text: str) -> None:
        pass


ORDERS: Orders = {
    order.__name__: order
    for order in (
        limit,
        claim_within_limits,
        lead_to,
        enqueue,
        enqueue_in_a_block,
        work,
        prune_for,
        read,
        settle,
        retry,
        discard,
        schedule,
        dispatch,
    )
}


def obey(line: str) -> dict[str, Any]:
    name, arguments = json.loads(line)
    try:
        return {"value": ORDERS[name](*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(obey(line), default=str), file=answers, flush=True)
    connections.close_all()


if __name__ == "__main__":
    main()
