"""What ``add_many`` reports, in a few bytes for each call."""

from __future__ import annotations

import sys
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxpull_async import Addition, Additions

additions = st.lists(st.builds(Addition, st.uuids(), st.booleans(), st.booleans()), max_size=20)


@given(additions)
def test_it_is_a_sequence_of_what_was_put_in(items: list[Addition]) -> None:
    found = Additions()
    found.extend(items)

    assert list(found) == items
    assert found[:] == items
    assert list(reversed(found)) == items[::-1]
    assert [found[-number] for number in range(1, len(items) + 1)] == items[::-1]
    assert found.created == sum(item.created for item in items)
    assert found.added == sum(not item.already_member for item in items)


def test_beyond_its_end_there_is_nothing() -> None:
    found = Additions()
    with pytest.raises(IndexError):
        found[0]
    found.extend_created([uuid4()])
    with pytest.raises(IndexError):
        found[1]
    with pytest.raises(IndexError):
        found[-2]


def test_a_call_takes_seventeen_bytes() -> None:
    found = Additions()
    found.extend_created([UUID(int=number) for number in range(10_000)])

    assert sys.getsizeof(found._ids) + sys.getsizeof(found._flags) < 20 * 10_000
    assert found[1234] == Addition(UUID(int=1234), True, False)
    assert "10000 calls" in repr(found)
