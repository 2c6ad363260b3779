"""Claims for tests that need no database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from oxpull_async.ports import Claim


def claim(**values: Any) -> Claim:
    """A row that was granted just now, for the first time."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    row = {
        "id": uuid4(), "task_path": "tests.task", "args": "[]", "kwargs": "{}", "queue_name": "default",
        "priority": 0, "takes_context": False, "backend_name": "default", "attempts": 1, "max_attempts": 3,
        "errors": "[]", "worker_ids": "[]", "lease_epoch": 1, "enqueued_at": now, "lease_expires_at": now,
        "run_after": None, "started_at": now, "last_attempted_at": now,
    }  # fmt: skip
    return Claim(**{**row, **values})
