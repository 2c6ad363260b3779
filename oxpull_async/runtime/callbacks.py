"""From a batch's row to the task rows of its callbacks: the row has a path and arguments, the rest is declared here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from oxpull_async._ids import new_id
from oxpull_async.core.names import check_run_after
from oxpull_async.exceptions import InvalidTask
from oxpull_async.ports import NewTask
from oxpull_async.ports_batches import BatchRow, SealedBatch
from oxpull_async.settings import Settings
from oxpull_async.tasks import AnyTask


@dataclass(frozen=True, slots=True)
class CallbackRows:
    """The task rows to be enqueued; ``on_success`` only if all members have succeeded."""

    on_complete: NewTask | None
    on_success: NewTask | None


class Callbacks:
    """The callbacks that this process knows."""

    def __init__(self, settings: Settings, tasks: Callable[[], Mapping[str, AnyTask]]) -> None:
        self._settings = settings
        self._tasks = tasks

    @property
    def paths(self) -> list[str]:
        """The paths that can be callbacks here, sorted."""
        return sorted(self._tasks())

    def unknown(self, batch: SealedBatch) -> list[str]:
        """The batch's callbacks that no task here has as its path: nothing tells how to route them."""
        tasks = self._tasks()
        return [path for path in (batch.on_complete_path, batch.on_success_path) if path and path not in tasks]

    def rows_for(self, batch: BatchRow, now: datetime) -> CallbackRows:
        """New rows for both callbacks. Raises: InvalidTask where one of them can't be enqueued as it is declared."""
        return CallbackRows(
            self._row(batch.on_complete_path, batch.on_complete_args, batch.on_complete_kwargs, now),
            self._row(batch.on_success_path, batch.on_success_args, batch.on_success_kwargs, now),
        )

    def _row(self, path: str, args: str, kwargs: str, now: datetime) -> NewTask | None:
        if not path:
            return None
        task = self._tasks()[path]
        options, settings = task.options, self._settings
        if options.unique is not None or path in settings.unique_tasks:
            raise InvalidTask(f"the callback {path} is unique by now; make it a plain task again")
        if settings.queues is not None and options.queue_name not in settings.queues:
            raise InvalidTask(
                f"the callback {path} goes to the queue {options.queue_name!r}, which isn't among queues="
                f"{sorted(settings.queues)}"
            )
        return NewTask(
            id=new_id(),
            task_path=path,
            args=args,
            kwargs=kwargs,
            queue_name=options.queue_name,
            priority=options.priority,
            takes_context=options.takes_context,
            backend_name=options.backend_name or settings.backend_name,
            run_after=None if options.run_after is None else check_run_after(options.run_after, now),
            max_attempts=options.max_attempts or settings.max_attempts,
            enqueued_at=now,
        )
