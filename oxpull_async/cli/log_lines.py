"""How a worker process writes its log to stderr: for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from oxpull_async.clock import system_time

LogFormat: TypeAlias = Literal["text", "json"]

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what the record has beside them, the event first."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; what JSON doesn't know is written as a text."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        error = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None
        return _line(
            datetime.fromtimestamp(record.created, UTC),
            record.levelname,
            record.name,
            record.getMessage(),
            fields if error is None else {**fields, "error": error},
        )


def write_log(log_format: LogFormat) -> None:
    """Log to stderr from now on, unless the program has said otherwise."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def signal_line(words: str, log_format: LogFormat) -> str:
    """The line that tells of a signal."""
    if log_format == "text":
        return f"oxpull-async: {words}"
    return _line(system_time(), "INFO", "oxpull_async", words, {"event": "signal_received"})


def _line(time: datetime, level: str, logger: str, message: str, fields: dict[str, Any]) -> str:
    event = {"event": fields.pop("event")} if "event" in fields else {}
    facts = {"time": time.isoformat(), "level": level, "logger": logger, **event, "message": message}
    return json.dumps({**fields, **facts} if fields.keys() & facts.keys() else {**facts, **fields}, default=str)
