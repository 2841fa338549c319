"""A PostgreSQL server that is killed or frozen under load."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plantstore import open_store
from tests.support.clients import LATEST, Clients, Record
from tests.support.databases import Place, only, postgresql
from tests.support.serving import Gunicorn
from tests.support.sql import environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# The seconds for which the server is frozen, usually and in the long form. A request has five.
FROZEN, LONG = 8, 20


@contextmanager
def loaded(place: Place) -> Iterator[Clients]:
    """Run a service of two workers under load."""
    with Gunicorn("-w", "2", **environment(place)) as server:
        with Clients(server.port) as clients:
            clients.wait_for_creations()
            yield clients
        assert "50001" not in server.log


def check_recovery(clients: Clients) -> None:
    """Check that a create succeeds soon, without a restart of the service."""
    created = len(clients.acknowledged)
    wait_until(lambda: len(clients.acknowledged) > created, LATEST)


@only(postgresql)
def test_kill_postgresql(place: Place, long: bool, record: Record) -> None:
    """When PostgreSQL is killed under load, creates fail in time until it runs; none is lost."""
    with loaded(place) as clients:
        for _ in range(10 if long else 3):
            place.server.kill()
            refused = clients.refused
            wait_until(lambda refused=refused: clients.refused > refused)  # type: ignore[misc]
            place.server.start()
            check_recovery(clients)
            clients.wait_for_creations()
    with open_store(place.url) as store:
        record(set(store), clients)
    assert clients.slowest() < LATEST


@only(postgresql)
def test_freeze_postgresql(place: Place, long: bool, record: Record) -> None:
    """While PostgreSQL is frozen for a while, each create is 503 in time, and none is lost."""
    with loaded(place) as clients:
        with place.server.frozen():
            time.sleep(LONG if long else FROZEN)
        check_recovery(clients)
        clients.wait_for_creations()
    with open_store(place.url) as store:
        record(set(store), clients)
    assert clients.slowest() < LATEST
