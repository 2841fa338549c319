"""Durability when workers are killed under load."""

import pytest

from plantstore import Plant, open_store
from tests.support.clients import Clients, Record
from tests.support.databases import FILES, Place, kill_oldest_worker, only
from tests.support.serving import Gunicorn

pytestmark = pytest.mark.drill


def kill_workers(place: Place, app: str, times: int) -> tuple[set[Plant], Clients]:
    """Kill workers under load; return the plants that are stored, and the clients."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}
    with Gunicorn("-w", "2", app, **environment) as server, Clients(server.port) as clients:
        for _ in range(times):
            clients.wait_for_creations()
            kill_oldest_worker(server.process.pid)
    store = open_store(place.url)
    stored = set(store)
    store.close()
    return stored, clients


def test_kill_workers(place: Place, long: bool, record: Record) -> None:
    """When workers are killed under load, every acknowledged plant is stored.

    No plant is stored that no client sent.
    """
    record(*kill_workers(place, "wsgi:app", 20 if long else 10))


@only(*FILES)
def test_drill_detects_a_store_that_acknowledges_early(place: Place) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    stored, clients = kill_workers(place, "tests.drills.early_store:app", 10)
    assert clients.acknowledged - stored
