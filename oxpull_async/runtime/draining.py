"""``run_until_idle``: everything that is due is run, and then it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.statuses import TaskStatus
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.listing import every_row
from oxpull_async.runtime.worker import Worker


async def run_until_idle(
    host: Host, *, concurrency: int, raise_errors: bool, with_scheduled: bool | Duration = False
) -> int:
    """Run what is due, then what is scheduled, each at its time; returns how many attempts that took."""
    async with host.running(reconciler=False):
        ran = await _drain(host, concurrency, raise_errors)
        if with_scheduled is False:
            return ran
        begin = host.clock.now()
        end = None if with_scheduled is True else begin + timedelta(seconds=seconds(with_scheduled, "with_scheduled"))
        while (due := await _next_due(host)) is not None and (end is None or due <= end):
            before = host.clock.read_from(_standing_at(due))
            try:
                more = await _drain(host, concurrency, raise_errors)
            finally:
                host.clock.read_from(before)
            if not more:
                break  # somebody else has taken it
            ran += more
        return ran


async def _drain(host: Host, concurrency: int, raise_errors: bool) -> int:
    """Run what is due, complete batches, and so on until there is neither."""
    ran = await _work(host, concurrency, raise_errors)
    while await host.complete_batches():
        ran += await _work(host, concurrency, raise_errors)
    return ran


async def _work(host: Host, concurrency: int, raise_errors: bool) -> int:
    worker = Worker(host, concurrency=concurrency)
    errors: list[BaseException] = []

    def note(error: BaseException) -> None:
        errors.append(error)
        worker.stop()

    ran = await worker.run(until_idle=True, on_failure=note if raise_errors else None)
    if errors:
        raise errors[0]
    return ran


async def _next_due(host: Host) -> datetime | None:
    """When the first READY row that this process can run falls due."""
    queues = host.settings.queues
    return min(
        [
            row.run_after
            async for row in every_row(host.store)
            if row.status == TaskStatus.READY
            and row.run_after is not None
            and row.task_path in host.tasks
            and (queues is None or row.queue_name in queues)
        ],
        default=None,
    )


def _standing_at(instant: datetime) -> Callable[[], datetime]:
    return lambda: instant
