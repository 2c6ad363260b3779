"""Dependencies of tasks, in FastAPI's manner, by the library ``uncalled-for``.

::

    @ox.task
    async def send(order_id: int, session: AsyncSession = Depends(open_session)) -> None: ...

What ``open_session`` yields is there while the task runs, and is closed after
it. Callers enqueue ``send`` with an order's id alone. A dependency may have
dependencies of its own, and ``Depends(current_task)`` gives the TaskContext.
"""

from __future__ import annotations

from uncalled_for import CallArgument, Depends, Provided, Shared

from oxpull_async._entry import current_context
from oxpull_async.tasks import TaskContext

__all__ = ["CallArgument", "Depends", "Provided", "Shared", "current_task"]


def current_task() -> TaskContext:
    """The context of the task that is being run. Raises: NotOpen elsewhere."""
    context: TaskContext = current_context()
    return context
