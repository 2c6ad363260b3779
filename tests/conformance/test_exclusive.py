"""Places of a key: taken, renewed, given back, kept for who is first in line, and over by the database's clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from oxpull_async._ids import new_id
from oxpull_async.core.exclusivity import RESERVED_SECONDS, mutex_key
from oxpull_async.ports import Store
from oxpull_async.ports_exclusive import Freed, HeldPlace, Renewal, Waiting, Wanted
from tests.conformance.exclusive_rows import KEY, acquired, ask, claim, counts, in_line, run_out, wanted
from tests.conformance.rows import PATH, WORKER, inserted, now, row
from tests.integration.competitor import Competitor


async def test_one_caller_has_a_key_and_the_next_waits(store: Store):
    wish = wanted()

    held = await acquired(store, wish)

    assert (held.key, held.owner, held.lease_seconds) == (wish.key, wish.owner, 60.0)
    answer = await ask(store, wanted())
    assert isinstance(answer, Waiting)
    assert 50 < answer.seconds < 60.01


async def test_keys_have_nothing_to_do_with_one_another(store: Store):
    await acquired(store, wanted("a"))

    assert isinstance(await ask(store, wanted("b")), HeldPlace)


async def test_a_token_is_larger_than_all_before_it(store: Store, competitor: Competitor):
    tokens = []
    for _ in range(3):
        held = await acquired(store)
        tokens.append(held.token)
        await store.exclusive.release([held])
    tokens.append((await acquired(store)).token)
    run_out(competitor)
    tokens.append((await acquired(store)).token)

    assert tokens == sorted(set(tokens))


async def test_tokens_grow_even_where_the_key_was_forgotten_meanwhile(store: Store):
    held = await acquired(store)
    await store.exclusive.release([held])

    assert await store.exclusive.forget_idle(idle_seconds=-1, limit=10) == 1

    again = await acquired(store)
    assert again.token > held.token


async def test_a_key_that_is_used_isn_t_forgotten(store: Store):
    held = await acquired(store)
    waiter = await in_line(store)

    assert await store.exclusive.forget_idle(idle_seconds=-1, limit=10) == 0
    await store.exclusive.release([held])
    await store.exclusive.abandon(waiter.key, waiter.owner)
    assert await store.exclusive.forget_idle(idle_seconds=3600, limit=10) == 0
    assert await store.exclusive.forget_idle(idle_seconds=-1, limit=10) == 1


async def test_a_key_with_several_places_is_held_by_as_many(store: Store):
    first, second, third = [await acquired(store, wanted(capacity=3)) for _ in range(3)]

    await in_line(store, wanted(capacity=3))

    assert len({first.token, second.token, third.token}) == 3


async def test_who_asks_again_under_the_same_name_has_what_it_had(store: Store):
    wish = wanted()

    assert await acquired(store, wish) == await acquired(store, wish)


# release


async def test_what_was_given_back_can_be_taken(store: Store, competitor: Competitor):
    held = await acquired(store)

    released, freed = await store.exclusive.release([held])

    assert released == 1
    assert freed == Freed()
    assert counts(competitor) == (0, 0)
    await acquired(store)


@pytest.mark.parametrize("change", ["owner", "token", "key"])
async def test_nobody_gives_back_what_is_another_s(store: Store, change: str):
    held = await acquired(store)
    other: dict[str, Any] = {"owner": new_id(), "token": held.token + 1, "key": mutex_key("other")}

    released, _ = await store.exclusive.release([held._replace(**{change: other[change]})])

    assert released == 0
    await in_line(store)


async def test_a_place_that_was_lost_is_not_given_back(store: Store, competitor: Competitor):
    lost = await acquired(store)
    run_out(competitor)
    now_held = await acquired(store)

    assert (await store.exclusive.release([lost]))[0] == 0

    assert (await store.exclusive.renew([now_held])).lost == []


async def test_many_are_given_back_at_once(store: Store, competitor: Competitor):
    places = [await acquired(store, wanted(f"key:{number}")) for number in range(5)]

    released, _ = await store.exclusive.release(places)

    assert released == len(places)
    assert counts(competitor) == (0, 0)


# The line


async def test_what_is_given_back_is_kept_for_who_is_first_in_line(store: Store):
    held = await acquired(store)
    first, second = await in_line(store), await in_line(store)

    _, freed = await store.exclusive.release([held])

    assert freed.callers == [first.owner]
    answer = await ask(store, second)
    assert isinstance(answer, Waiting)
    assert answer.seconds < RESERVED_SECONDS + 1
    assert isinstance(await ask(store, wanted(), patience=None), Waiting)
    assert (await acquired(store, first)).token > held.token


async def test_callers_are_served_in_the_order_in_which_they_came(store: Store):
    held = await acquired(store)
    waiters = [await in_line(store) for _ in range(5)]

    served = []
    for _ in waiters:
        _, freed = await store.exclusive.release([held])
        (owner,) = freed.callers
        served.append(owner)
        held = await acquired(store, replace(wanted(), owner=owner))

    assert served == [waiter.owner for waiter in waiters]


async def test_a_place_that_isn_t_taken_in_time_goes_to_the_next(store: Store, competitor: Competitor):
    held = await acquired(store)
    absent, second = await in_line(store), await in_line(store)
    await store.exclusive.release([held])

    run_out(competitor)

    assert isinstance(await ask(store, second), HeldPlace)
    assert isinstance(await ask(store, absent), Waiting)


async def test_who_is_first_in_line_is_served_before_a_newcomer_when_a_lease_is_over(
    store: Store, competitor: Competitor
):
    await acquired(store)
    first = await in_line(store)

    run_out(competitor)

    assert isinstance(await ask(store, wanted()), Waiting)
    assert isinstance(await ask(store, first), HeldPlace)


async def test_who_has_stopped_asking_loses_its_place_in_line(store: Store, competitor: Competitor):
    held = await acquired(store)
    gone = [await in_line(store) for _ in range(3)]
    run_out(competitor, "waiter")
    last = await in_line(store)

    _, freed = await store.exclusive.release([held])

    assert freed.callers == [last.owner]
    assert isinstance(await ask(store, gone[0]), Waiting)


async def test_asking_again_keeps_the_place_in_line(store: Store, competitor: Competitor):
    held = await acquired(store)
    first, second = await in_line(store), await in_line(store)
    run_out(competitor, "waiter")
    await in_line(store, second)
    await in_line(store, first)

    _, freed = await store.exclusive.release([held])

    assert freed.callers == [first.owner]


async def test_who_gives_up_makes_room_for_the_next(store: Store, competitor: Competitor):
    held = await acquired(store)
    first, second = await in_line(store), await in_line(store)
    await store.exclusive.release([held])

    freed = await store.exclusive.abandon(first.key, first.owner)

    assert freed.callers == [second.owner]
    assert (await store.exclusive.abandon(second.key, second.owner)).callers == []
    assert counts(competitor) == (0, 0)


async def test_who_only_tries_once_leaves_no_place_in_line(store: Store, competitor: Competitor):
    await acquired(store)

    assert isinstance(await ask(store, wanted(), patience=None), Waiting)

    assert counts(competitor) == (1, 0)


async def test_a_wider_key_lets_in_as_many_as_there_are_places(store: Store):
    held = [await acquired(store, wanted(capacity=2)) for _ in range(2)]
    waiters = [await in_line(store, wanted(capacity=2)) for _ in range(3)]

    _, freed = await store.exclusive.release(held)

    assert freed.callers == [waiter.owner for waiter in waiters[:2]]


async def test_a_look_tells_whether_to_ask_again(store: Store, competitor: Competitor):
    held = await acquired(store)
    first, second = await in_line(store), await in_line(store)

    async def looks() -> list[bool]:
        return [await store.exclusive.has_place(w.key, w.owner, 1) for w in (first, second)]

    assert await looks() == [False, False]
    await store.exclusive.release([held])
    assert await looks() == [True, False]
    run_out(competitor)
    assert await looks() == [True, True]


# renew


async def test_a_renewed_lease_begins_anew(store: Store):
    held = await acquired(store, wanted(lease=5))

    longer = held._replace(lease_seconds=500)
    assert await store.exclusive.renew([longer]) == Renewal([longer], [])

    answer = await ask(store, wanted())
    assert isinstance(answer, Waiting)
    assert answer.seconds > 400


async def test_a_lease_that_is_over_is_renewed_as_long_as_nobody_has_the_place_instead(
    store: Store, competitor: Competitor
):
    held = await acquired(store)
    run_out(competitor)

    assert await store.exclusive.renew([held]) == Renewal([held], [])
    await in_line(store)


async def test_a_renewal_tells_which_places_are_lost(store: Store, competitor: Competitor):
    lost, kept = await acquired(store, wanted("a")), await acquired(store, wanted("b"))
    run_out(competitor)
    await acquired(store, wanted("a"))

    assert await store.exclusive.renew([lost, kept]) == Renewal([kept], [lost])


@pytest.mark.parametrize("change", ["owner", "token"])
async def test_nobody_renews_what_is_another_s(store: Store, change: str):
    held = await acquired(store)
    other: dict[str, Any] = {"owner": new_id(), "token": held.token + 1}
    stranger = held._replace(**{change: other[change]})

    assert await store.exclusive.renew([stranger]) == Renewal([], [stranger])


# Crowds


async def test_of_many_who_come_at_once_one_is_let_in(store: Store):
    wishes = [wanted() for _ in range(20)]

    answers = await asyncio.gather(*(ask(store, wish) for wish in wishes))

    assert sum(isinstance(answer, HeldPlace) for answer in answers) == 1


async def test_a_crowd_is_served_one_by_one_with_tokens_that_grow(store: Store):
    inside, seen = 0, list[int]()
    wishes = [wanted() for _ in range(12)]
    told = {wish.owner: asyncio.Event() for wish in wishes}

    def tell(freed: Freed) -> None:
        for owner in freed.callers:
            told[owner].set()

    async def let_in(wish: Wanted) -> HeldPlace:
        while True:
            answer, freed = await store.exclusive.acquire(wish, patience_seconds=30)
            tell(freed)
            if isinstance(answer, HeldPlace):
                return answer
            await told[wish.owner].wait()

    async def visit(index: int) -> None:
        nonlocal inside
        answer = await let_in(wishes[index])
        assert inside == 0
        inside += 1
        seen.append(answer.token)
        await asyncio.sleep(0)
        inside -= 1
        _, freed = await store.exclusive.release([answer])
        tell(freed)

    await asyncio.gather(*map(visit, range(len(wishes))))

    assert seen == sorted(set(seen))
    assert len(seen) == len(wishes)


async def test_a_name_of_any_length_and_any_characters_is_a_key(store: Store):
    names = ["", "x" * 5000, "a\0b", "\ud800", "é" * 300, "'; DROP TABLE x --", KEY]

    held = [await acquired(store, wanted(name)) for name in names]

    assert len({place.key for place in held}) == len(names)


async def test_it_is_told_who_has_a_key_and_how_many_wait(store: Store, competitor: Competitor):
    (task,) = await inserted(store, args='["a"]')
    ((claimed, _),) = (await claim(store)).granted
    before = now()
    block = await acquired(store, wanted("b", lease=600))
    await in_line(store, wanted("b"))
    await in_line(store, wanted("b"))

    b, a = await store.exclusive.holders(key=None, limit=10)

    assert (b.name, b.fence, b.owner, b.task_path, b.worker_id, b.since) == (
        "b", block.token, block.owner, None, None, None,
    )  # fmt: skip
    assert abs(b.until - before - timedelta(seconds=600)) < timedelta(seconds=300)
    assert (b.waiting, b.is_reserved, b.is_over) == (2, False, False)
    assert (a.name, a.owner, a.task_path, a.worker_id, a.waiting) == ("key:a", task.id, PATH, WORKER, 0)
    assert a.since == (await row(store, claimed.id)).last_attempted_at
    assert len(await store.exclusive.holders(key=None, limit=1)) == 1

    _, freed = await store.exclusive.release([block])
    (kept,) = await store.exclusive.holders(key=block.key, limit=10)
    assert (kept.is_reserved, [kept.owner], kept.waiting) == (True, list(freed.callers), 1)
    run_out(competitor)
    assert (await store.exclusive.holders(key=block.key, limit=10))[0].is_over
    assert await store.exclusive.holders(key="x", limit=10) == []
