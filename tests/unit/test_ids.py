"""The ids we make."""

from __future__ import annotations

import os

import pytest

from oxpull_async._ids import new_id


def test_ids_are_of_version_seven_distinct_and_ascending() -> None:
    ids = [new_id() for _ in range(1_000)]

    assert {made.version for made in ids} == {7}
    assert len(set(ids)) == 1_000
    assert ids == sorted(ids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_make_ids_of_their_own() -> None:
    new_id()
    made = []
    for _ in range(2):
        reader, writer = os.pipe()
        if os.fork() == 0:  # pragma: no cover - the child's coverage is lost
            os.write(writer, new_id().bytes)
            os._exit(0)
        os.wait()
        made.append(os.read(reader, 16))
        os.close(reader)
        os.close(writer)

    # The first 6 bytes are the time, which may well be the same.
    assert len({whole[7:] for whole in made}) == 2
