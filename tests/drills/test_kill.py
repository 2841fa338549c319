"""Processes end under load: those of the service, and those of a database server."""

import signal

import pytest

from plantstore import Plant, open_store
from tests.support.clients import LATEST, Clients, Record
from tests.support.databases import FILES, Place, children, kill_oldest_worker, only, postgresql
from tests.support.serving import ROOT, Server, free_port
from tests.support.sql import environment
from tests.support.waiting import has_ended, wait_for_more, wait_until

pytestmark = pytest.mark.drill


def service(place: Place, port: int) -> Server:
    """Return the service with two workers on a port."""
    options = ("--bind", f"127.0.0.1:{port}", "-w", "2")
    return Server("gunicorn", *options, cwd=ROOT, **environment(place))


def stored(place: Place) -> set[Plant]:
    """Return the plants that are stored."""
    with open_store(place.url) as store:
        return set(store)


def test_kill_workers(place: Place, long: bool, record: Record) -> None:
    """When workers are killed under load, every acknowledged plant is stored, and no unsent one."""
    with service(place, free_port()) as server, Clients(server.port) as clients:
        for _ in range(20 if long else 5):
            clients.wait_for_creations()
            kill_oldest_worker(server.process.pid)
    record(stored(place), clients)


def end_services(place: Place, times: int, number: signal.Signals) -> Clients:
    """End the service under load, and start it again when the workers have ended, too."""
    port = free_port()
    with Clients(port, kept=number is signal.SIGKILL) as clients:
        for _ in range(times):
            with service(place, port) as server:
                clients.wait_for_creations()
                workers = children(server.process.pid)
                server.signal(number)
                assert server.process.wait() == (0 if number is signal.SIGTERM else -number)
                wait_until(lambda workers=workers: all(map(has_ended, workers)))  # type: ignore[misc]
        with service(place, port):
            clients.wait_for_creations()
    return clients


@only(*FILES, postgresql)
def test_kill_the_main_process(place: Place, long: bool, record: Record) -> None:
    """When the main process is killed under load, no acknowledged plant is lost.

    The workers end too, so that the service can be started again.
    """
    clients = end_services(place, 20 if long else 1, signal.SIGKILL)
    record(stored(place), clients)


@only(*FILES, postgresql)
def test_stop_the_service(place: Place, long: bool, record: Record) -> None:
    """When the service is stopped under load, each request that it has accepted is answered.

    A client gets a response, or its connection is refused or reset. It is reset only if it arrives
    in the moment in which the last worker ends. Each plant that is stored was acknowledged.
    """
    times = 20 if long else 1
    clients = end_services(place, times, signal.SIGTERM)
    assert clients.refused == 0
    assert clients.unanswered <= 1 + times // 10
    record(stored(place), clients)
    assert clients.acknowledged == stored(place)


@only(postgresql)
def test_kill_postgresql(place: Place, long: bool, record: Record) -> None:
    """When PostgreSQL is killed under load, creates fail in time until it runs; none is lost.

    A create then succeeds soon, without a restart of the service.
    """
    with service(place, free_port()) as server:
        with Clients(server.port) as clients:
            for _ in range(10 if long else 2):
                clients.wait_for_creations()
                place.server.kill()
                wait_for_more(lambda: clients.refused)
                place.server.start()
                wait_for_more(lambda: len(clients.acknowledged), seconds=LATEST)
        assert "50001" not in server.log
    record(stored(place), clients)
    assert clients.slowest() < LATEST
