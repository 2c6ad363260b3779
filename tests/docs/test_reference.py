"""The reference names everything there is, and nothing else."""

from __future__ import annotations

import re
import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest

import oxpull_async
from oxpull_async import Oxpull, Settings, TaskStatus, exceptions
from oxpull_async.core.backoff import Backoff
from tests.docs.pages import DOCS, ROOT, name_of

SETTINGS = (DOCS / "reference/settings.md").read_text()
TABLES = (DOCS / "reference/tables.md").read_text()


def test_every_public_name_has_its_place_in_the_reference() -> None:
    reference = "".join((DOCS / f"reference/{page}.md").read_text() for page in ("api", "errors", "settings"))
    missing = [name for name in oxpull_async.__all__ if not re.search(rf"(::: oxpull_async\.|`){name}\b", reference)]

    assert missing == []


def test_the_tree_of_errors_is_the_code_s_own() -> None:
    drawn = (exceptions.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]

    assert f"```text\n{textwrap.dedent(drawn)}\n```" in (DOCS / "reference/errors.md").read_text()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_described_with_its_default(name: str) -> None:
    default = Settings.model_fields[name].default
    row = re.search(rf"^\| `{name}` \|(?P<default>[^|]*)\|(?P<variable>[^|]*)\|", SETTINGS, re.MULTILINE)

    assert row is not None
    assert row["default"].strip().strip("`") == written(default, name)
    variable = "OXPULL_DATABASE_URL" if name == "database" else f"OXPULL_{name.upper()}"
    assert row["variable"].strip().strip("`") == ("" if name in ("backoff", "rate_limits") else variable)


def written(default: object, name: str) -> str:
    """A default as the table writes it."""
    if default is None:
        return "any" if name == "queues" else ""
    if isinstance(default, frozenset | tuple):
        return "none"
    if isinstance(default, Backoff):
        return f"Backoff({default.initial:g}, {default.maximum:g})"
    return f"{default:g}" if isinstance(default, float) else str(default).lower() if default is True else str(default)


def test_every_task_option_is_described() -> None:
    from oxpull_async.options import TaskOptions

    listed = set(re.findall(r"^\| `(\w+)` \|", SETTINGS.partition("## Settings of a task")[2], re.MULTILINE))

    assert listed == set(TaskOptions.__dataclass_fields__)


def test_every_status_is_in_the_glossary() -> None:
    listed = re.findall(r"^\| `([A-Z]+)` \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(TaskStatus)


async def test_the_tables_page_lists_what_migrate_makes(tmp_path: Path) -> None:
    async with Oxpull(f"sqlite:///{tmp_path}/tables.db") as ox:
        await ox.migrate()
    connection = sqlite3.connect(tmp_path / "tables.db")
    try:
        made = {
            table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in ("django_ox_oxtask", "oxpull_oxpulluniquelock")
        }
        tables = {
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not row[0].startswith("sqlite_")
        }
    finally:
        connection.close()

    for table, columns in made.items():
        assert listed_columns(table) == columns
    assert [table for table in tables if f"`{table}`" not in TABLES and "workflow" not in table] == []


def listed_columns(table: str) -> set[str]:
    """The first column of the section's first table."""
    section = TABLES.partition(f"## `{table}`")[2].partition("\n\n|")[2].partition("\n\n")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_reason_of_a_race_is_explained() -> None:
    source = "".join(file.read_text() for file in (ROOT / "oxpull_async/enqueueing").glob("*.py"))
    raised = set(re.findall(r'race\(\s*"(\w+)"', source)) | set(re.findall(r'reason="(\w+)"', source))
    raised |= set(re.findall(r'reason, words = "(\w+)"', source))
    page = (DOCS / "explanation/unique-protocol.md").read_text()
    explained = set(re.findall(r"^\| `(\w+)` \| ", page.partition("What each refusal says")[2], re.MULTILINE))

    assert explained - {"reason"} == raised


@pytest.mark.parametrize("page", sorted([ROOT / "README.md", *DOCS.rglob("*.md")]), ids=name_of)
def test_pages_say_nothing_of_this_machine(page: Path) -> None:
    assert re.findall(r"/(?:root|work|home/\w+)/", page.read_text()) == []


def commands_of(command: Any) -> list[Any]:
    """The command itself, or those that it groups."""
    if command.default_command is not None:
        return [command]
    return [command[name] for name in command if not name.startswith("-")]


def options_of(command: Any) -> set[str]:
    names = [name for argument in command.assemble_argument_collection() for name in argument.names]
    return {name for name in names if name.startswith("--")}


def test_the_command_line_page_lists_every_command_and_option() -> None:
    from oxpull_async.cli.commands import app

    page = (DOCS / "reference/cli.md").read_text()
    for name in (name for name in app if not name.startswith("-")):
        options = {option for command in commands_of(app[name]) for option in options_of(command)}
        assert f"`{name}`" in page
        assert [option for option in options if option not in page] == []
