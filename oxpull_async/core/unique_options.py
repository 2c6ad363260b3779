"""``Unique``: what makes two calls of a task the same, for how long, and what the second one does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, get_args

from oxpull_async.core.durations import seconds
from oxpull_async.core.uniqueness import HeldWhile, HoldTerms, OnDuplicate
from oxpull_async.exceptions import InvalidTask

_LONGEST_SECONDS: Final = 365_250 * 86_400.0  # no instant of ours lies beyond the calendar's end


@dataclass(frozen=True, slots=True)
class Unique:
    """What makes two calls of a task the same, how long the first holds its key, and what the second does.

    ``by``: by default the task's path, its queue and all arguments, as they
    are written: ``f(1)`` and ``f(a=1)`` differ. Or the names of the parameters
    that count, ``"order.id"`` for a field of one, or a function of the
    arguments that returns any JSON value.

    ``hold``: the key is held while the task is ``"pending"`` (READY or
    RUNNING), or only while it is ``"ready"``: released when it starts, so
    that one runs and one more waits. ``window``: also held for so long after
    the enqueue, even when the task has ended by then.

    ``on_duplicate``: ``"return"`` the holder, ``"raise"`` DuplicateTask,
    ``"reschedule"`` a READY holder to when the duplicate was to run (at most
    ``max_delay`` after the holder's enqueue), ``"replace"`` the arguments of a
    READY holder, or ``"rerun"``: as ``"replace"``, and if the holder runs
    already, exactly one more run with the latest arguments when it has ended.

    Durations are seconds or a ``timedelta``. The key of ``Unique()`` is shared
    with Django processes on the same tables; the keys of any other are this
    library's own. Raises: InvalidTask for a combination that can't be kept.
    """

    by: tuple[str, ...] | Callable[..., Any] | None = None
    hold: HeldWhile = "pending"
    window: float | timedelta | None = None
    on_duplicate: OnDuplicate = "return"
    max_delay: float | timedelta | None = None
    is_plain: bool = field(init=False, repr=False, compare=False, default=True)
    """Whether this says nothing but what ``by`` says."""
    terms: HoldTerms | None = field(init=False, repr=False, compare=False, default=None)
    """For how long a hold lasts; None where a lock does."""

    def __post_init__(self) -> None:
        _check_by(self.by)
        if isinstance(self.by, Sequence):
            object.__setattr__(self, "by", tuple(self.by))
        _check_word("hold", self.hold, get_args(HeldWhile))
        _check_word("on_duplicate", self.on_duplicate, get_args(OnDuplicate))
        window = _duration("window", self.window)
        object.__setattr__(self, "window", window)
        object.__setattr__(self, "max_delay", _duration("max_delay", self.max_delay))
        _check_together(self)
        if self.hold != "pending" or window is not None:
            object.__setattr__(self, "terms", HoldTerms(self.hold, window))
        object.__setattr__(self, "is_plain", self.terms is None and self.on_duplicate == "return")

    @property
    def max_delay_seconds(self) -> float | None:
        """The normalised ``max_delay``."""
        return None if self.max_delay is None else seconds(self.max_delay, "max_delay")


def _check_by(by: object) -> None:
    if inspect.iscoroutinefunction(by):
        raise InvalidTask(f"Unique(by=…) takes a function that says at once what counts, not the coroutine {by!r}")
    if by is None or callable(by):
        return
    if not isinstance(by, Sequence) or isinstance(by, str) or not by or not all(isinstance(name, str) for name in by):
        raise InvalidTask(
            f"Unique(by=…) takes a tuple of parameter names or a function, not {by!r}; "
            'for one parameter write by=("name",)'
        )


def _check_word(option: str, value: object, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InvalidTask(f"Unique({option}=…) takes one of {', '.join(map(repr, words))}, not {value!r}")


def _duration(option: str, value: float | timedelta | None) -> float | None:
    if value is None:
        return None
    try:
        found = seconds(value, option)
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"Unique({option}=…): {error}") from error
    if not 0 < found <= _LONGEST_SECONDS:
        raise InvalidTask(f"Unique({option}=…) must be more than nothing and within 1000 years, not {found:g} seconds")
    return found


def _check_together(unique: Unique) -> None:
    """Refuse what can't be kept, or would mean nothing."""
    complaint = None
    if unique.max_delay is not None and unique.on_duplicate != "reschedule":
        complaint = 'max_delay bounds on_duplicate="reschedule", and means nothing without it'
    elif unique.on_duplicate == "replace" and unique.by is None:
        complaint = 'on_duplicate="replace" changes nothing where all arguments make the key; say by=… too'
    elif unique.on_duplicate == "rerun" and unique.hold == "ready":
        complaint = 'hold="ready" lets a further run wait already; use on_duplicate="replace" with it'
    elif unique.on_duplicate == "rerun" and unique.window is not None:
        complaint = 'window=… keeps a task from running again, on_duplicate="rerun" asks for it'
    if complaint:
        raise InvalidTask(f"Unique: {complaint}")
