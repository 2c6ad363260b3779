"""``Worker``: claims task rows and runs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

import anyio

from oxpull_async.core.durations import Duration, seconds
from oxpull_async.exceptions import InvalidSettings
from oxpull_async.runtime.claimer import MAX_PREFETCH, Terms
from oxpull_async.runtime.executor import OnFailure
from oxpull_async.runtime.host import Host
from oxpull_async.runtime.identity import new_worker_id
from oxpull_async.runtime.pruner import Ages
from oxpull_async.runtime.shift import Shift
from oxpull_async.runtime.waiting import first_of
from oxpull_async.telemetry import log

_END_SECONDS: Final = 5.0
_END_AT_ONCE_SECONDS: Final = 1.5


class Worker:
    """Runs the tasks of one ``Oxpull`` in this process, ``concurrency`` at a time.

    Coroutine functions run on the event loop, all others in threads, or in
    processes if they say so. Takes only rows whose task is declared here, from
    ``queues`` (by default those of the settings, or all). ``prefetch``: how
    many rows it may have at hand beyond those that run, 0 for none; by default
    what it gets through in a few milliseconds, at most 400. ``lease`` is how
    long a row outlives a worker that dies before others take it, at least a
    second; ``grace`` how long an attempt beyond its time limit may take to end
    before its row is taken away; ``shutdown_timeout`` how long a stopping
    worker lets tasks finish; ``poll_interval`` how long a row that no hint
    tells of waits at most. ``prune_older_than`` and ``prune_batches_older_than``
    (by default those of the settings): as those of ``ox.running``.

    ``await worker.run()``, or ``async with ox.running(worker=worker)``.
    Raises: InvalidSettings.
    """

    def __init__(
        self,
        ox: Host,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = 10,
        prefetch: int | None = None,
        lease: Duration | None = None,
        grace: Duration = 30,
        shutdown_timeout: Duration = 30,
        poll_interval: Duration = 1.0,
        prune_older_than: Duration | None = None,
        prune_batches_older_than: Duration | None = None,
    ) -> None:
        self.id: str | None = None
        """The name under which the current run holds its leases."""
        self.must_recycle: bool = False
        """Whether a thread hangs that only the end of this process can end."""
        self.shutdown_timeout: float = _checked(shutdown_timeout, "shutdown_timeout")
        self._host = ox
        self._queues = _queues(ox.settings.queues if queues is None else queues)
        self._concurrency = _whole(concurrency, "concurrency")
        self._prefetch = MAX_PREFETCH if prefetch is None else _whole(prefetch, "prefetch", at_least=0)
        self._grace = _checked(grace, "grace")
        self._lease_seconds = ox.settings.lease if lease is None else _checked(lease, "lease", at_least=1)
        self._poll_interval = _checked(poll_interval, "poll_interval", at_least=0.01)
        self._ages = Ages(
            _age(prune_older_than, ox.settings.prune_older_than, "prune_older_than"),
            _age(prune_batches_older_than, ox.settings.prune_batches_older_than, "prune_batches_older_than"),
        )
        self._is_running = False
        self._shift: Shift | None = None
        self._forget_stop()

    def __repr__(self) -> str:
        return f"<Worker {self.id or '(not running)'}>"

    @property
    def longest_stop(self) -> float:
        """Within how many seconds a stop has ended, whatever the tasks do."""
        return self.shutdown_timeout + 2 * _END_SECONDS

    def stop(self, *, at_once: bool = False) -> None:
        """Claim no more, let tasks finish for ``shutdown_timeout`` seconds, then cancel them and end.

        A cancelled task's row goes back with its attempt refunded. ``at_once``
        cancels now, and ends within about two seconds. Called before ``run``,
        it makes that return at once.
        """
        self._stopping.set()
        if self._shift is not None:
            self._shift.stop_claiming()
        if at_once:
            self._at_once.set()

    async def run(
        self,
        *,
        until_idle: bool = False,
        max_tasks: int | None = None,
        recycle: bool = False,
        on_failure: OnFailure | None = None,
    ) -> int:
        """Work until stopped; returns how many attempts came to an outcome.

        ``until_idle`` ends it when nothing is due and nothing runs,
        ``max_tasks`` after so many claims, ``recycle`` when a thread hangs
        (see ``must_recycle``) and all others have ended, within a lease's
        length. ``on_failure`` is called with what each failed attempt raised.
        Opens the Oxpull if it's closed. Touches no signal handlers.
        """
        if self._is_running:
            raise InvalidSettings("this Worker is running already; make another one to run more")
        self._is_running = True
        try:
            ages = Ages() if until_idle else self._ages
            running = self._host.running(
                reconciler=not until_idle, prune_older_than=ages.settled, prune_batches_older_than=ages.batches
            )
            async with running, self._host.task_state_keeper.kept():
                return await self._work(self._terms(until_idle, max_tasks), recycle, on_failure)
        finally:
            self._is_running = False
            self._shift = None
            self.id = None
            self._forget_stop()

    def _terms(self, until_idle: bool, max_tasks: int | None) -> Terms:
        self.id = new_worker_id()
        return Terms(
            worker_id=self.id,
            queues=self._queues,
            lease_seconds=self._lease_seconds,
            poll_interval=self._poll_interval,
            prefetch=self._prefetch,
            until_idle=until_idle,
            max_tasks=None if max_tasks is None else _whole(max_tasks, "max_tasks"),
        )

    async def _work(self, terms: Terms, recycle: bool, on_failure: OnFailure | None) -> int:
        with self._host.ready_hints.subscribed() as ready:
            shift = self._shift = Shift(
                self._host,
                terms,
                concurrency=self._concurrency,
                grace=self._grace,
                ready=ready,
                on_failure=on_failure,
            )
            await shift.start()
            log(logging.INFO, "worker_started", f"worker {terms.worker_id} is at work", worker_id=terms.worker_id)
            try:
                hung = partial(self._thread_hung, shift, recycle)
                await first_of(shift.finished, self._stopping.wait, hung)
                await self._drain(shift)
            finally:
                with anyio.CancelScope(shield=True):
                    await shift.end(_END_AT_ONCE_SECONDS if self._at_once.is_set() else _END_SECONDS)
                log(logging.INFO, "worker_stopped", f"worker {terms.worker_id} has ended", worker_id=terms.worker_id)
            return shift.ran

    async def _thread_hung(self, shift: Shift, recycle: bool) -> None:
        await shift.stuck()
        self.must_recycle = True
        log(
            logging.ERROR,
            "worker_must_recycle",
            f"a thread of worker {self.id} hangs: this process should be replaced",
            worker_id=self.id,
        )
        if not recycle:
            await anyio.sleep_forever()

    async def _drain(self, shift: Shift) -> None:
        if self.must_recycle and not self._stopping.is_set():
            with anyio.move_on_after(self._lease_seconds):
                await first_of(shift.drained, self._stopping.wait)
            if not self._stopping.is_set():
                return
        with anyio.move_on_after(self.shutdown_timeout):
            await first_of(shift.drained, self._at_once.wait)

    def _forget_stop(self) -> None:
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()


def _queues(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise InvalidSettings(f"queues must be a list of names, not the one string {names!r}")
    return None if names is None else tuple(names)


def _whole(value: int, name: str, at_least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise InvalidSettings(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    return value


def _age(given: Duration | None, setting: float | None, name: str) -> float | None:
    return setting if given is None else _checked(given, name)


def _checked(value: Duration, name: str, at_least: float = 0) -> float:
    try:
        number = seconds(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidSettings(str(error)) from error
    if number < at_least:
        raise InvalidSettings(f"{name} must be at least {at_least:g} s, not {number:g}")
    return number
