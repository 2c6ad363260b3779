"""Django in the process of the tests, and beside it, on the test's database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import django
import pymysql
import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections
from django_project.databases import lead_django_to
from peers import Peer, started_peer

from tests.integration.shared_database import migrated_url, shared_databases

__all__ = ["migrated_url", "shared_databases"]

NOWHERE = "sqlite:///unused.db"

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_project.site_settings")
os.environ.setdefault("INTEROP_DATABASE_URL", NOWHERE)
pymysql.install_as_MySQLdb()  # Django's backend imports MySQLdb, a C extension that needs a compiler
django.setup()


@pytest.fixture
async def django_here(migrated_url: str) -> AsyncIterator[str]:
    """Django in this process works on the test's database, with a thread of its own as a request has it."""
    lead_django_to(migrated_url)
    async with ThreadSensitiveContext():
        yield migrated_url
        await sync_to_async(connections.close_all)()
    lead_django_to(NOWHERE)


@pytest.fixture(scope="session")
def all_peers() -> Iterator[list[Peer]]:
    with started_peer() as one, started_peer() as two:
        yield [one, two]


@pytest.fixture
def peers(all_peers: list[Peer], migrated_url: str) -> Iterator[list[Peer]]:
    """Django in other processes works on the test's database."""
    for peer in all_peers:
        peer.order("lead_to", migrated_url)
    yield all_peers
    for peer in all_peers:
        peer.order("lead_to", NOWHERE)


@pytest.fixture
def peer(peers: list[Peer]) -> Peer:
    return peers[0]
