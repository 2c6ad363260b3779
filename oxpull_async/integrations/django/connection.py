"""The handle of a Django connection that ``ox.bind`` takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction

from oxpull_async.integrations.django._session import DjangoSession


class DjangoConnection:
    """Django's connection ``using``, as the code around has it: ``ox.bind(DjangoConnection())``.

    Django's connections belong to threads. In an async view it's the
    connection of the request's thread, the one that ``sync_to_async`` and the
    async methods of the ORM use; under ``async_to_sync`` it's the one of the
    sync code that called. What is enqueued joins the ``atomic`` block (or
    ``aatomic``) that is open there, and commits and rolls back with it.

    An error or a duplicate leaves the block usable. Where the server has
    undone the whole transaction, that's TransactionRolledBack, and Django
    refuses further queries until the block has ended.
    """

    def __init__(self, using: str = "default") -> None:
        self.using = using

    def __repr__(self) -> str:
        return f"DjangoConnection({self.using!r})"

    def oxpull_session(self) -> DjangoSession:
        """What ``ox.bind`` asks for. Raises: InvalidSettings for a connection that can't serve."""
        return DjangoSession(self.using)

    def on_commit(self, enqueue: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any, **kwargs: Any) -> None:
        """Call ``enqueue(*args, **kwargs)`` once the open transaction has committed; without one, at once.

        For sync code: ``handle.on_commit(ox.enqueue_unique, send_invoice, 42)``.
        The row is written by the Oxpull's own connection. It's lost if the
        process dies between the two commits; bound, it can't be.
        """
        transaction.on_commit(lambda: async_to_sync(enqueue)(*args, **kwargs), using=self.using)
