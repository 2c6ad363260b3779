"""When a worker process that died is started again."""

from __future__ import annotations

import pytest

from oxpull_async.cli.slots import RECYCLED, USAGE, Done, GiveUp, Restart, Slot, exit_code, in_words


def test_deaths_one_after_another_are_waited_after_for_longer() -> None:
    slot = Slot(0, ends=False, started_at=1000.0)

    answers = [slot.after(1, 1000.0 + number * 30) for number in range(2)]
    answers += [slot.after(1, 1000.0 + number) for number in (40, 41, 42)]

    assert answers == [Restart(1.0), Restart(2.0), Restart(4.0), Restart(8.0), Restart(16.0)]
    assert slot.after(1, 1043.0) == GiveUp(1)


def test_who_lived_for_a_minute_is_started_again_soon() -> None:
    slot = Slot(0, ends=False, started_at=1000.0)
    slot.after(1, 1001.0)
    slot.after(1, 1002.0)
    slot.started_at = 1010.0

    assert slot.after(1, 1070.0) == Restart(1.0)


def test_recycling_counts_as_no_death() -> None:
    slot = Slot(0, ends=False)

    assert [slot.after(RECYCLED, float(number)) for number in range(20)] == [Restart(1.0)] * 20


def test_who_ends_in_order_is_started_again_unless_that_was_all() -> None:
    assert Slot(0, ends=False).after(0, 1.0) == Restart(0.0)
    assert Slot(0, ends=True).after(0, 1.0) == Done()


def test_a_wrong_call_is_not_repeated() -> None:
    assert Slot(0, ends=False).after(USAGE, 1.0) == GiveUp(USAGE)


@pytest.mark.parametrize(
    ("code", "told", "words"), [(1, 1, "with exit code 1"), (-9, 137, "by SIGKILL"), (-15, 143, "by SIGTERM")]
)
def test_an_end_is_told_as_a_shell_tells_it(code: int, told: int, words: str) -> None:
    assert exit_code(code) == told
    assert in_words(code) == words
