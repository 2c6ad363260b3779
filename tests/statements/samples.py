"""Every statement of a room as SQL that its server can explain: parameters replaced by literals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from oxpull_async.drivers._statements import Statement, load_statements

# Rows and a lock that the tests make.
ID = "018f0000000470008000000000000001"
OTHER_ID = "018f0000000470008000000000000002"
KEY = f"{ID}k"
BATCH_ID = "018f0000000970008000000000000001"
INSTANT = "2026-01-01 00:00:00"

_SCALARS: dict[str, Any] = {
    "id": ID, "task_id": ID, "stale_task_id": OTHER_ID, "key": KEY, "task_path": "proof.tasks.mine", "args": "[]",
    "kwargs": "{}", "queue_name": "default", "priority": 0, "takes_context": False, "backend_name": "default",
    "run_after": None, "max_attempts": 3, "enqueued_at": INSTANT, "now": INSTANT, "limit": 10, "any_queue": True,
    "worker_id": "worker-1", "holder_id": ID, "lease_epoch": 1, "limited_queue": "other", "any_key": True,
    "worker_json": '"worker-1"', "lease_seconds": 300, "lease_microseconds": 300_000_000,
    "finished_before": INSTANT, "lock_timeout": "30ms", "seconds": 1, "name": "x", "level": "x",
    "scheduled_before": INSTANT, "expired_at": INSTANT, "since": INSTANT, "after": "",
    "after_id": ID,
    "schedule_id": 1, "scheduled_for": INSTANT, "created_at": INSTANT, "boundary_for": "f" * 32,
    "batch_id": BATCH_ID, "added_at": INSTANT, "below": "f" * 32, "above": "0" * 32, "any_status": True,
    "status": "OPEN",
    "on_complete_path": "a.b", "on_complete_args": "[]", "on_complete_kwargs": "{}", "on_success_path": "",
    "on_success_args": "[]", "on_success_kwargs": "{}", "total_count": 1, "failed_count": 0, "callback_task_id": ID,
    "success_task_id": None, "role": "r", "holder": "h", "lease": "+10 seconds", "completed_before": INSTANT,
    "window_id": 0, "started_at": INSTANT, "used": 1, "count": 1, "tokens": 1, "as_of": INSTANT, "capacity": 10,
    "full_at": INSTANT,
    "wanted": 3, "owner": ID, "number": 1, "is_reserved": False, "idle_seconds": 60, "idle_microseconds": 60_000_000,
}  # fmt: skip

_LISTS: dict[str, list[Any]] = {
    "tick_ids": [1, 2], "ids": [ID, OTHER_ID],
    "task_ids": [ID, OTHER_ID], "keys": [KEY, "l" * 64], "queues": ["default"],
    "task_paths": ["proof.tasks.mine", "proof.tasks.also_mine"], "epochs": [1, 1],
    "statuses": ["SUCCESSFUL", "FAILED"], "return_values": ["1", "2"], "errors": ["[]", "[]"],
    "run_afters": [None, INSTANT], "held_untils": [None, INSTANT], "stale_task_ids": [ID, OTHER_ID],
    "finished_ats": [INSTANT, INSTANT], "args": ["[]", "[]"], "kwargs": ["{}", "{}"],
    "queue_names": ["default", "default"], "priorities": [0, 0], "takes_contexts": [False, False],
    "backend_names": ["default", "default"], "max_attempts": [3, 3], "enqueued_ats": [INSTANT, INSTANT],
    "passed_queues": ["other"],
    "own": [INSTANT, "1900-01-01 00:00:00"],
    "names": ["a", "b"], "numbers": [1, 2], "owners": [ID, OTHER_ID], "reserved": [True, False], "leases": [60, 60],
    "capacities": [1, 2], "patiences": [None, 30],
}  # fmt: skip

# Documents and pairs, as they come in one room alone.
_WHOLE: dict[tuple[str, str], str] = {
    ("mysql", "fences"): f"(('{ID}', 1), ('{OTHER_ID}', 1))",
    ("mysql", "rows"): f"""'[{{"id": "{ID}", "errors": "[]"}}]'""",
    ("mysql", "outcomes"): f"""'[{{"id": "{ID}", "status": "FAILED"}}]'""",
    ("mysql", "mutexes"): f"""'[["{KEY}", "a"]]'""",
    ("mysql", "waiters"): f"""'[["{KEY}", 1, "{ID}", 1, null, 1]]'""",
    ("mysql", "leases"): f"""'[["{KEY}", 1, 1]]'""",
    ("mysql", "reasons"): f"""'[["{ID}", "[]"]]'""",
    ("mysql", "sleeping"): f"(('{ID}', '{INSTANT}'), ('{OTHER_ID}', '{INSTANT}'))",
    ("mysql", "moves"): f"""'[["{ID}", "{INSTANT}"]]'""",
    ("mysql", "held"): f"""'[["{KEY}", 1, "{ID}"]]'""",
    ("mysql", "fenced"): f"(('{KEY}', 1, '{ID}'), ('{KEY}', 2, '{ID}'))",
    ("mysql", "places"): f"(('{KEY}', 1), ('{KEY}', 2))",
    ("sqlite", "mutexes"): f"""'[["{KEY}", "a"]]'""",
    ("sqlite", "holders"): f"""'[["{KEY}", 1, "{ID}", 0, "+1 seconds"]]'""",
    ("sqlite", "waiters"): f"""'[["{KEY}", 1, "{ID}", 1, null, "+1 seconds"]]'""",
    ("sqlite", "held"): f"""'[["{KEY}", 1, "{ID}", "+1 seconds"]]'""",
    ("sqlite", "places"): f"""'[["{KEY}", 1]]'""",
    ("sqlite", "moves"): f"""'[["{ID}", "{INSTANT}"]]'""",
    ("sqlite", "reasons"): f"""'[["{ID}", "[]"]]'""",
    ("sqlite", "granted"): f"""'[["{ID}", 1]]'""",
    ("sqlite", "holds"): f"""'[["{KEY}", "{ID}", "p", "q", "{INSTANT}", null]]'""",
    ("mysql", "holds"): f"""'[{{"key": "{KEY}", "stale_task_id": "{ID}", "task_id": "{OTHER_ID}"}}]'""",
    ("sqlite", "locks"): f"""'[["{KEY}", "{ID}", "p", "q", "{INSTANT}"]]'""",
}


def statements_of(room: str) -> Iterator[tuple[str, Statement]]:
    """Each statement of a room, with the name of its file."""
    package = f"oxpull_async.drivers.{room}"
    for entry in sorted(files(package).joinpath("sql").iterdir(), key=lambda entry: entry.name):
        if entry.name != "_fragments.sql":
            yield from ((entry.name, found) for found in load_statements(package, entry.name).values())


def filled(room: str, statement: Statement) -> list[str]:
    """The statement's texts with literals in them; some of the MySQL family's are several in one."""

    def literal(match: re.Match[str]) -> str:
        name = match[2]
        if not name:
            return match[0]
        before = statement.text[: match.start()]
        if before.endswith("JSON_TABLE(") and name in _LISTS:
            return _json_list(_LISTS[name])  # here a document, elsewhere a list of the same
        return _literal(room, name, is_list=_is_list(room, name, before, statement.text[match.end() :]))

    text = re.sub(r"('(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|::)|(?<![\w:]):([a-z_][a-z0-9_]*)", literal, statement.text)
    return [part.strip() for part in text.split(";")]


def _is_list(room: str, name: str, before: str, after: str) -> bool:
    if room == "postgres":
        return re.match(r"::\w+\[\]", after) is not None
    return name in _LISTS and name not in ("args", "kwargs", "max_attempts", "errors")


def _literal(room: str, name: str, *, is_list: bool) -> str:
    if (room, name) in _WHOLE:
        return _WHOLE[room, name]
    if is_list:
        return _LIST_LITERALS[room](_LISTS.get(name, []))
    return _scalar(_SCALARS.get(name))


def _scalar(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, int) else f"'{value}'"


def _postgres_list(values: list[Any]) -> str:
    items = ("NULL" if value is None else f'"{value}"' for value in values)
    return "'{" + ", ".join(items) + "}'"


def _mysql_list(values: list[Any]) -> str:
    return "(" + ", ".join(map(_scalar, values)) + ")"


def _json_list(values: list[Any]) -> str:
    return "'" + json.dumps(values) + "'"


_LIST_LITERALS = {"postgres": _postgres_list, "mysql": _mysql_list, "sqlite": _json_list}
