"""Batches for the store, with defaults, and what a batch's row says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from oxpull_async._ids import new_id
from oxpull_async.ports import NewTask, NewUnique, Store
from oxpull_async.ports_batches import (
    Added,
    Addition,
    BatchClosed,
    BatchRow,
    Completed,
    Completion,
    CompletionAnswer,
    NewBatch,
)
from tests.conformance.rows import new_task, now

CALLBACK = "proof.tasks.callback"


def new_batch(**changes: Any) -> NewBatch:
    """A batch to be created."""
    batch = NewBatch(
        id=new_id(), name="proof", on_complete_path=CALLBACK, on_complete_args="[1]", on_complete_kwargs='{"x": 2}',
        on_success_path="", on_success_args="[]", on_success_kwargs="{}", created_at=now(),
    )  # fmt: skip
    return replace(batch, **changes)


async def opened(store: Store, **changes: Any) -> UUID:
    """An OPEN batch."""
    batch = new_batch(**changes)
    await store.batches.create(batch)
    return batch.id


async def add(
    store: Store, batch_id: UUID, tasks: Sequence[NewTask] = (), uniques: Sequence[NewUnique] = ()
) -> Added | BatchClosed:
    return await store.batches.add(Addition(batch_id, tasks, uniques, now()), wait_seconds=5, passes=5)


async def filled(store: Store, *, count: int = 2, **changes: Any) -> tuple[UUID, list[NewTask]]:
    """An OPEN batch with members, in the order of their ids."""
    batch_id = await opened(store, **changes)
    tasks = [new_task() for _ in range(count)]
    assert await add(store, batch_id, tasks) == Added()
    return batch_id, tasks


async def sealed(store: Store, *, count: int = 2, **changes: Any) -> tuple[UUID, list[NewTask]]:
    """A SEALED batch with members."""
    batch_id, tasks = await filled(store, count=count, **changes)
    await store.batches.seal(batch_id, now=now())
    return batch_id, tasks


async def complete(
    store: Store, batch_id: UUID, on_complete: NewTask | None = None, on_success: NewTask | None = None
) -> CompletionAnswer:
    return await store.batches.complete(Completion(batch_id, on_complete, on_success, now()))


async def completed(store: Store, *, count: int = 0) -> UUID:
    """A COMPLETE batch whose members are DISCARDED."""
    batch_id, tasks = await sealed(store, count=count)
    await store.discard([task.id for task in tasks], now=now())
    assert isinstance(await complete(store, batch_id), Completed)
    return batch_id


async def batch(store: Store, batch_id: UUID) -> BatchRow:
    """The row, which is there."""
    found = await store.batches.get(batch_id)
    assert found is not None
    return found
