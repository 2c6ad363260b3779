"""Deletes batches that were completed long ago, with their members."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from oxpull_async._contention import retrying
from oxpull_async.ports import Store

_BATCHES = 100
_MEMBERS = 1000


async def prune_batches(store: Store, completed_before: datetime) -> int:
    """Members by the 1000, each batch with the last of them; returns how many batches.

    Task rows are left as they are; a batch's progress can't be asked for any more.
    """
    pruned = 0
    while True:
        found = await store.batches.find_prunable(completed_before=completed_before, limit=_BATCHES)
        for batch_id in found:
            while await retrying(partial(store.batches.prune_members, batch_id, limit=_MEMBERS)) == _MEMBERS:
                pass
        pruned += len(found)
        if len(found) < _BATCHES:
            return pruned
