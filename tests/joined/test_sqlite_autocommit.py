"""The sqlite3 module's own autocommit modes, which it has from Python 3.12 on.

Run a second time in the environment with the newer Python, where they exist.
"""

from __future__ import annotations

import sys

import aiosqlite
import pytest

from oxpull_async import Oxpull, TransactionRequired
from oxpull_async.tasks import AnyTask
from tests.integration.competitor import Competitor
from tests.joined.calls import key_of

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="the newer Python's environment runs this")


@pytest.mark.parametrize("way", ["aiosqlite"], indirect=True)
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_sqlite_without_autocommit_is_always_in_a_transaction(
    ox: Oxpull, send: AnyTask, url: str, competitor: Competitor, end: str
):
    async with aiosqlite.connect(url.removeprefix("sqlite:///"), autocommit=False) as connection:
        result = await ox.bind(connection).enqueue_unique(send, 1)
        assert competitor.counts() == (0, 0)
        await getattr(connection, end)()

    assert competitor.locks() == ({key_of(1): result.id} if end == "commit" else {})


@pytest.mark.parametrize("way", ["aiosqlite"], indirect=True)
async def test_sqlite_with_autocommit_needs_a_begin(ox: Oxpull, send: AnyTask, url: str, competitor: Competitor):
    async with aiosqlite.connect(url.removeprefix("sqlite:///"), autocommit=True) as connection:
        with pytest.raises(TransactionRequired):
            await ox.bind(connection).enqueue_unique(send, 1)
        await connection.execute("BEGIN")
        await ox.bind(connection).enqueue_unique(send, 1)
        await connection.execute("ROLLBACK")

    assert competitor.counts() == (0, 0)
