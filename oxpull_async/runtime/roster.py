"""Which background work there is in this process, for whoever asks after its health."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oxpull_async.runtime.service import Service


class Roster:
    """The services at work, and whatever ended by an error."""

    def __init__(self) -> None:
        self._present: list[Service] = []
        self._lost: list[tuple[object, Exception]] = []

    @property
    def services(self) -> tuple[Service, ...]:
        """Those at work, in the order in which they began."""
        return tuple(self._present)

    @property
    def casualties(self) -> tuple[tuple[object, Exception], ...]:
        """Members that ended by an error, with that error, until they are stopped."""
        return tuple(self._lost)

    @contextmanager
    def present(self, member: object) -> Iterator[None]:
        """For as long as a member is at work."""
        if not isinstance(member, Service):
            yield
            return
        self._present.append(member)
        try:
            yield
        finally:
            self._present.remove(member)

    def lose(self, member: object, error: Exception) -> None:
        """A member has ended by an error."""
        self._lost.append((member, error))

    def forget(self, member: object) -> None:
        """It was to end anyway."""
        self._lost = [(lost, error) for lost, error in self._lost if lost is not member]
