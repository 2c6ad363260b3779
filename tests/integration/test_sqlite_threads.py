"""Threads of SQLite connections end with them, and never keep a process alive."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import aiosqlite
import pytest

from oxpull_async.drivers import open_store
from oxpull_async.exceptions import InvalidSettings, StoreError
from oxpull_async.settings import make_settings
from tests.eventually import eventually
from tests.scale import rounds

EXIT_SECONDS = 5


def test_aiosqlite_still_has_the_one_private_name_that_is_used():
    """Its public face runs single statements alone; see `oxpull_async.drivers.sqlite._hop`."""
    assert inspect.iscoroutinefunction(aiosqlite.Connection._execute)
    assert list(inspect.signature(aiosqlite.Connection._execute).parameters) == ["self", "fn", "args", "kwargs"]
    assert isinstance(aiosqlite.Connection._conn, property)


async def test_the_thread_of_a_connection_is_a_daemon(tmp_path: Path):
    before = set(threading.enumerate())
    store = open_store(f"sqlite:///{tmp_path}/ox.db", make_settings({}))
    await store.open()

    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    assert all(thread.daemon for thread in threads)
    await store.close()


async def test_close_ends_the_threads(tmp_path: Path):
    before = threading.active_count()
    store = open_store(f"sqlite:///{tmp_path}/ox.db", make_settings({}))
    await store.open()
    await store.close()

    assert threading.active_count() == before


async def test_an_open_that_fails_leaves_no_thread(tmp_path: Path):
    before = threading.active_count()
    (tmp_path / "letter.txt").write_text("Dear database,\n" * 100)
    for path in (tmp_path / "nowhere" / "ox.db", tmp_path):
        with pytest.raises((InvalidSettings, StoreError)):
            await open_store(f"sqlite:///{path}", make_settings({})).open()

    assert threading.active_count() == before


async def test_an_open_that_is_cancelled_anywhere_leaves_no_thread(tmp_path: Path):
    before = threading.active_count()
    for spins in range(rounds(small=60, full=600)):
        store = open_store(f"sqlite:///{tmp_path}/ox.db", make_settings({}))
        opening = asyncio.ensure_future(store.open())
        for _ in range(spins * 3):
            await asyncio.sleep(0)
        opening.cancel()
        cancelled = (await asyncio.gather(opening, return_exceptions=True))[0] is not None
        if not cancelled:
            await store.close()
        assert threading.active_count() == before


async def test_a_close_that_is_cancelled_closes(tmp_path: Path):
    before = threading.active_count()
    for spins in range(20):
        store = open_store(f"sqlite:///{tmp_path}/ox.db", make_settings({}))
        await store.open()
        closing = asyncio.ensure_future(store.close())
        for _ in range(spins):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await store.close()
        await eventually(lambda: threading.active_count() == before)


FORGETS = """
    async def main():
        await store.open()
        await store.migrate()
"""
CRASHES = """
    async def main():
        await store.open()
        raise SystemExit(0)
"""
CANCELLED = """
    async def main():
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
"""
AT_WORK = """
    async def main():
        await store.open()
        await store.migrate()
        pending = [asyncio.ensure_future(store.get_tasks([uuid.uuid4()])) for _ in range(100)]
        await asyncio.sleep(0)
"""
LOOP_BY_HAND = """
    async def main():
        await store.open()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    raise SystemExit(0)
"""


@pytest.mark.parametrize("story", [FORGETS, CRASHES, CANCELLED, AT_WORK, LOOP_BY_HAND])
def test_a_process_that_does_not_close_exits_all_the_same(tmp_path: Path, story: str):
    done = in_a_process(tmp_path, story, *(["asyncio.run(main())"] if story is not LOOP_BY_HAND else []))

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_a_forked_child_is_told_instead_of_waiting_for_ever(tmp_path: Path):
    story = """
    async def in_child():
        try:
            await store.get_task(uuid.uuid4())
        except ConnectionLost:
            await store.close()
            os._exit(7)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(store.open())
    loop.run_until_complete(store.migrate())
    child = os.fork()
    if child == 0:
        asyncio.run(in_child())
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert loop.run_until_complete(store.get_task(uuid.uuid4())) is None
    loop.run_until_complete(store.close())
    """
    done = in_a_process(tmp_path, story)

    assert done.returncode == 0, done.stderr


def in_a_process(tmp_path: Path, story: str, *last: str) -> subprocess.CompletedProcess[str]:
    source = "\n".join(
        [
            "import asyncio, os, uuid, warnings",
            "from oxpull_async.drivers import open_store",
            "from oxpull_async.exceptions import ConnectionLost",
            "from oxpull_async.settings import make_settings",
            "warnings.simplefilter('ignore')  # of a fork with threads",
            f"store = open_store('sqlite:///{tmp_path}/ox.db', make_settings({{}}))",
            textwrap.dedent(story),
            *last,
        ]
    )
    command = [sys.executable, "-c", source]
    # Once for the imports alone, so that the seconds below are spent on what is told.
    subprocess.run([sys.executable, "-c", "import oxpull_async"], check=True, timeout=60)
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=EXIT_SECONDS)
