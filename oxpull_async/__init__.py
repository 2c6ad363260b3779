"""oxpull_async: a task queue in the database that your ASGI service already has."""

from oxpull_async.app import Oxpull
from oxpull_async.batches.additions import Addition, Additions
from oxpull_async.batches.batch import Batch
from oxpull_async.batches.models import BatchExplanation, BatchMember, BatchProgress
from oxpull_async.core.backoff import Backoff
from oxpull_async.core.limits import RateLimit
from oxpull_async.core.statuses import BatchStatus, TaskStatus
from oxpull_async.enqueueing.keys import KeyHolder
from oxpull_async.enqueueing.verbs import enqueue, enqueue_many, enqueue_unique, enqueue_unique_many
from oxpull_async.exceptions import (
    BatchMemberExists,
    BatchNotFound,
    BatchSealed,
    ConnectionLost,
    DeadlockDetected,
    Discard,
    DuplicateTask,
    ExclusiveBusy,
    ExclusiveLost,
    ExclusiveTimeout,
    InvalidArguments,
    InvalidSchedule,
    InvalidSettings,
    InvalidTask,
    LockNotAvailable,
    NoReconciler,
    NotOpen,
    OxpullError,
    PoolTimeout,
    Retry,
    SavepointMissing,
    SerializationFailure,
    Snooze,
    StatementTimeout,
    StoreError,
    TaskFailed,
    TaskProcessDied,
    TaskResultDoesNotExist,
    TaskTimeout,
    TransactionRequired,
    TransactionRolledBack,
    UniqueEnqueueRace,
    UniqueViolation,
    WrongDatabase,
)
from oxpull_async.options import Exclusive, Unique
from oxpull_async.results import EnqueueResult, TaskResult
from oxpull_async.runtime.batch_stats import BatchStats, StuckBatch
from oxpull_async.runtime.checkup import Finding
from oxpull_async.runtime.exclusive_blocks import ExclusiveHold
from oxpull_async.runtime.health import Health, ServiceHealth
from oxpull_async.runtime.stats import QueueStats, UniqueLock
from oxpull_async.runtime.worker import Worker
from oxpull_async.schedules import Schedule
from oxpull_async.settings import Settings
from oxpull_async.tasks import Call, Task, TaskContext, TaskRouter

__all__ = [
    "Addition",
    "Additions",
    "Backoff",
    "Batch",
    "BatchExplanation",
    "BatchMember",
    "BatchMemberExists",
    "BatchNotFound",
    "BatchProgress",
    "BatchSealed",
    "BatchStats",
    "BatchStatus",
    "Call",
    "ConnectionLost",
    "DeadlockDetected",
    "Discard",
    "DuplicateTask",
    "EnqueueResult",
    "Exclusive",
    "ExclusiveBusy",
    "ExclusiveHold",
    "ExclusiveLost",
    "ExclusiveTimeout",
    "Finding",
    "Health",
    "InvalidArguments",
    "InvalidSchedule",
    "InvalidSettings",
    "InvalidTask",
    "KeyHolder",
    "LockNotAvailable",
    "NoReconciler",
    "NotOpen",
    "Oxpull",
    "OxpullError",
    "PoolTimeout",
    "QueueStats",
    "RateLimit",
    "Retry",
    "SavepointMissing",
    "Schedule",
    "SerializationFailure",
    "ServiceHealth",
    "Settings",
    "Snooze",
    "StatementTimeout",
    "StoreError",
    "StuckBatch",
    "Task",
    "TaskContext",
    "TaskFailed",
    "TaskProcessDied",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskRouter",
    "TaskStatus",
    "TaskTimeout",
    "TransactionRequired",
    "TransactionRolledBack",
    "Unique",
    "UniqueEnqueueRace",
    "UniqueLock",
    "UniqueViolation",
    "Worker",
    "WrongDatabase",
    "enqueue",
    "enqueue_many",
    "enqueue_unique",
    "enqueue_unique_many",
]
