"""Rate limits over a room's meters: lock them, decide, write them, in one transaction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from oxpull_async.core.allotments import Group, Head, allotted, totals
from oxpull_async.core.limits import Bucket, Meter, RateLimit, Window, current, drawn, full_at, left, opens_at
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.drivers._room import Room
from oxpull_async.exceptions import LockNotAvailable
from oxpull_async.ports import ClaimRequest
from oxpull_async.ports_limits import Reserved

Meters: TypeAlias = dict[str, tuple[Meter, datetime]]

_LOOKS: Final = 3


def peek(room: Room, requests: Mapping[Group, ClaimRequest]) -> Procedure[dict[Group, Sequence[Head]]]:
    """One look after another."""
    heads: dict[Group, Sequence[Head]] = {}
    for group, request in requests.items():
        heads[group] = yield from room.limits.peek(request)
    return heads


def reserve(room: Room, limits: Sequence[RateLimit], asked: Mapping[Group, int]) -> Procedure[Reserved]:
    """Within a transaction."""
    concerned = {name for group in asked for name in group.limits}
    by_name = {limit.name: limit for limit in limits if limit.name in concerned}
    meters = yield from _locked(room, by_name)
    given = allotted(asked, {name: left(by_name[name], meter) for name, (meter, _) in meters.items()})
    used = totals(given)
    after: Meters = {
        name: (drawn(by_name[name], meter, used.get(name, 0)), now) for name, (meter, now) in meters.items()
    }
    yield from _write(room, by_name, {name: after[name][0] for name in used})
    return Reserved(
        given=given,
        window_ids={name: meter.id for name, (meter, _) in after.items() if isinstance(meter, Window)},
        closed={
            name: _opens_in(by_name[name], *after[name]) for name in after if not left(by_name[name], after[name][0])
        },
    )


def draw(room: Room, limit: RateLimit, counts: Mapping[str, int]) -> Procedure[dict[str, tuple[int, float]]]:
    """Within a transaction: from a bucket for each name."""
    meters = yield from _locked(room, dict.fromkeys(counts, limit))
    answers: dict[str, tuple[int, float]] = {}
    after: dict[str, Meter] = {}
    for name, (meter, now) in meters.items():
        granted = min(counts[name], left(limit, meter))
        after[name] = drawn(limit, meter, granted)
        answers[name] = granted, _opens_in(limit, after[name], now)
    drawn_from = {name: meter for name, meter in after.items() if answers[name][0]}
    yield from _write(room, dict.fromkeys(drawn_from, limit), drawn_from)
    return answers


def give_back(
    room: Room, limits: Sequence[RateLimit], counts: Mapping[str, int], reserved: Reserved
) -> Procedure[None]:
    """Within a transaction, in the order of ``reserve``."""
    by_name = {limit.name: limit for limit in limits}
    for name in _in_order(counts, by_name):
        if by_name[name].is_bucket:
            yield from room.limits.refill(name, counts[name], by_name[name].capacity)
        else:
            yield from room.limits.uncount(name, reserved.window_ids[name], counts[name])


def _locked(room: Room, limits: Mapping[str, RateLimit]) -> Procedure[Meters]:
    """As they are now; those that nobody has drawn from yet are made."""
    for _ in range(_LOOKS):
        windows = [name for name in sorted(limits) if not limits[name].is_bucket]
        buckets = [name for name in sorted(limits) if limits[name].is_bucket]
        found: Meters = {}
        if windows:
            found |= yield from room.limits.lock_windows(windows)
        if buckets:
            found |= yield from room.limits.lock_buckets(buckets)
        missing = [name for name in [*windows, *buckets] if name not in found]
        if not missing:
            return {name: (current(limits[name], meter, now), now) for name, (meter, now) in found.items()}
        for name in missing:
            if limits[name].is_bucket:
                yield from room.limits.make_bucket(name, limits[name].capacity)
            else:
                yield from room.limits.make_window(name)
    raise LockNotAvailable("the rows of rate limits went away each time they were made")


def _write(room: Room, limits: Mapping[str, RateLimit], meters: Mapping[str, Meter]) -> Procedure[None]:
    for name, meter in meters.items():
        match meter:
            case Window():
                yield from room.limits.write_window(name, meter)
            case Bucket():
                yield from room.limits.write_bucket(name, meter, full_at(limits[name], meter))


def _in_order(names: Mapping[str, int], limits: Mapping[str, RateLimit]) -> list[str]:
    return sorted(names, key=lambda name: (limits[name].is_bucket, name))


def _opens_in(limit: RateLimit, meter: Meter, now: datetime) -> float:
    opens = opens_at(limit, meter)
    return math.inf if opens is None else max(0.0, (opens - now).total_seconds())
