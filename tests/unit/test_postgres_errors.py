"""PostgreSQL's errors are known by their SQLSTATE, whichever driver tells it."""

from __future__ import annotations

import traceback
from uuid import uuid4

import asyncpg
import pytest

from oxpull_async import (
    ConnectionLost,
    DeadlockDetected,
    InvalidSettings,
    LockNotAvailable,
    Oxpull,
    SavepointMissing,
    SerializationFailure,
    StoreError,
    WrongDatabase,
)
from oxpull_async.drivers._statements import Statement
from oxpull_async.drivers.postgres.errors import classify
from oxpull_async.drivers.postgres.pool import Connection


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
        ("53300", ConnectionLost),
        ("57P01", ConnectionLost),
        ("57P03", ConnectionLost),
        ("25P03", ConnectionLost),
        ("25P04", ConnectionLost),
        ("08006", ConnectionLost),
        ("53100", StoreError),
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


@pytest.mark.parametrize(
    ("code", "transient"), [("53100", True), ("53200", True), ("25006", True), ("22P05", False), ("42501", False)]
)
def test_what_may_pass_by_itself_is_worth_repeating(code: str, transient: bool):
    found = classify(OfPsycopg(code))

    assert isinstance(found, StoreError)
    assert found.transient is transient


async def test_a_connection_to_a_server_that_only_reads_is_given_up():
    class Raw:
        is_cut = False

        async def fetch(self, *arguments: object, timeout: float | None) -> None:
            raise asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction")

        def is_closed(self) -> bool:
            return self.is_cut

        def terminate(self) -> None:
            self.is_cut = True

    raw = Raw()

    with pytest.raises(StoreError, match="read-only"):
        await Connection(raw).execute(Statement("insert", "INSERT INTO note VALUES (1)")())

    assert raw.is_cut


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
async def test_a_url_that_cannot_be_read_is_told_without_its_password(scheme: str):
    password = uuid4().hex  # the traceback quotes lines of this file

    with pytest.raises(InvalidSettings, match="%23") as caught:
        await Oxpull(f"{scheme}://user:{password}#word@localhost/shop").open()

    assert password not in "".join(traceback.format_exception(caught.value))
