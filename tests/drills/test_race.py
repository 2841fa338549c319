"""Concurrent clients of several services that create the same ids."""

from contextlib import ExitStack

import pytest

from plantstore import open_store
from tests.support.databases import Place
from tests.support.race import race
from tests.support.serving import Gunicorn

pytestmark = pytest.mark.drill


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["", "preload"])
def test_concurrent_duplicates_are_acknowledged_once(
    place: Place, preload: list[str], long: bool
) -> None:
    """When 32 clients create the same ids, each id is acknowledged once.

    SQLite has one service with four workers; a database server has two services.
    """
    ids = 300 if long else 100
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}
    workers = ["4"] if place.url.startswith("sqlite") else ["2", "2"]
    with ExitStack() as running:
        servers = [
            running.enter_context(Gunicorn("-w", n, *preload, **environment)) for n in workers
        ]
        created = race(servers, clients=32, ids=ids)
        assert not any("Traceback" in server.log for server in servers)
    store = open_store(place.url)
    assert created == [(plant.id, plant.name) for plant in store]
    assert len(created) == ids
    store.close()


def test_concurrent_duplicates_in_memory(long: bool) -> None:
    """With the memory store, each id is acknowledged once to 32 concurrent clients."""
    ids = 1000 if long else 300
    with Gunicorn(PLANTSTORE_TOKENS="s3cret") as server:
        created = race([server], clients=32, ids=ids)
    assert [id for id, _ in created] == [*range(ids)]
