"""``oxpull-async locks show`` and ``locks release``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from oxpull_async import Oxpull
from oxpull_async._ids import new_id
from oxpull_async.cli.target import load_app
from oxpull_async.core.exclusivity import mutex_key
from oxpull_async.ports_exclusive import HeldPlace, Wanted
from tests.integration.competitor import Competitor
from tests.integration.policy_tasks import PATH
from tests.integration.test_cli_commands import Run, run

__all__ = ["run"]

pytestmark = pytest.mark.engines("sqlite")

APP = """
from oxpull_async import Oxpull, Unique
ox = Oxpull({url!r})

@ox.task(unique=Unique(by=("name",), window=1000))
async def throttled(name: str, value: int = 0) -> None: ...
"""


def enqueue(url: str) -> str:
    """Enqueue a plain unique task."""

    async def call() -> str:
        async with Oxpull(url) as ox:
            return str((await ox.reference(PATH, unique=True).enqueue("a", value=1)).id)

    return asyncio.run(call())


CALL = (PATH, "--args", '["a"]', "--kwargs", '{"value": 1}')


def test_show_tells_who_holds_the_key_of_a_call(run: Run, migrated_url: str) -> None:
    assert run("locks", "show", *CALL, "--database", migrated_url)[0] == 1
    holder = enqueue(migrated_url)

    code, out, _ = run("locks", "show", *CALL, "--database", migrated_url, "--json")

    told = json.loads(out)
    assert (code, told["holder"], told["because"], told["status"]) == (0, holder, "queued", "READY")
    assert holder in run("locks", "show", *CALL, "--database", migrated_url)[1]
    assert run("locks", "show", *CALL, "--queue", "other", "--database", migrated_url)[0] == 1


def test_release_lets_go_of_the_key_and_wants_a_reason(
    run: Run, migrated_url: str, competitor: Competitor, caplog: pytest.LogCaptureFixture
) -> None:
    holder = enqueue(migrated_url)
    assert run("locks", "release", *CALL, "--database", migrated_url)[0] != 0
    assert len(competitor.locks()) == 1

    code, out, _ = run("locks", "release", *CALL, "--reason", "it hangs", "--database", migrated_url, "--json")

    assert (code, json.loads(out)) == (0, {"released": True, "holder": holder})
    assert "it hangs" in caplog.text
    assert competitor.locks() == {}
    assert run("locks", "release", *CALL, "--reason", "again", "--database", migrated_url)[0] == 1


def test_an_app_s_declaration_says_what_the_key_is(
    run: Run, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("throttle.py").write_text(APP.format(url=migrated_url))
    monkeypatch.setenv("OXPULL_APP", "throttle:ox")

    async def call() -> None:
        async with load_app("throttle:ox") as ox:
            await ox.tasks["throttle.throttled"].enqueue("a", 1)

    asyncio.run(call())

    code, out, _ = run("locks", "show", "throttle.throttled", "--args", '["a", 5]', "--json")

    assert code == 0
    assert json.loads(out)["held_until"] is not None


@pytest.mark.parametrize("arguments", ["[1", '{"a": 1}'])
def test_arguments_must_be_json_of_the_right_kind(run: Run, migrated_url: str, arguments: str) -> None:
    assert run("locks", "show", PATH, "--args", arguments, "--database", migrated_url)[0] == 2


def test_locks_alone_still_lists_them(run: Run, migrated_url: str) -> None:
    enqueue(migrated_url)

    code, out, _ = run("locks", "--database", migrated_url, "--json")

    assert code == 0
    assert [lock["task_path"] for lock in json.loads(out)] == [PATH]


def test_exclusive_lists_who_has_a_key(run: Run, migrated_url: str) -> None:
    assert run("locks", "exclusive", "--database", migrated_url)[:2] == (0, "nobody has an exclusive key\n")
    assert run("locks", "exclusive", "feed:a", "--database", migrated_url)[0] == 1

    async def hold() -> int:
        async with Oxpull(migrated_url) as ox:
            wanted = Wanted(mutex_key("feed:a"), "feed:a", new_id(), 1, 60)
            held, _ = await ox.store.exclusive.acquire(wanted, patience_seconds=None)
            assert isinstance(held, HeldPlace)
            return held.token

    token = asyncio.run(hold())

    code, out, _ = run("locks", "exclusive", "feed:a", "--json", "--database", migrated_url)
    (told,) = json.loads(out)
    assert (code, told["name"], told["fence"], told["task_path"], told["waiting"]) == (0, "feed:a", token, None, 0)
    assert "(a block)" in run("locks", "exclusive", "--database", migrated_url)[1]
