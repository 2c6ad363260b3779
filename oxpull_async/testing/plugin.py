"""Fixtures for pytest, under anyio's plugin and under pytest-asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec

import pytest

from oxpull_async.app import Oxpull
from oxpull_async.testing.inlining import InlineQueue, inline
from oxpull_async.testing.overriding import IN_MEMORY, override


@pytest.fixture
def oxpull_app() -> Oxpull:
    """The ``Oxpull`` under test: override this fixture to return your application's own."""
    return Oxpull.in_memory()


@pytest.fixture
def oxpull_database() -> str:
    """Where ``oxpull`` connects to, by default SQLite in memory: override this fixture to test on another engine."""
    return IN_MEMORY


@pytest.fixture
def oxpull(request: pytest.FixtureRequest) -> Oxpull:
    """``oxpull_app``, open on the database ``oxpull_database``, which has its tables and no rows of earlier tests."""
    opened: Oxpull = request.getfixturevalue(_for_plugin(request))
    return opened


@pytest.fixture
def oxpull_inline(oxpull_app: Oxpull) -> Iterator[InlineQueue]:
    """``oxpull_app`` runs each task as it's enqueued, without a database: see ``inline``."""
    with inline(oxpull_app) as queue:
        yield queue


# Each plugin runs the async fixtures that it recognises, in the event loop of its tests. pytest-asyncio marks the
# function as its own, so there are two.
@pytest.fixture
async def _open_under_anyio(oxpull_app: Oxpull, oxpull_database: str) -> AsyncIterator[Oxpull]:
    async with _opened(oxpull_app, oxpull_database):
        yield oxpull_app


async def _open_under_asyncio(oxpull_app: Oxpull, oxpull_database: str) -> AsyncIterator[Oxpull]:
    async with _opened(oxpull_app, oxpull_database):
        yield oxpull_app


if find_spec("pytest_asyncio") is not None:
    _open_under_asyncio = import_module("pytest_asyncio").fixture(_open_under_asyncio)


@asynccontextmanager
async def _opened(ox: Oxpull, database: str) -> AsyncIterator[None]:
    with override(ox, database):
        async with ox:
            yield


def _for_plugin(request: pytest.FixtureRequest) -> str:
    if "anyio_backend" in request.fixturenames:
        return "_open_under_anyio"
    if find_spec("pytest_asyncio") is None:
        pytest.fail(
            "the fixture oxpull is for async tests: write `async def`, and mark the test with pytest.mark.anyio "
            "(or install pytest-asyncio)",
            pytrace=False,
        )
    return "_open_under_asyncio"
