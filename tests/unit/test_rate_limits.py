"""What a rate limit covers, and how much of it is left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxpull_async import InvalidSettings, Oxpull, RateLimit
from oxpull_async.core.allotments import Group, allotted, grouped, totals, wanted
from oxpull_async.core.limits import Bucket, Meter, Window, current, drawn, full_at, left, opens_at

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def limit(number: int = 10, per: Any = 60, **options: Any) -> RateLimit:
    return RateLimit(number, per, **({"tasks": ["a.b"]} | options))


def test_a_window_counts_until_it_is_over():
    hourly = limit(3, 3600)

    assert left(hourly, Window(4, NOON, 1)) == 2
    assert left(hourly, Window(4, NOON, 5)) == 0
    assert current(hourly, Window(4, NOON, 5), NOON + 3599 * SECOND) == Window(4, NOON, 5)
    assert current(hourly, Window(4, NOON, 5), NOON + 3600 * SECOND) == Window(5, NOON + 3600 * SECOND, 0)
    assert drawn(hourly, Window(4, NOON, 1), 2) == Window(4, NOON, 3)
    assert opens_at(hourly, Window(4, NOON, 3)) == NOON + 3600 * SECOND


@pytest.mark.parametrize("length", [1, 60, 86_400])
@pytest.mark.parametrize(
    "begun", [datetime(2026, 6, 1, 23, 59, 59, tzinfo=UTC), datetime(2026, 12, 31, 23, 59, 59, 999_999, UTC)]
)
def test_nothing_happens_at_midnight_and_after_an_idle_day_all_is_open(length: int, begun: datetime):
    used_up = drawn(limit(3, length), Window(7, begun, 0), 3)
    last = begun + length * SECOND - timedelta(microseconds=1)

    assert left(limit(3, length), current(limit(3, length), used_up, last)) == 0
    assert current(limit(3, length), used_up, begun + length * SECOND) == Window(8, begun + length * SECOND, 0)
    assert left(limit(3, length), current(limit(3, length), used_up, begun + timedelta(days=2))) == 3

    smooth = limit(3, length, smooth=True, burst=2)
    empty = drawn(smooth, Bucket(2.0, begun), 2)
    assert opens_at(smooth, empty) == begun + length * SECOND / 3
    assert left(smooth, current(smooth, empty, begun + timedelta(days=2))) == 2


def test_a_clock_that_was_set_back_closes_no_limit_for_longer_than_its_window():
    ahead = Window(4, NOON + timedelta(hours=1), 3)

    assert current(limit(3, 60), ahead, NOON) == Window(5, NOON, 0)
    assert current(limit(3, 60), Window(4, NOON + SECOND, 3), NOON) == Window(4, NOON + SECOND, 3)


def test_a_smooth_limit_lets_one_start_at_a_time():
    smooth = limit(10, 1, smooth=True)
    empty = drawn(smooth, Bucket(1.0, NOON), 1)

    assert left(smooth, Bucket(1.0, NOON)) == 1
    assert left(smooth, empty) == 0
    assert opens_at(smooth, empty) == NOON + SECOND / 10
    assert left(smooth, current(smooth, empty, NOON + SECOND / 20)) == 0
    assert left(smooth, current(smooth, empty, NOON + SECOND / 10)) == 1
    assert left(smooth, current(smooth, empty, NOON + 100 * SECOND)) == 1


def test_a_burst_is_what_may_start_after_a_pause():
    bursting = limit(10, 1, smooth=True, burst=4)

    assert left(bursting, current(bursting, Bucket(0, NOON), NOON + 100 * SECOND)) == 4
    assert limit(10, 1, by="customer").capacity == 10
    assert limit(10, 1, by="customer", smooth=True).capacity == 1


@given(st.integers(1, 50), st.floats(0.01, 100), st.lists(st.tuples(st.floats(0, 50), st.integers(0, 60)), max_size=30))
def test_a_bucket_never_gives_more_than_its_rate_and_its_burst(number, per, steps):
    smooth = limit(number, per, smooth=True, burst=3)
    meter: Meter = Bucket(3.0, NOON)
    now, taken = NOON, 0
    for pause, asked in steps:
        now += timedelta(seconds=pause)
        meter = current(smooth, meter, now)
        granted = min(asked, left(smooth, meter))
        meter = drawn(smooth, meter, granted)
        taken += granted

        assert taken <= 3 + (now - NOON).total_seconds() * number / per + 1e-6
        assert left(smooth, meter) >= 0


def test_a_bucket_is_full_when_nothing_of_what_was_drawn_is_missing():
    bursting = limit(10, 1, smooth=True, burst=4)

    assert full_at(bursting, Bucket(1.0, NOON)) == NOON + SECOND * 3 / 10
    assert left(bursting, current(bursting, Bucket(1.0, NOON), full_at(bursting, Bucket(1.0, NOON)))) == 4


def test_a_limit_of_nothing_never_opens():
    assert left(limit(0), Window(0, NOON, 0)) == 0
    assert opens_at(limit(0), Window(0, NOON, 0)) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"number": -1}, "limit must be a whole number"),
        ({"number": True}, "limit must be a whole number"),
        ({"number": 1.5}, "limit must be a whole number"),
        ({"per": 0}, "per must be whole seconds"),
        ({"per": 1.5}, "per must be whole seconds"),
        ({"per": 0, "smooth": True}, "per must be whole seconds"),
        ({"per": "1"}, "number of seconds or a timedelta"),
        ({"tasks": []}, "covers tasks or queues"),
        ({"tasks": "a.b"}, "is a list"),
        ({"tasks": [5]}, "names nothing"),
        ({"queues": [""]}, "names nothing"),
        ({"name": "n" * 129}, "at most 128 characters"),
        ({"burst": 2}, "goes with smooth=True"),
        ({"burst": 0, "smooth": True}, "burst must be a whole number"),
        ({"by": 5}, "name of a parameter or a function"),
    ],
)
def test_a_limit_that_cant_be_used_is_told_what_is_wrong(options, words):
    with pytest.raises(InvalidSettings, match=words):
        limit(**options)


def test_a_limit_takes_tasks_and_paths_and_a_length_of_time():
    ox = Oxpull("sqlite:///:memory:")
    task = ox.reference("a.b")

    both = RateLimit(5, timedelta(minutes=1), tasks=[task, "c.d"], queues=["mail"])

    assert both.paths == {"a.b", "c.d"}
    assert both.queue_names == {"mail"}
    assert both.seconds == 60
    assert both.name == "a.b, c.d, queue mail"
    assert both.covers("a.b", "x")
    assert both.covers("x", "mail")
    assert not both.covers("x", "x")


def test_names_derived_from_much_are_cut_to_their_column():
    one, two = (limit(tasks=[f"path.number_{n}" for n in range(20)] + [last]) for last in ("x", "y"))

    assert len(one.name) <= 128
    assert one.name != two.name
    assert len(one.key_name("k" * 200)) <= 128
    assert one.key_name("a") != one.key_name("b")
    assert limit(name="n").key_name("42") == "n:42"


def test_two_limits_of_one_name_are_refused():
    for rival in ("stripe", "Stripe"):
        with pytest.raises(InvalidSettings, match="rate_limits.*different names"):
            Oxpull(rate_limits=[limit(name="stripe"), limit(name=rival, tasks=["c.d"])])
    Oxpull(rate_limits=[limit(), limit(tasks=["c.d"])])


# Groups


def test_rows_are_grouped_by_the_limits_that_cover_them():
    limits = [limit(name="t", tasks=["a", "b"]), limit(name="q", tasks=[], queues=["mail"])]

    groups = grouped(limits, ["a", "b", "c"], None)

    assert groups == [
        Group(frozenset({"t"}), ("a", "b"), None, ("mail",)),
        Group(frozenset({"t", "q"}), ("a", "b"), ("mail",)),
        Group(frozenset(), ("c",), None, ("mail",)),
        Group(frozenset({"q"}), ("c",), ("mail",)),
    ]


def test_a_worker_of_some_queues_has_groups_of_those_alone():
    limits = [limit(name="q", tasks=[], queues=["mail", "sms"])]

    assert grouped(limits, ["a"], ["mail"]) == [Group(frozenset({"q"}), ("a",), ("mail",))]
    assert grouped(limits, ["a"], ["mail", "slow"]) == [
        Group(frozenset(), ("a",), ("slow",)),
        Group(frozenset({"q"}), ("a",), ("mail",)),
    ]
    assert grouped([], ["a"], None) == [Group(frozenset(), ("a",), None)]


PATHS, QUEUES = ["a", "b", "c"], ["x", "y", "z"]
LIMITS = st.lists(
    st.builds(
        lambda paths, queues: (paths, queues),
        st.sets(st.sampled_from(PATHS)),
        st.sets(st.sampled_from(QUEUES)),
    ).filter(any),
    max_size=4,
)


@given(LIMITS, st.none() | st.sets(st.sampled_from(QUEUES), min_size=1))
def test_each_row_is_in_the_one_group_that_has_its_limits(covered, queues):
    limits = [limit(tasks=sorted(p), queues=sorted(q), name=f"n{i}") for i, (p, q) in enumerate(covered)]
    groups = grouped(limits, PATHS, None if queues is None else sorted(queues))

    for path in PATHS:
        for queue in [*QUEUES, "other"]:
            holding = [
                group
                for group in groups
                if path in group.task_paths
                and (group.queues is None or queue in group.queues)
                and queue not in group.passed_queues
            ]
            if queues is not None and queue not in queues:
                assert holding == []
            else:
                (group,) = holding
                assert group.limits == {each.name for each in limits if each.covers(path, queue)}


ONE, TWO, NONE = (Group(frozenset(names), (names or "-",), None) for names in ("p", "pq", ""))


def test_what_is_asked_for_is_what_is_due_first():
    heads = {ONE: [(0, NOON), (0, NOON + SECOND)], TWO: [(5, NOON + 9 * SECOND)], NONE: [(0, NOON - SECOND)]}

    assert wanted(heads, 3) == {TWO: 1, NONE: 1, ONE: 1}
    assert wanted(heads, 1) == {TWO: 1}


def test_a_row_needs_every_limit_that_covers_it():
    assert allotted({TWO: 3, ONE: 5}, {"p": 4, "q": 2}) == {TWO: 2, ONE: 2}
    assert allotted({NONE: 7}, {}) == {NONE: 7}
    assert totals({TWO: 2, ONE: 2, NONE: 7}) == {"p": 4, "q": 2}
