"""The commands of ``oxpull-async``, put together."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cyclopts import App

from oxpull_async.cli.batches import batch, batches, reconcile
from oxpull_async.cli.bench import bench
from oxpull_async.cli.check import check
from oxpull_async.cli.exclusive import exclusive
from oxpull_async.cli.inspection import health, locks, status
from oxpull_async.cli.locks import release, show
from oxpull_async.cli.queues import queues
from oxpull_async.cli.rows import cancel, discard, retry
from oxpull_async.cli.schedules import schedules
from oxpull_async.cli.schema import migrate, sql
from oxpull_async.cli.upkeep import prune, reap
from oxpull_async.cli.worker import worker


def _version() -> str:
    try:
        return version("oxpull_async")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"


app: App = App(name="oxpull-async", help="A task queue in the database you already have.", version=_version)
_LOCKS = App(name="locks")
_LOCKS.default(locks)
_LOCKS.command(show)
_LOCKS.command(release)
_LOCKS.command(exclusive)
_LOOKS = (status, health, check, _LOCKS, schedules, batches, batch)
_ROWS = (retry, discard, cancel)
for _command in (worker, *_LOOKS, *_ROWS, queues, reconcile, reap, prune, migrate, sql, bench):
    app.command(_command)
