"""Exclusive execution: who holds a key, who waits for it, and the task rows that depend on that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from oxpull_async.core.exclusivity import Holder
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room_exclusive import Head, KeyState, NewHolder, NewWaiter, Place
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.postgres.claims import due
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_exclusive import Candidate, HeldPlace, KeyHolder

_SQL = load_statements(__package__, "exclusive.sql")
_CLAIMS = load_statements(__package__, "claims.sql")
_DRAW_NUMBERS = _SQL["draw_numbers"]
_LOCK_MUTEXES = _SQL["lock_mutexes"]
_READ_PLACES = _SQL["read_places"]
_DELETE_EXPIRED_PLACES = _SQL["delete_expired_places"]
_INSERT_PLACES = _SQL["insert_places"]
_DELETE_PLACES = _SQL["delete_places"]
_RELEASE_PLACES = _SQL["release_places"]
_INSERT_WAITERS = _SQL["insert_waiters"]
_FIND_HEADS = _SQL["find_heads"]
_FIND_DEAD_WAITERS = _SQL["find_dead_waiters"]
_DELETE_WAITERS = _SQL["delete_waiters"]
_DELETE_OWNER = _SQL["delete_owner"]
_DELETE_WAITING_OWNER = _SQL["delete_waiting_owner"]
_RENEW_PLACES = _SQL["renew_places"]
_FIND_PLACES = _SQL["find_places"]
_LOCK_DUE_TASKS = _CLAIMS["lock_due_tasks"]
_GRANT_TASKS = _SQL["grant_tasks"]
_POSTPONE_TASKS = _SQL["postpone_tasks"]
_SKIP_TASKS = _SQL["skip_tasks"]
_WAKE_TASKS = _SQL["wake_tasks"]
_FIND_IDLE_MUTEXES = _SQL["find_idle_mutexes"]
_DELETE_MUTEXES = _SQL["delete_mutexes"]
_LIST_PLACES = _SQL["list_places"]


def draw(names: dict[str, str], count: int) -> Procedure[tuple[dict[str, int], dict[str, KeyState]]]:
    """One statement makes, locks and draws; what was there is read by another, which sees what was waited for."""
    result = yield _DRAW_NUMBERS(keys=list(names), names=list(names.values()), wanted=count)
    states = yield from read(list(names))
    return {row[0]: row[1] for row in result.rows}, states


def lock(keys: Sequence[str]) -> Procedure[None]:
    """Wait for whoever is deciding about one of them."""
    yield _LOCK_MUTEXES(keys=list(keys))


def read(keys: Sequence[str]) -> Procedure[dict[str, KeyState]]:
    """By key."""
    result = yield _READ_PLACES(keys=list(keys))
    states: dict[str, KeyState] = {}
    for key, number, owner, is_reserved, remaining, first in result.rows:
        state = states.setdefault(key, KeyState([], first))
        if number is not None:
            state.holders.append(Holder(number, owner, is_reserved, remaining))
    return states


def delete_expired(keys: Sequence[str]) -> Procedure[None]:
    """By the database's clock."""
    yield _DELETE_EXPIRED_PLACES(keys=list(keys))


def insert_holders(holders: Sequence[NewHolder]) -> Procedure[None]:
    """One statement."""
    yield _INSERT_PLACES(**_new(holders))


def delete_holders(places: Sequence[HeldPlace]) -> Procedure[None]:
    """One statement."""
    yield _DELETE_PLACES(**_held(places))


def release(places: Sequence[HeldPlace]) -> Procedure[int]:
    """How many were there."""
    result = yield _RELEASE_PLACES(**_held(places))
    return result.count


def insert_waiters(waiters: Sequence[NewWaiter]) -> Procedure[None]:
    """One statement."""
    yield _INSERT_WAITERS(
        keys=[waiter.key for waiter in waiters],
        numbers=[waiter.number for waiter in waiters],
        owners=[waiter.owner for waiter in waiters],
        capacities=[waiter.capacity for waiter in waiters],
        run_afters=[waiter.run_after for waiter in waiters],
        patiences=[waiter.patience_seconds for waiter in waiters],
    )


def find_heads(keys: Sequence[str]) -> Procedure[list[Head]]:
    """At most one for each key."""
    result = yield _FIND_HEADS(keys=list(keys))
    return [Head(*row) for row in result.rows]


def find_dead_waiters(keys: Sequence[str]) -> Procedure[list[Place]]:
    """All of them."""
    result = yield _FIND_DEAD_WAITERS(keys=list(keys))
    return [(row[0], row[1]) for row in result.rows]


def delete_waiters(places: Sequence[Place]) -> Procedure[None]:
    """By primary key."""
    yield _DELETE_WAITERS(keys=[key for key, _ in places], numbers=[number for _, number in places])


def delete_owner(key: str, owner: UUID) -> Procedure[None]:
    """Wherever it is."""
    yield _DELETE_OWNER(key=key, owner=owner)
    yield _DELETE_WAITING_OWNER(key=key, owner=owner)


def renew(places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
    """Those that were extended."""
    result = yield _RENEW_PLACES(**_held(places), leases=[place.lease_seconds for place in places])
    return {(row[0], row[1]) for row in result.rows}


def find_holders(places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
    """Those that are there."""
    result = yield _FIND_PLACES(**_held(places))
    return {(row[0], row[1]) for row in result.rows}


def lock_due(request: ClaimRequest, limit: int) -> Procedure[list[Candidate]]:
    """By priority, then age."""
    paths = list(dict.fromkeys(request.task_paths))
    result = yield _LOCK_DUE_TASKS(task_paths=paths, **due(request), limit=limit)
    rows = sorted(result.rows, key=lambda row: (-row[5], row[6], row[0]))
    return [Candidate(*row[:5]) for row in rows]


def grant(request: ClaimRequest, task_ids: Sequence[UUID], holders: Sequence[NewHolder]) -> Procedure[list[Claim]]:
    """In any order."""
    result = yield _GRANT_TASKS(
        ids=list(task_ids), worker_id=request.worker_id, lease_seconds=request.lease_seconds, **_new(holders)
    )
    return [Claim(*row) for row in result.rows]


def postpone(moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]:
    """One statement."""
    yield _POSTPONE_TASKS(**_moves(moves))


def skip(reasons: Sequence[tuple[UUID, str]], now: datetime) -> Procedure[None]:
    """One statement."""
    yield _SKIP_TASKS(ids=[task_id for task_id, _ in reasons], errors=[errors for _, errors in reasons], now=now)


def wake(moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]:
    """Those that are where they were put."""
    yield _WAKE_TASKS(**_moves(moves))


def find_idle(idle_seconds: float, limit: int) -> Procedure[list[str]]:
    """Their rows stay locked."""
    result = yield _FIND_IDLE_MUTEXES(idle_seconds=idle_seconds, limit=limit)
    return [row[0] for row in result.rows]


def delete_mutexes(keys: Sequence[str]) -> Procedure[None]:
    """By primary key."""
    yield _DELETE_MUTEXES(keys=list(keys))


def _new(holders: Sequence[NewHolder]) -> dict[str, list[Any]]:
    return {
        "keys": [holder.key for holder in holders],
        "numbers": [holder.number for holder in holders],
        "owners": [holder.owner for holder in holders],
        "reserved": [holder.is_reserved for holder in holders],
        "leases": [holder.lease_seconds for holder in holders],
    }


def _held(places: Sequence[HeldPlace]) -> dict[str, list[Any]]:
    return {
        "keys": [place.key for place in places],
        "numbers": [place.token for place in places],
        "owners": [place.owner for place in places],
    }


def _moves(moves: Sequence[tuple[UUID, datetime]]) -> dict[str, list[Any]]:
    return {"ids": [task_id for task_id, _ in moves], "run_afters": [run_after for _, run_after in moves]}


def list_holders(key: str | None, limit: int) -> Procedure[list[KeyHolder]]:
    """By name of the key, then in the order of their tokens."""
    result = yield _LIST_PLACES(any_key=key is None, key=key or "", limit=limit)
    return [
        KeyHolder(
            name=row[0],
            fence=row[1],
            owner=row[2],
            is_reserved=bool(row[3]),
            until=row[4],
            is_over=bool(row[5]),
            task_path=row[6],
            worker_id=row[7],
            since=row[8],
            waiting=row[9],
        )
        for row in result.rows
    ]
