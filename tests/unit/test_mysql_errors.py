"""What becomes of the errors of the MySQL family, which only their numbers tell apart."""

from __future__ import annotations

import asyncmy.errors
import pymysql.err
import pytest

from oxpull_async.drivers.mysql.errors import DRIVER_ERRORS, NOT_SENT, classify
from oxpull_async.exceptions import (
    ConnectionLost,
    DeadlockDetected,
    LockNotAvailable,
    OxpullError,
    SavepointMissing,
    SerializationFailure,
    StatementTimeout,
    StoreError,
    UniqueViolation,
    WrongDatabase,
)

either_driver = pytest.mark.parametrize("errors", [asyncmy.errors, pymysql.err], ids=["asyncmy", "pymysql"])


@either_driver
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1205, LockNotAvailable),
        (3572, LockNotAvailable),
        (1213, DeadlockDetected),
        (3101, DeadlockDetected),
        (1020, SerializationFailure),
        (1969, StatementTimeout),
        (3024, StatementTimeout),
        (1317, StatementTimeout),
        (1040, ConnectionLost),
        (1053, ConnectionLost),
        (1927, ConnectionLost),
        (4031, ConnectionLost),
        (2003, ConnectionLost),
        (2006, ConnectionLost),
        (2013, ConnectionLost),
        (1146, WrongDatabase),
        (1054, WrongDatabase),
        (1176, WrongDatabase),
        (1049, WrongDatabase),
    ],
)
def test_a_number_is_an_error_of_ours(errors: object, number: int, kind: type[OxpullError]):
    found = classify(errors.OperationalError(number, "it says why"))  # type: ignore[attr-defined]

    assert type(found) is kind
    assert "it says why" in str(found)
    assert str(number) in str(found)
    if isinstance(found, StoreError):
        assert found.code == number


def test_an_unknown_number_is_a_store_error_that_is_not_worth_repeating():
    found = classify(asyncmy.errors.DataError(1406, "Data too long for column 'task_path' at row 1"))

    assert type(found) is StoreError
    assert (found.code, found.transient) == (1406, False)


@pytest.mark.parametrize("number", [1290, 1836, 1114, 1047, 1206])
def test_what_may_pass_is_worth_repeating(number: int):
    found = classify(asyncmy.errors.OperationalError(number, "not now"))

    assert type(found) is StoreError
    assert found.transient


@pytest.mark.parametrize(
    ("message", "table"),
    [
        ("Duplicate entry 'ab' for key 'oxpull_oxpulluniquelock.PRIMARY'", "oxpull_oxpulluniquelock"),
        ("Duplicate entry 'ab' for key 'PRIMARY'", None),
        ("Duplicate entry 'a-2026' for key 'ox_tick_uniq'", "django_ox_oxscheduletick"),
        ("Duplicate entry 'a' for key 'oxpull_batch_member_uniq'", "oxpull_oxpullbatchmember"),
        ("Doppelter Eintrag 'ab'", None),
    ],
)
def test_a_key_that_exists_names_its_table_where_the_server_does(message: str, table: str | None):
    found = classify(asyncmy.errors.IntegrityError(1062, message))

    assert isinstance(found, UniqueViolation)
    assert (found.table, found.code) == (table, 1062)


def test_another_broken_constraint_is_no_key_that_exists():
    found = classify(asyncmy.errors.IntegrityError(1452, "a foreign key constraint fails"))

    assert type(found) is StoreError


def test_a_savepoint_that_is_gone_is_told_from_a_function_that_is_missing():
    gone = classify(asyncmy.errors.OperationalError(1305, "SAVEPOINT oxpull_1 does not exist"))
    missing = classify(asyncmy.errors.OperationalError(1305, "FUNCTION dev.sha9 does not exist"))

    assert type(gone) is SavepointMissing
    assert type(missing) is StoreError


@pytest.mark.parametrize(
    "error",
    [
        asyncmy.errors.InterfaceError(0, "Not connected"),
        asyncmy.errors.InterfaceError(0, "Cancelled during execution"),
        pymysql.err.InterfaceError("(0, 'Not connected')"),
        pymysql.err.InterfaceError("Cancelled during execution"),
        asyncmy.errors.InternalError("Packet sequence number wrong - got 3 expected 1"),
        asyncmy.errors.InterfaceError(),
        ConnectionRefusedError(111, "Connection refused"),
    ],
    ids=str,
)
def test_what_the_client_says_itself_means_a_lost_connection(error: Exception):
    assert type(classify(error)) is ConnectionLost


def test_whether_anything_was_sent_is_known_by_number():
    not_connected = classify(asyncmy.errors.InterfaceError(0, "Not connected"))
    gone = classify(asyncmy.errors.OperationalError(2006, "MySQL server has gone away"))
    during = classify(asyncmy.errors.OperationalError(2013, "Lost connection to MySQL server during query"))

    codes = [error.code for error in (not_connected, gone, during) if isinstance(error, StoreError)]
    assert [code in NOT_SENT for code in codes] == [True, True, False]


def test_a_time_out_is_one():
    assert type(classify(TimeoutError())) is StatementTimeout


def test_only_errors_of_the_driver_and_the_network_are_caught():
    assert issubclass(asyncmy.errors.OperationalError, DRIVER_ERRORS)
    assert issubclass(TimeoutError, DRIVER_ERRORS)
    assert not issubclass(ValueError, DRIVER_ERRORS)
