"""The main process of the service ends under load: it is killed, or asked to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plantstore import open_store
from tests.support.clients import Clients, Record
from tests.support.databases import FILES, Place, children, only, postgresql
from tests.support.serving import ROOT, Server, free_port
from tests.support.sql import environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill


@contextmanager
def service(place: Place, port: int, app: str = "wsgi:app") -> Iterator[Server]:
    """Run the service with two workers on a port."""
    options = ("--bind", f"127.0.0.1:{port}", "-w", "2", app)
    with Server("gunicorn", *options, cwd=ROOT, **environment(place)) as server:
        yield server


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    with suppress(FileNotFoundError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False


def kill_and_start(place: Place, times: int, app: str = "wsgi:app") -> Clients:
    """Kill the main process under load, and start the service again, several times."""
    port = free_port()
    with Clients(port) as clients:
        for _ in range(times):
            with service(place, port, app) as server:
                clients.wait_for_creations()
                workers = children(server.process.pid)
                server.signal(signal.SIGKILL)
                server.process.wait()
                wait_until(lambda workers=workers: not any(map(is_running, workers)))  # type: ignore[misc]
        with service(place, port, app):
            clients.wait_for_creations()
    return clients


@only(*FILES, postgresql)
def test_kill_the_main_process(place: Place, long: bool, record: Record) -> None:
    """When the main process is killed under load, no acknowledged plant is lost.

    The workers end too, so that the service can be started again.
    """
    clients = kill_and_start(place, 20 if long else 2)
    with open_store(place.url) as store:
        record(set(store), clients)


@only(FILES[0])
def test_drill_detects_a_store_that_acknowledges_early(place: Place) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    clients = kill_and_start(place, 2, "tests.drills.early_store:app")
    with open_store(place.url) as store:
        assert clients.acknowledged - set(store)


@only(*FILES, postgresql)
def test_stop_the_service(place: Place, long: bool, record: Record) -> None:
    """When the service is stopped under load, each request that it has accepted is answered.

    A client gets a response, or its connection is refused or reset. It is reset only if it arrives
    in the moment in which the last worker ends. Each plant that is stored was acknowledged.
    """
    port, times = free_port(), 20 if long else 2
    with Clients(port, kept=False) as clients:
        for _ in range(times):
            with service(place, port) as server:
                clients.wait_for_creations()
                server.signal(signal.SIGTERM)
                assert server.process.wait() == 0
        with service(place, port):
            clients.wait_for_creations()
    assert clients.refused == 0
    assert clients.unanswered <= 1 + times // 10
    with open_store(place.url) as store:
        record(set(store), clients)
        assert clients.acknowledged == set(store)
