"""What a dialect's room must offer for exclusive execution: ``exclusive.py`` of a room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from oxpull_async.core.exclusivity import Holder
from oxpull_async.drivers._procedure import Procedure
from oxpull_async.ports import Claim, ClaimRequest
from oxpull_async.ports_exclusive import Candidate, HeldPlace, KeyHolder

Place: TypeAlias = tuple[str, int]
"""A key and a number drawn for it: the primary key of holders and of waiters."""


class NewHolder(NamedTuple):
    """A place that is taken or kept from now on."""

    key: str
    number: int
    owner: UUID
    is_reserved: bool
    lease_seconds: float


class NewWaiter(NamedTuple):
    """A place in line: a task's has a ``run_after``, a caller's a length of time after which it's forgotten."""

    key: str
    number: int
    owner: UUID
    capacity: int
    run_after: datetime | None
    patience_seconds: float | None


class KeyState(NamedTuple):
    """Who holds a key, over leases included, and who is first in line for it."""

    holders: list[Holder]
    first: UUID | None


class Head(NamedTuple):
    """Who is first in line for a key of which ``taken`` places are."""

    key: str
    number: int
    owner: UUID
    capacity: int
    run_after: datetime | None
    is_there: bool
    taken: int


class ExclusiveProcedures(Protocol):
    """Steps within a transaction; who holds or waits for a key is changed only under the lock of its row.

    Nothing is asked for no rows at all: the sequences have at least one item.
    """

    def draw(self, names: dict[str, str], count: int) -> Procedure[tuple[dict[str, int], dict[str, KeyState]]]:
        """Lock the rows of these keys, and draw so many numbers for each; the last ones, and who has the keys."""
        ...

    def lock(self, keys: Sequence[str]) -> Procedure[None]: ...

    def read(self, keys: Sequence[str]) -> Procedure[dict[str, KeyState]]: ...

    def delete_expired(self, keys: Sequence[str]) -> Procedure[None]: ...

    def insert_holders(self, holders: Sequence[NewHolder]) -> Procedure[None]: ...

    def delete_holders(self, places: Sequence[HeldPlace]) -> Procedure[None]: ...

    def release(self, places: Sequence[HeldPlace]) -> Procedure[int]:
        """Run by ``write``, without the lock of the keys; how many were there."""
        ...

    def insert_waiters(self, waiters: Sequence[NewWaiter]) -> Procedure[None]: ...

    def find_heads(self, keys: Sequence[str]) -> Procedure[list[Head]]: ...

    def find_dead_waiters(self, keys: Sequence[str]) -> Procedure[list[Place]]: ...

    def delete_waiters(self, places: Sequence[Place]) -> Procedure[None]: ...

    def delete_owner(self, key: str, owner: UUID) -> Procedure[None]: ...

    def renew(self, places: Sequence[HeldPlace]) -> Procedure[set[Place]]:
        """Run by ``write``."""
        ...

    def find_holders(self, places: Sequence[HeldPlace]) -> Procedure[set[Place]]: ...

    def lock_due(self, request: ClaimRequest, limit: int) -> Procedure[list[Candidate]]: ...

    def grant(
        self, request: ClaimRequest, task_ids: Sequence[UUID], holders: Sequence[NewHolder]
    ) -> Procedure[list[Claim]]:
        """These places may be none."""
        ...

    def postpone(self, moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]: ...

    def skip(self, reasons: Sequence[tuple[UUID, str]], now: datetime) -> Procedure[None]: ...

    def wake(self, moves: Sequence[tuple[UUID, datetime]]) -> Procedure[None]: ...

    def find_idle(self, idle_seconds: float, limit: int) -> Procedure[list[str]]: ...

    def delete_mutexes(self, keys: Sequence[str]) -> Procedure[None]: ...

    def list_holders(self, key: str | None, limit: int) -> Procedure[list[KeyHolder]]: ...
