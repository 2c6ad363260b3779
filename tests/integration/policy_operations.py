"""What duplicates do, as operations that are killed and cancelled at every point, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from oxpull_async import EnqueueResult, Oxpull
from oxpull_async.core.keys import own_key
from tests.integration.competitor import Competitor
from tests.integration.policy_tasks import PATH, holds, reruns, rows, task_of

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
PENDING = ("READY", "RUNNING")


@dataclass(frozen=True, slots=True)
class PolicyOperation:
    """One call, the state in which it finds its keys, and the rows that must be there when it has been made.

    ``expected``: the status and arguments of every row, and the arguments of the reruns that wait.
    """

    name: str
    call: Callable[[Oxpull], Awaitable[EnqueueResult | list[EnqueueResult]]]
    expected: tuple[list[tuple[str, list[Any]]], list[list[Any]]]
    prepare: Callable[[Competitor], None] = lambda competitor: None

    async def results(self, ox: Oxpull) -> list[EnqueueResult]:
        found = await self.call(ox)
        return found if isinstance(found, list) else [found]

    def assert_done(self, competitor: Competitor) -> None:
        """What was asked for is there, and nothing else."""
        assert_sound(competitor)
        found = sorted((status, args) for status, args in rows(competitor).values())
        assert (found, reruns(competitor)) == (sorted(self.expected[0]), self.expected[1])


def assert_sound(competitor: Competitor) -> None:
    """Every waiting row is named by a lock or a hold, and these name rows: nothing is written by half."""
    found = rows(competitor)
    locked = [task_id for task_id in competitor.locks().values() if task_id is not None]
    named = [*locked, *holds(competitor).values()]
    assert set(named) <= set(found)
    assert sorted(set(named) & _with(found, "READY")) == sorted(_with(found, "READY"))
    assert len(named) == len(set(named))
    waited_for = {UUID(str(id)) for (id,) in competitor.rows("SELECT holder_id FROM oxpull_async_rerun")}
    assert waited_for <= _with(found, "RUNNING")


def _with(found: dict[UUID, tuple[str, list[Any]]], status: str) -> set[UUID]:
    return {id for id, (has, _) in found.items() if has == status}


def key_of(name: str) -> str:
    """The key of a policy's task with this first argument."""
    return own_key("default", PATH, "default", "function", name)


def _locked(name: str, status: str = "READY", **columns: Any) -> Callable[[Competitor], None]:
    def prepare(competitor: Competitor) -> None:
        competitor.insert_unique(
            key_of(name), task_path=PATH, args=f'["{name}", 1]', status=status, enqueued_at=datetime.now(UTC), **columns
        )

    return prepare


def _held(name: str, status: str = "READY", *, held_until: datetime | None = None) -> Callable[[Competitor], None]:
    def prepare(competitor: Competitor) -> None:
        task_id = uuid4()
        competitor.run(
            f"INSERT INTO oxpull_async_hold ({competitor.key_column}, task_id, task_path, queue_name, created_at, "
            "held_until) VALUES (?, ?, ?, ?, ?, ?)",
            key_of(name), task_id, PATH, "default", LONG_AGO, held_until,
        )  # fmt: skip
        competitor.insert_task(id=task_id, task_path=PATH, args=f'["{name}", 1]', status=status)

    return prepare


def _one_of_each(competitor: Competitor) -> None:
    _held("a", "READY")(competitor)
    _held("b", "FAILED", held_until=LONG_AGO)(competitor)
    _held("c", "FAILED", held_until=LATER)(competitor)


def _call(kind: str, *values: Any, **using: Any) -> Callable[[Oxpull], Awaitable[EnqueueResult]]:
    return lambda ox: task_of(ox, kind).using(**using).enqueue(*values)


POLICY_OPERATIONS = [
    PolicyOperation("a first debounced call", _call("reschedule", "a", 2), ([("READY", ["a", 2])], [])),
    PolicyOperation(
        "a debounced repeat",
        _call("reschedule", "a", 2, run_after=50),
        ([("READY", ["a", 1])], []),
        _locked("a"),
    ),
    PolicyOperation("a replacing repeat", _call("replace", "a", 2), ([("READY", ["a", 2])], []), _locked("a")),
    PolicyOperation(
        "a replacing call of a stale key",
        _call("replace", "a", 2),
        ([("FAILED", ["a", 1]), ("READY", ["a", 2])], []),
        _locked("a", "FAILED"),
    ),
    PolicyOperation("a first call with rerun", _call("rerun", "a", 2), ([("READY", ["a", 2])], [])),
    PolicyOperation(
        "a repeat of what runs",
        _call("rerun", "a", 2),
        ([("RUNNING", ["a", 1])], [["a", 2]]),
        _locked("a", "RUNNING"),
    ),
    PolicyOperation("a new hold", _call("ready", "a", 2), ([("READY", ["a", 2])], [])),
    PolicyOperation(
        "a hold whose task has started",
        _call("ready", "a", 2),
        ([("READY", ["a", 2]), ("RUNNING", ["a", 1])], []),
        _held("a", "RUNNING"),
    ),
    PolicyOperation(
        "a hold whose window is over",
        _call("window", "a", 2),
        ([("READY", ["a", 2]), ("SUCCESSFUL", ["a", 1])], []),
        _held("a", "SUCCESSFUL", held_until=LONG_AGO),
    ),
    PolicyOperation(
        "many holds",
        lambda ox: task_of(ox, "window").enqueue_many([("d", 2), ("c", 2), ("b", 2), ("a", 2), ("d", 3)]),
        (
            [
                ("FAILED", ["b", 1]),
                ("FAILED", ["c", 1]),
                ("READY", ["a", 1]),
                ("READY", ["b", 2]),
                ("READY", ["d", 2]),
            ],
            [],
        ),
        _one_of_each,
    ),
    PolicyOperation(
        "many replacing calls",
        lambda ox: task_of(ox, "replace").enqueue_many([("b", 2), ("a", 2), ("b", 3)]),
        ([("READY", ["a", 2]), ("READY", ["b", 3])], []),
        _locked("a"),
    ),
]  # fmt: skip
BY_NAME = {operation.name: operation for operation in POLICY_OPERATIONS}
