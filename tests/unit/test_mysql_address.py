"""What a mysql:// URL says, and what is refused."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from oxpull_async.drivers.mysql._address import connect_arguments
from oxpull_async.exceptions import InvalidSettings


def test_a_url_says_where_and_who():
    arguments = connect_arguments("mysql://ox:secret@db.internal:3307/queue")

    assert arguments == {
        "host": "db.internal",
        "port": 3307,
        "user": "ox",
        "password": "secret",
        "database": "queue",
        "charset": "utf8mb4",
    }


def test_what_a_url_leaves_out_has_a_default():
    arguments = connect_arguments("mariadb:///queue")

    assert (arguments["host"], arguments["port"], arguments["user"]) == ("localhost", 3306, None)
    assert arguments["password"] == ""


def test_escaped_characters_are_read():
    arguments = connect_arguments("mysql://o%40x:p%2Fw%3A%40%25@h/my%20queue")

    assert (arguments["user"], arguments["password"], arguments["database"]) == ("o@x", "p/w:@%", "my queue")


def test_an_ipv6_host_loses_its_brackets():
    assert connect_arguments("mysql://ox@[::1]:3306/queue")["host"] == "::1"


def test_a_socket_is_an_option():
    arguments = connect_arguments("mysql://ox@localhost/queue?unix_socket=/run/mysqld/mysqld.sock")

    assert arguments["unix_socket"] == "/run/mysqld/mysqld.sock"


@pytest.mark.parametrize("url", ["mysql://ox:secret@host", "mysql://ox:secret@host/", "mysql://ox:secret@host/a/b"])
def test_a_url_without_one_database_is_refused(url: str):
    with pytest.raises(InvalidSettings, match="database") as caught:
        connect_arguments(url)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://ox:secret@host:port/queue", "mysql://ox:secret@host:99999/queue"])
def test_a_port_that_is_none_is_refused(url: str):
    with pytest.raises(InvalidSettings, match="port") as caught:
        connect_arguments(url)

    assert "secret" not in str(caught.value)


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(InvalidSettings, match="'autocommit'"):
        connect_arguments("mysql://ox@host/queue?autocommit=1")


@pytest.mark.parametrize("query", ["", "?ssl=off", "?ssl=false", "?ssl=0"])
def test_without_tls_there_is_no_context(query: str):
    assert "ssl" not in connect_arguments(f"mysql://ox@host/queue{query}")


@pytest.mark.parametrize(
    ("mode", "checks_host", "verifies"),
    [
        ("required", False, ssl.CERT_NONE),
        ("true", False, ssl.CERT_NONE),
        ("verify_ca", False, ssl.CERT_REQUIRED),
        ("verify_identity", True, ssl.CERT_REQUIRED),
    ],
)
def test_a_mode_says_how_much_of_the_server_is_verified(mode: str, checks_host: bool, verifies: ssl.VerifyMode):
    context = connect_arguments(f"mysql://ox@host/queue?ssl={mode}")["ssl"]

    assert (context.check_hostname, context.verify_mode) == (checks_host, verifies)


def test_an_unknown_mode_is_refused():
    with pytest.raises(InvalidSettings, match="ssl='perhaps'"):
        connect_arguments("mysql://ox@host/queue?ssl=perhaps")


def test_a_certificate_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(InvalidSettings, match="TLS file"):
        connect_arguments(f"mysql://ox@host/queue?ssl_ca={tmp_path / 'none.pem'}")
