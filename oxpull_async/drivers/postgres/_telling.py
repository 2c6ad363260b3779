"""Task rows of a caller's transaction: whose COMMIT wakes the workers, since nobody here is told of it."""

from __future__ import annotations

from typing import Final, TypeVar

from oxpull_async.drivers._procedure import Procedure, Step, changed
from oxpull_async.drivers._statements import Statement, load_statements

T = TypeVar("T")

_INSERTS: Final = {
    "tasks.sql": ("insert_task", "insert_tasks"),
    "unique.sql": ("insert_unique", "insert_uniques"),
    "batches.sql": ("add_tasks",),
}


def _load() -> dict[str, Statement]:
    found: dict[str, Statement] = {}
    for file, names in _INSERTS.items():
        statements = load_statements(__package__, file, {"told": "tell", "and_told": "and_tell"})
        found |= {name: statements[name] for name in names}
    return found


TELLING: Final = _load()
"""What stands in for the statements that insert task rows, by their names."""


def telling(procedure: Procedure[T]) -> Procedure[T]:
    """The same procedure, whose new task rows tell of themselves: in the same statement, once the COMMIT is there."""
    return changed(procedure, _told)


def _told(step: Step) -> Step:
    statement = TELLING.get(step.statement.name)
    return step if statement is None else step._replace(statement=statement)
