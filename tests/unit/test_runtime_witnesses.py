"""Witnesses: who is waited for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from oxpull_async.ports_batches import SealedBatch
from oxpull_async.runtime.witnesses import Witnesses


def sealed() -> SealedBatch:
    return SealedBatch(uuid4(), "", "", True, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_batch_has_no_witness_until_one_is_set() -> None:
    witnesses, member = Witnesses(), uuid4()
    waiting = witnesses.keep(sealed())
    assert witnesses.without == [waiting]

    witnesses.set(waiting, member)

    assert (witnesses.without, witnesses.tasks, waiting.cursor) == ([], [member], member)


def test_two_batches_may_wait_for_the_same_member() -> None:
    witnesses, member = Witnesses(), uuid4()
    both = [witnesses.keep(sealed()) for _ in range(2)]
    for waiting in both:
        witnesses.set(waiting, member)

    assert not witnesses.settled([uuid4()])
    assert witnesses.settled([member])

    assert witnesses.without == both
    assert witnesses.tasks == []
    assert not witnesses.settled([member])


def test_what_is_known_of_a_batch_stays_while_it_is_seen_again() -> None:
    witnesses, member, batch = Witnesses(), uuid4(), sealed()
    witnesses.set(witnesses.keep(batch), member)

    waiting = witnesses.keep(replace(batch, is_counted=False))

    assert (waiting.witness, waiting.batch.is_counted, len(witnesses)) == (member, False, 1)


def test_a_batch_that_is_no_longer_sealed_is_forgotten_with_its_witness() -> None:
    witnesses, kept, gone = Witnesses(), sealed(), sealed()
    for batch in (kept, gone):
        witnesses.set(witnesses.keep(batch), uuid4())

    witnesses.forget_all_but([kept.id])
    witnesses.forget(uuid4())

    assert [waiting.batch for waiting in witnesses.all] == [kept]
    assert len(witnesses.tasks) == 1


def test_a_new_witness_replaces_the_old_one() -> None:
    witnesses, old, new = Witnesses(), uuid4(), uuid4()
    waiting = witnesses.keep(sealed())
    witnesses.set(waiting, old)

    witnesses.set(waiting, new)

    assert witnesses.tasks == [new]
    assert not witnesses.settled([old])
