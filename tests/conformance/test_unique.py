"""Keys: insert_unique, insert_unique_together, read_holder, take_over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

import anyio
import pytest

from oxpull_async._ids import new_id
from oxpull_async.exceptions import LockNotAvailable, UniqueViolation
from oxpull_async.ports import Attempt, Held, Inserted, NewUnique, Store, TakeOver, Unseen
from tests.conformance.rows import claimed_unique, inserted, new_unique, pad, row
from tests.eventually import eventually
from tests.integration.competitor import Competitor, aside

SETTLED = ["SUCCESSFUL", "FAILED", "LOST", "DISCARDED"]
NOT_PENDING = [*SETTLED, "WAITING", "PARKED"]
LONG = 20.0

several = pytest.mark.parametrize("keys", [["b"], ["a", "b", "c"]], ids=["alone", "among others"])


async def insert(
    store: Store, *uniques: NewUnique, wait_seconds: float = 5, probably_free: bool = False
) -> Sequence[Attempt]:
    return await store.insert_unique(uniques, wait_seconds=wait_seconds, probably_free=probably_free)


async def together(store: Store, *uniques: NewUnique, passes: int = 5) -> Sequence[Attempt]:
    return await store.insert_unique_together(uniques, wait_seconds=5, passes=passes)


async def held_by_settled(store: Store, competitor: Competitor, key: str, status: str = "FAILED") -> UUID:
    """A key whose lock names a task of this status."""
    unique = new_unique(key)
    await insert(store, unique)
    competitor.set_task(unique.task.id, status=status)
    return unique.task.id


# insert_unique


async def test_a_free_key_is_inserted_with_its_task(store: Store, competitor: Competitor):
    unique = new_unique("a", task_path="proof.send", queue_name="mail", args='["x"]')

    assert await insert(store, unique) == [Inserted()]

    assert competitor.locks() == {unique.key: unique.task.id}
    assert (await row(store, unique.task.id)).args == '["x"]'
    lock = competitor.rows("SELECT task_path, queue_name FROM oxpull_oxpulluniquelock")
    assert lock == [("proof.send", "mail")]


async def test_the_lock_is_as_old_as_its_task(store: Store, competitor: Competitor):
    unique = new_unique("a")
    await insert(store, unique)

    assert competitor.rows(
        "SELECT COUNT(*) FROM oxpull_oxpulluniquelock l JOIN django_ox_oxtask t "
        "ON t.id = l.task_id AND t.enqueued_at = l.created_at"
    ) == [(1,)]


async def test_a_key_of_a_ready_task_is_held_and_its_row_is_shown(store: Store, competitor: Competitor):
    first = new_unique("a", priority=7)
    await insert(store, first)

    assert await insert(store, new_unique("a")) == [Held(first.task.id, await row(store, first.task.id))]
    assert competitor.counts() == (1, 1)


async def test_a_key_of_a_running_task_is_held_and_its_row_is_shown(store: Store, competitor: Competitor):
    claim = await claimed_unique(store, "a")

    (answer,) = await insert(store, new_unique("a"))

    assert answer == Held(claim.id, await row(store, claim.id))
    assert competitor.counts() == (1, 1)


@pytest.mark.parametrize("status", NOT_PENDING)
async def test_a_lock_whose_task_is_not_pending_is_shown_and_left_alone(
    store: Store, competitor: Competitor, status: str
):
    stale = await held_by_settled(store, competitor, "a", status)

    (answer,) = await insert(store, new_unique("a"))

    assert answer == Held(stale, await row(store, stale))
    assert competitor.locks() == {pad("a"): stale}


async def test_a_lock_whose_task_is_gone_is_shown(store: Store, competitor: Competitor):
    gone = new_id()
    competitor.insert_lock(pad("a"), gone)

    assert await insert(store, new_unique("a")) == [Held(gone, None)]
    assert competitor.counts() == (0, 1)


async def test_a_lock_that_names_no_task_is_shown(store: Store, competitor: Competitor):
    competitor.insert_lock(pad("a"), None)

    assert await insert(store, new_unique("a")) == [Held(None, None)]
    assert competitor.counts() == (0, 1)


@several
async def test_keys_that_were_thought_to_be_free_and_are_get_their_tasks(
    store: Store, competitor: Competitor, keys: list[str]
):
    uniques = [new_unique(key, priority=3) for key in keys]

    assert await insert(store, *uniques, probably_free=True) == [Inserted()] * len(keys)

    assert competitor.locks() == {unique.key: unique.task.id for unique in uniques}
    assert [(await row(store, unique.task.id)).priority for unique in uniques] == [3] * len(keys)


@several
@pytest.mark.parametrize("status", ["READY", "FAILED"])
async def test_a_key_that_was_thought_to_be_free_and_is_not_is_shown_or_unseen(
    store: Store, competitor: Competitor, keys: list[str], status: str
):
    holder = await held_by_settled(store, competitor, "b", status)

    answers = dict(zip(keys, await insert(store, *map(new_unique, keys), probably_free=True), strict=True))

    assert answers.pop("b") in (Unseen(), Held(holder, await row(store, holder)))
    assert all(answer == Inserted() for answer in answers.values())
    assert competitor.locks()[pad("b")] == holder
    assert competitor.counts() == (len(keys), len(keys))


@several
async def test_an_open_competitor_for_a_key_thought_to_be_free_is_waited_for_no_longer_than_asked(
    store: Store, competitor: Competitor, keys: list[str]
):
    with competitor.holding(pad("b")), pytest.raises(LockNotAvailable):
        await insert(store, *map(new_unique, keys), wait_seconds=0.2, probably_free=True)

    assert competitor.counts() == (0, 0)


async def test_answers_come_in_the_order_of_the_request(store: Store, competitor: Competitor):
    holder = new_unique("m")
    await insert(store, holder)
    zed, em, ay = new_unique("z"), new_unique("m"), new_unique("a")

    answers = await insert(store, zed, em, ay)

    assert answers == [Inserted(), Held(holder.task.id, await row(store, holder.task.id)), Inserted()]
    assert competitor.locks() == {zed.key: zed.task.id, ay.key: ay.task.id, holder.key: holder.task.id}


async def test_a_lost_key_leaves_neither_lock_nor_task(store: Store, competitor: Competitor):
    await insert(store, *[new_unique(f"held{n}") for n in range(5)])
    mine = [new_unique(f"{kind}{n}") for kind in ("held", "free") for n in range(5)]

    answers = await insert(store, *mine)

    assert [type(answer) for answer in answers] == [Held] * 5 + [Inserted] * 5
    assert competitor.counts() == (10, 10)
    assert set(competitor.locks().values()) == set(competitor.statuses())


async def test_no_keys_are_no_answers(store: Store, competitor: Competitor):
    assert list(await insert(store)) == []
    assert competitor.counts() == (0, 0)


async def test_a_thousand_keys_are_decided_at_once(store: Store, competitor: Competitor):
    await insert(store, *[new_unique(f"{n:04}") for n in range(0, 1000, 2)])

    answers = await insert(store, *[new_unique(f"{n:04}") for n in reversed(range(1000))])

    assert [type(answer) for answer in answers] == [Inserted, Held] * 500
    assert competitor.counts() == (1000, 1000)


@pytest.mark.parametrize("probably_free", [False, True])
async def test_a_task_id_that_exists_leaves_the_key_free(store: Store, competitor: Competitor, probably_free: bool):
    (task,) = await inserted(store)

    with pytest.raises(UniqueViolation):
        await insert(store, new_unique("a", id=task.id), probably_free=probably_free)

    assert competitor.counts() == (1, 0)


async def test_rows_of_uniques_come_back_as_they_went_in(store: Store):
    uniques = [
        new_unique("a", args='["\\ud83d\\ude00"]', kwargs='{"é": null}', queue_name="漢" * 128, priority=-100),
        new_unique("b", takes_context=True, max_attempts=32767, task_path="é" * 255),
    ]
    await insert(store, *uniques)
    await insert(store, alone := new_unique("c", args='["\\ud83d\\ude00"]', queue_name="q'\"\\%s"))

    for unique in (*uniques, alone):
        found = await row(store, unique.task.id)
        for name in ("queue_name", "priority", "takes_context", "max_attempts", "task_path", "enqueued_at"):
            assert getattr(found, name) == getattr(unique.task, name)


@several
async def test_an_open_competitor_is_waited_for_no_longer_than_asked(
    store: Store, competitor: Competitor, keys: list[str]
):
    with competitor.holding(pad("b")):
        began = time.monotonic()
        with pytest.raises(LockNotAvailable) as caught:
            await insert(store, *map(new_unique, keys), wait_seconds=0.2)
        waited = time.monotonic() - began

    assert 0.1 <= waited < 3  # the MySQL family counts whole seconds
    assert caught.value.transient
    assert caught.value.__cause__ is not None
    assert competitor.counts() == (0, 0)


async def test_a_competitor_that_rolls_back_leaves_the_key_to_who_waits(store: Store, competitor: Competitor):
    unique = new_unique("a")
    answers: list[Attempt] = []

    async def wait() -> None:
        answers.extend(await insert(store, unique, wait_seconds=LONG))

    async with anyio.create_task_group() as group:
        competitor.begin()
        competitor.insert_unique(unique.key)
        group.start_soon(wait)
        await _someone_waits(competitor)
        await aside(competitor.rollback)

    assert answers == [Inserted()]
    assert competitor.locks() == {unique.key: unique.task.id}


async def test_a_competitor_that_commits_is_never_overruled(store: Store, competitor: Competitor):
    answers: list[Attempt] = []

    async def wait() -> None:
        answers.extend(await insert(store, new_unique("a"), wait_seconds=LONG))

    async with anyio.create_task_group() as group:
        competitor.begin()
        theirs = competitor.insert_unique(pad("a"))
        group.start_soon(wait)
        await _someone_waits(competitor)
        await aside(competitor.commit)

    assert answers == [Held(theirs, await row(store, theirs))] or answers == [Unseen()]
    assert competitor.locks() == {pad("a"): theirs}
    assert competitor.counts() == (1, 1)


# insert_unique_together


async def test_free_keys_are_inserted_together(store: Store, competitor: Competitor):
    uniques = [new_unique(key) for key in "cab"]

    assert await together(store, *uniques) == [Inserted()] * 3

    assert competitor.locks() == {unique.key: unique.task.id for unique in uniques}


async def test_pending_holders_are_found_together(store: Store, competitor: Competitor):
    ready = new_unique("b")
    await insert(store, ready)
    running = await claimed_unique(store, "c")
    await anyio.lowlevel.checkpoint()

    answers = await together(store, new_unique("c"), new_unique("a"), new_unique("b"))

    assert [type(answer) for answer in answers] == [Held, Inserted, Held]
    assert answers[0] == Held(running.id, await row(store, running.id))
    assert answers[2] == Held(ready.task.id, await row(store, ready.task.id))
    assert competitor.counts() == (3, 3)


@pytest.mark.parametrize("status", NOT_PENDING)
async def test_stale_locks_are_taken_over_on_the_way(store: Store, competitor: Competitor, status: str):
    old = await held_by_settled(store, competitor, "b", status)
    new = [new_unique(key) for key in "abc"]

    assert await together(store, *new) == [Inserted()] * 3

    assert competitor.locks() == {unique.key: unique.task.id for unique in new}
    assert competitor.statuses()[old] == status


async def test_locks_without_a_task_are_taken_over_on_the_way(store: Store, competitor: Competitor):
    competitor.insert_lock(pad("b"), None)
    competitor.insert_lock(pad("c"), new_id())
    new = [new_unique(key) for key in "abc"]

    assert await together(store, *new) == [Inserted()] * 3

    assert competitor.locks() == {unique.key: unique.task.id for unique in new}


async def test_one_failure_undoes_all_keys_and_all_take_overs(store: Store, competitor: Competitor):
    stale = await held_by_settled(store, competitor, "b")
    (task,) = await inserted(store)

    with pytest.raises(UniqueViolation):
        await together(store, new_unique("a"), new_unique("b"), new_unique("c", id=task.id))

    assert competitor.locks() == {pad("b"): stale}
    assert competitor.counts() == (2, 1)


async def test_too_few_passes_leave_everything_as_it_was(store: Store, competitor: Competitor):
    stale = await held_by_settled(store, competitor, "b")

    answers = await together(store, new_unique("a"), mine := new_unique("b"), passes=1)

    if any(isinstance(answer, Unseen) for answer in answers):
        assert competitor.locks() == {pad("b"): stale}
        assert competitor.counts() == (1, 1)
    else:  # one pass was enough
        assert answers == [Inserted(), Inserted()]
        assert competitor.locks()[pad("b")] == mine.task.id


async def test_a_competitor_of_one_key_keeps_all_keys_out(store: Store, competitor: Competitor):
    with competitor.holding(pad("b")), pytest.raises(LockNotAvailable):
        await store.insert_unique_together([new_unique(key) for key in "abc"], wait_seconds=0.1, passes=5)

    assert competitor.counts() == (0, 0)


async def test_nothing_together_is_nothing(store: Store, competitor: Competitor):
    assert list(await together(store)) == []


async def test_five_thousand_keys_are_decided_together(store: Store, competitor: Competitor):
    pending = [new_unique(f"{n:05}") for n in range(0, 5001, 5)]
    await together(store, *pending)
    for unique in pending[:10]:
        competitor.set_task(unique.task.id, status="FAILED")
    uniques = [new_unique(f"{n:05}") for n in range(5001)]

    answers = await together(store, *reversed(uniques))

    held = {unique.key for unique, answer in zip(reversed(uniques), answers, strict=True) if isinstance(answer, Held)}
    assert held == {unique.key for unique in pending[10:]}
    assert all(isinstance(answer, Held | Inserted) for answer in answers)
    assert competitor.counts() == (5011, 5001)


# read_holder


async def test_a_holder_is_read_with_its_row(store: Store, competitor: Competitor):
    unique = new_unique("a")
    await insert(store, unique)

    assert await store.read_holder(unique.key) == Held(unique.task.id, await row(store, unique.task.id))


async def test_a_holder_that_is_gone_is_read_without_a_row(store: Store, competitor: Competitor):
    gone = new_id()
    competitor.insert_lock(pad("a"), gone)
    competitor.insert_lock(pad("b"), None)

    assert await store.read_holder(pad("a")) == Held(gone, None)
    assert await store.read_holder(pad("b")) == Held(None, None)


async def test_a_key_without_a_lock_is_unseen(store: Store):
    assert await store.read_holder(pad("a")) == Unseen()


# take_over


@pytest.mark.parametrize("status", NOT_PENDING)
async def test_a_stale_lock_is_pointed_at_the_new_task(store: Store, competitor: Competitor, status: str):
    old = await held_by_settled(store, competitor, "a", status)
    mine = new_unique("a", args='["mine"]')

    assert await store.take_over(TakeOver(mine, old), wait_seconds=1) == Inserted()

    assert competitor.locks() == {mine.key: mine.task.id}
    assert competitor.statuses() == {old: status, mine.task.id: "READY"}
    assert (await row(store, mine.task.id)).args == '["mine"]'


@pytest.mark.parametrize("named", [None, new_id()], ids=["no task", "a task that is gone"])
async def test_a_lock_on_nothing_is_pointed_at_the_new_task(store: Store, competitor: Competitor, named: UUID | None):
    competitor.insert_lock(pad("a"), named)
    mine = new_unique("a")

    assert await store.take_over(TakeOver(mine, named), wait_seconds=1) == Inserted()

    assert competitor.locks() == {mine.key: mine.task.id}


async def test_a_holder_that_is_pending_again_keeps_its_key(store: Store, competitor: Competitor):
    old = await held_by_settled(store, competitor, "a", "FAILED")
    await store.retry([old])

    answer = await store.take_over(TakeOver(new_unique("a"), old), wait_seconds=1)

    assert answer == Held(old, await row(store, old))
    assert competitor.locks() == {pad("a"): old}
    assert competitor.counts() == (1, 1)


async def test_a_lock_that_was_taken_over_meanwhile_is_not_taken_again(store: Store, competitor: Competitor):
    old = await held_by_settled(store, competitor, "a")
    theirs = new_unique("a")
    await store.take_over(TakeOver(theirs, old), wait_seconds=1)

    answer = await store.take_over(TakeOver(new_unique("a"), old), wait_seconds=1)

    assert answer in (Unseen(), Held(theirs.task.id, await row(store, theirs.task.id)))
    assert competitor.locks() == {pad("a"): theirs.task.id}
    assert competitor.counts() == (2, 1)


async def test_a_lock_that_was_pruned_meanwhile_leads_to_one_row_or_none(store: Store, competitor: Competitor):
    old = await held_by_settled(store, competitor, "a")
    competitor.run("DELETE FROM oxpull_oxpulluniquelock")
    mine = new_unique("a")

    answer = await store.take_over(TakeOver(mine, old), wait_seconds=1)

    if answer == Inserted():
        assert competitor.locks() == {mine.key: mine.task.id}
    else:
        assert answer == Unseen()
        assert competitor.counts() == (1, 0)


async def test_a_holder_that_is_being_written_is_waited_for_no_longer_than_asked(store: Store, competitor: Competitor):
    old = await held_by_settled(store, competitor, "a")
    competitor.begin()
    competitor.set_task(old, status="READY")
    began = time.monotonic()

    with pytest.raises(LockNotAvailable):
        await store.take_over(TakeOver(new_unique("a"), old), wait_seconds=0.2)

    assert time.monotonic() - began < 3
    competitor.rollback()
    assert competitor.locks() == {pad("a"): old}
    assert competitor.counts() == (1, 1)


# The writer of SQLite is one for the whole database, so there the retry and the take-over just come one after another.
async def test_a_retry_that_commits_while_we_wait_wins(store: Store, competitor: Competitor):
    old = await held_by_settled(store, competitor, "a")
    answers: list[Attempt] = []

    async def take_over() -> None:
        answers.append(await store.take_over(TakeOver(new_unique("a"), old), wait_seconds=LONG))

    async with anyio.create_task_group() as group:
        competitor.begin()
        competitor.set_task(old, status="READY")
        group.start_soon(take_over)
        await _someone_waits(competitor)
        await aside(competitor.commit)

    assert answers == [Held(old, await row(store, old))]
    assert competitor.counts() == (1, 1)


async def test_of_many_who_take_over_one_wins(store: Store, competitor: Competitor):
    old = await held_by_settled(store, competitor, "a")
    uniques = [new_unique("a") for _ in range(8)]
    answers: dict[UUID, Attempt] = {}

    async def take_over(unique: NewUnique) -> None:
        answers[unique.task.id] = await store.take_over(TakeOver(unique, old), wait_seconds=LONG)

    async with anyio.create_task_group() as group:
        for unique in uniques:
            group.start_soon(take_over, unique)

    (winner,) = [task_id for task_id, answer in answers.items() if answer == Inserted()]
    assert competitor.locks() == {pad("a"): winner}
    assert competitor.counts() == (2, 1)


async def _someone_waits(competitor: Competitor) -> None:
    """Until the store's session is seen waiting for the competitor's."""
    if competitor.scheme == "sqlite":
        await anyio.sleep(0.05)  # a waiting writer leaves no trace that another could see
        return

    def seen() -> bool:
        with competitor.another() as observer:
            return observer.waiting_sessions() > 0

    await eventually(lambda: aside(seen))
