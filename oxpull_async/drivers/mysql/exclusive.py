"""Exclusive execution: who holds a key, who waits for it, and the task rows that depend on that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async.core.exclusivity import Holder
from oxpull_async.drivers._procedure import Procedure, Row
from oxpull_async.drivers._room_exclusive import Head, KeyState, NewHolder, NewWaiter, Place
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.mysql._rows import aware, document, hex_ids, instant, microseconds
from oxpull_async.drivers.mysql._rows import claim as read_claim
from oxpull_async.drivers.mysql._transactions import BEGIN, COMMIT
from oxpull_async.drivers.mysql.claims import due_heads
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_exclusive import Candidate, HeldPlace, KeyHolder

_SQL = load_statements(__package__, "exclusive.sql")
_CLAIMS = load_statements(__package__, "claims.sql")
_DRAW_NUMBERS = _SQL["draw_numbers"]
_LOCK_MUTEXES = _SQL["lock_mutexes"]
_READ_PLACES = _SQL["read_places"]
_DELETE_EXPIRED_PLACES = _SQL["delete_expired_places"]
_INSERT_PLACE = _SQL["insert_place"]
_DELETE_PLACES = _SQL["delete_places"]
_INSERT_WAITERS = _SQL["insert_waiters"]
_FIND_HEADS = _SQL["find_heads"]
_FIND_DEAD_WAITERS = _SQL["find_dead_waiters"]
_DELETE_WAITERS = _SQL["delete_waiters"]
_DELETE_OWNER = _SQL["delete_owner"]
_DELETE_WAITING_OWNER = _SQL["delete_waiting_owner"]
_LOCK_PLACES = _SQL["lock_places"]
_RENEW_PLACES = _SQL["renew_places"]
_FIND_PLACES = _SQL["find_places"]
_LOCK_DUE_TASKS = _CLAIMS["lock_due_tasks"]
_GRANT_TASKS = _SQL["grant_tasks"]
_POSTPONE_TASKS = _SQL["postpone_tasks"]
_SKIP_TASKS = _SQL["skip_tasks"]
_LOCK_SLEEPING_TASKS = _SQL["lock_sleeping_tasks"]
_WAKE_TASKS = _SQL["wake_tasks"]
_FIND_IDLE_MUTEXES = _SQL["find_idle_mutexes"]
_DELETE_MUTEXES = _SQL["delete_mutexes"]
_LIST_PLACES = _SQL["list_places"]


def draw(names: dict[str, str], count: int) -> Procedure[tuple[dict[str, int], dict[str, KeyState]]]:
    """Make, lock and draw, then read, in one round trip."""
    result = yield _DRAW_NUMBERS(mutexes=document(sorted(names.items())), keys=document(list(names)), wanted=count)
    return {row[0]: row[-1] for row in result.rows}, _states(row[:-1] for row in result.rows)


def lock(keys: Sequence[str]) -> Procedure[None]:
    """Wait for whoever is deciding about one of them."""
    yield _LOCK_MUTEXES(keys=tuple(keys))


def read(keys: Sequence[str]) -> Procedure[dict[str, KeyState]]:
    """By key."""
    result = yield _READ_PLACES(keys=document(list(keys)))
    return _states(result.rows)


def _states(rows: Iterable[Row]) -> dict[str, KeyState]:
    states: dict[str, KeyState] = {}
    for key, number, owner, is_reserved, remaining, first in rows:
        state = states.setdefault(key, KeyState([], None if first is None else UUID(first)))
        if number is not None:
            state.holders.append(Holder(number, UUID(owner), bool(is_reserved), float(remaining)))
    return states


def delete_expired(keys: Sequence[str]) -> Procedure[None]:
    """By the database's clock."""
    yield _DELETE_EXPIRED_PLACES(keys=tuple(keys))


def insert_holders(holders: Sequence[NewHolder]) -> Procedure[None]:
    """One statement."""
    rows: list[dict[str, Any]] = [
        {
            "key": holder.key,
            "number": holder.number,
            "owner": holder.owner.hex,
            "is_reserved": holder.is_reserved,
            "lease_microseconds": microseconds(holder.lease_seconds),
        }
        for holder in holders
    ]
    yield _INSERT_PLACE.many(rows)


def delete_holders(places: Sequence[HeldPlace]) -> Procedure[None]:
    """One statement."""
    yield _DELETE_PLACES(held=document(_held(places)))


def release(places: Sequence[HeldPlace]) -> Procedure[int]:
    """How many were there."""
    result = yield _DELETE_PLACES(held=document(_held(places)))
    return result.count


def insert_waiters(waiters: Sequence[NewWaiter]) -> Procedure[None]:
    """One statement."""
    rows = [
        [
            waiter.key,
            waiter.number,
            waiter.owner.hex,
            waiter.capacity,
            instant(waiter.run_after),
            None if waiter.patience_seconds is None else microseconds(waiter.patience_seconds),
        ]
        for waiter in waiters
    ]
    yield _INSERT_WAITERS(waiters=document(rows))


def find_heads(keys: Sequence[str]) -> Procedure[list[Head]]:
    """At most one for each key."""
    result = yield _FIND_HEADS(keys=tuple(keys))
    return [
        Head(key, number, UUID(owner), capacity, aware(run_after), bool(is_there), taken)
        for key, number, owner, capacity, run_after, is_there, taken in result.rows
    ]


def find_dead_waiters(keys: Sequence[str]) -> Procedure[list[Place]]:
    """All of them."""
    result = yield _FIND_DEAD_WAITERS(keys=tuple(keys))
    return [(row[0], row[1]) for row in result.rows]


def delete_waiters(places: Sequence[Place]) -> Procedure[None]:
    """By primary key."""
    yield _DELETE_WAITERS(places=tuple(places))


def delete_owner(key: str, owner: UUID) -> Procedure[None]:
    """Wherever it is."""
    yield _DELETE_OWNER(key=key, owner=owner.hex)
    yield _DELETE_WAITING_OWNER(key=key, owner=owner.hex)


def renew(places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
    """Those that were extended, in a transaction of its own."""
    yield BEGIN()
    locked = yield _LOCK_PLACES(fenced=tuple(_held(places)))
    renewed = {(row[0], row[1]) for row in locked.rows}
    leases = [
        [place.key, place.token, microseconds(place.lease_seconds)]
        for place in places
        if (place.key, place.token) in renewed
    ]
    if leases:
        yield _RENEW_PLACES(leases=document(leases))
    yield COMMIT()
    return renewed


def find_holders(places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
    """Those that are there."""
    result = yield _FIND_PLACES(held=document(_held(places)))
    return {(row[0], row[1]) for row in result.rows}


def lock_due(request: ClaimRequest, limit: int) -> Procedure[list[Candidate]]:
    """By priority, then age; where others are taking the first ones, the next."""
    ids = [head.id for head in (yield from due_heads(request, 2 * limit))]
    locked = yield from _lock_tasks(request, ids[:limit])
    missing = min(limit, len(ids)) - len(locked)
    if missing > 0:
        locked += yield from _lock_tasks(request, ids[limit : limit + missing])
    locked.sort(key=lambda row: (-row[5], row[6], row[0]))
    return [Candidate(UUID(row[0]), *row[1:5]) for row in locked]


def _lock_tasks(request: ClaimRequest, ids: Sequence[str]) -> Procedure[list[Row]]:
    if not ids:
        return []
    result = yield _LOCK_DUE_TASKS(ids=tuple(ids), now=instant(request.now))
    return list(result.rows)


def grant(request: ClaimRequest, task_ids: Sequence[UUID], holders: Sequence[NewHolder]) -> Procedure[list[Claim]]:
    """In any order."""
    if holders:
        yield from insert_holders(holders)
    result = yield _GRANT_TASKS(
        ids=hex_ids(task_ids),
        worker_id=request.worker_id,
        lease_microseconds=microseconds(request.lease_seconds),
    )
    return [read_claim(row) for row in result.rows]


def postpone(moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]:
    """One statement."""
    yield _POSTPONE_TASKS(moves=document(_moves(moves)))


def skip(reasons: Sequence[tuple[UUID, str]], now: datetime) -> Procedure[None]:
    """One statement."""
    rows = [[task_id.hex, errors] for task_id, errors in reasons]
    yield _SKIP_TASKS(reasons=document(rows), now=instant(now))


def wake(moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]:
    """Those that are where they were put."""
    locked = yield _LOCK_SLEEPING_TASKS(sleeping=tuple(_moves(moves)))
    if locked.rows:
        yield _WAKE_TASKS(ids=tuple(row[0] for row in locked.rows))


def find_idle(idle_seconds: float, limit: int) -> Procedure[list[str]]:
    """Their rows stay locked."""
    result = yield _FIND_IDLE_MUTEXES(idle_microseconds=microseconds(idle_seconds), limit=limit)
    return [row[0] for row in result.rows]


def delete_mutexes(keys: Sequence[str]) -> Procedure[None]:
    """By primary key."""
    yield _DELETE_MUTEXES(keys=tuple(keys))


def _held(places: Iterable[HeldPlace]) -> list[tuple[str, int, str]]:
    return [(place.key, place.token, place.owner.hex) for place in places]


def _moves(moves: Iterable[tuple[UUID, datetime]]) -> list[tuple[str, datetime | None]]:
    return [(task_id.hex, instant(run_after)) for task_id, run_after in moves]


def list_holders(key: str | None, limit: int) -> Procedure[list[KeyHolder]]:
    """By name of the key, then in the order of their tokens."""
    result = yield _LIST_PLACES(any_key=key is None, key=key or "", limit=limit)
    return [
        KeyHolder(
            name=row[0],
            fence=row[1],
            owner=UUID(row[2]),
            is_reserved=bool(row[3]),
            until=row[4].replace(tzinfo=UTC),
            is_over=bool(row[5]),
            task_path=row[6],
            worker_id=row[7],
            since=aware(row[8]),
            waiting=row[9],
        )
        for row in result.rows
    ]
