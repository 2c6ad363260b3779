"""A unique task of each kind, and what is in the tables of theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from oxpull_async import Oxpull, Unique
from oxpull_async.core.settlements import Settlement
from oxpull_async.core.uniqueness import OnDuplicate
from oxpull_async.ports import Claim, ClaimRequest, Outcome
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor

PATH = "proof.tasks.policy"
RECORD = {"exception_class_path": "builtins.ValueError", "traceback": "ValueError: no"}
BY_NAME: Any = {"by": lambda name, value=0: name}

UNIQUES: dict[str, Unique] = {
    "raise": Unique(**BY_NAME, on_duplicate="raise"),
    "reschedule": Unique(**BY_NAME, on_duplicate="reschedule", max_delay=100),
    "replace": Unique(**BY_NAME, on_duplicate="replace"),
    "rerun": Unique(**BY_NAME, on_duplicate="rerun"),
    "ready": Unique(**BY_NAME, hold="ready"),
    "window": Unique(**BY_NAME, window=1000),
}


def task_of(ox: Oxpull, kind: str, **options: Any) -> AnyTask:
    """A task that is unique by its first argument, in one of the ways above."""
    return ox.reference(PATH, unique=UNIQUES[kind], **options)


def held_unique(on_duplicate: OnDuplicate, **options: Any) -> Unique:
    """The same as a hold."""
    return Unique(**BY_NAME, on_duplicate=on_duplicate, **options)


async def claimed(ox: Oxpull) -> Claim:
    """The one row that is due, RUNNING from now on."""
    (claim,) = await ox.store.claim(ClaimRequest("worker-1", [PATH], None, 1, 300, datetime.now(UTC)))
    return claim


async def settle(ox: Oxpull, claim: Claim, *, ending: str = "SUCCESSFUL", may_rerun: bool = True) -> None:
    """End a run, as our own worker does, or else as others do."""
    settlement = {
        "SUCCESSFUL": Settlement.success(None),
        "FAILED": Settlement.failure(RECORD),
        "READY": Settlement.retry(RECORD, 0),
    }[ending]
    now = datetime.now(UTC)
    outcome = Outcome(
        claim.id, claim.lease_epoch, settlement, "[]", now if ending == "READY" else None, now,
        may_rerun=may_rerun and settlement.finishes,
    )  # fmt: skip
    assert list(await ox.store.settle([outcome])) == [claim.id]


def rows(competitor: Competitor) -> dict[UUID, tuple[str, list[Any]]]:
    """The status and the arguments of every row."""
    found = competitor.rows("SELECT id, status, args FROM django_ox_oxtask")
    return {UUID(str(id)): (status, _list(args)) for id, status, args in found}


def arguments(competitor: Competitor, status: str = "READY") -> list[list[Any]]:
    """The arguments of the rows with this status, in order."""
    return sorted(args for found, args in rows(competitor).values() if found == status)


def holds(competitor: Competitor) -> dict[str, UUID]:
    """Which task each key's hold names."""
    found = competitor.rows(f"SELECT {competitor.key_column}, task_id FROM oxpull_async_hold")
    return {key: UUID(str(task_id)) for key, task_id in found}


def reruns(competitor: Competitor) -> list[list[Any]]:
    """The arguments of the reruns that wait for an end."""
    return sorted(_list(args) for (args,) in competitor.rows("SELECT args FROM oxpull_async_rerun"))


def _list(args: Any) -> list[Any]:
    found: list[Any] = json.loads(args) if isinstance(args, str) else args
    return found
