"""PostgreSQL's errors are known by their SQLSTATE, whichever driver tells it."""

from __future__ import annotations

import traceback
from uuid import uuid4

import pytest

from oxpull_async import (
    DeadlockDetected,
    InvalidSettings,
    LockNotAvailable,
    Oxpull,
    SavepointMissing,
    SerializationFailure,
    StoreError,
    WrongDatabase,
)
from oxpull_async.drivers.postgres.errors import classify


class OfPsycopg(Exception):
    def __init__(self, code: str | None) -> None:
        super().__init__("words")
        self.sqlstate = code


class OfPsycopg2(Exception):
    def __init__(self, code: str | None) -> None:
        super().__init__("words")
        self.pgcode = code


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        ("3D000", WrongDatabase, "Create the database"),
        ("28P01", StoreError, "the user and the password"),
        ("42P01", WrongDatabase, "oxpull-async migrate"),
    ],
)
def test_a_newcomer_is_told_what_to_do(code: str, kind: type[Exception], advice: str):
    found = classify(OfPsycopg(code))

    assert type(found) is kind
    assert advice in str(found)


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


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
async def test_a_url_that_cannot_be_read_is_told_without_its_password(scheme: str):
    password = uuid4().hex  # the traceback quotes lines of this file

    with pytest.raises(InvalidSettings, match="%23") as caught:
        await Oxpull(f"{scheme}://user:{password}#word@localhost/shop").open()

    assert password not in "".join(traceback.format_exception(caught.value))
