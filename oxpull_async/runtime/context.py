"""What a task with ``takes_context=True`` is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from oxpull_async.results import EnqueueResult
from oxpull_async.runtime.host import Host
from oxpull_async.tasks import Call, P, Task


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """A ``TaskContext`` over one attempt."""

    id: UUID
    attempt: int
    max_attempts: int
    task_path: str
    queue_name: str
    host: Host

    async def enqueue(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Enqueue another task through the Oxpull whose worker runs this one."""
        return await self.host.enqueue_call(task, Call(args, kwargs))
