"""Threads of SQLite connections end with them, and never keep a process alive."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


STORIES = {
    "forgets to close": """
    async def main():
        await store.open()
        await store.migrate()
        print("leaving", flush=True)

    asyncio.run(main())
    """,
    "crashes": """
    async def main():
        await store.open()
        print("leaving", flush=True)
        raise SystemExit(0)

    asyncio.run(main())
    """,
    "is cancelled while it opens": """
    async def main():
        opening = asyncio.ensure_future(store.open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        print("leaving", flush=True)

    asyncio.run(main())
    """,
    "is at work": """
    async def main():
        await store.open()
        await store.migrate()
        pending = [asyncio.ensure_future(store.get_tasks([uuid.uuid4()])) for _ in range(100)]
        await asyncio.sleep(0)
        print("leaving", flush=True)

    asyncio.run(main())
    """,
    "leaves its loop as it is": """
    loop = asyncio.new_event_loop()
    loop.run_until_complete(store.open())
    print("leaving", flush=True)
    raise SystemExit(0)
    """,
}


@pytest.mark.parametrize("story", STORIES)
def test_a_process_that_does_not_close_exits_all_the_same(tmp_path: Path, story: str):
    with process(tmp_path, STORIES[story]) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "leaving\n", running.communicate()
        _, complaints = running.communicate(timeout=EXIT_SECONDS)

    assert running.returncode == 0, complaints
    assert "Traceback" not in complaints


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
    with process(tmp_path, story) as running:
        _, complaints = running.communicate(timeout=30)

    assert running.returncode == 0, complaints


@contextmanager
def process(tmp_path: Path, story: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that tells a story with a store."""
    source = "\n".join(
        [
            "import asyncio, os, uuid",
            "from oxpull_async.drivers import open_store",
            "from oxpull_async.exceptions import ConnectionLost",
            "from oxpull_async.settings import make_settings",
            f"store = open_store('sqlite:///{tmp_path}/ox.db', make_settings({{}}))",
            textwrap.dedent(story),
        ]
    )
    # A fork beside threads is warned of, from Python 3.12 on.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()
