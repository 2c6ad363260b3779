"""Where runs of ``oxpull-async bench`` work, as an outsider sees and makes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from oxpull_async.benchmark.places import MARK, NAME
from oxpull_async.benchmark.places.mysql import _MARK_TABLE, _SERVER
from oxpull_async.benchmark.places.sqlite import _OWNER
from tests.integration.competitor import Competitor

# Servers that several runs of the suite share would show the places of the others.
OWN_SERVERS = ("sqlite", "postgres", "mariadb")
LEFT_BEHIND = "oxpull_bench_0123456789ab"


def names(competitor: Competitor) -> list[str]:
    """The places there are, of all runs."""
    return sorted(_NAMES[competitor.scheme](competitor))


def leave_behind(competitor: Competitor, *, marked: bool = True) -> None:
    """What a run that was killed leaves; without a mark, something that only has such a name."""
    _LEAVE[competitor.scheme](competitor, marked)


def clear(competitor: Competitor) -> None:
    """Remove it, if it's still there."""
    _CLEAR[competitor.scheme](competitor)


def _folder(competitor: Competitor) -> Path:
    return Path(competitor.url.removeprefix("sqlite:///")).parent


def _leave_schema(competitor: Competitor, marked: bool) -> None:
    competitor.run(f"CREATE SCHEMA {LEFT_BEHIND}")
    competitor.run(f"CREATE TABLE {LEFT_BEHIND}.of_somebody (id int)")
    if marked:
        competitor.run(f"COMMENT ON SCHEMA {LEFT_BEHIND} IS '{MARK}'")


def _leave_database(competitor: Competitor, marked: bool) -> None:
    competitor.run(f"CREATE DATABASE {LEFT_BEHIND}")
    if marked:
        competitor.run(f"CREATE TABLE {LEFT_BEHIND}.{_MARK_TABLE} AS SELECT {_SERVER} AS server")


def _leave_folder(competitor: Competitor, marked: bool) -> None:
    folder = _folder(competitor) / LEFT_BEHIND
    folder.mkdir()
    (folder / "bench.db").touch()
    if marked:
        (folder / _OWNER).touch()


_NAMES: dict[str, Callable[[Competitor], list[str]]] = {
    "postgresql": lambda competitor: [
        name for (name,) in competitor.rows("SELECT nspname FROM pg_namespace WHERE nspname ~ ?", f"^{NAME}$")
    ],
    "mysql": lambda competitor: [
        name
        for (name,) in competitor.rows(
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name REGEXP ?", f"^{NAME}$"
        )
    ],
    "sqlite": lambda competitor: [path.name for path in _folder(competitor).glob("oxpull_bench_*")],
}
_LEAVE: dict[str, Callable[[Competitor, bool], None]] = {
    "postgresql": _leave_schema,
    "mysql": _leave_database,
    "sqlite": _leave_folder,
}
_CLEAR: dict[str, Callable[[Competitor], object]] = {
    "postgresql": lambda competitor: competitor.run(f"DROP SCHEMA IF EXISTS {LEFT_BEHIND} CASCADE"),
    "mysql": lambda competitor: competitor.run(f"DROP DATABASE IF EXISTS {LEFT_BEHIND}"),
    "sqlite": lambda competitor: shutil.rmtree(_folder(competitor) / LEFT_BEHIND, ignore_errors=True),
}
