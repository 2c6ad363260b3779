"""What a task with ``takes_context=True`` is given."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from oxpull_async.results import EnqueueResult
from oxpull_async.runtime.attempts import Attempt
from oxpull_async.runtime.host import Host
from oxpull_async.tasks import Call, P, Task


class AttemptContext:
    """A ``TaskContext`` over one attempt, made when it begins."""

    def __init__(self, attempt: Attempt, host: Host, timeout: float | None) -> None:
        claim = attempt.claim
        self.id: UUID = claim.id
        self.attempt: int = claim.attempts
        self.max_attempts: int = claim.max_attempts
        self.task_path: str = claim.task_path
        self.queue_name: str = claim.queue_name
        self.deadline: datetime | None = None if timeout is None else host.clock.now() + timedelta(seconds=timeout)
        self._attempt = attempt
        self._host = host

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, never less than 0; None without one."""
        return None if self.deadline is None else max(0.0, (self.deadline - self._host.clock.now()).total_seconds())

    @property
    def cancelled(self) -> bool:
        """Whether the worker wants this attempt to end."""
        return self._attempt.interrupted is not None

    @property
    def fence(self) -> int | None:
        """The fencing token of an exclusive task; None for all others."""
        return self._host.exclusive.tasks.fence(self._attempt.claim)

    @property
    def state(self) -> Any:
        """What the Oxpull's ``task_state`` has opened; None without one."""
        return self._host.task_state_keeper.value

    async def enqueue(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> EnqueueResult:
        """Enqueue another task through the Oxpull whose worker runs this one."""
        return await self._host.enqueue_call(task, Call(args, kwargs))
