"""``ox.exclusive(…)``: code that one process at a time runs, or at most so many."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import random
from typing import Any, Final, TypeVar

import anyio

from oxpull_async._contention import retrying
from oxpull_async._ids import new_id
from oxpull_async._shield import shielded
from oxpull_async.core.durations import Duration, seconds
from oxpull_async.core.exclusivity import (
    PATIENCE_SECONDS,
    check_key_lease,
    check_places,
    mutex_key,
    poll_pause,
    shown_name,
)
from oxpull_async.core.leases import renewal_interval
from oxpull_async.exceptions import ExclusiveLost, ExclusiveTimeout, InvalidArguments, InvalidTask, OxpullError
from oxpull_async.ports_exclusive import ExclusiveStore, Freed, HeldPlace, KeyHolder, Waiting, Wanted
from oxpull_async.runtime.exclusive_tasks import ExclusiveTasks
from oxpull_async.telemetry import log

T = TypeVar("T")

_CLEANUP_SECONDS: Final = 5.0


class ExclusiveHold:
    """An exclusive key in use: what ``async with ox.exclusive(…) as held`` gives."""

    def __init__(self, name: str, held: HeldPlace, asked_at: float) -> None:
        self.name: str = name
        self.fence: int = held.token
        """The fencing token: it grows with each acquisition of the key. Give it to whatever you write to."""
        self.lost: asyncio.Event = asyncio.Event()
        """Set once the lease has run out, or couldn't be renewed in time."""
        self._place = held
        self._until = asked_at + held.lease_seconds

    def __repr__(self) -> str:
        return f"<ExclusiveHold {self.name!r} fence={self.fence}{' lost' if self.lost.is_set() else ''}>"

    def check(self) -> None:
        """Raises: ExclusiveLost once the lease is lost."""
        if self.lost.is_set():
            raise ExclusiveLost(f"the lease of the exclusive key {self.name!r} (fence {self.fence}) is lost")


class ExclusiveBlocks:
    """Makes the blocks, and keeps their leases."""

    def __init__(self, store: Callable[[], ExclusiveStore], tasks: ExclusiveTasks) -> None:
        self.tasks: ExclusiveTasks = tasks
        """What workers do about tasks that are exclusive."""
        self._store = store

    def __call__(
        self, key: str, *, lease: Duration = 60, wait: Duration | None = None, limit: int = 1
    ) -> AbstractAsyncContextManager[ExclusiveHold]:
        """Hold ``key`` for as long as the block lasts: ``async with ox.exclusive("feed:…") as held:``.

        ``lease`` is how long the key outlives a process that dies, at least a
        second; it's renewed in the background. ``wait`` bounds the wait for
        others, who are served in the order in which they came; None waits for
        ever, 0 tries once. ``limit`` lets in so many at once. A block whose
        lease is lost is cancelled. Raises: InvalidArguments, ExclusiveTimeout,
        ExclusiveLost, StoreError.
        """
        return self._block(_wanted(key, lease, limit), key, math.inf if wait is None else _checked(wait, "wait"))

    async def holders(self, key: str | None = None, *, limit: int = 1000) -> Sequence[KeyHolder]:
        """Who has this key, or who has any, by name; keys for which places are kept too."""
        wanted = None if key is None else mutex_key(key)
        return await retrying(lambda: self._store().holders(key=wanted, limit=limit))

    @asynccontextmanager
    async def _block(self, wanted: Wanted, name: str, wait: float) -> AsyncIterator[ExclusiveHold]:
        hold = await self._acquire(wanted, name, wait)
        bound = asyncio.timeout(None)
        renewing = asyncio.create_task(self._renew(hold, bound), name=f"oxpull_async lease of {name!r}")
        try:
            async with bound:
                yield hold
        except TimeoutError as error:
            if not bound.expired():
                raise  # the block's own
            raise ExclusiveLost(f"the block had lost the lease of its exclusive key {name!r}") from error
        finally:
            await self._cleanup(self._release(hold, renewing))
        hold.check()

    async def _acquire(self, wanted: Wanted, name: str, wait: float) -> ExclusiveHold:
        try:
            return await self._wait_for_place(wanted, name, wait)
        except BaseException:
            await self._cleanup(self._abandon(wanted))
            raise

    async def _wait_for_place(self, wanted: Wanted, name: str, wait: float) -> ExclusiveHold:
        deadline = time.monotonic() + wait
        with self.tasks.turns.subscribed(wanted.owner) as told:
            while True:
                told.clear()
                asked_at = time.monotonic()
                answer = await self._ask(wanted, patience_seconds=PATIENCE_SECONDS if wait else None)
                if isinstance(answer, HeldPlace):
                    return ExclusiveHold(name, answer, asked_at)
                await self._until_worthwhile(wanted, told, min(deadline, asked_at + PATIENCE_SECONDS / 2))
                if time.monotonic() >= deadline:
                    raise ExclusiveTimeout(f"the exclusive key {name!r} didn't become free within {wait:g} s")

    async def _ask(self, wanted: Wanted, *, patience_seconds: float | None) -> HeldPlace | Waiting:
        """Safe to repeat: who has a place already gets that one."""
        store = self._store()
        answer, freed = await retrying(lambda: store.acquire(wanted, patience_seconds=patience_seconds))
        self.tasks.told(freed)
        return answer

    async def _until_worthwhile(self, wanted: Wanted, told: asyncio.Event, deadline: float) -> None:
        """Until this process is told, or a look says so, or it's time to ask again; looks grow rarer."""
        for polls in range(1_000_000):
            pause = min(poll_pause(polls, random()), deadline - time.monotonic())
            if pause <= 0:
                return
            with anyio.move_on_after(pause):
                await told.wait()
                return
            if time.monotonic() >= deadline:
                return
            if await self._store().has_place(wanted.key, wanted.owner, wanted.capacity):
                return

    async def _renew(self, hold: ExclusiveHold, block: asyncio.Timeout) -> None:
        """Until the lease is lost, which ends the block."""
        interval = renewal_interval(hold._place.lease_seconds)
        pause = interval
        while (left := hold._until - time.monotonic()) > 0:
            with anyio.move_on_after(min(pause, left)):
                await asyncio.sleep(math.inf)
            asked_at = time.monotonic()
            with anyio.move_on_after(hold._until - asked_at):
                is_lost, is_extended = await self._try_to_renew(hold)
                if is_lost:
                    break
                if is_extended:
                    hold._until = asked_at + hold._place.lease_seconds
                pause = interval if is_extended else interval / 4
        log(
            logging.ERROR,
            "exclusive_lease_lost",
            f"the lease of the exclusive key {hold.name!r} (fence {hold.fence}) is lost; its block is cancelled",
            key=hold.name,
            fence=hold.fence,
        )
        hold.lost.set()
        block.reschedule(asyncio.get_running_loop().time())

    async def _try_to_renew(self, hold: ExclusiveHold) -> tuple[bool, bool]:
        """Whether it's lost, and whether it was extended."""
        try:
            renewal = await self._store().renew([hold._place])
        except OxpullError as error:
            log(
                logging.WARNING,
                "exclusive_renewal_failed",
                f"the lease of the exclusive key {hold.name!r} couldn't be renewed just now: {error}",
                key=hold.name,
            )
            return False, False
        return bool(renewal.lost), bool(renewal.extended)

    async def _release(self, hold: ExclusiveHold, renewing: asyncio.Task[None]) -> None:
        renewing.cancel()
        await asyncio.wait([renewing])
        tries = 0

        async def release() -> tuple[int, Freed]:
            nonlocal tries
            tries += 1
            return await self._store().release([hold._place])

        released, freed = await retrying(release)
        if not released and tries == 1:  # else an earlier try may have done it, and its answer was lost
            hold.lost.set()
        self.tasks.told(freed)

    async def _abandon(self, wanted: Wanted) -> None:
        self.tasks.told(await retrying(lambda: self._store().abandon(wanted.key, wanted.owner)))

    async def _cleanup(self, work: Coroutine[Any, Any, None]) -> None:
        """To its end although the caller is cancelled, within a bound. What fails is left to the lease."""
        try:
            await shielded(work, within=_CLEANUP_SECONDS)
        except (OxpullError, TimeoutError) as error:
            log(
                logging.WARNING,
                "exclusive_release_failed",
                f"an exclusive key couldn't be given back, and is others' once its lease has run out: {error}",
            )


def _wanted(key: str, lease: Duration, limit: int) -> Wanted:
    if not isinstance(key, str):
        raise InvalidArguments(f"an exclusive key is a str, not {key!r}")
    try:
        return Wanted(mutex_key(key), shown_name(key), new_id(), check_places(limit), check_key_lease(lease))
    except InvalidTask as error:
        raise InvalidArguments(str(error)) from error


def _checked(value: Duration, name: str) -> float:
    try:
        return seconds(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidArguments(str(error)) from error
