"""Waiting for a batch, and watching it: cheap looks at its row, and counts only as often as they are cheap."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from uuid import UUID

import anyio

from oxpull_async.batches.host import BatchHost
from oxpull_async.batches.models import BatchProgress, progress_of
from oxpull_async.batches.reading import read_row
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.statuses import BatchStatus
from oxpull_async.ports_batches import BatchRow
from oxpull_async.runtime.batch_reads import RepeatedReads

_FIRST_POLL_SECONDS = 0.02
_LAST_POLL_SECONDS = 0.5


async def wait_for(host: BatchHost, batch_id: UUID, timeout: Duration | None) -> BatchProgress:
    """The progress once the batch is COMPLETE. Raises: TimeoutError, BatchNotFound."""
    deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
    pause = _FIRST_POLL_SECONDS
    with host.completions.subscribed(batch_id) as hint:
        while True:
            hint.clear()
            row = await _row(host, batch_id)
            if row.status == BatchStatus.COMPLETE:
                return await _count(host, row)
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"batch {batch_id} was still {row.status} after {timeout} s")
            with anyio.move_on_after(left):
                await hint.wait()
            pause = min(pause * 2, _LAST_POLL_SECONDS)


async def watch(host: BatchHost, batch_id: UUID) -> AsyncIterator[BatchProgress]:
    """The progress now and after each change, until the batch is COMPLETE. Raises: BatchNotFound."""
    last: BatchProgress | None = None
    counting = host.counting
    counting.watch(batch_id)
    try:
        with host.completions.subscribed(batch_id) as hint:
            while True:
                hint.clear()
                row = await _row(host, batch_id)
                is_last = row.status == BatchStatus.COMPLETE
                count = counting.fresh if is_last else counting.progress
                progress = await count(batch_id, lambda: _count(host, row))  # noqa: B023
                if progress != last:
                    yield progress
                if is_last:
                    return
                last = progress
                with anyio.move_on_after(min(max(counting.seconds_left(batch_id), 0.01), _LAST_POLL_SECONDS)):
                    await hint.wait()
    finally:
        counting.unwatch(batch_id)


async def _row(host: BatchHost, batch_id: UUID) -> BatchRow:
    return await read_row(RepeatedReads(host.store().batches), batch_id)


async def _count(host: BatchHost, row: BatchRow) -> BatchProgress:
    reads = RepeatedReads(host.store().batches)
    return progress_of(row.total_count, await reads.tally(row.id, width=row.total_count))
