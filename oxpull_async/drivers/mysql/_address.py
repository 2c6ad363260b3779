"""Reads a ``mysql://`` or ``mariadb://`` URL: asyncmy itself knows none."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote

from oxpull_async.drivers._addresses import ESCAPES, url_parts
from oxpull_async.exceptions import InvalidSettings

_DEFAULT_PORT = 3306
_TLS_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
_OPTIONS = frozenset({"unix_socket", "ssl", *_TLS_FILES})
_TLS_MODES = ("off", "required", "verify_ca", "verify_identity")


def connect_arguments(url: str) -> dict[str, Any]:
    """What asyncmy needs to reach the server: host or socket, login, database, TLS.

    Raises: InvalidSettings for a URL without a database, with an unknown
    option, or with a value that can't be read. It never repeats the password.
    """
    parts = url_parts(url)
    port = _port(parts)
    options = _options(parts.query)
    database = unquote(parts.path.removeprefix("/"))
    if not database or "/" in database:
        raise InvalidSettings("a MySQL or MariaDB URL names its database: mysql://user@host/database")
    arguments: dict[str, Any] = {
        "host": unquote(parts.hostname or "localhost"),
        "port": port,
        "user": None if parts.username is None else unquote(parts.username),
        "password": unquote(parts.password or ""),
        "database": database,
        "charset": "utf8mb4",
    }
    if "unix_socket" in options:
        arguments["unix_socket"] = options["unix_socket"]
    context = _tls(options)
    if context is not None:
        arguments["ssl"] = context
    return arguments


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise InvalidSettings(
            f"unknown option {unknown[0]!r} in the database URL; known are {', '.join(sorted(_OPTIONS))}"
        )
    return options


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or _DEFAULT_PORT
    except ValueError:  # whose words may be a part of the password
        raise InvalidSettings(f"the port in the database URL is no number that can be one; {ESCAPES}") from None


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """A context where TLS is asked for; a certificate authority alone asks for full verification."""
    mode = options.get("ssl", "verify_identity" if options.keys() & set(_TLS_FILES) else "off")
    mode = {"true": "required", "1": "required", "false": "off", "0": "off"}.get(mode, mode)
    if mode not in _TLS_MODES:
        raise InvalidSettings(f"ssl={mode!r} in the database URL: use one of {', '.join(_TLS_MODES)}")
    if mode == "off":
        return None
    try:
        context = ssl.create_default_context(cafile=options.get("ssl_ca"))
        if "ssl_cert" in options:
            context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    except OSError as error:
        raise InvalidSettings(f"a TLS file of the database URL can't be used: {error}") from error
    if mode != "verify_identity":
        context.check_hostname = False
    if mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return context
