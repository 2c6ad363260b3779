"""The names by which processes tell themselves apart."""

from __future__ import annotations

import os
from typing import Any

import pytest

from oxpull_async.runtime.identity import OwnName, new_worker_id
from oxpull_async.runtime.leader import Leader
from oxpull_async.runtime.wakeups import Announcer
from oxpull_async.settings import make_settings


def test_a_name_is_short_enough_and_no_other_s():
    names = {new_worker_id() for _ in range(100)}

    assert len(names) == 100
    assert max(map(len, names)) <= 64


def test_an_object_s_own_name_stays_and_is_another_in_a_forked_process(monkeypatch: pytest.MonkeyPatch):
    mine, other = OwnName(), OwnName()
    parent = mine()
    assert mine() == parent != other()

    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)
    child = mine()

    assert mine() == child != parent


def test_what_was_made_before_a_fork_speaks_and_leads_under_a_name_of_each_process(monkeypatch: pytest.MonkeyPatch):
    unused: Any = None
    announcer = Announcer(unused, make_settings({}))
    leader = Leader(unused, unused, OwnName())
    before = announcer.word, leader._holder()

    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)

    assert announcer.word == announcer.word != before[0]
    assert leader._holder() == leader._holder() != before[1]
