"""Exclusive execution: what a key is called, and who gets it next.

A key has so many places (one, unless told otherwise). Whoever holds one has
a fencing token, a number that grows with each acquisition of the key, and a
lease by the database's clock. A place that becomes free is kept for who is
first in line, for a short time; only what nobody waits for goes to a caller
who has just come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from oxpull_async.core.durations import Duration, seconds
from oxpull_async.exceptions import InvalidTask

RESERVED_SECONDS: Final = 10.0
"""How long a place is kept for who is first in line."""
PATIENCE_SECONDS: Final = 30.0
"""How long a caller's place in line lasts unless it asks again."""
IDLE_SECONDS: Final = 86_400.0
"""How long a key is remembered that nobody uses."""

SHORTEST_LEASE_SECONDS: Final = 1.0
SHORTEST_SECONDS: Final = 0.05
"""How soon a caller is told to look again at the earliest."""

_LONGEST_NAME: Final = 255
_LONGEST_LEASE_SECONDS: Final = 366 * 86_400.0
_MOST_PLACES: Final = 1_000_000
_FIRST_POLL_SECONDS: Final = 0.05
_LONGEST_POLL_SECONDS: Final = 1.0


def mutex_name(prefix: str, values: Mapping[str, Any]) -> str:
    """What a task's key is called: the prefix alone, or with the one string, or with all values as JSON."""
    if not values:
        return prefix
    if len(values) == 1:
        (value,) = values.values()
        return f"{prefix}:{value}" if isinstance(value, str) else f"{prefix}:{_canonical(value)}"
    return f"{prefix}:{_canonical(dict(values))}"


def check_places(value: object) -> int:
    """How many may hold a key at once. Raises: InvalidTask."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_PLACES:
        raise InvalidTask(f"limit must be a whole number from 1 to {_MOST_PLACES}, not {value!r}")
    return value


def check_key_lease(value: Duration) -> float:
    """How long a key outlives its holder, in seconds. Raises: InvalidTask."""
    try:
        number = seconds(value, "lease")
    except (TypeError, ValueError) as error:
        raise InvalidTask(str(error)) from error
    if not SHORTEST_LEASE_SECONDS <= number <= _LONGEST_LEASE_SECONDS:
        raise InvalidTask(
            f"lease must be from {SHORTEST_LEASE_SECONDS:g} to {_LONGEST_LEASE_SECONDS:g} seconds, not {number:g}"
        )
    return number


def mutex_key(name: str) -> str:
    """The key under which a name is stored, whatever its length and characters: 64 hex digits."""
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def shown_name(name: str) -> str:
    """The name as every engine can store it, for people to read."""
    storable = name.encode("utf-8", "replace").decode("utf-8").replace("\0", "�")
    return storable if len(storable) <= _LONGEST_NAME else f"{storable[: _LONGEST_NAME - 1]}…"


def poll_pause(polls: int, chance: float) -> float:
    """Seconds until who waits looks again, after so many looks: twice as long each time, within bounds.

    ``chance``, from 0 to 1, spreads those who began together.
    """
    doubled: float = _FIRST_POLL_SECONDS * 2 ** min(polls, 16)
    return min(doubled, _LONGEST_POLL_SECONDS) * (0.5 + chance / 2)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a place, or has one kept. ``remaining``: seconds until its lease is over."""

    number: int
    owner: UUID
    is_reserved: bool
    remaining: float


class Line:
    """The places of one key while it's decided who gets them. It must be locked meanwhile.

    ``first``: who is first in line still, after everything free was kept for
    those before; None if nobody waits.
    """

    def __init__(self, holders: Sequence[Holder], *, last_number: int, drawn: int, first: UUID | None) -> None:
        self._holders = list(holders)
        self._numbers = iter(range(last_number - drawn + 1, last_number + 1))
        self._first = first

    def draw(self) -> int:
        """The next number: a fencing token for who takes a place, else a place in line."""
        return next(self._numbers)

    def take(self, owner: UUID, capacity: int, lease_seconds: float) -> Taken | None:
        """A place for this caller: the one that is kept for it, or one that is free; None if there's neither."""
        reserved = next((held for held in self._holders if held.is_reserved and held.owner == owner), None)
        if reserved is None and (self._first is not None or len(self._holders) >= capacity):
            return None
        if reserved is not None:
            self._holders.remove(reserved)
        token = self.draw()
        self._holders.append(Holder(token, owner, False, lease_seconds))
        return Taken(token, None if reserved is None else reserved.number)

    def backstop(self, owner: UUID, lease_seconds: float) -> float:
        """In how many seconds a waiting task looks again, if it isn't told before.

        The first in line looks as soon as a lease may be over. The others
        needn't, since the first one's run leads to theirs; only if that is
        gone do they look, a lease later.
        """
        soonest = max(SHORTEST_SECONDS, min((held.remaining for held in self._holders), default=0.0))
        if self._first is None:
            self._first = owner
        return soonest if self._first == owner else soonest + lease_seconds

    def held_by(self, owner: UUID) -> int | None:
        """The token under which this caller has a place already."""
        return next((held.number for held in self._holders if held.owner == owner and not held.is_reserved), None)


@dataclass(frozen=True, slots=True)
class Taken:
    """A place was taken under this fencing token; ``reservation``: the number under which it had been kept."""

    token: int
    reservation: int | None


def _canonical(value: object) -> str:
    """A default need not be a JSON value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
