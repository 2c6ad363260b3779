"""Deletes batches that were completed long ago, with their members."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from oxpull_async._contention import retrying
from oxpull_async.ports import Store

_BATCHES = 100
_MEMBERS = 1000


async def prune_batches(store: Store, completed_before: datetime) -> int:
    """Chunk by chunk; returns how many batches.

    Task rows are left as they are; a batch's progress can't be asked for any more.
    """
    pruned, is_full = 0, True
    while is_full:
        done, is_full = await prune_batch_chunk(store, completed_before)
        pruned += done
    return pruned


async def prune_batch_chunk(store: Store, completed_before: datetime) -> tuple[int, bool]:
    """A thousand members or few more, each batch with the last of its own.

    Returns how many batches are gone, and whether there may be more to delete.
    """
    found = await store.batches.find_prunable(completed_before=completed_before, limit=_BATCHES)
    members = 0
    for gone, batch_id in enumerate(found):
        done = await retrying(partial(store.batches.prune_members, batch_id, limit=_MEMBERS))
        members += done
        if done == _MEMBERS:
            return gone, True
        if members >= _MEMBERS:
            return gone + 1, True
    return len(found), len(found) == _BATCHES
