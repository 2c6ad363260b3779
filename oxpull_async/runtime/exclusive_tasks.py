"""Exclusive tasks: claimed together with a place of their key, which is kept as long as their code runs."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import random
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from oxpull_async._contention import retrying
from oxpull_async._links import LeaseKeeper
from oxpull_async.core.exclusivity import mutex_key, mutex_name, shown_name
from oxpull_async.core.failures import error_record
from oxpull_async.exceptions import DeadlockDetected, ExclusiveBusy, InvalidTask, LockNotAvailable, OxpullError
from oxpull_async.options import Exclusive
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_exclusive import (
    Candidate,
    ExclusiveClaims,
    ExclusiveStore,
    Freed,
    HeldPlace,
    OnConflict,
    Renewal,
    TaskWanted,
    Wanted,
)
from oxpull_async.runtime.hints import ReadyHints, SettleHints
from oxpull_async.tasks import AnyTask
from oxpull_async.telemetry import log

_MOST_LOOKS: Final = 50
_MOST_ROWS: Final = 100
_TRIES: Final = 5

Grant: TypeAlias = tuple[UUID, int]


class ClaimStore(Protocol):
    """The part of a store that claims need."""

    @property
    def exclusive(self) -> ExclusiveStore:
        """What it can do about exclusive execution."""
        ...

    async def claim(self, request: ClaimRequest) -> Sequence[Claim]:
        """Grant rows that are due."""
        ...


class ExclusiveTasks:
    """Claims for the workers of one ``Oxpull``, and the places that their attempts have."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        store: Callable[[], ClaimStore],
        settled: SettleHints,
        ready: ReadyHints,
    ) -> None:
        self.turns: SettleHints = SettleHints()
        """Tells callers of this process that a place is kept for them."""
        self._tasks = tasks
        self._store = store
        self._settled = settled
        self._ready = ready
        self._places: dict[Grant, HeldPlace] = {}
        self._refusals: dict[Grant, Exception] = {}
        self._letting_go: set[asyncio.Task[None]] = set()
        self._plain_first = False

    def told(self, freed: Freed) -> None:
        """Wake those of this process for whom places are kept."""
        self.turns.settled(freed.callers)
        if freed.tasks:
            self._ready.enqueued()

    # Claims

    async def claim(self, request: ClaimRequest) -> Sequence[Claim]:
        """As ``Store.claim``; of exclusive tasks only those that have their key from now on.

        Where both kinds of tasks wait, each is asked first every other time.
        """
        exclusive = [path for path in request.task_paths if self._terms(path) is not None]
        if not exclusive:
            return await self._store().claim(request)
        paths = set(exclusive)
        plain = replace(request, task_paths=[path for path in request.task_paths if path not in paths])
        claims: list[Claim] = []
        self._plain_first = not self._plain_first
        for is_plain in (self._plain_first, not self._plain_first):
            room = request.limit - len(claims)
            if room > 0 and is_plain and plain.task_paths:
                claims += await self._store().claim(replace(plain, limit=room))
            elif room > 0 and not is_plain:
                claims += await self._claim(replace(request, task_paths=exclusive, limit=room))
        return sorted(claims, key=lambda claim: (-claim.priority, claim.enqueued_at, claim.id))

    def _terms(self, path: str) -> Exclusive | None:
        task = self._tasks.get(path)
        return None if task is None else task.options.exclusive

    async def _claim(self, request: ClaimRequest) -> list[Claim]:
        """Look further where those in front have to wait, which puts them off."""
        claims: list[Claim] = []
        look = request.limit
        for _ in range(_MOST_LOOKS):
            wishes = _Wishes(self._tasks, request.lease_seconds)
            found = await self._try_to_claim(replace(request, limit=request.limit - len(claims)), wishes, look)
            claims += self._noted(found, wishes)
            if not found.has_more or len(claims) >= request.limit:
                break
            look = min(2 * look, _MOST_ROWS)
        return claims

    async def _try_to_claim(self, request: ClaimRequest, wishes: _Wishes, look: int) -> ExclusiveClaims:
        """Again where nothing was decided. A lost answer is for the claimer to deal with."""
        for tries in range(1, _TRIES + 1):
            try:
                return await self._store().exclusive.claim(request, wishes.of, look=look)
            except (DeadlockDetected, LockNotAvailable):
                if tries == _TRIES:
                    raise
                await asyncio.sleep(0.05 * random())
        raise AssertionError("unreachable")

    def _noted(self, found: ExclusiveClaims, wishes: _Wishes) -> list[Claim]:
        for claim, place in found.granted:
            self._places[_grant(claim)] = place
            if claim.id in wishes.errors:
                self._refusals[_grant(claim)] = wishes.errors[claim.id]
        for claim in found.refused:
            self._refusals[_grant(claim)] = _busy(wishes.names[claim.id])
        if found.skipped:
            self._settled.settled(found.skipped)
            for task_id in found.skipped:
                _log_skipped(task_id, wishes.names[task_id])
        self.told(found.freed)
        return [*(claim for claim, _ in found.granted), *found.refused]

    # Attempts

    def admit(self, claim: Claim) -> None:
        """Raises: what keeps an exclusive task from running: ExclusiveBusy, or what its ``by`` has raised."""
        refusal = self._refusals.get(_grant(claim))
        if refusal is not None:
            raise refusal

    def fence(self, claim: Claim) -> int | None:
        """The fencing token of an attempt, if it's exclusive."""
        place = self._places.get(_grant(claim))
        return None if place is None else place.token

    async def renew(self, keeper: LeaseKeeper, claims: Iterable[Claim]) -> set[UUID]:
        """Extend the leases of places; returns the ids of the rows that have lost theirs. May run in any thread."""
        if not self._places:
            return set()
        places = [place for claim in claims if (place := self._places.get(_grant(claim))) is not None]
        renewal = await keeper.renew_places(places) if places else Renewal()
        return {place.owner for place in renewal.lost}

    async def release(self, claims: Iterable[Claim]) -> None:
        """Their code has ended, or never ran. What can't be given back is left to its lease."""
        await self._give_back(self._forgotten(claims))

    def let_go(self, claims: Iterable[Claim]) -> asyncio.Task[None] | None:
        """The same, begun here and now: what it can be waited for by; None if there is nothing to give back."""
        places = self._forgotten(claims)
        if not places:
            return None
        task = asyncio.get_running_loop().create_task(self._give_back(places))
        self._letting_go.add(task)
        task.add_done_callback(self._letting_go.discard)
        return task

    def forget(self, claim: Claim) -> None:
        """Leave the place to its lease: the code may be running still."""
        self._forgotten([claim])

    def _forgotten(self, claims: Iterable[Claim]) -> list[HeldPlace]:
        if not self._places and not self._refusals:
            return []
        places = []
        for claim in claims:
            self._refusals.pop(_grant(claim), None)
            place = self._places.pop(_grant(claim), None)
            if place is not None:
                places.append(place)
        return places

    async def _give_back(self, places: list[HeldPlace]) -> None:
        if not places:
            return
        try:
            _, freed = await retrying(lambda: self._store().exclusive.release(places))
        except OxpullError as error:
            _log_unreleased(len(places), error)
        else:
            self.told(freed)

    async def recover(self, claims: Iterable[Claim]) -> None:
        """The same for claims whose answer may have been lost, so that nothing is known of their places here."""
        for claim in claims:
            if _grant(claim) in self._places:
                await self.release([claim])
            elif self._terms(claim.task_path) is not None:
                name, _ = _name_of(self._tasks[claim.task_path], claim.id, claim.args, claim.kwargs)
                self.told(await retrying(partial(self._store().exclusive.abandon, mutex_key(name), claim.id)))


class _Wishes:
    """What the candidates of one claim need, and what was learnt of them on the way."""

    def __init__(self, tasks: Mapping[str, AnyTask], lease_seconds: float) -> None:
        self.names: dict[UUID, str] = {}
        self.errors: dict[UUID, Exception] = {}
        self._tasks = tasks
        self._lease_seconds = lease_seconds

    def of(self, candidates: Sequence[Candidate]) -> list[TaskWanted]:
        """Asked within the transaction, perhaps in another thread."""
        return [self._of(candidate) for candidate in candidates]

    def _of(self, candidate: Candidate) -> TaskWanted:
        task = self._tasks[candidate.task_path]
        terms = task.options.exclusive or Exclusive()
        name, error = _name_of(task, candidate.id, candidate.args, candidate.kwargs)
        self.names[candidate.id] = name
        if error is not None:
            self.errors[candidate.id] = error
        own: Any = terms.lease
        lease_seconds = self._lease_seconds if own is None else max(own, self._lease_seconds)
        on_conflict = OnConflict(terms.on_conflict)
        return TaskWanted(
            Wanted(mutex_key(name), shown_name(name), candidate.id, terms.limit, lease_seconds),
            on_conflict,
            _with_reason(candidate, name) if on_conflict is OnConflict.SKIP else "",
        )


def _name_of(task: AnyTask, task_id: UUID, args: str, kwargs: str) -> tuple[str, Exception | None]:
    """What the row's key is called. Where that can't be said, one of its own, and the error that its attempt raises."""
    terms = task.options.exclusive or Exclusive()
    prefix = task.path if terms.name is None else terms.name
    try:
        return mutex_name(prefix, _values(task, terms, json.loads(args), json.loads(kwargs))), None
    except Exception as error:  # the user's function, or arguments that don't fit
        return f"{task.path}!{task_id}", error


def _values(task: AnyTask, terms: Exclusive, args: list[Any], kwargs: dict[str, Any]) -> Mapping[str, Any]:
    if callable(terms.by):
        value = terms.by(*args, **kwargs)
        if inspect.iscoroutine(value):
            value.close()
            raise InvalidTask(f"{task.path}: Exclusive(by=…) takes a plain function, not a coroutine function")
        return {"": value}
    bound = task.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments if terms.by is None else {name: bound.arguments[name] for name in terms.by}


def _with_reason(candidate: Candidate, name: str) -> str:
    return json.dumps([*json.loads(candidate.errors), error_record(_busy(name))])


def _busy(name: str) -> ExclusiveBusy:
    return ExclusiveBusy(f"another run has the exclusive key {name!r}")


def _grant(claim: Claim) -> Grant:
    return claim.id, claim.lease_epoch


def _log_skipped(task_id: UUID, name: str) -> None:
    log(
        logging.INFO,
        "task_skipped",
        f"task {task_id} is discarded, for another run has the exclusive key {name!r}",
        task_id=str(task_id),
        key=name,
    )


def _log_unreleased(count: int, error: OxpullError) -> None:
    log(
        logging.WARNING,
        "exclusive_release_failed",
        f"{count} exclusive key(s) couldn't be given back, and are others' once their leases have run out: {error}",
    )
