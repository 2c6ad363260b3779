"""The port of exclusive execution over any dialect's room: the order in which its steps decide about keys.

Locks are taken in one order: task rows, which are never waited for, then the
rows of keys in key order. Under a key's lock its expired leases are removed,
what is free is kept for who is first in line, and then callers are served.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TypeAlias
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async.core.exclusivity import RESERVED_SECONDS, Line
from oxpull_async.drivers._limit_store import within_places
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room import Alone, Pool, Room
from oxpull_async.drivers._room_exclusive import ExclusiveProcedures, Head, KeyState, NewHolder, NewWaiter
from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_exclusive import (
    ExclusiveClaims,
    Freed,
    HeldPlace,
    KeyHolder,
    KeysOf,
    OnConflict,
    Renewal,
    TaskWanted,
    Waiting,
    Wanted,
)
from oxpull_async.telemetry import log

_Kept: TypeAlias = list[Head]
"""For whom places are kept from now on."""
_Claimed: TypeAlias = tuple[ExclusiveClaims, dict[str, int], _Kept]
"""What became of candidates, and of which keys they wait for how many places."""


class SqlExclusiveStore:
    """A ``ports_exclusive.ExclusiveStore``."""

    def __init__(self, room: Room, pool: Callable[[], Pool]) -> None:
        self._room = room
        self._get_pool = pool
        self._decisions = Decisions(room.exclusive)
        self._found_none = False

    @property
    def _pool(self) -> Pool:
        return self._get_pool()

    async def acquire(self, wanted: Wanted, *, patience_seconds: float | None) -> tuple[HeldPlace | Waiting, Freed]:
        answer, kept = await self._pool.transact(self._decisions.acquire(wanted, patience_seconds))
        if isinstance(answer, Waiting) and patience_seconds is not None:
            kept += await self._look_again({wanted.key: wanted.capacity})
        return answer, await self._tell(kept)

    async def has_place(self, key: str, owner: UUID, capacity: int) -> bool:
        states = await self._pool.read(self._room.exclusive.read([key]))
        state = states.get(key, KeyState([], None))
        if any(holder.is_reserved and holder.owner == owner for holder in state.holders):
            return True
        return sum(holder.remaining > 0 for holder in state.holders) < capacity

    async def release(self, places: Sequence[HeldPlace]) -> tuple[int, Freed]:
        """Without the lock of the key, as long as nobody waits: who comes meanwhile and waits looks again."""
        if not places:
            return 0, Freed()
        released = await self._pool.write(self._room.exclusive.release(places))
        keys = sorted({place.key for place in places})
        try:
            return released, await retrying(lambda: self._keep_for_waiting(keys))
        except StoreError as error:  # they are given back all the same
            _log_untold(error)
            return released, Freed()

    async def abandon(self, key: str, owner: UUID) -> Freed:
        return await self._tell(await self._pool.transact(self._decisions.abandon(key, owner)))

    async def renew(self, places: Sequence[HeldPlace]) -> Renewal:
        return await renew_places(self._room, self._pool, places)

    async def claim(self, request: ClaimRequest, keys_of: KeysOf, *, look: int) -> ExclusiveClaims:
        if not await self._may_find(request):
            return ExclusiveClaims()
        nothing: _Claimed = ExclusiveClaims(), {}, []
        decide = partial(self._decisions.claim, keys_of=keys_of, look=look)
        claims, waited_for, kept = await self._pool.transact(within_places(self._room.queues, request, decide, nothing))
        self._found_none = not (claims.granted or claims.refused or claims.skipped or waited_for)
        if waited_for:
            kept += await self._look_again(waited_for)
        return replace(claims, freed=await self._tell(kept)) if kept else claims

    async def _may_find(self, request: ClaimRequest) -> bool:
        """An idle worker only looks, which is a single statement."""
        probe = self._room.claims.probe(request)
        if probe is not None:
            return await self._pool.read(probe)
        return not self._found_none or bool(await self._pool.read(self._room.limits.peek(replace(request, limit=1))))

    async def forget_idle(self, *, idle_seconds: float, limit: int) -> int:
        return await self._pool.transact(self._decisions.forget_idle(idle_seconds, limit))

    async def holders(self, *, key: str | None, limit: int) -> Sequence[KeyHolder]:
        return await self._pool.read(self._room.exclusive.list_holders(key, limit))

    async def _keep_for_waiting(self, keys: Sequence[str]) -> Freed:
        heads = await self._pool.read(self._room.exclusive.find_heads(keys))
        if not heads:
            return Freed()
        return await self._tell(await self._pool.transact(self._decisions.keep([head.key for head in heads])))

    async def _look_again(self, capacities: Mapping[str, int]) -> _Kept:
        """Now that the places in line are committed: what was given back before that was kept for nobody."""
        states = await self._pool.read(self._room.exclusive.read(sorted(capacities)))
        free = [key for key, state in states.items() if len(state.holders) < capacities[key]]
        return await self._pool.transact(self._decisions.keep(free)) if free else []

    async def _tell(self, kept: _Kept) -> Freed:
        """Make the rows due for which places are kept, in a transaction of its own.

        A claim may have such a row locked while it waits for the key's lock,
        so this can't be done under that. A place that nobody is told of is
        kept for a few seconds, and the first in line looks by itself then.
        """
        sleeping = [(head.owner, head.run_after) for head in kept if head.run_after is not None]
        if sleeping:
            try:
                await self._pool.transact(self._room.exclusive.wake(sorted(sleeping)))
            except StoreError as error:
                _log_untold(error)
        return Freed(
            callers=[head.owner for head in kept if head.run_after is None],
            tasks=[task_id for task_id, _ in sleeping],
        )


async def renew_places(room: Room, connection: Alone, places: Sequence[HeldPlace]) -> Renewal:
    """Without the locks of keys: who finds a lease over deletes its row, and a row that is gone isn't renewed.

    Rows that are just being decided about are passed over, and only looked for.
    """
    if not places:
        return Renewal()
    renewed = await connection.write(room.exclusive.renew(places))
    missing = [place for place in places if (place.key, place.token) not in renewed]
    present = await connection.read(room.exclusive.find_holders(missing)) if missing else set()
    return Renewal(
        extended=[place for place in places if (place.key, place.token) in renewed],
        lost=[place for place in missing if (place.key, place.token) not in present],
    )


class Decisions:
    """The procedures, each to be run within a transaction."""

    def __init__(self, steps: ExclusiveProcedures) -> None:
        self._steps = steps

    def acquire(self, wanted: Wanted, patience_seconds: float | None) -> Procedure[tuple[HeldPlace | Waiting, _Kept]]:
        """An owner that has a place already gets that one: the answer to an earlier call was lost."""
        lines, kept = yield from self._lines([wanted])
        line = lines[wanted.key]
        token = line.held_by(wanted.owner)
        if token is not None:
            return _held(wanted, token), kept
        work = _Work()
        if not work.take(line, wanted) and patience_seconds is not None:
            work.waiters.append(
                NewWaiter(wanted.key, line.draw(), wanted.owner, wanted.capacity, None, patience_seconds)
            )
        if work.taken_up:
            yield from self._steps.delete_holders(work.taken_up)
        if work.held:
            yield from self._steps.insert_holders(work.holders)
        if work.waiters:
            yield from self._steps.insert_waiters(work.waiters)
        answer = work.held[0] if work.held else Waiting(line.backstop(wanted.owner, 0))
        return answer, kept

    def keep(self, keys: Sequence[str]) -> Procedure[_Kept]:
        """What is free, for who is first in line."""
        yield from self._steps.lock(keys)
        return (yield from self._keep_free_places(keys))

    def abandon(self, key: str, owner: UUID) -> Procedure[_Kept]:
        """Whatever it was that the owner had."""
        yield from self._steps.lock([key])
        yield from self._steps.delete_owner(key, owner)
        return (yield from self._keep_free_places([key]))

    def claim(self, request: ClaimRequest, keys_of: KeysOf, look: int) -> Procedure[_Claimed]:
        """Rows first, passing over those that others are taking; then their keys; then both are written."""
        candidates = yield from self._steps.lock_due(request, look)
        if not candidates:
            return ExclusiveClaims(), {}, []
        wishes = keys_of(candidates)
        lines, kept = yield from self._lines([wish.wanted for wish in wishes])
        work = _serve(request, wishes, lines)
        claims = (yield from self._grant(request, work)) if work.running else []
        yield from self._move(request, work)
        held = {place.owner: place for place in work.held}
        answer = ExclusiveClaims(
            granted=[(claim, held[claim.id]) for claim in claims if claim.id in held],
            refused=[claim for claim in claims if claim.id not in held],
            skipped=[task_id for task_id, _ in work.skipped],
            has_more=len(candidates) >= look,
        )
        return answer, {waiter.key: waiter.capacity for waiter in work.waiters}, kept

    def forget_idle(self, idle_seconds: float, limit: int) -> Procedure[int]:
        """Under the locks of the rows."""
        keys = yield from self._steps.find_idle(idle_seconds, limit)
        if keys:
            yield from self._steps.delete_mutexes(keys)
        return len(keys)

    def _lines(self, wishes: Sequence[Wanted]) -> Procedure[tuple[dict[str, Line], _Kept]]:
        """Lock the keys, clear away what is over, and keep for those in line what is theirs."""
        drawn = max(Counter(wish.key for wish in wishes).values())
        last, states = yield from self._steps.draw({wish.key: wish.name for wish in wishes}, drawn)
        keys = sorted(last)
        stale = [key for key, state in states.items() if _is_stale(state, wishes, key)]
        kept: _Kept = []
        if stale:
            yield from self._steps.delete_expired(stale)
            kept = yield from self._keep_free_places(stale)
            states = yield from self._steps.read(keys)
        lines = {}
        for key in keys:
            state = states.get(key, KeyState([], None))
            lines[key] = Line(state.holders, last_number=last[key], drawn=drawn, first=state.first)
        return lines, kept

    def _keep_free_places(self, keys: Sequence[str]) -> Procedure[_Kept]:
        """Keep each free place for who is first in line, as long as somebody is."""
        kept: _Kept = []
        heads = yield from self._steps.find_heads(keys)
        if heads:
            yield from self._steps.delete_expired([head.key for head in heads])
            heads = yield from self._steps.find_heads([head.key for head in heads])
        while heads:
            gone = [head.key for head in heads if not head.is_there]
            chosen = [head for head in heads if head.is_there and head.taken < head.capacity]
            places = [(head.key, head.number) for head in chosen]
            if gone:
                places += yield from self._steps.find_dead_waiters(gone)
            if places:
                yield from self._steps.delete_waiters(places)
            if chosen:
                yield from self._steps.insert_holders([_reservation(head) for head in chosen])
            kept += chosen
            again = [*gone, *(head.key for head in chosen)]
            heads = (yield from self._steps.find_heads(again)) if again else []
        return kept

    def _grant(self, request: ClaimRequest, work: _Work) -> Procedure[list[Claim]]:
        if work.taken_up:
            yield from self._steps.delete_holders(work.taken_up)
        claims = yield from self._steps.grant(request, work.running, work.holders)
        return sorted(claims, key=lambda claim: (-claim.priority, claim.enqueued_at, claim.id))

    def _move(self, request: ClaimRequest, work: _Work) -> Procedure[None]:
        if work.waiters:
            yield from self._steps.insert_waiters(work.waiters)
        moves = [(waiter.owner, waiter.run_after) for waiter in work.waiters if waiter.run_after is not None]
        if moves:
            yield from self._steps.postpone(moves)
        if work.skipped:
            yield from self._steps.skip(work.skipped, request.now)


@dataclass(slots=True)
class _Work:
    """What is to be written."""

    held: list[HeldPlace] = field(default_factory=list)
    taken_up: list[HeldPlace] = field(default_factory=list)
    """Reservations whose owners have come."""
    waiters: list[NewWaiter] = field(default_factory=list)
    running: list[UUID] = field(default_factory=list)
    skipped: list[tuple[UUID, str]] = field(default_factory=list)

    @property
    def holders(self) -> list[NewHolder]:
        """The rows of the places that are taken."""
        return [NewHolder(place.key, place.token, place.owner, False, place.lease_seconds) for place in self.held]

    def take(self, line: Line, wanted: Wanted) -> bool:
        """Whether there is a place."""
        taken = line.take(wanted.owner, wanted.capacity, wanted.lease_seconds)
        if taken is None:
            return False
        self.held.append(_held(wanted, taken.token))
        if taken.reservation is not None:
            self.taken_up.append(_held(wanted, taken.reservation))
        return True


def _serve(request: ClaimRequest, wishes: Sequence[TaskWanted], lines: dict[str, Line]) -> _Work:
    """Candidates in their order, until enough of them run; who comes after that is left as it is."""
    work = _Work()
    for wish in wishes:
        if len(work.running) >= request.limit:
            break
        wanted = wish.wanted
        line = lines[wanted.key]
        if work.take(line, wanted) or wish.on_conflict is OnConflict.FAIL:
            work.running.append(wanted.owner)
        elif wish.on_conflict is OnConflict.SKIP:
            work.skipped.append((wanted.owner, wish.errors))
        else:
            run_after = request.now + timedelta(seconds=line.backstop(wanted.owner, wanted.lease_seconds))
            work.waiters.append(NewWaiter(wanted.key, line.draw(), wanted.owner, wanted.capacity, run_after, None))
    return work


def _is_stale(state: KeyState, wishes: Sequence[Wanted], key: str) -> bool:
    """Whether a lease is over, or somebody waits although there may be a place."""
    if any(holder.remaining <= 0 for holder in state.holders):
        return True
    capacity = max(wish.capacity for wish in wishes if wish.key == key)
    return state.first is not None and len(state.holders) < capacity


def _log_untold(error: StoreError) -> None:
    log(logging.WARNING, "exclusive_wake_failed", f"those who wait for a key weren't told of their turn: {error}")


def _reservation(head: Head) -> NewHolder:
    return NewHolder(head.key, head.number, head.owner, True, RESERVED_SECONDS)


def _held(wanted: Wanted, token: int) -> HeldPlace:
    return HeldPlace(wanted.key, token, wanted.owner, wanted.lease_seconds)
