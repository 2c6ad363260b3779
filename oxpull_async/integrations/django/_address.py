"""An entry of ``DATABASES`` as the URL of the same database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db.utils import load_backend

from oxpull_async.exceptions import InvalidSettings

# Options of libpq that lead to another server, database or role, or that the server would refuse us without.
_POSTGRES_PASSED = frozenset(
    {
        "gsslib", "krbsrvname", "options", "passfile", "service", "sslcert", "sslcrl", "sslkey",
        "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "ssl_max_protocol_version",
        "ssl_min_protocol_version", "target_session_attrs",
    }
)  # fmt: skip
# What concerns Django's own connections alone: ours have their own ways.
_POSTGRES_LEFT = frozenset(
    {
        "application_name", "client_encoding", "connect_timeout", "context", "cursor_factory", "gssencmode",
        "isolation_level", "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "pool",
        "prepare_threshold", "server_side_binding", "tcp_user_timeout",
    }
)  # fmt: skip
_MYSQL_LEFT = frozenset(
    {
        "autocommit", "charset", "client_flag", "collation", "connect_timeout", "conv", "init_command",
        "isolation_level", "max_allowed_packet", "read_timeout", "sql_mode", "use_unicode", "write_timeout",
    }
)  # fmt: skip
_MYSQL_TLS_MODES = {
    "DISABLED": "off",
    "REQUIRED": "required",
    "VERIFY_CA": "verify_ca",
    "VERIFY_IDENTITY": "verify_identity",
}
_SQLITE_LEFT = frozenset(
    {"cached_statements", "check_same_thread", "detect_types", "factory", "init_command", "isolation_level",
     "timeout", "transaction_mode"}
)  # fmt: skip


def vendor_of(entry: Mapping[str, Any]) -> str:
    """Django's word for the engine, whatever package its backend is from."""
    return str(load_backend(entry["ENGINE"]).DatabaseWrapper.vendor)


def database_url(using: str, entry: Mapping[str, Any]) -> str:
    """Raises: InvalidSettings for an engine that isn't served, or an option without a counterpart."""
    match vendor_of(entry):
        case "sqlite":
            return _sqlite_url(using, entry)
        case "postgresql":
            return _postgres_url(using, entry)
        case "mysql":
            return _mysql_url(using, entry)
        case other:
            raise InvalidSettings(
                f"DATABASES[{using!r}]['ENGINE'] is of {other}; oxpull_async works on SQLite, PostgreSQL, MySQL and "
                "MariaDB"
            )


def options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of Oxpull that the entry decides."""
    found: dict[str, Any] = {}
    if (seconds := entry["OPTIONS"].get("connect_timeout")) is not None:
        found["connect_timeout"] = float(seconds)
    if entry.get("DISABLE_SERVER_SIDE_CURSORS"):
        found["statement_cache"] = False  # Django's word for a pooler in transaction mode
    return found


def _sqlite_url(using: str, entry: Mapping[str, Any]) -> str:
    _refuse_unknown(using, entry["OPTIONS"], _SQLITE_LEFT)
    name = str(entry["NAME"])
    if not name or name == ":memory:" or name.startswith("file:"):
        raise InvalidSettings(
            f"DATABASES[{using!r}]['NAME'] is {name!r}: a database in memory is seen by one connection alone, and a "
            "file: URI isn't read here. Name a file"
        )
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def _postgres_url(using: str, entry: Mapping[str, Any]) -> str:
    options = dict(entry["OPTIONS"])
    role = options.pop("assume_role", None)
    _refuse_unknown(using, options, _POSTGRES_PASSED | _POSTGRES_LEFT)
    query = {name: str(options[name]) for name in sorted(options) if name in _POSTGRES_PASSED}
    if role:
        query["role"] = role
    host, port = str(entry["HOST"] or ""), str(entry["PORT"] or "")
    if host.startswith("/") or "," in host:
        query["host"] = host
        if port:
            query["port"] = port
        host = port = ""
    name = "postgres" if entry["NAME"] is None else entry["NAME"]
    return f"postgresql://{_authority(entry, host, port)}{_path(name)}{_query(query)}"


def _mysql_url(using: str, entry: Mapping[str, Any]) -> str:
    options = dict(entry["OPTIONS"])
    query = _mysql_tls(using, options.pop("ssl", None), options.pop("ssl_mode", None))
    socket = options.pop("unix_socket", None)
    _refuse_unknown(using, options, _MYSQL_LEFT)
    host = str(entry["HOST"] or "")
    if host.startswith("/"):
        host, socket = "", host
    if socket:
        query["unix_socket"] = str(socket)
    return f"mysql://{_authority(entry, host, str(entry['PORT'] or ''))}{_path(entry['NAME'])}{_query(query)}"


def _mysql_tls(using: str, files: Mapping[str, Any] | None, mode: str | None) -> dict[str, str]:
    files = files or {}
    _refuse_unknown(using, files, {"ca", "cert", "key"}, inside="['ssl']")
    query = {f"ssl_{name}": str(path) for name, path in files.items()}
    if mode is not None:
        if str(mode).upper() not in _MYSQL_TLS_MODES:
            raise InvalidSettings(
                f"DATABASES[{using!r}]['OPTIONS']['ssl_mode'] is {mode!r}: use one of {', '.join(_MYSQL_TLS_MODES)}"
            )
        query["ssl"] = _MYSQL_TLS_MODES[str(mode).upper()]
    elif files:
        query["ssl"] = "verify_ca"  # what the C client does with a certificate authority alone
    return query


def _authority(entry: Mapping[str, Any], host: str, port: str) -> str:
    login = quote(str(entry["USER"] or ""), safe="")
    if entry["PASSWORD"]:
        login += ":" + quote(str(entry["PASSWORD"]), safe="")
    shown = f"[{host}]" if ":" in host else host
    return f"{login}@{shown}{':' + port if port else ''}" if login else f"{shown}{':' + port if port else ''}"


def _path(name: object) -> str:
    """A database that a service names instead of the entry has none."""
    return "/" + quote(str(name), safe="") if name else ""


def _query(query: Mapping[str, str]) -> str:
    return "?" + urlencode(query, safe="/", quote_via=quote) if query else ""


def _refuse_unknown(using: str, options: Mapping[str, Any], known: Collection[str], inside: str = "") -> None:
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise InvalidSettings(
            f"DATABASES[{using!r}]['OPTIONS']{inside}[{unknown[0]!r}] has no counterpart here: give from_django the "
            "database=… URL yourself"
        )
