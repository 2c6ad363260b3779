"""``worker``: processes that do nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
from cyclopts import Parameter

from oxpull_async.app import Oxpull
from oxpull_async.cli.children import parent_pid
from oxpull_async.cli.fleet import Fleet
from oxpull_async.cli.log_lines import LogFormat, write_log
from oxpull_async.cli.options import Flag
from oxpull_async.cli.periods import parse_period
from oxpull_async.cli.reload import Reloading
from oxpull_async.cli.signals import Signals, leave_within
from oxpull_async.cli.slots import RECYCLED
from oxpull_async.cli.sources import Sources
from oxpull_async.cli.target import UsageError, find_app, reference_to
from oxpull_async.cli.vital_signs import keep_touching, touch
from oxpull_async.runtime.worker import Worker

_LEAVE_SECONDS: Final = 2.0
_ORPHAN_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Terms:
    """How a process works.

    Parameters
    ----------
    queue
        Take rows of this queue alone; may be given several times.
    concurrency
        How many tasks run at once in a process.
    shutdown_timeout
        How many seconds tasks may go on after the first signal.
    grace
        How many seconds a task beyond its time limit may take to end, before its row is taken away from it.
    burst
        End when nothing is due.
    max_tasks
        End a process after claiming so many rows; of several, it's started again.
    prune_older_than
        Delete rows that were settled longer ago, such as 30d or 12h, as prune does; not with --burst. Without it, as
        the setting says.
    prune_batches_older_than
        The same for batches that were completed longer ago.
    log_format
        How to write the log: text, or one JSON object a line with its event and fields.
    """

    queue: Annotated[list[str] | None, Parameter(name=["--queue", "-q"], negative=())] = None
    concurrency: int = 10
    shutdown_timeout: float = 30
    grace: float = 30
    burst: Flag = False
    max_tasks: int | None = None
    prune_older_than: str | None = None
    prune_batches_older_than: str | None = None
    log_format: LogFormat = "text"

    def worker(self, ox: Oxpull) -> Worker:
        """A worker on these terms."""
        return Worker(
            ox,
            queues=self.queue or None,
            concurrency=self.concurrency,
            shutdown_timeout=self.shutdown_timeout,
            grace=self.grace,
            prune_older_than=_period(self.prune_older_than),
            prune_batches_older_than=_period(self.prune_batches_older_than),
        )

    def arguments(self) -> list[str]:
        """The same for another process."""
        found = ["--concurrency", str(self.concurrency), "--shutdown-timeout", str(self.shutdown_timeout)]
        found += ["--grace", str(self.grace), "--log-format", self.log_format]
        for name in self.queue or ():
            found += ["--queue", name]
        if self.burst:
            found.append("--burst")
        if self.max_tasks is not None:
            found += ["--max-tasks", str(self.max_tasks)]
        if self.prune_older_than is not None:
            found += ["--prune-older-than", self.prune_older_than]
        if self.prune_batches_older_than is not None:
            found += ["--prune-batches-older-than", self.prune_batches_older_than]
        return found


def _period(text: str | None) -> timedelta | None:
    return None if text is None else parse_period(text)


async def worker(
    app: str | None = None,
    /,
    *,
    terms: Annotated[Terms | None, Parameter(name="*")] = None,
    processes: int = 1,
    reload: Flag = False,
    heartbeat_file: Path | None = None,
) -> int:
    """Run tasks until told to stop.

    The first SIGTERM or SIGINT stops claiming and lets tasks finish (exit 0),
    the second cancels them and hands their rows back (exit 130), the third
    ends the process at once. A worker with a task that can't be stopped
    otherwise ends with 75, to be started again.

    Parameters
    ----------
    app
        The Oxpull whose tasks to run, as module:ox; without it $OXPULL_APP.
    processes
        How many processes to run; those that die are started again.
    reload
        Start anew when a Python file below the working directory changes.
    heartbeat_file
        Touch this file every second; of several processes, one with .0, .1 and so on appended for each.
    """
    terms = terms or Terms()
    if processes < 1:
        raise UsageError("--processes must be at least 1")
    if reload and processes > 1:
        raise UsageError("--reload is for development, and runs one process")
    write_log(terms.log_format)
    if processes == 1 and not reload:
        return await _run(find_app(app), terms, heartbeat_file)
    command = ["worker", reference_to(app), *terms.arguments()]
    if processes > 1:
        return Fleet(command, processes=processes, ends=terms.burst, heartbeat_file=heartbeat_file).run()
    command += [] if heartbeat_file is None else ["--heartbeat-file", str(heartbeat_file)]
    return Reloading(command, Sources(Path.cwd())).run()


async def _run(ox: Oxpull, terms: Terms, heartbeat_file: Path | None) -> int:
    work = terms.worker(ox)
    beside: list[Coroutine[Any, Any, None]] = []
    if heartbeat_file is not None:
        touch(heartbeat_file)  # here, where it's told if it can't be
        beside.append(keep_touching(heartbeat_file, lambda: not ox.health.roster.casualties))
    if (parent := parent_pid()) is not None:
        beside.append(_stop_if_orphaned(work, parent))
    watchers = [asyncio.create_task(watching) for watching in beside]
    with Signals(work, terms.log_format) as signals:
        try:
            await work.run(until_idle=terms.burst, max_tasks=terms.max_tasks, recycle=True)
        finally:
            for watcher in watchers:
                watcher.cancel()
        code = RECYCLED if work.must_recycle and not signals.received else signals.exit_code
        leave_within(_LEAVE_SECONDS, code)
        return code


async def _stop_if_orphaned(work: Worker, parent: int) -> None:
    """Whoever would have started this process again, or stopped it, is gone: end in order."""
    while os.getppid() == parent:  # noqa: ASYNC110 - no event tells of that
        await anyio.sleep(_ORPHAN_POLL_SECONDS)
    work.stop()
