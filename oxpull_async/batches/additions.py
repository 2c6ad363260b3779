"""What ``add_many`` reports: one item for each call, kept in a few bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload
from uuid import UUID

_CREATED, _REPEATED = 1, 2


class Addition(NamedTuple):
    """What became of one call."""

    id: UUID
    """The task row that is the member."""
    created: bool
    """False where a pending task with the same key was there already, and has joined in its place."""
    already_member: bool
    """The batch had that task before this call, so nothing was added."""


class Additions(Sequence[Addition]):
    """One item for each call, in order: 17 bytes each, for there may be millions."""

    def __init__(self) -> None:
        self._ids = bytearray()
        self._flags = bytearray()
        self.added: int = 0
        """How many members the batch has gained."""
        self.created: int = 0
        """How many task rows were written."""

    def extend(self, additions: Iterable[Addition]) -> None:
        """Append what became of further calls."""
        for task_id, created, repeated in additions:
            self._ids += task_id.bytes
            self._flags.append(created * _CREATED | repeated * _REPEATED)
            self.created += created
            self.added += not repeated

    def extend_created(self, task_ids: Sequence[UUID]) -> None:
        """Append calls that each wrote a task row."""
        self._ids += b"".join([task_id.bytes for task_id in task_ids])
        self._flags += bytes([_CREATED]) * len(task_ids)
        self.created += len(task_ids)
        self.added += len(task_ids)

    def __len__(self) -> int:
        return len(self._flags)

    @overload
    def __getitem__(self, index: int) -> Addition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Addition]: ...
    def __getitem__(self, index: int | slice) -> Addition | list[Addition]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        flags = self._flags[index]
        place = index % len(self._flags)
        task_id = UUID(bytes=bytes(self._ids[16 * place : 16 * place + 16]))
        return Addition(task_id, bool(flags & _CREATED), bool(flags & _REPEATED))

    def __repr__(self) -> str:
        return f"<Additions: {len(self)} calls, {self.added} added, {self.created} created>"
