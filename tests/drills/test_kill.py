"""Durability when workers are killed under load."""

import os
import signal

import pytest

from plantstore import Plant, open_store
from tests.support.clients import Clients
from tests.support.databases import FILES, Place, children, only
from tests.support.serving import Gunicorn
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# How many workers are killed.
KILLS = 20


def kill_workers(place: Place, app: str) -> tuple[set[Plant], set[Plant]]:
    """Kill workers under load; return the lost plants, and the plants that no client sent."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}
    with Gunicorn("-w", "2", app, **environment) as server, Clients(server.port) as clients:
        for _ in range(KILLS):
            clients.wait_for_creations()
            kill_oldest_worker(server.process.pid)
    store = open_store(place.url)
    stored = set(store)
    store.close()
    return clients.acknowledged - stored, stored - clients.sent


def kill_oldest_worker(master: int) -> None:
    """Kill the worker with the lowest process id, and return when it has ended."""
    worker = min(children(master))
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: worker not in children(master))


def test_killed_workers_lose_no_acknowledged_plant(place: Place) -> None:
    """When workers are killed under load, every acknowledged plant is stored.

    No plant is stored that no client sent.
    """
    assert kill_workers(place, "wsgi:app") == (set(), set())


@only(*FILES)
def test_drill_detects_a_store_that_acknowledges_early(place: Place) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    lost, _ = kill_workers(place, "tests.drills.early_store:app")
    assert lost
