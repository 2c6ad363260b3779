"""Fills a database with rows, many at once."""

from __future__ import annotations

from tests.integration.competitor import Competitor

TASKS, LOCKS = "django_ox_oxtask", "oxpull_oxpulluniquelock"


def analyze(competitor: Competitor) -> None:
    """Have the server learn what is in its tables."""
    for table in (TASKS, LOCKS):
        competitor.run({"mysql": "ANALYZE TABLE "}.get(competitor.scheme, "ANALYZE ") + table)


def insert_rows(
    competitor: Competitor,
    kind: str,
    count: int,
    *,
    path: str,
    status: str,
    priority: int = 0,
    run_after: str | None = None,
) -> None:
    """Write so many rows of a kind, whose ids are its own."""
    scheme = competitor.scheme
    if scheme == "mysql":
        (variable,) = competitor.rows("SHOW VARIABLES LIKE '%max_recursi%'")
        competitor.run(f"SET SESSION {variable[0]} = {max(count, 1000)}")
    finished = f"'{_FINISHED}'" if status in ("SUCCESSFUL", "FAILED") else "NULL"
    competitor.run(
        f"INSERT INTO {TASKS} (id, task_path, args, kwargs, queue_name, priority, takes_context, backend_name, status, "
        "attempts, max_attempts, errors, worker_ids, enqueued_at, finished_at, run_after, lease_epoch) "
        f"SELECT {_NEW_ID[scheme].format(kind=_KINDS[kind])}, '{path}', '[]', '{{}}', 'default', {priority}, "
        f"{'false' if scheme == 'postgresql' else 0}, 'default', '{status}', 0, 3, '[]', '[]', '{_FINISHED}', "
        f"{_instant(finished, scheme)}, {_instant(repr(run_after) if run_after else 'NULL', scheme)}, 0 "
        f"FROM {_SERIES[scheme].format(count=count)}"
    )


def _instant(literal: str, scheme: str) -> str:
    return f"CAST({literal} AS timestamptz)" if scheme == "postgresql" else literal


# The first half of the kind's ids; a MariaDB takes no UUID of an unknown variant.
_KINDS = {
    kind: f"018f0000{number:04}70008000"
    for number, kind in enumerate(["foreign", "settled", "running", "mine", "also", "deferred"], 1)
}

_FINISHED = "2026-01-01 00:00:00"


_RECURSIVE = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s) AS s"
_SERIES = {
    "postgresql": "(SELECT n FROM generate_series(1, {count}) AS n) AS s",
    "sqlite": _RECURSIVE,
    "mysql": _RECURSIVE,
}
_NEW_ID = {
    "postgresql": "CAST(CONCAT('{kind}', LPAD(to_hex(n), 12, '0')) AS uuid)",
    "sqlite": "'{kind}' || printf('%012x', n)",
    "mysql": "CONCAT('{kind}', LPAD(HEX(n), 12, '0'))",
}
