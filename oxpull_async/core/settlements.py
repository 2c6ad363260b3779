"""What becomes of a row whose attempt has ended, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from oxpull_async.core.failures import ErrorRecord
from oxpull_async.core.statuses import TaskStatus


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of one attempt. Make one with ``success``, ``retry``, ``failure``, ``discard`` or ``snooze``.

    ``return_value`` is JSON text (None: the task returned None) and only a success has one;
    ``error`` is the record to append, and every outcome but success and snooze has one;
    ``delay_seconds`` is set exactly where the row goes back to READY.
    """

    status: TaskStatus
    return_value: str | None = None
    error: ErrorRecord | None = None
    delay_seconds: float | None = None

    def __post_init__(self) -> None:
        succeeded = self.status is TaskStatus.SUCCESSFUL
        goes_back = self.status is TaskStatus.READY
        if not (succeeded or goes_back or self.status in (TaskStatus.FAILED, TaskStatus.DISCARDED)):
            raise ValueError(f"an attempt can't end as {self.status}")
        if succeeded and self.error is not None:
            raise ValueError("a success has no error")
        if self.error is None and not (succeeded or goes_back):
            raise ValueError("an attempt ends either in success or with an error")
        if self.return_value is not None and not succeeded:
            raise ValueError("only a success has a return value")
        if goes_back is not (self.delay_seconds is not None):
            raise ValueError("a delay belongs to a row that goes back, and such a row has one")

    @classmethod
    def success(cls, return_value_json: str | None) -> Settlement:
        """The attempt returned; None for a task that returned None, which is stored as NULL."""
        return _NOTHING_RETURNED if return_value_json is None else cls(TaskStatus.SUCCESSFUL, return_value_json)

    @classmethod
    def retry(cls, error: ErrorRecord, delay_seconds: float) -> Settlement:
        """The attempt failed, and the row is claimable again after the delay."""
        return cls(TaskStatus.READY, error=error, delay_seconds=delay_seconds)

    @classmethod
    def failure(cls, error: ErrorRecord) -> Settlement:
        """The attempt failed, and it was the last."""
        return cls(TaskStatus.FAILED, error=error)

    @classmethod
    def discard(cls, error: ErrorRecord) -> Settlement:
        """The task has given itself up."""
        return cls(TaskStatus.DISCARDED, error=error)

    @classmethod
    def snooze(cls, delay_seconds: float) -> Settlement:
        """The task wants to run later, and the attempt doesn't count."""
        return cls(TaskStatus.READY, delay_seconds=delay_seconds)

    @property
    def finishes(self) -> bool:
        """Whether the row is settled by this; one that goes back leaves ``finished_at`` alone."""
        return self.status is not TaskStatus.READY

    @property
    def refunds(self) -> bool:
        """Whether the attempt is given back, as if the row had never been claimed."""
        return self.status is TaskStatus.READY and self.error is None


_NOTHING_RETURNED = Settlement(TaskStatus.SUCCESSFUL)


def may_retry(attempts: int, max_attempts: int) -> bool:
    """Whether the row's budget, never the code's current one, allows a further attempt."""
    return attempts < max_attempts


def decide_failure(error: ErrorRecord, *, attempts: int, max_attempts: int, delay_seconds: float | None) -> Settlement:
    """A retry while the row's budget lasts and a delay is given, else a failure.

    ``attempts`` counts the one that has just failed; no delay means that the task declines a retry.
    """
    if delay_seconds is None or not may_retry(attempts, max_attempts):
        return Settlement.failure(error)
    return Settlement.retry(error, delay_seconds)
