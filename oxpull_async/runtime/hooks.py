"""Hooks: functions of the user's that are told what has happened, after it was committed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, TypeVar, overload

from oxpull_async.exceptions import InvalidTask
from oxpull_async.telemetry import log

Event: TypeAlias = Literal["enqueued", "started", "finished", "reclaimed"]
Hook: TypeAlias = Callable[..., Any]
H = TypeVar("H", bound=Hook)

_EVENTS: Final = ("enqueued", "started", "finished", "reclaimed")


class Hooks:
    """The registered hooks of one Oxpull, sync or async, called in the order of their registration."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {event: [] for event in _EVENTS}

    def add(self, event: Event, hook: H) -> H:
        """Register a hook. Raises: InvalidTask for an event that doesn't exist, and for what can't be called."""
        if event not in self._hooks:
            raise InvalidTask(f"there is no event {event!r}; the events are {', '.join(_EVENTS)}")
        if not callable(hook):
            raise InvalidTask(f"a hook for {event!r} must be a function, not {hook!r}")
        self._hooks[event].append(hook)
        return hook

    def wants(self, event: Event) -> bool:
        """Whether anybody listens."""
        return bool(self._hooks[event])

    async def call(self, event: Event, subject: Any) -> None:
        """Tell every hook. What a hook raises is logged, and never reaches the work."""
        for hook in self._hooks[event]:
            try:
                answer = hook(subject)
                if inspect.isawaitable(answer):
                    await answer
            except Exception as error:
                log(
                    logging.ERROR,
                    "hook_failed",
                    f"a hook for {event!r} raised {type(error).__name__}",
                    error=error,
                    hook_event=event,
                )


class Hooked:
    """Where hooks are registered: a part of the ``Oxpull``."""

    hooks: Hooks
    """The registered hooks."""

    @overload
    def on(self, event: Event, hook: H) -> H: ...
    @overload
    def on(self, event: Event, hook: None = None) -> Callable[[H], H]: ...
    def on(self, event: Event, hook: H | None = None) -> Any:
        """Call ``hook`` after each such event: ``ox.on("enqueued", hook)``, or as a decorator.

        ``"enqueued"`` gives the EnqueueResult of each new row, after its
        commit, but not those bound to a transaction of yours, nor reruns,
        which are written together with their holder's outcome. A hook may be sync or async; what it raises is logged.
        """
        if hook is None:
            return lambda decorated: self.hooks.add(event, decorated)
        return self.hooks.add(event, hook)
