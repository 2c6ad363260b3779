"""Claims within the rate limits: what they cover is counted first, then claimed, and what wasn't found is uncounted."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol

from oxpull_async._contention import retrying
from oxpull_async.clock import Clock
from oxpull_async.core.allotments import Group, Head, grouped, totals, wanted
from oxpull_async.core.limits import RateLimit
from oxpull_async.core.settlements import Settlement
from oxpull_async.exceptions import StoreError
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from oxpull_async.ports_limits import LimitStore, Reserved
from oxpull_async.runtime.exclusive_blocks import ExclusiveBlocks
from oxpull_async.runtime.hints import ReadyHints
from oxpull_async.runtime.places import QueuePlaces
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask, Call
from oxpull_async.telemetry import log

_LONGEST_BLINDNESS: Final = 1.0
"""For how many seconds at most a limit that had nothing left isn't looked at again: others may give back."""
_LONGEST_PUT_OFF: Final = 3600.0


class LimitedHost(Protocol):
    """What the limits need of their ``Oxpull``."""

    @property
    def settings(self) -> Settings:
        """What is set."""
        ...

    @property
    def store(self) -> LimitStore:
        """The open store. Raises: NotOpen."""
        ...

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """The tasks that can run here, by path."""
        ...

    @property
    def exclusive(self) -> ExclusiveBlocks:
        """Claims of exclusive tasks too."""
        ...

    @property
    def ready_hints(self) -> ReadyHints:
        """Tells workers to look again."""
        ...

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...


class Limits:
    """Claims for the workers of one ``Oxpull``."""

    def __init__(self, ox: LimitedHost) -> None:
        self.places: QueuePlaces = QueuePlaces(lambda: ox.store)
        """Limits on how many rows of a queue run at once, which stand in the database."""
        self._ox = ox
        self._limits = [limit for limit in ox.settings.rate_limits if limit.by is None]
        self._keyed = [limit for limit in ox.settings.rate_limits if limit.by is not None]
        self._closed_until: dict[str, float] = {}
        """By monotonic time; a limit that isn't listed may have something left."""

    async def claim(self, request: ClaimRequest) -> Sequence[Claim]:
        """As ``Store.claim``, no more than the limits allow at this moment.

        Queues with a limit come first: it keeps them from taking everything.
        """
        claims: list[Claim] = []
        for each in await self.places.open(request):
            room = request.limit - len(claims)
            if room > 0:
                claims += await self._claim_within_rates(replace(each, limit=min(each.limit, room)))
        if len(claims) == request.limit:
            return claims
        return [*claims, *await self._claim_within_rates(replace(request, limit=request.limit - len(claims)))]

    async def _claim_within_rates(self, request: ClaimRequest) -> Sequence[Claim]:
        claims: Sequence[Claim]
        if not self._limits:
            claims = await self._ox.exclusive.tasks.claim(request)
        else:
            claims = await self._claim_groups(request)
        for limit in self._keyed:
            claims = await self._within(limit, claims)
        return claims

    async def _claim_groups(self, request: ClaimRequest) -> list[Claim]:
        requests = {group: _of(request, group) for group in self._open_groups(request)}
        limited = await self._ox.store.peek({group: each for group, each in requests.items() if group.limits})
        heads = {group: due for group, due in limited.items() if due}
        if not heads:
            return await self._claim_each({g: each for g, each in requests.items() if not g.limits})
        free = {group: each for group, each in requests.items() if not group.limits}
        heads |= await self._ox.store.peek(free)
        reserved = await self._reserve(heads, request.limit)
        claims = await self._claim_reserved(requests, reserved)
        room = request.limit - len(claims)
        if room > 0 and free:
            claims += await self._claim_each({group: replace(each, limit=room) for group, each in free.items()})
        return sorted(claims, key=lambda claim: (-claim.priority, claim.enqueued_at, claim.id))

    def _open_groups(self, request: ClaimRequest) -> list[Group]:
        now = time.monotonic()
        closed = {name for name, until in self._closed_until.items() if until > now}
        closed |= {limit.name for limit in self._limits if limit.limit == 0}
        groups = grouped(self._limits, request.task_paths, request.queues)
        return [group for group in groups if not group.limits & closed]

    async def _reserve(self, heads: Mapping[Group, Sequence[Head]], room: int) -> Reserved:
        asked = {group: count for group, count in wanted(heads, room).items() if group.limits}
        if not asked:
            return Reserved({}, {}, {})
        reserved = await retrying(lambda: self._ox.store.reserve(self._limits, asked))
        now = time.monotonic()
        for name, opens_in in reserved.closed.items():
            self._closed_until[name] = now + min(opens_in, _LONGEST_BLINDNESS)
            self._wake_in(opens_in)
        return reserved

    async def _claim_reserved(self, requests: Mapping[Group, ClaimRequest], reserved: Reserved) -> list[Claim]:
        unused = dict(reserved.given)
        claims: list[Claim] = []
        try:
            for group, count in reserved.given.items():
                if count:
                    found = await self._ox.exclusive.tasks.claim(replace(requests[group], limit=count))
                    unused[group] = count - len(found)
                    claims += found
        finally:
            await self._give_back(totals(unused), reserved)
        return claims

    async def _give_back(self, counts: Mapping[str, int], reserved: Reserved) -> None:
        """What can't be given back is lost with its window: fewer starts than allowed, never more."""
        if not counts:
            return
        try:
            await retrying(lambda: self._ox.store.give_back(self._limits, counts, reserved))
        except StoreError as error:
            log(logging.WARNING, "rate_limit_not_given_back", f"starts that didn't happen stay counted: {error}")
        else:
            for name in counts:
                self._closed_until.pop(name, None)

    async def _claim_each(self, requests: Mapping[Group, ClaimRequest]) -> list[Claim]:
        claims: list[Claim] = []
        for each in requests.values():
            if len(claims) < each.limit:
                claims += await self._ox.exclusive.tasks.claim(replace(each, limit=each.limit - len(claims)))
        return claims

    async def _within(self, limit: RateLimit, claims: Sequence[Claim]) -> list[Claim]:
        """Those of the claims that the limit's keys allow; the others go back, to become due when they may run."""
        buckets = {claim.id: self._bucket(limit, claim) for claim in claims}
        counts = Counter(name for name in buckets.values() if name is not None)
        if not counts:
            return list(claims)
        try:
            answers = dict(await retrying(lambda: self._ox.store.draw(limit, counts)))
        except BaseException:
            await self._hand_back(claims, [0.0] * len(claims))
            raise
        left = {name: granted for name, (granted, _) in answers.items()}
        kept: list[Claim] = []
        refused: dict[str, list[Claim]] = {}
        for claim in claims:
            name = buckets[claim.id]
            if name is None or left[name] > 0:
                kept.append(claim)
                if name is not None:
                    left[name] -= 1
            else:
                refused.setdefault(name, []).append(claim)
        for name, rows in refused.items():
            await self._put_off(rows, answers[name][1], limit)
        return kept

    async def _put_off(self, claims: Sequence[Claim], opens_in: float, limit: RateLimit) -> None:
        """Spread over the time that the bucket needs, so that they don't all come back for one token."""
        step = limit.seconds / max(1, limit.limit)
        await self._hand_back(claims, [min(opens_in + place * step, _LONGEST_PUT_OFF) for place in range(len(claims))])
        self._wake_in(opens_in)

    async def _hand_back(self, claims: Sequence[Claim], delays: Sequence[float]) -> None:
        """Unrun, their attempt refunded."""
        now = self._ox.clock.now()
        outcomes = [
            Outcome(
                id=claim.id,
                lease_epoch=claim.lease_epoch,
                settlement=Settlement.snooze(seconds),
                errors=claim.errors,
                run_after=now + timedelta(seconds=seconds),
                finished_at=now,
            )
            for claim, seconds in zip(claims, delays, strict=True)
        ]
        await retrying(lambda: self._ox.store.settle(outcomes))
        await self._ox.exclusive.tasks.release(claims)

    def _bucket(self, limit: RateLimit, claim: Claim) -> str | None:
        """The name of the bucket that a claim draws from, None if it isn't covered."""
        if not limit.covers(claim.task_path, claim.queue_name):
            return None
        return limit.key_name(_key(limit, self._ox.tasks[claim.task_path], claim))

    def _wake_in(self, seconds: float) -> None:
        """Have workers look again when there is something to start."""
        if seconds < math.inf:
            asyncio.get_running_loop().call_later(seconds + 0.001, self._ox.ready_hints.enqueued)


def _of(request: ClaimRequest, group: Group) -> ClaimRequest:
    return replace(request, task_paths=group.task_paths, queues=group.queues, passed_queues=group.passed_queues)


def _key(limit: RateLimit, task: AnyTask, claim: Claim) -> str:
    """What ``by`` says of the arguments, as text; an empty one where it can't say anything."""
    call = Call(json.loads(claim.args), json.loads(claim.kwargs))
    try:
        if callable(limit.by):
            value: Any = limit.by(*call.args, **call.kwargs)
        else:
            bound = task.signature.bind(*call.args, **call.kwargs)
            bound.apply_defaults()
            value = bound.arguments[str(limit.by)]
    except Exception as error:  # the user's function, or arguments that don't fit: the attempt will tell
        log(
            logging.WARNING,
            "rate_limit_key_failed",
            f"the key of the rate limit {limit.name!r} can't be read from a call of {claim.task_path}: {error}",
            error=error,
        )
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
