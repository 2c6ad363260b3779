"""``override``: an application's own ``Oxpull`` on a database of the test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from oxpull_async import InvalidSettings, Oxpull
from oxpull_async.testing import override


@pytest.fixture
def app_s_own() -> Oxpull:
    return Oxpull("postgresql://nobody@nowhere.invalid/none", max_attempts=7)


async def test_it_opens_elsewhere_with_its_tables_and_tasks(app_s_own: Oxpull):
    @app_s_own.task
    async def send() -> str:
        return "sent"

    for _ in range(2):
        with override(app_s_own):
            async with app_s_own.lifespan():
                result = await send.enqueue()
                assert result.max_attempts == 7
                assert await app_s_own.run_until_idle() == 1
                assert await result.wait(timeout=1) == "sent"


async def test_a_database_of_the_test_s_choice(app_s_own: Oxpull, tmp_path: Path):
    with override(app_s_own, f"sqlite:///{tmp_path}/test.db"):
        async with app_s_own:
            await app_s_own.reference("a.task").enqueue()
    assert (tmp_path / "test.db").exists()


async def test_an_open_one_is_refused(app_s_own: Oxpull):
    with override(app_s_own):
        await app_s_own.open()
        with pytest.raises(InvalidSettings, match="open"), override(app_s_own):
            pass
        await app_s_own.close()


async def test_one_that_is_left_open_is_told(app_s_own: Oxpull):
    with pytest.raises(InvalidSettings, match="open"), override(app_s_own):
        await app_s_own.open()
    await app_s_own.close()


async def test_an_error_inside_is_not_hidden(app_s_own: Oxpull):
    with pytest.raises(LookupError), override(app_s_own):
        await app_s_own.open()
        raise LookupError
    await app_s_own.close()
