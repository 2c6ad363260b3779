"""Rate limits: what they cover, and how much of them is left.

Two kinds. A *window* counts starts and is emptied when its time is over; its
row is the one that Django processes count in too. A *bucket* fills evenly, and
each start takes a token out of it. Both go by the database's clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, TypeAlias

from oxpull_async.core.durations import Duration, seconds
from oxpull_async.exceptions import InvalidSettings

MAX_NAME_LENGTH: Final = 128
_DIGEST_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class Window:
    """A row that counts: how many starts there were since it was opened."""

    id: int
    started_at: datetime
    used: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """A row that fills: how many tokens were in it at that instant."""

    tokens: float
    as_of: datetime


Meter: TypeAlias = Window | Bucket


@dataclass(frozen=True)
class RateLimit:
    """At most ``limit`` starts ``per`` so many seconds, of these tasks and of everything in these queues.

    Counted over all processes, retries included. In a window by default,
    which Django processes with a limit of this ``name`` share; then ``per`` is
    whole seconds. ``smooth`` spaces the starts evenly instead, with up to
    ``burst`` (by default one) at once after a pause. With ``by``, each key has
    such a budget of its own: the name of a parameter, or a function of the
    task's arguments; then ``burst`` is ``limit`` unless it's given or smooth.

    ``name`` is derived from what is covered if it's left out. Raises: InvalidSettings.
    """

    limit: int
    per: Duration
    tasks: Iterable[Any] = ()
    queues: Iterable[str] = ()
    by: str | Callable[..., Any] | None = None
    name: str = ""
    smooth: bool = False
    burst: int | None = None
    paths: frozenset[str] = field(init=False)
    """The paths of ``tasks``."""
    queue_names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        _check_whole("limit", self.limit, least=0)
        paths = _names("tasks", [getattr(task, "path", task) for task in _listed("tasks", self.tasks)])
        queues = _names("queues", _listed("queues", self.queues))
        if not paths and not queues:
            raise InvalidSettings("a rate limit covers tasks or queues: give tasks=[…] or queues=[…]")
        self._set(paths=paths, queue_names=queues, tasks=tuple(sorted(paths)), queues=tuple(sorted(queues)))
        self._set(per=self._length(), name=self.name or _derived_name(paths, queues))
        if not isinstance(self.name, str) or len(self.name) > MAX_NAME_LENGTH:
            raise InvalidSettings(f"a rate limit's name has at most {MAX_NAME_LENGTH} characters, unlike {self.name!r}")
        if self.burst is not None:
            _check_whole("burst", self.burst, least=1)
            if not self.is_bucket:
                raise InvalidSettings("burst= goes with smooth=True or by=…; a window has no other size than its limit")
        if self.by is not None and not isinstance(self.by, str) and not callable(self.by):
            raise InvalidSettings(f"by= is the name of a parameter or a function, not {self.by!r}")

    @property
    def is_bucket(self) -> bool:
        """Whether it is kept as a bucket, which Django processes don't know."""
        return self.smooth or self.by is not None

    @property
    def capacity(self) -> int:
        """How many may start at once at most."""
        return self.burst or (1 if self.smooth else self.limit)

    @property
    def seconds(self) -> float:
        """The length that ``limit`` counts for."""
        assert isinstance(self.per, float)
        return self.per

    def covers(self, task_path: str, queue_name: str) -> bool:
        """Whether a start of this task in this queue counts."""
        return task_path in self.paths or queue_name in self.queue_names

    def key_name(self, key: str) -> str:
        """The name of the bucket for one key of ``by``."""
        name = f"{self.name}:{key}"
        if len(name) <= MAX_NAME_LENGTH and name.isascii():
            return name
        digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
        return f"{self.name[: MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}:{digest}"

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _length(self) -> float:
        try:
            length = seconds(self.per, "per")
        except (TypeError, ValueError) as error:
            raise InvalidSettings(str(error)) from error
        if self.is_bucket and length > 0:
            return length
        if length < 1 or length != round(length):
            raise InvalidSettings(
                f"per must be whole seconds, at least one, not {length:g}; smooth=True takes any length"
            )
        return length


def current(limit: RateLimit, meter: Meter, now: datetime) -> Meter:
    """The meter as it is now: a window that is over begins anew, a bucket has filled.

    So does a window from further in the future than its length: the clock was
    set back. A little is nothing strange, since others may have been faster.
    """
    match meter:
        case Window():
            is_current = abs((now - meter.started_at).total_seconds()) < limit.seconds
            return meter if is_current else Window(meter.id + 1, now, 0)
        case Bucket():
            filled = max(0.0, (now - meter.as_of).total_seconds()) * limit.limit / limit.seconds
            return Bucket(min(limit.capacity, meter.tokens + filled), max(now, meter.as_of))


def left(limit: RateLimit, meter: Meter) -> int:
    """How many starts a current meter allows."""
    match meter:
        case Window():
            return max(0, limit.limit - meter.used)
        case Bucket():
            return math.floor(meter.tokens + 1e-9)


def drawn(limit: RateLimit, meter: Meter, count: int) -> Meter:
    """A current meter after so many starts."""
    match meter:
        case Window():
            return replace(meter, used=meter.used + count)
        case Bucket():
            return replace(meter, tokens=meter.tokens - count)


def opens_at(limit: RateLimit, meter: Meter) -> datetime | None:
    """When a current meter that allows nothing allows something again; None for a limit of nothing."""
    if limit.limit == 0:
        return None
    match meter:
        case Window():
            return meter.started_at + timedelta(seconds=limit.seconds)
        case Bucket():
            return meter.as_of + timedelta(seconds=(1 - meter.tokens) * limit.seconds / limit.limit)


def full_at(limit: RateLimit, bucket: Bucket) -> datetime:
    """When a bucket is like one that was never drawn from, if nobody draws from it."""
    return bucket.as_of + timedelta(seconds=(limit.capacity - bucket.tokens) * limit.seconds / limit.limit)


def check_together(limits: Sequence[RateLimit]) -> None:
    """Some databases compare names without regard to case. Raises: InvalidSettings for two of one name."""
    taken: dict[str, str] = {}
    for limit in limits:
        if (rival := taken.setdefault(limit.name.casefold(), limit.name)) != limit.name or sum(
            other.name == limit.name for other in limits
        ) > 1:
            raise InvalidSettings(f"two rate limits are named {limit.name!r} and {rival!r}; give them different names")


def _derived_name(paths: Iterable[str], queues: Iterable[str]) -> str:
    covered = ", ".join([*sorted(paths), *(f"queue {name}" for name in sorted(queues))])
    if len(covered) <= MAX_NAME_LENGTH:
        return covered
    digest = sha256(covered.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{covered[: MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}:{digest}"


def _listed(what: str, value: Any) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise InvalidSettings(f"{what}= is a list, not {value!r}")
    return list(value)


def _names(what: str, names: Iterable[Any]) -> frozenset[str]:
    for name in (found := list(names)):
        if not isinstance(name, str) or not name:
            raise InvalidSettings(f"{what}= holds {name!r}, which names nothing")
    return frozenset(found)


def _check_whole(what: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidSettings(f"{what} must be a whole number of at least {least}, not {value!r}")
