"""The page about log lines lists every event with its level and fields, and no line carries a payload."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.docs.pages import DOCS, ROOT

PAGE = DOCS / "reference/logging.md"
PAYLOADS = {"args", "kwargs", "arguments", "return_value", "value", "result", "payload", "traceback"}
RESERVED = {"event", "name", "msg", "args", "module", "message", "asctime", "filename", "process", "thread"}


@dataclass
class Line:
    """What the code says of an event, in however many places."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def lines_in_code() -> dict[str, Line]:
    found: dict[str, Line] = defaultdict(Line)
    for module in sorted((ROOT / "oxpull_async").rglob("*.py")):
        for call in _log_calls(ast.parse(module.read_text())):
            level, event = call.args[:2]
            for name in _texts(event):
                found[name].levels |= {node.attr for node in ast.walk(level) if isinstance(node, ast.Attribute)}
                found[name].fields |= {keyword.arg for keyword in call.keywords if keyword.arg not in (None, "error")}
    return found


def _log_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "log":
            yield node


def _texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    return [str(node.value)] if isinstance(node, ast.Constant) else []  # chosen elsewhere: see below
    return [str(node.value)]


def lines_on_page() -> dict[str, Line]:
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z, ]+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    return {event: Line(set(levels.split(", ")), set(re.findall(r"`(\w+)`", fields))) for event, levels, fields in rows}


def test_every_event_is_listed_with_its_level_and_fields() -> None:
    page = lines_on_page()
    for event, line in lines_in_code().items():
        assert event in page, f"{event} isn't on the page; `python -m tests.docs.test_log_events` writes its row"
        assert line.levels <= page[event].levels, event
        assert line.fields <= page[event].fields, event


def test_no_event_is_listed_that_is_never_logged() -> None:
    source = "".join(module.read_text() for module in (ROOT / "oxpull_async").rglob("*.py"))
    assert [event for event in lines_on_page() if f'"{event}"' not in source] == []


def test_no_line_carries_a_payload() -> None:
    fields = {name: line.fields for name, line in lines_in_code().items()}
    assert {name: found & PAYLOADS for name, found in fields.items() if found & PAYLOADS} == {}


def test_no_field_hides_one_of_the_record_s_own() -> None:
    fields = {name: line.fields for name, line in lines_in_code().items()}
    assert {name: found & RESERVED for name, found in fields.items() if found & RESERVED} == {}


def test_nothing_is_logged_past_the_one_door() -> None:
    """Whoever logged on their own would have neither an event nor fields."""
    past = [
        str(module.relative_to(ROOT))
        for module in (ROOT / "oxpull_async").rglob("*.py")
        if module.name != "telemetry.py"
        and re.search(r"getLogger|logger\.(debug|info|warning|error|exception)|print\(", module.read_text())
        and "cli" not in module.parts
    ]
    assert past == []


if __name__ == "__main__":
    for event, line in sorted(lines_in_code().items()):
        fields = ", ".join(f"`{name}`" for name in sorted(line.fields))
        print(f"| `{event}` | {', '.join(sorted(line.levels))} | {fields} | |")
