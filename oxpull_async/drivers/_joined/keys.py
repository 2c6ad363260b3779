"""The ports of unique keys inside a caller's transaction: each operation within a savepoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from oxpull_async.core.uniqueness import HoldTerms
from oxpull_async.drivers import _holds
from oxpull_async.drivers._joined.session import JoinedSession
from oxpull_async.drivers._room import Room
from oxpull_async.drivers._savepoints import guarded
from oxpull_async.ports import Inserted, NewUnique, TaskRow
from oxpull_async.ports_joined import JoinedAnswers
from oxpull_async.ports_keys import Rerun


class JoinedSqlKeyStore:
    """A ``ports_keys.JoinedKeyStore``. ``note`` is told the ids of new task rows."""

    def __init__(self, session: JoinedSession, room: Room, note: Callable[[Iterable[UUID]], None]) -> None:
        self._session = session
        self._room = room
        self._note = note

    async def insert_holds(
        self,
        uniques: Sequence[NewUnique],
        terms: HoldTerms,
        *,
        now: datetime,
        wait_seconds: float | None,
        passes: int,
        current: bool,
    ) -> JoinedAnswers:
        procedure = _holds.insert_joined(
            self._room, uniques, terms, now=now, wait_seconds=wait_seconds, passes=passes, current=current
        )
        joined = await self._session.run(procedure)
        pairs = zip(uniques, joined.answers, strict=True)
        self._note(unique.task.id for unique, answer in pairs if isinstance(answer, Inserted))
        return joined

    async def move(self, seen: TaskRow, run_after: datetime | None, *, wait_seconds: float | None) -> TaskRow | None:
        moved = self._room.revisions.move(seen, run_after, joined=True)
        return await self._session.run(self._room.holds.in_savepoint(moved, wait_seconds))

    async def replace(
        self, seen: TaskRow, key: str, args: str, kwargs: str, *, wait_seconds: float | None
    ) -> TaskRow | None:
        replaced = self._room.revisions.replace(seen, key, args, kwargs, joined=True)
        return await self._session.run(self._room.holds.in_savepoint(replaced, wait_seconds))

    async def ask_rerun(self, rerun: Rerun, *, wait_seconds: float | None) -> None:
        await self._session.run(self._room.holds.in_savepoint(self._room.revisions.put_rerun(rerun), wait_seconds))

    async def drop_reruns(self, keys: Sequence[str]) -> None:
        await self._session.run(guarded(self._room.revisions.drop_reruns(keys)))
