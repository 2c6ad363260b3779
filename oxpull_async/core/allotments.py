"""How a claim of many rows is divided: by what limits a row, by what is due first, by what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from oxpull_async.core.limits import RateLimit

Head: TypeAlias = tuple[int, datetime]
"""Priority and age of a due row."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that the same limits cover: of these paths, in these queues (None: any) but not in those."""

    limits: frozenset[str]
    task_paths: tuple[str, ...]
    queues: tuple[str, ...] | None
    passed_queues: tuple[str, ...] = ()


def grouped(limits: Sequence[RateLimit], task_paths: Iterable[str], queues: Sequence[str] | None) -> list[Group]:
    """Everything that a worker of these paths and queues may claim, each row in one group."""
    paths: dict[frozenset[str], list[str]] = {}
    for path in dict.fromkeys(task_paths):
        covering = frozenset(limit.name for limit in limits if path in limit.paths)
        paths.setdefault(covering, []).append(path)
    named = {name for limit in limits for name in limit.queue_names}
    own = [name for name in sorted(named) if queues is None or name in queues]
    others = None if queues is None else tuple(name for name in queues if name not in named)
    groups = []
    for of_path, members in paths.items():
        if others is None or others:
            groups.append(Group(of_path, tuple(members), others, tuple(own) if others is None else ()))
        for name in own:
            of_queue = frozenset(limit.name for limit in limits if name in limit.queue_names)
            groups.append(Group(of_path | of_queue, tuple(members), (name,)))
    return groups


def wanted(heads: Mapping[Group, Sequence[Head]], room: int) -> dict[Group, int]:
    """How many of each group are among the first ``room`` rows of all, the groups of the first rows first."""
    lines = [(-priority, age, group) for group, due in heads.items() for priority, age in due]
    first = sorted(lines, key=lambda line: line[:2])[:room]
    return dict(Counter(group for _, _, group in first))


def allotted(asked: Mapping[Group, int], budgets: Mapping[str, int]) -> dict[Group, int]:
    """How many of each group may start: a row needs every limit that covers it."""
    rest = dict(budgets)
    given: dict[Group, int] = {}
    for group, count in asked.items():
        given[group] = min([count, *(rest[name] for name in group.limits)])
        for name in group.limits:
            rest[name] -= given[group]
    return given


def totals(counts: Mapping[Group, int]) -> dict[str, int]:
    """What these starts take from each limit."""
    found: Counter[str] = Counter()
    for group, count in counts.items():
        for name in group.limits:
            found[name] += count
    return {name: count for name, count in found.items() if count}
