"""A peer that also creates, fills, seals and completes batches."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from django_project import peer  # sets Django up

from django.db import OperationalError, connection, connections, transaction  # isort: skip
from django.utils.module_loading import import_string  # isort: skip
from oxpull import batches  # isort: skip
from oxpull.exceptions import BatchSealed  # isort: skip
from oxpull.models import OxpullBatch  # isort: skip


def create_batch(name: str, on_complete: str | None = None, on_success: str | None = None) -> str:
    """A batch with callbacks of ``django_project.tasks``; its id."""
    callbacks = {"on_complete": _task(on_complete), "on_success": _task(on_success)}
    return str(batches.create(name, **callbacks).id)


def add(batch_id: str, path: str, calls: list[list[Any]]) -> list[str]:
    """Add each call; the ids in order."""
    batch = batches.get(batch_id)
    return [str(batch.add(_task(path), *arguments).id) for arguments in calls]


def add_until_sealed(batch_id: str, path: str) -> list[str]:
    """Add one after another until the batch is sealed; the ids of those that were added."""
    batch = batches.get(batch_id)
    added: list[str] = []
    while True:
        try:
            added.append(str(batch.add(_task(path), len(added)).id))
        except BatchSealed:
            return added


def delete(batch_id: str) -> int:
    """Through the ORM; how many rows went."""
    return int(OxpullBatch.objects.filter(id=batch_id).delete()[0])


def seal(batch_id: str) -> None:
    batches.get(batch_id).seal()


def seal_in_snapshot(batch_id: str, pause: float) -> str:
    """Look, let others commit, then seal, all in one REPEATABLE READ transaction; what became of it."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                if connection.vendor == "postgresql":
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                cursor.execute("SELECT COUNT(*) FROM oxpull_oxpullbatchmember")
            time.sleep(pause)
            batches.get(batch_id).seal()
    except OperationalError as error:
        return type(error).__name__
    return "sealed"


def progress(batch_id: str) -> list[int]:
    found = batches.get(batch_id).progress()
    return [found.total, found.pending, found.succeeded, found.failed, found.unattributed]


def status(batch_id: str) -> str:
    return str(batches.get(batch_id).status)


def reconcile() -> int:
    """One pass of its reconciler."""
    return int(batches.reconcile.func())


def reconcile_for(seconds: float) -> int:
    """Pass after pass; how many batches it completed."""
    completed, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        completed += reconcile()
    return completed


def reconcile_until_killed() -> int:
    """Pass after pass in a process of its own, which is forked, for a new interpreter takes seconds; its id."""
    connections.close_all()
    parent, child = os.getpid(), os.fork()
    if not child:
        try:
            while os.getppid() == parent:
                with contextlib.suppress(OperationalError):
                    reconcile()
        finally:
            os._exit(1)
    return child


def was_killed(child: int) -> bool:
    """Whether it was, once it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _task(path: str | None) -> Any:
    return None if path is None else import_string(f"django_project.tasks.{path}")


peer.ORDERS.update(
    {
        order.__name__: order
        for order in (
            create_batch,
            add,
            add_until_sealed,
            delete,
            seal,
            seal_in_snapshot,
            progress,
            status,
            reconcile,
            reconcile_for,
            reconcile_until_killed,
            was_killed,
        )
    }
)

if __name__ == "__main__":
    peer.main()
