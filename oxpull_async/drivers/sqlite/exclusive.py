"""Exclusive execution: who holds a key, who waits for it, and the task rows that depend on that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.exclusivity import Holder
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room_exclusive import Head, KeyState, NewHolder, NewWaiter, Place
from oxpull_async.drivers._statements import load_statements
from oxpull_async.drivers.sqlite._rows import claim_row, id_array, instant, modifier, stored_instant, text
from oxpull_async.drivers.sqlite.claims import due
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_exclusive import Candidate, HeldPlace, KeyHolder

_SQL = load_statements(__package__, "exclusive.sql")
_CLAIMS = load_statements(__package__, "claims.sql")
_DRAW_NUMBERS = _SQL["draw_numbers"]
_READ_PLACES = _SQL["read_places"]
_DELETE_EXPIRED_PLACES = _SQL["delete_expired_places"]
_INSERT_PLACES = _SQL["insert_places"]
_DELETE_PLACES = _SQL["delete_places"]
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
    """One statement makes and draws."""
    result = yield _DRAW_NUMBERS(mutexes=json.dumps(list(names.items())), wanted=count)
    states = yield from read(list(names))
    return {row[0]: row[1] for row in result.rows}, states


def lock(keys: Sequence[str]) -> Procedure[None]:
    """Nothing to do: the transaction that surrounds this holds the file's write lock."""
    yield from ()


def read(keys: Sequence[str]) -> Procedure[dict[str, KeyState]]:
    """By key."""
    result = yield _READ_PLACES(keys=json.dumps(list(keys)))
    states: dict[str, KeyState] = {}
    for key, number, owner, is_reserved, remaining, first in result.rows:
        state = states.setdefault(key, KeyState([], None if first is None else UUID(first)))
        if number is not None:
            state.holders.append(Holder(number, UUID(owner), bool(is_reserved), remaining))
    return states


def delete_expired(keys: Sequence[str]) -> Procedure[None]:
    """By the database's clock."""
    yield _DELETE_EXPIRED_PLACES(keys=json.dumps(list(keys)))


def insert_holders(holders: Sequence[NewHolder]) -> Procedure[None]:
    """One statement."""
    rows = [
        [holder.key, holder.number, holder.owner.hex, int(holder.is_reserved), modifier(holder.lease_seconds)]
        for holder in holders
    ]
    yield _INSERT_PLACES(holders=json.dumps(rows))


def delete_holders(places: Sequence[HeldPlace]) -> Procedure[None]:
    """One statement."""
    yield _DELETE_PLACES(held=_held(places))


def release(places: Sequence[HeldPlace]) -> Procedure[int]:
    """How many were there."""
    result = yield _DELETE_PLACES(held=_held(places))
    return result.count


def insert_waiters(waiters: Sequence[NewWaiter]) -> Procedure[None]:
    """One statement."""
    rows = [
        [
            waiter.key,
            waiter.number,
            waiter.owner.hex,
            waiter.capacity,
            text(waiter.run_after),
            None if waiter.patience_seconds is None else modifier(waiter.patience_seconds),
        ]
        for waiter in waiters
    ]
    yield _INSERT_WAITERS(waiters=json.dumps(rows))


def find_heads(keys: Sequence[str]) -> Procedure[list[Head]]:
    """At most one for each key."""
    result = yield _FIND_HEADS(keys=json.dumps(list(keys)))
    return [
        Head(key, number, UUID(owner), capacity, instant(run_after), bool(is_there), taken)
        for key, number, owner, capacity, run_after, is_there, taken in result.rows
    ]


def find_dead_waiters(keys: Sequence[str]) -> Procedure[list[Place]]:
    """All of them."""
    result = yield _FIND_DEAD_WAITERS(keys=json.dumps(list(keys)))
    return [(row[0], row[1]) for row in result.rows]


def delete_waiters(places: Sequence[Place]) -> Procedure[None]:
    """By primary key."""
    yield _DELETE_WAITERS(places=json.dumps(list(places)))


def delete_owner(key: str, owner: UUID) -> Procedure[None]:
    """Wherever it is."""
    yield _DELETE_OWNER(key=key, owner=owner.hex)
    yield _DELETE_WAITING_OWNER(key=key, owner=owner.hex)


def renew(places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
    """Those that were extended."""
    result = yield _RENEW_PLACES(held=_held(places))
    return {(row[0], row[1]) for row in result.rows}


def find_holders(places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
    """Those that are there."""
    result = yield _FIND_PLACES(held=_held(places))
    return {(row[0], row[1]) for row in result.rows}


def lock_due(request: ClaimRequest, limit: int) -> Procedure[list[Candidate]]:
    """By priority, then age."""
    result = yield _LOCK_DUE_TASKS(**due(request), limit=limit)
    return [Candidate(UUID(row[0]), *row[1:5]) for row in result.rows]


def grant(request: ClaimRequest, task_ids: Sequence[UUID], holders: Sequence[NewHolder]) -> Procedure[list[Claim]]:
    """In any order."""
    if holders:
        yield from insert_holders(holders)
    result = yield _GRANT_TASKS(
        ids=id_array(task_ids),
        worker_id=request.worker_id,
        worker_json=json.dumps(request.worker_id),
        lease=modifier(request.lease_seconds),
    )
    return [claim_row(row) for row in result.rows]


def postpone(moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]:
    """One statement."""
    yield _POSTPONE_TASKS(moves=_moves(moves))


def skip(reasons: Sequence[tuple[UUID, str]], now: datetime) -> Procedure[None]:
    """One statement."""
    rows = [[task_id.hex, errors] for task_id, errors in reasons]
    yield _SKIP_TASKS(reasons=json.dumps(rows), now=text(now))


def wake(moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]:
    """Those that are where they were put."""
    yield _WAKE_TASKS(moves=_moves(moves))


def find_idle(idle_seconds: float, limit: int) -> Procedure[list[str]]:
    """Nobody else writes until they are deleted."""
    result = yield _FIND_IDLE_MUTEXES(idle=modifier(-idle_seconds), limit=limit)
    return [row[0] for row in result.rows]


def delete_mutexes(keys: Sequence[str]) -> Procedure[None]:
    """By primary key."""
    yield _DELETE_MUTEXES(keys=json.dumps(list(keys)))


def _held(places: Sequence[HeldPlace]) -> str:
    return json.dumps([[place.key, place.token, place.owner.hex, modifier(place.lease_seconds)] for place in places])


def _moves(moves: Sequence[tuple[UUID, datetime]]) -> str:
    return json.dumps([[task_id.hex, text(run_after)] for task_id, run_after in moves])


def list_holders(key: str | None, limit: int) -> Procedure[list[KeyHolder]]:
    """By name of the key, then in the order of their tokens."""
    result = yield _LIST_PLACES(any_key=key is None, key=key or "", limit=limit)
    return [
        KeyHolder(
            name=row[0],
            fence=row[1],
            owner=UUID(row[2]),
            is_reserved=bool(row[3]),
            until=stored_instant(row[4]),
            is_over=bool(row[5]),
            task_path=row[6],
            worker_id=row[7],
            since=instant(row[8]),
            waiting=row[9],
        )
        for row in result.rows
    ]
