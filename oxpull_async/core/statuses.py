"""The statuses of task rows and batches, and how a task row may move between them.

Theory of operation: a row waits (WAITING, READY), runs under a lease (RUNNING) and settles;
whatever settled badly may be retried, and a LOST row may still be settled by the straggler that lost it.

::

    WAITING ──> READY ──> RUNNING ──> SUCCESSFUL
       │         │  ^       │ │
       │         │  ├───────┘ ├─────> FAILED ──> READY | DISCARDED
       v         v  │         ├─────> LOST ────> READY | DISCARDED | SUCCESSFUL | FAILED
       DISCARDED    │         └─────> DISCARDED (cancelled, or the task gave itself up)
                    └ failed attempt, snoozed, reaped, handed back

A renewed or expired lease leaves a row RUNNING: that is no transition.
"""

from __future__ import annotations

from enum import StrEnum


class TaskStatus(StrEnum):
    """The status of a task row, spelled as it is stored."""

    READY = "READY"
    RUNNING = "RUNNING"
    SUCCESSFUL = "SUCCESSFUL"
    FAILED = "FAILED"
    LOST = "LOST"
    DISCARDED = "DISCARDED"
    WAITING = "WAITING"


class BatchStatus(StrEnum):
    """The status of a batch, which only ever moves OPEN → SEALED → COMPLETE."""

    OPEN = "OPEN"
    SEALED = "SEALED"
    COMPLETE = "COMPLETE"


PENDING = frozenset({TaskStatus.READY, TaskStatus.RUNNING})
"""A row that holds its unique key. WAITING doesn't, although it holds a batch open."""

SETTLED = frozenset({TaskStatus.SUCCESSFUL, TaskStatus.FAILED, TaskStatus.LOST, TaskStatus.DISCARDED})
"""A row that no longer holds a batch open. Any other status does, an unknown one too."""

RETRYABLE = frozenset({TaskStatus.FAILED, TaskStatus.LOST})
"""A row that an operator may give one further attempt."""

DISCARDABLE = frozenset({TaskStatus.READY, TaskStatus.WAITING, TaskStatus.FAILED, TaskStatus.LOST})
"""A row that an operator may give up on."""

CANCELLABLE = frozenset({TaskStatus.READY, TaskStatus.WAITING, TaskStatus.RUNNING})
"""A row that an operator may stop before it comes to an outcome."""

OUTCOME_WRITABLE = frozenset({TaskStatus.RUNNING, TaskStatus.LOST})
"""A row that whoever was granted its current epoch may still settle."""

TRANSITIONS: dict[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.WAITING: frozenset({TaskStatus.READY, TaskStatus.DISCARDED}),
    TaskStatus.READY: frozenset({TaskStatus.RUNNING, TaskStatus.DISCARDED}),
    TaskStatus.RUNNING: frozenset(
        {TaskStatus.READY, TaskStatus.SUCCESSFUL, TaskStatus.FAILED, TaskStatus.LOST, TaskStatus.DISCARDED}
    ),
    TaskStatus.LOST: frozenset({TaskStatus.READY, TaskStatus.SUCCESSFUL, TaskStatus.FAILED, TaskStatus.DISCARDED}),
    TaskStatus.FAILED: frozenset({TaskStatus.READY, TaskStatus.DISCARDED}),
    # Reviving a workflow's cancelled node is reserved by the row format; nothing does it yet.
    TaskStatus.DISCARDED: frozenset({TaskStatus.WAITING}),
    TaskStatus.SUCCESSFUL: frozenset(),
}
"""From each status, those that a row may move to next."""
