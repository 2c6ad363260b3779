"""Registering hooks."""

from __future__ import annotations

from typing import Any

import pytest

from oxpull_async import InvalidTask, Oxpull


def test_an_event_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(InvalidTask, match="'done'.*enqueued, started, finished, reclaimed"):
        Oxpull().on("done", print)  # type: ignore[call-overload]


@pytest.mark.parametrize("hook", [5, "print", object()])
def test_what_cannot_be_called_is_no_hook(hook: Any):
    with pytest.raises(InvalidTask, match="must be a function"):
        Oxpull().on("enqueued", hook)
    with pytest.raises(InvalidTask, match="must be a function"):
        Oxpull().on("enqueued")(hook)
