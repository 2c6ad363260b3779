"""What the next key of a task will most likely be: free, where the last ones were.

A guess, on which nothing but speed depends: a store that is told that a key is
probably free leaves out the look at whose it is, and where the guess was wrong
that look is made up for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from oxpull_async.ports import Attempt, Inserted, NewUnique

FREE_IN_A_ROW: Final = 8
"""So many free keys of a task make its next one probably free. A wrong guess costs more than a right one gains."""
_MOST_TASKS: Final = 10_000


class Expectations:
    """The free keys in a row of each task of one Oxpull."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, int] = {}

    def free(self, uniques: Iterable[NewUnique]) -> bool:
        """Whether these keys are probably free, all of them."""
        return all(self._in_a_row.get(unique.task.task_path, 0) >= FREE_IN_A_ROW for unique in uniques)

    def learn(self, unique: NewUnique, answer: Attempt | None) -> None:
        """What the key was, at the first try."""
        path = unique.task.task_path
        if isinstance(answer, Inserted):
            if path not in self._in_a_row and len(self._in_a_row) >= _MOST_TASKS:
                self._in_a_row.clear()
            self._in_a_row[path] = self._in_a_row.get(path, 0) + 1
        else:
            self._in_a_row[path] = 0
