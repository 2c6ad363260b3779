"""What ``worker --log-format json`` writes."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from oxpull_async.cli.log_lines import JsonLines, signal_line
from oxpull_async.cli.worker import Terms
from oxpull_async.telemetry import log, logger


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(JsonLines().format(record))


def test_a_record_is_one_object_on_one_line_with_its_event_and_fields():
    lines = Lines()
    logger.addHandler(lines)
    try:
        raise ValueError("no\nsuch order")
    except ValueError as error:
        log(logging.WARNING, "task_retried", "two\nlines", error=error, task_id=UUID(int=7), attempt=2)
    finally:
        logger.removeHandler(lines)

    (line,) = lines.lines
    assert "\n" not in line
    found = json.loads(line)
    assert datetime.fromisoformat(found.pop("time")).tzinfo is not None
    assert found.pop("error").startswith("Traceback")
    assert list(found.items()) == [
        ("level", "WARNING"), ("logger", "oxpull_async"), ("event", "task_retried"), ("message", "two\nlines"),
        ("task_id", str(UUID(int=7))), ("attempt", 2),
    ]  # fmt: skip


def test_records_of_others_are_lines_too_and_cannot_disguise_themselves():
    record = logging.LogRecord("theirs", logging.ERROR, "x.py", 1, "%s of %s", (1, 2), sys.exc_info())
    record.level = "none of it"
    record.thing = object

    found = json.loads(JsonLines().format(record))
    assert (found["level"], found["logger"], found["message"]) == ("ERROR", "theirs", "1 of 2")
    assert "object" in found["thing"]
    assert "event" not in found


def test_a_signal_is_told_of_in_the_same_form():
    assert signal_line("stopping", "text") == "oxpull-async: stopping"
    found = json.loads(signal_line("stopping", "json"))
    assert (found["event"], found["message"]) == ("signal_received", "stopping")


def test_the_processes_of_a_fleet_work_on_the_same_terms():
    given = Terms(queue=["mail"], concurrency=3, grace=1, max_tasks=5, prune_older_than="30d", log_format="json")
    given = replace(given, prune_batches_older_than="7d")

    arguments = given.arguments()

    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--queue": "mail", "--concurrency": "3", "--shutdown-timeout": "30", "--grace": "1", "--max-tasks": "5",
        "--prune-older-than": "30d", "--prune-batches-older-than": "7d", "--log-format": "json",
    }  # fmt: skip
