"""Servers that do not respond: connections that open late, restarts, and forks meanwhile."""

import gc
import socket
import subprocess
import sys
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from sqlalchemy import make_url

from plantstore import Plant, SQLStore, StoreUnavailable
from tests.support.databases import SERVERS, Place, only
from tests.support.proxy import Proxy
from tests.support.serving import LIMIT, ROOT
from tests.support.sites import ROSE_PLANT
from tests.support.sql import add_all, open_sql, own_connections, statements_of, store_threads
from tests.support.waiting import wait_until

# A deadline that passes soon, in seconds.
SOON = 0.3


@pytest.fixture
def store(gate: Proxy) -> Iterator[SQLStore]:
    """Return a store that has been used and has no connection."""
    store = open_sql(gate.url)
    store.add_all([])
    store.close()
    wait_until(lambda: not gate.clients)
    yield store
    gate.forwards.set()
    store.close()
    wait_until(lambda: not gate.clients)


@only(*SERVERS)
def test_late_connections_are_used(
    store: SQLStore, gate: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that open after the deadline are used by later operations.

    While the server is silent, at most 16 connections and threads wait for it.
    """
    gate.forwards.clear()
    monkeypatch.setattr(store._executor, "timeout", SOON)  # noqa: SLF001
    before, others = gate.accepted, {*store_threads()}
    for attempt in range(3):
        assert not any(add_all(store, 100 * attempt))
    assert 1 <= len({*store_threads()} - others) <= 16
    monkeypatch.undo()
    gate.forwards.set()
    wait_until(lambda: store.get(-1) is None)
    assert 1 <= gate.accepted - before <= 16
    assert all(add_all(store, 2000))
    assert gate.accepted - before <= 16


@only(*SERVERS)
def test_close_closes_connections_that_are_opening(store: SQLStore, gate: Proxy) -> None:
    """close() closes connections that are still opening, as soon as they are open."""
    gate.forwards.clear()
    own_connections(store).timeout = SOON
    assert not any(add_all(store, 100))
    assert gate.clients
    store.close()
    gate.forwards.set()
    wait_until(lambda: not gate.clients)
    own_connections(store).timeout = LIMIT
    store.add(ROSE_PLANT)


@only(*SERVERS)
def test_restart_of_the_server(place: Place, store: SQLStore) -> None:
    """A restart of the server costs no operation: closed connections are replaced."""
    assert all(add_all(store, 100))
    with place.server.stopped(), pytest.raises(StoreUnavailable):
        store.add(ROSE_PLANT)
    for id in range(20):
        store.add(Plant(id, "Rose"))


@only(*SERVERS)
def test_timeout_does_not_repeat_the_check_of_the_table(
    store: SQLStore, gate: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an operation without a response, the next one does not check the table again.

    Otherwise, each timeout of one client of a slow server would delay all others.
    """
    store.ping()
    gate.forwards.clear()
    with monkeypatch.context() as patched:
        patched.setattr(store._executor, "timeout", SOON)  # noqa: SLF001
        with pytest.raises(StoreUnavailable):
            store.get(1)
    gate.forwards.set()
    with statements_of(store) as statements:
        store.get(1)
    assert {*statements} == {"SELECT"}


@only(*SERVERS)
def test_failed_connections_are_closed(gate: Proxy) -> None:
    """A connection whose opening failed is closed at once, not by the garbage collector."""
    gate.forwards.clear()
    short = make_url(gate.url).update_query_dict({"connect_timeout": "2"})
    with open_sql(short.render_as_string(hide_password=False)) as store:
        gc.disable()
        try:
            with pytest.raises(StoreUnavailable):
                store.add(ROSE_PLANT)
            wait_until(lambda: not gate.clients)
        finally:
            gc.enable()
        gate.forwards.set()
        store.add(ROSE_PLANT)


@only(*SERVERS)
def test_name_resolution_that_hangs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the name of the server cannot be resolved, operations fail in time; then they work."""
    resolve, resolved, asked = socket.getaddrinfo, Event(), Event()

    def hang(*arguments: Any, **options: Any) -> Any:
        asked.set()
        resolved.wait(LIMIT)
        return resolve(*arguments, **options)

    with open_sql(place.url.replace("127.0.0.1", "localhost")) as store:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", hang)
            patched.setattr(store._executor, "timeout", SOON)  # noqa: SLF001
            assert not any(add_all(store, 100))
            assert asked.wait(LIMIT)
            resolved.set()
        store.add(ROSE_PLANT)
        assert ROSE_PLANT in store


FORK = """
import os, sys
from plantstore import Plant, StoreUnavailable
from tests.support.databases import Place
from tests.support.proxy import proxy
from tests.support.sql import add_all, open_sql
from tests.support.waiting import wait_for_ended_threads
url, moment = sys.argv[1:]
with proxy(Place(url)) as gate:
    store = open_sql(gate.url)
    if moment != "first use":
        store.add_all([])
        store.close()
    gate.forwards.clear()
    store._executor.timeout = 0.3
    assert not any(add_all(store, 100))
    store._executor.timeout = 30
    if moment == "open":
        gate.forwards.set()
        store.get(0)
    child = os.fork()
    gate.forwards.set()
    for id in range(50):
        store.add(Plant(1000 + id + 1000 * (child == 0), ""))
    store.close()
    if child:
        assert os.waitpid(child, 0)[1] == 0
    os._exit(0)
"""


@only(*SERVERS)
@pytest.mark.parametrize("moment", ["open", "opening", "first use"])
def test_fork_with_late_connections(place: Place, moment: str) -> None:
    """After a fork, parent and child can use a store that had connections open after a deadline."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, place.url, moment]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    with open_sql(place.url) as store:
        assert {*range(1000, 1050), *range(2000, 2050)} <= {plant.id for plant in store}
