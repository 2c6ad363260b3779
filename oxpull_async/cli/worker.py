"""``worker``: a process that does nothing else."""

from __future__ import annotations

import logging
import os
from typing import Annotated, Final

from cyclopts import Parameter

from oxpull_async.cli.options import Flag
from oxpull_async.cli.signals import Signals, leave_within
from oxpull_async.cli.target import APP_VARIABLE, UsageError, load_app
from oxpull_async.runtime.worker import Worker

_LEAVE_SECONDS: Final = 2.0


async def worker(
    app: str | None = None,
    /,
    *,
    queue: Annotated[list[str] | None, Parameter(name=["--queue", "-q"], negative=())] = None,
    concurrency: int = 10,
    shutdown_timeout: float = 30,
    burst: Flag = False,
    max_tasks: int | None = None,
) -> int:
    """Run tasks until told to stop.

    The first SIGTERM or SIGINT stops claiming and lets tasks finish (exit 0),
    the second cancels them and hands their rows back (exit 130), the third
    ends the process at once.

    Parameters
    ----------
    app
        The Oxpull whose tasks to run, as module:ox; without it $OXPULL_APP.
    queue
        Take rows of this queue alone; may be given several times.
    concurrency
        How many tasks run at once.
    shutdown_timeout
        How many seconds tasks may go on after the first signal.
    burst
        End when nothing is due.
    max_tasks
        End after claiming so many rows.
    """
    reference = app or os.environ.get(APP_VARIABLE)
    if not reference:
        raise UsageError(f"whose tasks? Give module:ox, or set {APP_VARIABLE}")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    work = Worker(load_app(reference), queues=queue or None, concurrency=concurrency, shutdown_timeout=shutdown_timeout)
    with Signals(work) as signals:
        await work.run(until_idle=burst, max_tasks=max_tasks)
        leave_within(_LEAVE_SECONDS, signals.exit_code)
        return signals.exit_code
