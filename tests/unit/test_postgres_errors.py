"""PostgreSQL's errors are known by their SQLSTATE, whichever driver tells it."""

from __future__ import annotations

import pytest

from oxpull_async import DeadlockDetected, LockNotAvailable, SavepointMissing, SerializationFailure, StoreError
from oxpull_async.drivers.postgres.errors import classify


class OfPsycopg(Exception):
    def __init__(self, code: str | None) -> None:
        super().__init__("words")
        self.sqlstate = code


class OfPsycopg2(Exception):
    def __init__(self, code: str | None) -> None:
        super().__init__("words")
        self.pgcode = code


@pytest.mark.parametrize("driver", [OfPsycopg, OfPsycopg2])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("40001", SerializationFailure),
        ("40P01", DeadlockDetected),
        ("55P03", LockNotAvailable),
        ("3B001", SavepointMissing),
        ("22P05", StoreError),
        (None, StoreError),
    ],
)
def test_an_error_is_known_by_its_state(
    driver: type[OfPsycopg] | type[OfPsycopg2], code: str | None, kind: type[StoreError]
):
    found = classify(driver(code))

    assert type(found) is kind
    assert isinstance(found, StoreError)
    assert found.code == code
