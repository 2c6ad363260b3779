"""Processes that race: each has an open Oxpull of its own, waits at a barrier, and enqueues from many coroutines."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, Literal, NamedTuple
from uuid import UUID

from oxpull_async import Oxpull, StoreError
from oxpull_async._ids import new_id
from oxpull_async.core.keys import unique_key
from oxpull_async.enqueueing.unique import insert_unique
from oxpull_async.ports import Held, Inserted, NewTask, NewUnique
from tests.integration.competitor import aside

PATH = "proof.tasks.race"
START_SECONDS = 30.0
ROUND_SECONDS = 60.0

Way = Literal["alone", "guessing", "together", "many"]
"""How a racer enqueues: past the coalescing desk, so with the guess that the key is free, through it, or in bulk."""


class Finish(NamedTuple):
    """What one racer got."""

    task_id: UUID
    created: bool


@dataclass(frozen=True, slots=True)
class Round:
    """What every process does in one round: each of its racers enqueues each number's key."""

    number: int
    racers: int
    ways: tuple[Way, ...] = ("alone", "together")


@dataclass(frozen=True, slots=True)
class Stumble:
    """A racer got an exception."""

    error: str


def key_of(number: int) -> str:
    """The key for which the racers of a round race."""
    return unique_key("default", PATH, "default", [number], {})


class Racers:
    """Some processes, at one database."""

    def __init__(self, url: str, processes: int = 4) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(processes)
        pipes = [context.Pipe() for _ in range(processes)]
        self._pipes: list[Connection] = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_main, args=(url, theirs, self._barrier), daemon=True) for _, theirs in pipes
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        for pipe in self._pipes:
            assert self._answer(pipe, START_SECONDS) == "ready"

    @property
    def processes(self) -> int:
        return len(self._processes)

    async def race(self, number: int, *, racers: int = 64, ways: Sequence[Way] = ("alone", "together")) -> list[Finish]:
        """All racers enqueue the key of this number at once. Raises AssertionError where one got an exception."""
        return await aside(self._race, Round(number, racers // self.processes, tuple(ways)))

    def _race(self, race: Round) -> list[Finish]:
        for pipe in self._pipes:
            pipe.send(race)
        finishes = [finish for pipe in self._pipes for finish in self._answer(pipe, ROUND_SECONDS)]
        stumbles = [finish for finish in finishes if isinstance(finish, Stumble)]
        assert not stumbles, f"{len(stumbles)} of {len(finishes)}: {stumbles[0].error}"
        return finishes

    def close(self) -> None:
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                continue
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()

    def _answer(self, pipe: Connection, within: float) -> Any:
        if not pipe.poll(within):
            raise AssertionError(f"a racer's process gave no answer within {within} s")
        try:
            return pipe.recv()
        except EOFError:
            raise AssertionError("a racer's process has died") from None


def _main(url: str, pipe: Connection, barrier: Barrier) -> None:
    asyncio.run(_run(url, pipe, barrier))


async def _run(url: str, pipe: Connection, barrier: Barrier) -> None:
    async with Oxpull(url, unique_wait=30) as ox:
        pipe.send("ready")
        while (race := await asyncio.to_thread(pipe.recv)) is not None:
            await asyncio.to_thread(barrier.wait, START_SECONDS)
            calls = [_call(ox, race, racer) for racer in range(race.racers)]
            pipe.send([_told(finish) for finish in await asyncio.gather(*calls, return_exceptions=True)])


def _call(ox: Oxpull, race: Round, racer: int) -> Awaitable[Finish]:
    way = race.ways[racer % len(race.ways)]
    match way:
        case "alone":
            return _alone(ox, race.number)
        case "guessing":
            return _guessing(ox, race.number)
        case "together":
            return _together(ox, race.number)
        case "many":
            return _many(ox, race.number)


async def _alone(ox: Oxpull, number: int) -> Finish:
    unique = _unique(number)
    return _finish(unique, await insert_unique(ox.store, unique, wait_seconds=30))


async def _guessing(ox: Oxpull, number: int) -> Finish:
    unique = _unique(number)
    try:
        (first,) = await ox.store.insert_unique([unique], wait_seconds=30, probably_free=True)
    except StoreError:
        first = None
    return _finish(unique, await insert_unique(ox.store, unique, wait_seconds=30, first=first))


def _unique(number: int) -> NewUnique:
    task = NewTask(
        id=new_id(), task_path=PATH, args=f"[{number}]", kwargs="{}", queue_name="default", priority=0,
        takes_context=False, backend_name="default", run_after=None, max_attempts=3, enqueued_at=datetime.now(UTC),
    )  # fmt: skip
    return NewUnique(key_of(number), task)


def _finish(unique: NewUnique, answer: Inserted | Held) -> Finish:
    if isinstance(answer, Inserted):
        return Finish(unique.task.id, True)
    assert answer.row is not None
    return Finish(answer.row.id, False)


async def _together(ox: Oxpull, number: int) -> Finish:
    result = await ox.reference(PATH, unique=True).enqueue(number)
    return Finish(result.id, result.created)


async def _many(ox: Oxpull, number: int) -> Finish:
    """Each bulk call also wants a few keys that the others want, in an order of its own."""
    others = [f"{number}-{name}" for name in "abc"]
    calls = [(number,), *((other,) for other in others)]
    results = await ox.reference(PATH, unique=True).enqueue_many(calls if new_id().int % 2 else calls[::-1])
    (mine,) = [result for result in results if result.args == [number]]
    return Finish(mine.id, mine.created)


def _told(finish: Finish | BaseException) -> Finish | Stumble:
    if isinstance(finish, BaseException):
        cause = f", caused by {finish.__cause__!r}" if finish.__cause__ else ""
        return Stumble(f"{type(finish).__name__}: {finish}{cause}")
    return finish
