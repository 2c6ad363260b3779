"""The fixtures, in a project of somebody else's, under both plugins that run async tests."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SHOP = """
    from oxpull_async import Oxpull

    ox = Oxpull("postgresql://nobody@nowhere.invalid/none")
    sent = []

    @ox.task(unique=True)
    async def send(order_id: int) -> str:
        sent.append(order_id)
        return f"sent {order_id}"
"""

CONFTEST = """
    import pytest
    import shop

    @pytest.fixture
    def oxpull_app():
        return shop.ox
"""

BACKEND = """
    import pytest

    @pytest.fixture
    def anyio_backend():
        return "asyncio"
"""

TESTS = """
    import shop
    from oxpull_async import Oxpull
    from oxpull_async.testing import assert_enqueued

    async def test_the_application_s_own_oxpull_is_open(oxpull):
        assert oxpull is shop.ox
        result = await shop.send.enqueue(1)
        await assert_enqueued(shop.send, args=[1])
        assert await oxpull.run_until_idle() == 1
        assert await result.wait(timeout=5) == "sent 1"

    async def test_every_test_has_a_database_of_its_own(oxpull):
        assert (await shop.send.enqueue(1)).created
        await assert_enqueued(shop.send)

    async def test_tasks_run_inline(oxpull_inline):
        assert (await shop.send.enqueue(2)).return_value == "sent 2"
"""

SYNC_TESTS = """
    import asyncio
    import shop

    def test_a_sync_test_has_its_tasks_run_inline(oxpull_inline):
        assert asyncio.run(shop.send.enqueue(3)).return_value == "sent 3"
"""

IN_MEMORY = """
    async def test_without_an_application_there_is_one_in_memory(oxpull):
        @oxpull.task
        async def double(n):
            return 2 * n

        result = await double.enqueue(21)
        await oxpull.run_until_idle()
        assert await result.wait(timeout=5) == 42
"""

SCOPE = ["-o", "asyncio_default_fixture_loop_scope=function"]
ANYIO = ["-p", "anyio.pytest_plugin", "-o", "anyio_mode=auto"]
ASYNCIO = [
    "-p",
    "pytest_asyncio.plugin",
    "-o",
    "asyncio_mode=auto",
    "-o",
    "asyncio_default_fixture_loop_scope=function",
]
STRICT = [
    "-p",
    "anyio.pytest_plugin",
    "-p",
    "pytest_asyncio.plugin",
    "-o",
    "asyncio_default_fixture_loop_scope=function",
]

MARK = """
    import pytest

    pytestmark = pytest.mark.{}
"""

every_plugin = pytest.mark.parametrize(
    ("plugins", "mark"),
    [
        pytest.param(ANYIO, "", id="anyio"),
        pytest.param(ASYNCIO, "", id="pytest-asyncio"),
        pytest.param(STRICT, MARK.format("asyncio"), id="both, tests of pytest-asyncio"),
        pytest.param(STRICT, MARK.format("anyio"), id="both, tests of anyio"),
    ],
)


@every_plugin
def test_an_application_s_tests_use_its_own_oxpull(plugins: list[str], mark: str, tmp_path: Path):
    write(tmp_path, "shop", SHOP)
    write(tmp_path, "conftest", CONFTEST, BACKEND)
    write(tmp_path, "test_shop", mark, TESTS)
    write(tmp_path, "test_sync", SYNC_TESTS)

    assert "4 passed" in pytest_says(tmp_path, plugins)


@every_plugin
def test_without_an_application_there_is_one_in_memory(plugins: list[str], mark: str, tmp_path: Path):
    write(tmp_path, "conftest", BACKEND)
    write(tmp_path, "test_memory", mark, IN_MEMORY)

    assert "1 passed" in pytest_says(tmp_path, plugins)


WITHOUT_ASYNCIO = """
    import sys

    sys.modules["pytest_asyncio"] = None
"""

A_SYNC_TEST = """
    def test_nothing(oxpull):
        pass
"""


def test_a_test_that_is_not_async_is_told_what_the_fixture_is_for(tmp_path: Path):
    write(tmp_path, "conftest", WITHOUT_ASYNCIO)
    write(tmp_path, "test_sync", A_SYNC_TEST)

    said = pytest_says(tmp_path, ANYIO, passes=False)

    assert "the fixture oxpull is for async tests" in said
    assert "not found" not in said


def write(folder: Path, module: str, *texts: str) -> None:
    (folder / f"{module}.py").write_text("\n".join(map(textwrap.dedent, texts)))


def pytest_says(folder: Path, plugins: list[str], *, passes: bool = True) -> str:
    command = [sys.executable, "-m", "pytest", "-W", "error", "-q", "-p", "no:cacheprovider", *plugins]
    done = subprocess.run(
        [*command, "-p", "oxpull_async.testing.plugin", "--rootdir", str(folder), str(folder)],
        cwd=folder, env=_environment(), capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is passes, done.stdout + done.stderr
    return done.stdout


def _environment() -> dict[str, str]:
    """With no plugin but those that are named."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OXPULL_", "PYTEST_"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
