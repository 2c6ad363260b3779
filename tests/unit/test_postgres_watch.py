"""Who looks after statements that carry no timer of their own."""

from __future__ import annotations

from oxpull_async.drivers.postgres._watch import Watch
from tests.eventually import eventually


class Wire:
    """A connection that can only be cut."""

    def __init__(self) -> None:
        self.is_cut = False

    def terminate(self) -> None:
        self.is_cut = True


async def test_a_connection_whose_server_has_fallen_silent_is_cut():
    watch, silent = Watch(0.02), Wire()

    watch.begin(silent)

    await eventually(lambda: silent.is_cut)
    watch.stop()


async def test_what_has_ended_in_time_is_left_alone_and_looking_ends_with_it():
    watch, quick, silent = Watch(0.02), Wire(), Wire()

    watch.begin(quick)
    watch.begin(silent)
    watch.end(quick)

    await eventually(lambda: silent.is_cut)
    assert not quick.is_cut
    watch.end(silent)
    await eventually(lambda: watch._timer is None)


async def test_after_stopping_nothing_is_looked_at():
    watch, silent, other = Watch(0.02), Wire(), Watch(0.02)
    later = Wire()
    watch.begin(silent)
    watch.stop()

    other.begin(later)

    await eventually(lambda: later.is_cut)
    assert not silent.is_cut
