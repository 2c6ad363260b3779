"""What the rows of a batch's members say of it: how far it is, and whether it may complete.

A batch is derived from rows, never counted up or down, so no dead worker can
hang it. A member is pending while its task row has any status but the four
settled ones; a row that is gone counts as settled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from oxpull_async.core.statuses import SETTLED, TaskStatus

MAX_NAME_LENGTH: Final = 128
SCAN_PAGE: Final = 1000
"""How many members one look for a pending one reads."""
WIDE: Final = 20_000
"""From so many members on, a join over whole tables is cheaper than a look at each member's row."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many members' task rows have which status; None stands for rows that are gone."""

    by_status: Mapping[str | None, int]

    @property
    def members(self) -> int:
        """All of them."""
        return sum(self.by_status.values())

    @property
    def pending(self) -> int:
        """Those that hold the batch open; an unknown status does."""
        return sum(n for status, n in self.by_status.items() if status is not None and status not in SETTLED)

    @property
    def succeeded(self) -> int:
        """Those that are SUCCESSFUL."""
        return self.by_status.get(TaskStatus.SUCCESSFUL, 0)

    @property
    def failed(self) -> int:
        """Those that are FAILED."""
        return self.by_status.get(TaskStatus.FAILED, 0)


@dataclass(frozen=True, slots=True)
class Ending:
    """With what a batch completes."""

    total: int
    failed: int
    unattributed: int
    """Members of which nobody knows how they went: LOST, DISCARDED, or their rows gone."""

    @property
    def is_success(self) -> bool:
        """Whether every member's outcome is known, and none failed."""
        return self.failed == 0 and self.unattributed == 0


def judge(tally: Tally, total_count: int | None) -> Ending | None:
    """How the batch ends, or None while a member is pending. ``total_count`` None: it was sealed uncounted."""
    if tally.pending:
        return None
    total = tally.members if total_count is None else total_count
    return Ending(total, tally.failed, max(total - tally.succeeded - tally.failed, 0))
