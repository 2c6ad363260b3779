"""Where unique keys are kept: as locks, or as holds with terms of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from oxpull_async.core.uniqueness import HoldTerms, is_pending
from oxpull_async.ports import Attempt, Held, NewUnique, Store
from oxpull_async.ports_joined import JoinedAnswers, JoinedStore


class Registry(Protocol):
    """One of the two, as the algorithms see it."""

    async def insert(
        self,
        joined: JoinedStore,
        uniques: Sequence[NewUnique],
        *,
        wait_seconds: float | None,
        passes: int,
        current: bool,
    ) -> JoinedAnswers:
        """Decide every key within the transaction."""
        ...

    async def recheck(self, store: Store, keys: Sequence[str]) -> Mapping[str, Attempt]:
        """What is committed by now, asked outside of the transaction."""
        ...

    def is_held(self, answer: Attempt) -> bool:
        """Whether the key is held, by what was read of its holder."""
        ...


class _Locks:
    async def insert(
        self,
        joined: JoinedStore,
        uniques: Sequence[NewUnique],
        *,
        wait_seconds: float | None,
        passes: int,
        current: bool,
    ) -> JoinedAnswers:
        return await joined.insert_unique(uniques, wait_seconds=wait_seconds, passes=passes, current=current)

    async def recheck(self, store: Store, keys: Sequence[str]) -> Mapping[str, Attempt]:
        return await store.recheck(keys)

    def is_held(self, answer: Attempt) -> bool:
        return isinstance(answer, Held) and answer.row is not None and is_pending(answer.row.status)


LOCKS: Final[Registry] = _Locks()
"""The locks that are shared with the Django side: held while their task is pending."""


@dataclass(frozen=True, slots=True)
class Holds:
    """Keys held on these terms, judged as of ``now``."""

    terms: HoldTerms
    now: datetime

    async def insert(
        self,
        joined: JoinedStore,
        uniques: Sequence[NewUnique],
        *,
        wait_seconds: float | None,
        passes: int,
        current: bool,
    ) -> JoinedAnswers:
        return await joined.keys.insert_holds(
            uniques, self.terms, now=self.now, wait_seconds=wait_seconds, passes=passes, current=current
        )

    async def recheck(self, store: Store, keys: Sequence[str]) -> Mapping[str, Attempt]:
        return await store.keys.recheck_holds(keys)

    def is_held(self, answer: Attempt) -> bool:
        if not isinstance(answer, Held):
            return False
        return self.terms.is_held(None if answer.row is None else answer.row.status, answer.held_until, self.now)
