"""All task rows, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

from oxpull_async.ports import Store, TaskRow

_PAGE: Final = 1000


async def every_row(store: Store) -> AsyncIterator[TaskRow]:
    """Each row once, in the order of the ids; rows that come meanwhile may be missed."""
    after: UUID | None = None
    while page := await store.list_tasks(after=after, limit=_PAGE):
        for row in page:
            yield row
        after = page[-1].id
