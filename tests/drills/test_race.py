"""Concurrent clients of several services that create the same ids."""

import pytest

from plantstore import open_store
from tests.support.databases import Place, mariadb, postgresql, sqlite, sqlite_wal
from tests.support.race import race
from tests.support.serving import Granian, Gunicorn, together
from tests.support.sql import environment

pytestmark = pytest.mark.drill

SERVICES = [
    (sqlite, [["-w", "4"]]),
    (sqlite_wal, [["-w", "4", "--preload"]]),
    (postgresql, [["-w", "2", "--preload"]] * 2),
    (mariadb, [["-w", "2"]] * 2),
]


@pytest.mark.parametrize(("place", "services"), SERVICES, indirect=["place"])
def test_concurrent_duplicates_are_acknowledged_once(
    place: Place, services: list[list[str]], long: bool
) -> None:
    """When clients of several processes create the same ids, each id is acknowledged once."""
    ids = 300 if long else 60
    with together(Gunicorn(*options, **environment(place)) for options in services) as servers:
        created = race(servers, clients=16, ids=ids)
        assert not any("Traceback" in server.log for server in servers)
    with open_store(place.url) as store:
        assert created == [(plant.id, plant.name) for plant in store]
    assert len(created) == ids


def test_concurrent_duplicates_in_memory(long: bool) -> None:
    """With the memory store, each id is acknowledged once to 32 clients, also in many threads."""
    ids = 1000 if long else 100
    with Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as server:
        created = race([server], clients=32, ids=ids)
    assert [id for id, _ in created] == [*range(ids)]
