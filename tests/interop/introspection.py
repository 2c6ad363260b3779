"""What a database says of its own tables, in a form in which two databases can be compared for equality."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import psycopg
import psycopg.sql
import pymysql

OWN = "oxpull_async_"
REFERENCE = ("django_ox_", "oxpull_")


@dataclass(slots=True)
class Table:
    """One table. Columns keep their order in the table; the rest goes by name."""

    columns: dict[str, str] = field(default_factory=dict)
    constraints: dict[str, str] = field(default_factory=dict)
    indexes: dict[str, str] = field(default_factory=dict)
    options: str = ""


Schema: TypeAlias = dict[str, Table]


def read_schema(url: str) -> Schema:
    """Every table of the reference and of ours that the database at *url* holds."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        return _read_sqlite(url)
    if scheme in ("postgresql", "postgres"):
        return _read_postgres(url)
    return _read_mysql(url)


def empty_database(url: str) -> None:
    """Drop every table at *url*, those of others included."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        _empty_sqlite(url)
    elif scheme in ("postgresql", "postgres"):
        _empty_postgres(url)
    else:
        _empty_mysql(url)


def reference_part(schema: Schema) -> Schema:
    """The schema without our own tables and indexes."""
    return {
        name: Table(
            columns=table.columns,
            constraints=table.constraints,
            indexes={index: text for index, text in table.indexes.items() if not index.startswith(OWN)},
            options=table.options,
        )
        for name, table in schema.items()
        if not name.startswith(OWN)
    }


def own_objects(schema: Schema) -> set[str]:
    """The names of our own tables, and of our own indexes on the reference's."""
    tables = {name for name in schema if name.startswith(OWN)}
    indexes = {
        index
        for name, table in schema.items()
        if name not in tables
        for index in table.indexes
        if index.startswith(OWN)
    }
    return tables | indexes


def column_order(schema: Schema) -> dict[str, list[str]]:
    """The columns of each table, in order: equality of dictionaries doesn't look at it."""
    return {name: list(table.columns) for name, table in schema.items()}


def _ours_or_theirs(name: str) -> bool:
    return name.startswith(REFERENCE)


def _spoken(facts: Mapping[str, Any]) -> str:
    """The facts that hold, as one line, so that a difference reads well in a failed assertion."""
    return " ".join(f"{key}={value}" for key, value in facts.items() if value not in (None, "", False))


# SQLite keeps the text of each statement, and that text is the whole truth: deferrability, AUTOINCREMENT and
# checks stand nowhere else.


def _read_sqlite(url: str) -> Schema:
    with closing(sqlite3.connect(unquote(urlsplit(url).path[1:]))) as connection:
        schema = {
            name: Table(columns=_sqlite_columns(connection, name), options=_plain(text))
            for name, text in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            if _ours_or_theirs(name)
        }
        indexes = connection.execute("SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'index'")
        for table, name, text in indexes:
            if table in schema:
                schema[table].indexes[name] = _plain(text or "automatic")
    return schema


def _sqlite_columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    rows = connection.execute('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,))
    return {
        name: _spoken({"type": kind.lower(), "not_null": not_null, "default": default, "key": key})
        for name, kind, not_null, default, key in rows
    }


def _plain(statement: str) -> str:
    """The statement without what has no meaning: quotes around names, and the layout."""
    text = statement.replace('"', "").lower()
    return re.sub(r"\s*([(),])\s*|\s+", lambda found: found.group(1) or " ", text).strip()


_POSTGRES_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
           pg_get_expr(d.adbin, d.adrelid), a.attoptions, l.collname
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    ORDER BY c.relname, a.attnum
"""
_POSTGRES_CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND conrelid <> 0
"""
_POSTGRES_INDEXES = """
    SELECT t.relname, i.relname, x.indisvalid,
           replace(pg_get_indexdef(x.indexrelid), quote_ident(current_schema()) || '.', '')
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
    WHERE t.relnamespace = current_schema()::regnamespace
"""


def _read_postgres(url: str) -> Schema:
    schema: Schema = {}
    with psycopg.connect(url) as connection:
        columns = connection.execute(_POSTGRES_COLUMNS)
        for table, name, kind, not_null, identity, default, options, collation in columns:
            if _ours_or_theirs(table):
                facts = {"type": kind, "not_null": not_null, "identity": identity, "default": default}
                facts |= {"options": options, "collation": collation}
                schema.setdefault(table, Table()).columns[name] = _spoken(facts)
        for table, name, text in connection.execute(_POSTGRES_CONSTRAINTS):
            if table in schema:
                schema[table].constraints[name] = text
        for table, name, valid, text in connection.execute(_POSTGRES_INDEXES):
            if table in schema:
                schema[table].indexes[name] = text if valid else f"INVALID {text}"
    return schema


_MYSQL_TABLES = """
    SELECT TABLE_NAME, ENGINE, TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
"""
_MYSQL_COLUMNS = """
    SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, EXTRA, COLLATION_NAME
    FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() ORDER BY TABLE_NAME, ORDINAL_POSITION
"""
_MYSQL_INDEXES = """
    SELECT TABLE_NAME, INDEX_NAME, CASE WHEN NON_UNIQUE THEN 'INDEX' ELSE 'UNIQUE' END,
           GROUP_CONCAT(CONCAT(COLUMN_NAME, ' ', COLLATION) ORDER BY SEQ_IN_INDEX SEPARATOR ', ')
    FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE()
    GROUP BY TABLE_NAME, INDEX_NAME, NON_UNIQUE
"""
_MYSQL_FOREIGN_KEYS = """
    SELECT k.TABLE_NAME, k.CONSTRAINT_NAME, k.COLUMN_NAME, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME,
           r.UPDATE_RULE, r.DELETE_RULE
    FROM information_schema.KEY_COLUMN_USAGE k
    JOIN information_schema.REFERENTIAL_CONSTRAINTS r
      ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME
     AND r.TABLE_NAME = k.TABLE_NAME
    WHERE k.TABLE_SCHEMA = DATABASE()
"""
_MYSQL_CHECKS = """
    SELECT t.TABLE_NAME, c.CONSTRAINT_NAME, c.CHECK_CLAUSE
    FROM information_schema.CHECK_CONSTRAINTS c
    JOIN information_schema.TABLE_CONSTRAINTS t
      ON t.CONSTRAINT_SCHEMA = c.CONSTRAINT_SCHEMA AND t.CONSTRAINT_NAME = c.CONSTRAINT_NAME {same_table}
    WHERE c.CONSTRAINT_SCHEMA = DATABASE()
"""


def _read_mysql(url: str) -> Schema:
    with closing(_connect_mysql(url)) as connection, connection.cursor() as cursor:
        tables = _fetch(cursor, _MYSQL_TABLES)
        schema = {name: Table(options=f"{made} {order}") for name, made, order in tables if _ours_or_theirs(name)}
        for table, name, kind, nullable, default, extra, collation in _fetch(cursor, _MYSQL_COLUMNS):
            if table in schema:
                facts = {"type": kind, "nullable": nullable, "default": default, "extra": extra}
                schema[table].columns[name] = _spoken(facts | {"collation": collation})
        for table, name, kind, columns in _fetch(cursor, _MYSQL_INDEXES):
            if table in schema:
                schema[table].indexes[name] = f"{kind} ({columns})"
        for table, name, text in _mysql_constraints(cursor):
            if table in schema:
                schema[table].constraints[name] = text
    return schema


def _mysql_constraints(cursor: pymysql.cursors.Cursor) -> Iterable[tuple[str, str, str]]:
    for table, name, column, target, target_column, update, delete in _fetch(cursor, _MYSQL_FOREIGN_KEYS):
        text = f"FOREIGN KEY ({column}) REFERENCES {target} ({target_column}) UPDATE {update} DELETE {delete}"
        yield table, name, text
    # MariaDB names a check after its column, so the table tells equal names apart; MySQL has no such column.
    is_mariadb = "MariaDB" in _fetch(cursor, "SELECT VERSION()")[0][0]
    same_table = "AND t.TABLE_NAME = c.TABLE_NAME" if is_mariadb else ""
    for table, name, text in _fetch(cursor, _MYSQL_CHECKS.format(same_table=same_table)):
        yield table, name, f"CHECK {text}"


def _connect_mysql(url: str) -> pymysql.Connection[Any]:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=unquote(parts.path[1:]),
    )


def _fetch(cursor: pymysql.cursors.Cursor, statement: str) -> list[tuple[Any, ...]]:
    cursor.execute(statement)
    return list(cursor.fetchall())


def _empty_sqlite(url: str) -> None:
    with closing(sqlite3.connect(unquote(urlsplit(url).path[1:]))) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (name,) in tables.fetchall():
            connection.execute(f'DROP TABLE "{name}"')


def _empty_postgres(url: str) -> None:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        for (name,) in tables.fetchall():
            connection.execute(psycopg.sql.SQL("DROP TABLE {} CASCADE").format(psycopg.sql.Identifier(name)))


def _empty_mysql(url: str) -> None:
    with closing(_connect_mysql(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        for name, *_ in _fetch(cursor, _MYSQL_TABLES):
            cursor.execute(f"DROP TABLE `{name}`")
