"""An addition whose COMMIT was unheard, and what became of its members before the call is repeated.

They have run, their rows were deleted, others have enqueued their keys anew, the batch was sealed, completed, pruned:
the caller is told what was done, and nothing is done twice.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import anyio
import pytest

from oxpull_async import Batch, BatchNotFound, BatchSealed, BatchStatus, Oxpull, Task, Unique
from tests.integration.competitor import Competitor
from tests.integration.cut_wire import CutWire
from tests.integration.deaf import Deaf
from tests.scale import points

MEMBERS = "oxpull_oxpullbatchmember"
MOST = 80


@dataclass
class Scene:
    """A batch, who adds to it, and who does the rest."""

    ox: Oxpull
    other: Oxpull
    competitor: Competitor
    batch: Batch
    plain: Task[..., Any]
    single: Task[..., Any]
    named: Task[..., Any]
    ran: Counter[str]
    taken: set[UUID] = field(default_factory=set)
    """Rows of others that have a member's key now."""

    def members(self) -> set[UUID]:
        """Their task ids."""
        rows = self.competitor.rows(f"SELECT task_id FROM {MEMBERS} WHERE batch_id = ?", self.batch.id)
        return {UUID(str(row[0])) for row in rows}

    async def theirs(self) -> Batch:
        """The batch, as the other one has it."""
        return await self.other.batches.get(self.batch.id)


@pytest.fixture
async def scene(migrated_url: str, competitor: Competitor) -> AsyncIterator[Scene]:
    ran: Counter[str] = Counter()

    async def plain(name: str) -> None:
        ran[name] += 1

    async def single(name: str) -> None:
        ran[name] += 1

    async def named(name: str, number: int) -> None:
        ran[name] += 1

    async with Oxpull(migrated_url) as ox, Oxpull(migrated_url) as other:
        for function, unique in ((single, Unique()), (named, Unique(by=("name",)))):
            other.task(unique=unique)(function)
        other.task(plain)
        yield Scene(
            ox,
            other,
            competitor,
            await ox.batches.create("proof"),
            ox.task(plain),
            ox.task(unique=Unique())(single),
            ox.task(unique=Unique(by=("name",)))(named),
            ran,
        )


# What becomes of the members

Meanwhile: TypeAlias = Callable[[Scene], Awaitable[Any]]


async def nothing(scene: Scene) -> None: ...


async def they_run(scene: Scene) -> None:
    await scene.other.run_until_idle()


async def they_fail(scene: Scene) -> None:
    for task_id in scene.members():
        scene.competitor.set_task(task_id, status="FAILED")


async def they_run_and_are_pruned(scene: Scene) -> None:
    await scene.other.run_until_idle()
    for task_id in scene.members():
        scene.competitor.delete_task(task_id)


async def they_run_and_their_keys_are_taken(scene: Scene) -> None:
    await scene.other.run_until_idle()
    await take_keys(scene)


async def they_fail_and_their_keys_are_taken(scene: Scene) -> None:
    await they_fail(scene)
    await take_keys(scene)


async def take_keys(scene: Scene) -> None:
    """By calls that aren't members."""
    for name in ("a", "b", "pending"):
        scene.taken.add((await scene.other.enqueue(scene.single, name)).id)
        scene.taken.add((await scene.other.enqueue(scene.named, name, 2)).id)


async def the_batch_is_sealed(scene: Scene) -> None:
    await (await scene.theirs()).seal()


async def the_batch_completes(scene: Scene) -> None:
    await (await scene.theirs()).seal()
    await scene.other.run_until_idle()
    assert await scene.batch.status() is BatchStatus.COMPLETE


async def the_batch_completes_and_their_keys_are_taken(scene: Scene) -> None:
    await the_batch_completes(scene)
    await take_keys(scene)


async def the_batch_is_pruned(scene: Scene) -> None:
    await the_batch_completes(scene)
    await scene.other.prune(older_than=3600, batches_older_than=0)


MEANWHILE = [
    nothing,
    they_run,
    they_fail,
    they_run_and_are_pruned,
    they_run_and_their_keys_are_taken,
    they_fail_and_their_keys_are_taken,
    the_batch_is_sealed,
    the_batch_completes,
    the_batch_completes_and_their_keys_are_taken,
    the_batch_is_pruned,
]
FAILING = [they_fail, they_fail_and_their_keys_are_taken]
every_meanwhile = pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda function: function.__name__)


def deaf_to(scene: Scene, meanwhile: Meanwhile, *, at: int = 1) -> Deaf:
    """The one who adds doesn't hear of the commit after which there are so many members."""

    async def happens() -> bool:
        if len(scene.members()) < at:
            return False
        await meanwhile(scene)
        return True

    return Deaf(happens).install(scene.ox)


async def ends_well(scene: Scene, deaf: Deaf, meanwhile: Meanwhile, members: set[UUID]) -> None:
    """These alone are members, no row of theirs was written twice, and each has run once."""
    assert not deaf.is_deaf
    if meanwhile is the_batch_is_pruned:
        return
    assert scene.members() == members
    if await scene.batch.status() is BatchStatus.OPEN:
        assert await scene.batch.seal() == len(members)
    await scene.other.run_until_idle()
    assert await scene.batch.status() is BatchStatus.COMPLETE
    deleted = members if meanwhile is they_run_and_are_pruned else set[UUID]()
    assert set(scene.competitor.statuses()) == members - deleted | scene.taken
    failed = members if meanwhile in FAILING else set[UUID]()
    assert scene.ran.total() == len(members - failed | scene.taken)


@every_meanwhile
async def test_a_plain_member_is_added_once(scene: Scene, meanwhile: Meanwhile):
    deaf = deaf_to(scene, meanwhile)

    result = await scene.batch.add(scene.plain, "a")

    assert result.created
    await ends_well(scene, deaf, meanwhile, {result.id})


@every_meanwhile
async def test_members_that_many_add_at_once_are_added_once(scene: Scene, meanwhile: Meanwhile):
    deaf = deaf_to(scene, meanwhile, at=4)
    added: dict[str, UUID] = {}

    async def add(name: str) -> None:
        added[name] = (await scene.batch.add(scene.plain, name)).id

    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(add, name)

    assert sorted(added) == list("abcd")
    await ends_well(scene, deaf, meanwhile, set(added.values()))


@every_meanwhile
async def test_a_chunk_of_plain_members_is_added_once(scene: Scene, meanwhile: Meanwhile):
    deaf = deaf_to(scene, meanwhile)

    additions = await scene.batch.add_many(scene.plain, [("a",), ("b",), ("c",)])

    assert (additions.created, additions.added) == (3, 3)
    await ends_well(scene, deaf, meanwhile, {each.id for each in additions})


@every_meanwhile
async def test_a_unique_member_is_added_once(scene: Scene, meanwhile: Meanwhile):
    deaf = deaf_to(scene, meanwhile)

    result = await scene.batch.add(scene.single, "a")

    assert result.created
    await ends_well(scene, deaf, meanwhile, {result.id})


@every_meanwhile
async def test_a_pending_task_joins_once(scene: Scene, meanwhile: Meanwhile):
    pending = await scene.named.enqueue("pending", 1)
    deaf = deaf_to(scene, meanwhile)

    if meanwhile is the_batch_is_pruned:  # nothing is left that would tell whether it had joined
        with pytest.raises(BatchNotFound):
            await scene.batch.add(scene.named, "pending", 3)
        return
    result = await scene.batch.add(scene.named, "pending", 3)

    assert (result.id, result.created) == (pending.id, False)
    await ends_well(scene, deaf, meanwhile, {pending.id})


@every_meanwhile
async def test_each_call_of_a_chunk_of_unique_members_is_told_as_it_was_done(scene: Scene, meanwhile: Meanwhile):
    pending = await scene.single.enqueue("pending")
    member = await scene.batch.add(scene.single, "member")
    deaf = deaf_to(scene, meanwhile, at=4)

    additions = await scene.batch.add_many(scene.single, [("a",), ("pending",), ("b",), ("a",), ("member",)])

    new, joined, other, again, before = additions
    assert [each.created for each in additions] == [True, False, True, False, False]
    assert [each.already_member for each in additions] == [False, False, False, True, True]
    assert (joined.id, again.id, before.id) == (pending.id, new.id, member.id)
    await ends_well(scene, deaf, meanwhile, {new.id, other.id, pending.id, member.id})


@pytest.mark.parametrize("meanwhile", [nothing, they_run, the_batch_completes], ids=lambda function: function.__name__)
async def test_a_seal_is_told_as_it_was_done(scene: Scene, meanwhile: Meanwhile):
    await scene.batch.add(scene.plain, "a")

    async def happens() -> bool:
        if await scene.batch.status() is BatchStatus.OPEN:
            return False
        await (nothing(scene) if meanwhile is nothing else they_run(scene))
        return True

    deaf = Deaf(happens).install(scene.ox)

    assert await scene.batch.seal() == 1
    assert not deaf.is_deaf


async def they_are_retried(scene: Scene) -> None:
    for task_id in scene.members():
        scene.competitor.set_task(task_id, status="READY")


async def they_are_deleted(scene: Scene) -> None:
    for task_id in scene.members():
        scene.competitor.delete_task(task_id)


@pytest.mark.parametrize(
    "meanwhile", [nothing, they_are_retried, they_are_deleted], ids=lambda function: function.__name__
)
async def test_a_completion_is_told_as_it_was_done(scene: Scene, meanwhile: Meanwhile):
    batch = await scene.ox.batches.create(
        "proof",
        on_complete=scene.plain,
        on_complete_args=["done"],
        on_success=scene.plain,
        on_success_args=["cheer"],
    )
    scene.batch = batch
    await batch.add(scene.plain, "a")
    await batch.seal()
    for task_id in scene.members():
        scene.competitor.set_task(task_id, status="SUCCESSFUL")
    told: list[UUID] = []
    scene.ox.on("enqueued", lambda result: told.append(result.id))

    async def happens() -> bool:
        if await batch.status() is not BatchStatus.COMPLETE:
            return False
        await meanwhile(scene)
        return True

    deaf = Deaf(happens).install(scene.ox)

    assert await scene.ox.batches.reconcile() == 1

    assert not deaf.is_deaf
    ids = scene.competitor.rows(
        "SELECT callback_task_id, success_task_id FROM oxpull_oxpullbatch WHERE id = ?", batch.id
    )
    assert told == [UUID(str(each)) for each in ids[0]]


# Over real connections, whichever reply is lost


async def add_one(batch: Batch, scene: Scene) -> list[tuple[UUID, bool]]:
    result = await batch.add(scene.plain, "a")
    return [(result.id, result.created)]


async def add_unique(batch: Batch, scene: Scene) -> list[tuple[UUID, bool]]:
    result = await batch.add(scene.single, "a")
    return [(result.id, result.created)]


async def add_many(batch: Batch, scene: Scene) -> list[tuple[UUID, bool]]:
    added = await batch.add_many(scene.plain, [("a",), ("b",), ("c",)])
    return [(each.id, each.created) for each in added]


async def add_many_unique(batch: Batch, scene: Scene) -> list[tuple[UUID, bool]]:
    added = await batch.add_many(scene.single, [("a",), ("pending",), ("b",)])
    return [(each.id, each.created) for each in added]


@pytest.mark.engines("postgres", "mysql")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("deed", [add_one, add_unique, add_many, add_many_unique], ids=lambda deed: deed.__name__)
async def test_whichever_reply_is_lost_on_the_wire_it_is_done_once(
    scene: Scene,
    migrated_url: str,
    deed: Callable[[Batch, Scene], Awaitable[list[tuple[UUID, bool]]]],
):
    for at in points(MOST):
        meanwhile = random.choice([they_run_and_their_keys_are_taken, the_batch_completes_and_their_keys_are_taken])
        for table in (MEMBERS, "oxpull_oxpulluniquelock", "django_ox_oxtask"):
            scene.competitor.run(f"DELETE FROM {table}")
        scene.batch = await scene.other.batches.create("proof")
        scene.ran.clear()
        scene.taken = {(await scene.other.enqueue(scene.single, "pending")).id}
        async with CutWire(migrated_url) as wire, Oxpull(wire.url, pool_size=2) as ox:
            batch = await ox.batches.get(scene.batch.id)
            wire.cut_at(at, partial(meanwhile, scene))
            try:
                results = await deed(batch, scene)
            except BatchSealed:  # by others, before anything of this call was committed
                results = []
            was_cut = wire.is_cut

        assert {task_id for task_id, _ in results} == scene.members()
        assert all(created == (task_id not in scene.taken) for task_id, created in results)
        assert set(scene.competitor.statuses()) == scene.members() | scene.taken
        await scene.other.run_until_idle()
        assert scene.ran.total() == len(scene.members() | scene.taken)
        if not was_cut:
            assert at > 1
            return
    raise AssertionError("it never came to an end")
