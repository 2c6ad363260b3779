"""``Exclusive``: which runs of a task keep one another out, checked at the declaration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from oxpull_async.core.exclusivity import check_key_lease, check_places
from oxpull_async.exceptions import InvalidTask


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Which runs of a task keep one another out, over all workers of this library.

    By default those with the same arguments, however they were passed.
    ``by`` names the parameters that count (``()``: all runs of the task), or
    is a function of the arguments as they are stored that returns any JSON
    value. ``limit`` lets so many run at once. ``on_conflict``: who finds no
    place waits for its turn ("wait"), is settled as DISCARDED ("skip"), or has
    a failed attempt ("fail"). The key outlives a worker that dies by
    ``lease``, and by the worker's own lease at least. ``name`` stands in for
    the task's path, to share keys with other tasks and with ``ox.exclusive``.
    """

    by: tuple[str, ...] | Callable[..., Any] | None = None
    limit: int = 1
    on_conflict: Literal["wait", "skip", "fail"] = "wait"
    lease: float | timedelta | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        names = self.by
        if names is not None and not callable(names):
            listed = isinstance(names, Sequence) and not isinstance(names, str)
            if not listed or not all(isinstance(name, str) for name in names):
                raise InvalidTask(
                    f"Exclusive(by=…) takes a tuple of parameter names or a function, not {names!r}; "
                    'for one parameter write by=("name",)'
                )
            object.__setattr__(self, "by", tuple(names))
        if self.on_conflict not in ("wait", "skip", "fail"):
            raise InvalidTask(f'Exclusive(on_conflict=…) is "wait", "skip" or "fail", not {self.on_conflict!r}')
        object.__setattr__(self, "limit", check_places(self.limit))
        object.__setattr__(self, "lease", None if self.lease is None else check_key_lease(self.lease))
        if self.name is not None and not isinstance(self.name, str):
            raise InvalidTask(f"Exclusive(name=…) is a str, not {self.name!r}")
