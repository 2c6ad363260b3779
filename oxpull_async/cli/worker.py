"""``worker``: processes that do nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
from cyclopts import Parameter

from oxpull_async.app import Oxpull
from oxpull_async.cli.children import parent_pid
from oxpull_async.cli.fleet import Fleet
from oxpull_async.cli.options import Flag
from oxpull_async.cli.reload import Reloading
from oxpull_async.cli.signals import Signals, leave_within
from oxpull_async.cli.slots import RECYCLED
from oxpull_async.cli.sources import Sources
from oxpull_async.cli.target import APP_VARIABLE, UsageError, load_app
from oxpull_async.cli.vital_signs import keep_touching, touch
from oxpull_async.runtime.worker import Worker

_LEAVE_SECONDS: Final = 2.0
_ORPHAN_POLL_SECONDS: Final = 1.0


async def worker(
    app: str | None = None,
    /,
    *,
    queue: Annotated[list[str] | None, Parameter(name=["--queue", "-q"], negative=())] = None,
    concurrency: int = 10,
    shutdown_timeout: float = 30,
    processes: int = 1,
    burst: Flag = False,
    max_tasks: int | None = None,
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
    queue
        Take rows of this queue alone; may be given several times.
    concurrency
        How many tasks run at once in a process.
    shutdown_timeout
        How many seconds tasks may go on after the first signal.
    processes
        How many processes to run; those that die are started again.
    burst
        End when nothing is due.
    max_tasks
        End a process after claiming so many rows; of several, it's started again.
    reload
        Start anew when a Python file below the working directory changes.
    heartbeat_file
        Touch this file every second; of several processes, one with .0, .1 and so on appended for each.
    """
    reference = app or os.environ.get(APP_VARIABLE)
    if not reference:
        raise UsageError(f"whose tasks? Give module:ox, or set {APP_VARIABLE}")
    if processes < 1:
        raise UsageError("--processes must be at least 1")
    if reload and processes > 1:
        raise UsageError("--reload is for development, and runs one process")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if processes == 1 and not reload:
        ox = load_app(reference)
        work = Worker(ox, queues=queue or None, concurrency=concurrency, shutdown_timeout=shutdown_timeout)
        return await _run(ox, work, heartbeat_file, until_idle=burst, max_tasks=max_tasks)
    command = _command(reference, queue or [], concurrency, shutdown_timeout, burst=burst, max_tasks=max_tasks)
    if reload:
        command += [] if heartbeat_file is None else ["--heartbeat-file", str(heartbeat_file)]
        return Reloading(command, Sources(Path.cwd())).run()
    return Fleet(command, processes=processes, ends=burst, heartbeat_file=heartbeat_file).run()


async def _run(
    ox: Oxpull, work: Worker, heartbeat_file: Path | None, *, until_idle: bool, max_tasks: int | None
) -> int:
    beside: list[Coroutine[Any, Any, None]] = []
    if heartbeat_file is not None:
        touch(heartbeat_file)  # here, where it's told if it can't be
        beside.append(keep_touching(heartbeat_file, lambda: not ox.health.roster.casualties))
    if (parent := parent_pid()) is not None:
        beside.append(_stop_if_orphaned(work, parent))
    watchers = [asyncio.create_task(watching) for watching in beside]
    with Signals(work) as signals:
        try:
            await work.run(until_idle=until_idle, max_tasks=max_tasks)
        finally:
            for watcher in watchers:
                watcher.cancel()
        code = RECYCLED if getattr(work, "must_recycle", False) else signals.exit_code
        leave_within(_LEAVE_SECONDS, code)
        return code


async def _stop_if_orphaned(work: Worker, parent: int) -> None:
    """Whoever would have started this process again, or stopped it, is gone: end in order."""
    while os.getppid() == parent:  # noqa: ASYNC110 - no event tells of that
        await anyio.sleep(_ORPHAN_POLL_SECONDS)
    work.stop()


def _command(
    reference: str,
    queues: Sequence[str],
    concurrency: int,
    shutdown_timeout: float,
    *,
    burst: bool,
    max_tasks: int | None,
) -> list[str]:
    """The same call for one process."""
    command = ["worker", reference, "--concurrency", str(concurrency), "--shutdown-timeout", str(shutdown_timeout)]
    for name in queues:
        command += ["--queue", name]
    if burst:
        command.append("--burst")
    if max_tasks is not None:
        command += ["--max-tasks", str(max_tasks)]
    return command
